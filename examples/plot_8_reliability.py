"""
Reliability before and after
============================

A forest of deep trees is often underconfident, because a share of trees is not a probability. This
example shows how calibration for the final size corrects that.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split

import sparsebag as sb

X, y = load_digits(return_X_y=True)
X, X_test, y, y_test = train_test_split(X, y, test_size=0.4, random_state=0)
forest = RandomForestClassifier(200, random_state=0).fit(X, y)

# %%
# The same small model, with and without calibration. The calibrator is fitted to held-out votes of
# models of this size: the whole forest's votes would give a different temperature.

plain = sb.compress(forest, X, y, max_nodes=0.1, calibration=None)
small = sb.compress(forest, X, y, max_nodes=0.1)
print(small.calibration_)

# %%
# On the diagonal, "70%" means 70%. Above it the model is underconfident, below it overconfident.

figure, axis = plt.subplots(figsize=(5, 4.5), layout="constrained")
axis.plot([0, 1], [0, 1], "--", color="grey")
for name, model in (
    ("all 200 trees", forest),
    ("10 % of the nodes", plain),
    ("10 %, calibrated", small),
):
    p = model.predict_proba(X_test)
    curve = sb.metrics.reliability_curve(y_test, p, n_bins=10, binning="mass")
    error = sb.metrics.expected_calibration_error(y_test, p)
    axis.plot(curve.confidence, curve.accuracy, "o-", label=f"{name} (ECE {error:.3f})")
axis.set(xlabel="stated confidence", ylabel="share that is right", ylim=(0, 1.02))
axis.legend(loc="lower right")
plt.show()
