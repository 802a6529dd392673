"""
A bag of neural networks
========================

Twenty small networks, compressed to a few. The kept networks are evaluated together, as stacked
matrix products.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import BaggingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

import sparsebag as sb

warnings.simplefilter("ignore", ConvergenceWarning)  # bags like members that stop early

X, y = load_digits(return_X_y=True)
X, X_test, y, y_test = train_test_split(X / 16.0, y, test_size=0.4, random_state=0)
network = MLPClassifier((24,), max_iter=40, learning_rate_init=0.01)
bag = BaggingClassifier(network, 20, oob_score=True, random_state=0).fit(X, y)

# %%
# Six networks instead of twenty.

small = sb.compress(bag, X, y, max_estimators=6)
print(small.selection_)
print(small.compile())

# %%
# Before, after, and the same number of random members.

report = small.report(X_test, y_test)
report

# %%
# The weights: most are exactly zero.

figure, axis = plt.subplots(figsize=(6, 2.5), layout="constrained")
axis.bar(np.arange(len(small.weights_)), small.weights_)
axis.axhline(1 / len(small.weights_), linestyle="--", color="grey")
axis.set(xlabel="network", ylabel="weight")
plt.show()
