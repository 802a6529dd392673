"""Lasso-pruned bagging, the paper's baseline, as its published figures have it.

Found by trial against those figures: votes on rows in a member's bag count as zero, which blurs
every column and is why this Lasso hardly prunes; coefficients become weights, normalised. In
classification each member has a column a class and its weight is the sum of its coefficients'
absolute values: negative ones count as positive.
"""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LassoCV, LogisticRegression

from benchmarks.methods.base import Method, Model, voting_model
from benchmarks.problem import Problem

SEED = 42
DROPPED = 1e-5
"""Normalised weights up to this are zero, as in the paper's code."""
SAGA_EPOCHS = 1000
LASSO_EPOCHS = 10_000


def run_lasso_pruned(problem: Problem, k: int | None = None) -> list[Model]:
    """L1 regression of the target on the OOB votes; the coefficients are the weights."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        weights = _logistic(problem) if problem.task == "classification" else _linear(problem)
    if not weights.any():
        raise ValueError("the Lasso dropped every member")
    weights = weights / weights.sum()
    return [voting_model(problem, np.where(weights > DROPPED, weights, 0.0))]


def _linear(problem: Problem) -> np.ndarray:
    lasso = LassoCV(cv=5, positive=True, random_state=SEED, max_iter=LASSO_EPOCHS)
    return lasso.fit(problem.oob.votes[:, :, 0], problem.oob.target).coef_


def _logistic(problem: Problem) -> np.ndarray:
    votes, target = problem.oob.votes, problem.oob.target
    n_rows, n_members, n_classes = votes.shape
    lasso = LogisticRegression(
        **_l1_penalty(), C=1.0, solver="saga", max_iter=SAGA_EPOCHS, random_state=SEED
    )
    lasso.fit(votes.reshape(n_rows, n_members * n_classes), target)
    return np.abs(lasso.coef_.reshape(-1, n_members, n_classes)).sum(axis=(0, 2))


def _l1_penalty() -> dict[str, object]:
    """``penalty="l1"`` up to scikit-learn 1.7, ``l1_ratio=1`` alone since."""
    if LogisticRegression().penalty == "deprecated":
        return {"l1_ratio": 1.0}
    return {"penalty": "l1"}


METHODS = (Method("lasso_pruned", run_lasso_pruned, reads_oob=True),)
