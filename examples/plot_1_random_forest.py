"""
Compress a random forest
========================

A forest of 300 trees on data with noisy labels, pruned to a fraction of its nodes, and the expected
loss at every other size.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split

import sparsebag as sb

X, y = make_classification(4000, n_informative=8, flip_y=0.1, random_state=0)
X, X_test, y, y_test = train_test_split(X, y, test_size=0.3, stratify=y, random_state=0)
forest = RandomForestClassifier(300, random_state=0).fit(X, y)

# %%
# One call, with the data the forest was trained on. Printing the selection shows what was done.

small = sb.compress(forest, X, y)
print(small.selection_)

# %%
# Test data confirms the estimate.

report = small.report(X_test, y_test)
report

# %%
# The expected Brier score at every size, relative to the whole forest, from training data alone.

path, chosen = small.path_, small.selection_.position
figure, axis = plt.subplots(figsize=(6, 3.5), layout="constrained")
axis.errorbar(path.n_nodes, path.ratio, 1.96 * path.error, label="rehearsal, 95% interval")
axis.plot(path.n_nodes[chosen], path.ratio[chosen], "o", markersize=9, label="kept")
axis.axhline(1.0, linestyle="--", color="grey", label="whole forest")
axis.set(xscale="log", xlabel="nodes", ylabel="Brier score over the forest's")
axis.legend()
plt.show()
