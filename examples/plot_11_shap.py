"""
Explaining with SHAP
====================

``shap.TreeExplainer`` reads the kept trees, with their weights folded into the leaves. Its values
add up to the small model's vote before floor and temperature.
"""

import matplotlib.pyplot as plt
import numpy as np
import shap
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier
from sklearn.inspection import PartialDependenceDisplay

import sparsebag as sb

X, y = load_breast_cancer(return_X_y=True, as_frame=True)
forest = RandomForestClassifier(200, random_state=0).fit(X, y)
small = sb.compress(forest, X, y, max_nodes=0.1)

explainer = shap.TreeExplainer(small.to_shap())
values = explainer(X)[:, :, 1]  # of the second class, benign
print(values.values.shape, f"expected vote {explainer.expected_value[1]:.3f}")

# %%
# The features that move the vote most.

mean = np.abs(values.values).mean(axis=0)
order = np.argsort(mean)[-10:]
fig, ax = plt.subplots(figsize=(6, 4))
ax.barh(X.columns[order], mean[order])
ax.set_xlabel("mean |SHAP value|, share of the vote")
fig.tight_layout()

# %%
# scikit-learn's own inspection tools work too.

PartialDependenceDisplay.from_estimator(small, X, list(X.columns[order[-2:]]))
plt.show()
