"""
Imbalanced classes
==================

One row in thirty is positive. Accuracy says nothing here (always "no" is 97 % right); the Brier
score and log-loss do, and so does ranking. We check what compression does to each.
"""

import numpy as np
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import average_precision_score, log_loss, roc_auc_score
from sklearn.model_selection import train_test_split

import sparsebag as sb

X, y = make_classification(
    8000, 20, n_informative=8, weights=[0.97], flip_y=0.01, class_sep=1.2, random_state=0
)
X, X_test, y, y_test = train_test_split(X, y, stratify=y, test_size=0.5, random_state=0)
forest = RandomForestClassifier(150, min_samples_leaf=2, random_state=0).fit(X, y)
print(f"{y.mean():.1%} of the rows are positive")

# %%
# Nothing special has to be set. Rows may be weighted with ``sample_weight=`` where a missed
# positive costs more.

small = sb.compress(forest, X, y, max_estimators=25, tolerance=None)
print(small.selection_)

# %%
# Ranking, precision and probabilities, before and after.

for name, model in (("150 trees", forest), (f"{small.n_active_} trees", small)):
    p = model.predict_proba(X_test)[:, 1]
    print(
        f"{name:<12} AUC {roc_auc_score(y_test, p):.3f}   average precision "
        f"{average_precision_score(y_test, p):.3f}   log-loss {log_loss(y_test, p):.4f}"
    )

# %%
# A weight of ten for positives: members that find them gain weight.

weighted = sb.compress(
    forest, X, y, max_estimators=25, tolerance=None, sample_weight=np.where(y == 1, 10.0, 1.0)
)
both = set(small.active_) & set(weighted.active_)
print(f"{len(both)} of {small.n_active_} trees are kept either way")
small.report(X_test, y_test)
