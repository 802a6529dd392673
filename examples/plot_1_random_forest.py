"""
A random forest, made small
===========================

A forest of 300 trees on the digits. We keep the best fifty of them, and look at what every other
size up to there would have cost.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split

import sparsebag as sb

X, y = load_digits(return_X_y=True)
X, X_test, y, y_test = train_test_split(X, y, test_size=0.3, stratify=y, random_state=0)
forest = RandomForestClassifier(300, random_state=0).fit(X, y)

# %%
# One call, on the rows the forest was trained on. It says what it did and what to expect.

small = sb.compress(forest, X, y, max_estimators=50, tolerance=None)
print(small.selection_)

# %%
# Rows nobody has seen check the promise. The last column is the honest baseline: as many trees
# drawn at random.

report = small.report(X_test, y_test)
report

# %%
# The frontier: expected Brier score of every size, from the training rows alone.

path = small.path_
figure, axis = plt.subplots(figsize=(6, 3.5), layout="constrained")
axis.plot(path.k, path.expected_risk, label="chosen trees")
axis.plot(path.k, path.random_risk, "--", color="grey", label="random trees")
kept = path.chosen
axis.plot(path.k[kept], path.expected_risk[kept], "o", markersize=9, label="kept")
axis.set(xscale="log", xlabel="trees", ylabel="expected Brier score")
axis.legend()
plt.show()
