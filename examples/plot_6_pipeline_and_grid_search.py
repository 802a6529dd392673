"""
Pipelines and grid search
=========================

``SparseBaggingClassifier`` is an ordinary scikit-learn estimator: it fits the ensemble, then
compresses it, inside pipelines, grid searches and cross-validation.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import sparsebag as sb

X, y = load_breast_cancer(return_X_y=True, as_frame=True)
X, X_test, y, y_test = train_test_split(X, y, random_state=0)

pipe = make_pipeline(
    StandardScaler(),
    sb.SparseBaggingClassifier(
        RandomForestClassifier(60, random_state=0), max_nodes=0.1, rehearsal=False
    ),
)

# %%
# The search tunes the forest and scores each candidate after compression. Since the
# search does the judging, no rehearsal is needed.

search = GridSearchCV(
    pipe,
    {
        "sparsebaggingclassifier__max_nodes": [0.05, 0.2],
        "sparsebaggingclassifier__estimator__max_features": [0.2, "sqrt"],
    },
    scoring="neg_log_loss",
    cv=3,
).fit(X, y)
print(search.best_params_, f"log-loss {-search.best_score_:.4f}")

# %%
# Mean score and spread over folds of every candidate.

found = search.cv_results_
names = [", ".join(f"{k.split('__')[-1]}={v}" for k, v in p.items()) for p in found["params"]]
figure, axis = plt.subplots(figsize=(6, 3), layout="constrained")
axis.barh(names, -found["mean_test_score"], xerr=found["std_test_score"])
axis.set(xlabel="log-loss, cross-validated")
plt.show()

# %%
# scikit-learn's diagram:

search.best_estimator_

# %%
# For a fitted forest, use ``sb.compress``, or wrap it in ``FrozenEstimator``.

print(search.score(X_test, y_test))
