"""
Imbalanced classes
==================

One row in thirty is positive, and the forest is fitted with ``class_weight="balanced"``. Every step
of compression uses the same weights, so that the recall of each class stays close to the forest's.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import (
    PrecisionRecallDisplay,
    average_precision_score,
    precision_score,
    recall_score,
    roc_auc_score,
)
from sklearn.model_selection import train_test_split

import sparsebag as sb

X, y = make_classification(
    8000, 20, n_informative=8, weights=[0.97], flip_y=0.01, class_sep=1.2, random_state=0
)
X, X_test, y, y_test = train_test_split(X, y, stratify=y, test_size=0.5, random_state=0)
forest = RandomForestClassifier(
    150, min_samples_leaf=5, class_weight="balanced", random_state=0
).fit(X, y)
print(f"{y.mean():.1%} of the rows are positive")

# %%
# Nothing has to be set: the weights are read from the forest. If you have row weights, pass them to
# both calls as ``sample_weight=``.

small = sb.compress(forest, X, y)
print(small.selection_)

# %%
# Ranking and decisions on new rows, before and after.

for name, model in (("forest", forest), ("small", small)):
    p, label = model.predict_proba(X_test)[:, 1], model.predict(X_test)
    print(
        f"{name:<8} AUC {roc_auc_score(y_test, p):.3f}   average precision "
        f"{average_precision_score(y_test, p):.3f}   recall {recall_score(y_test, label):.3f}   "
        f"precision {precision_score(y_test, label):.3f}"
    )

# %%
# Precision against recall, with the threshold of one half marked: the trade-off is the same.

figure, axis = plt.subplots(figsize=(6, 4), layout="constrained")
for name, model in (("forest", forest), ("small", small)):
    PrecisionRecallDisplay.from_estimator(model, X_test, y_test, name=name, ax=axis)
    label = model.predict(X_test)
    axis.plot(recall_score(y_test, label), precision_score(y_test, label), "ko")
plt.show()
