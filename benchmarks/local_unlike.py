"""Bags of unlike models: linear, neighbours, shallow trees and, for classes, naive Bayes.

Bootstrapped copies of one model hardly differ by place; models of different kinds may. Each is
fitted to a bootstrap of the training rows, so out-of-bag evidence is there as for any bag.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from benchmarks.problem import Problem

OF_EACH = 6
"""Bootstraps a kind of model."""
NEIGHBOURS, DEPTH = 15, 6
KINDS: dict[str, tuple[Any, ...]] = {
    "classification": (
        make_pipeline(StandardScaler(), LogisticRegression(max_iter=300)),
        make_pipeline(StandardScaler(), KNeighborsClassifier(NEIGHBOURS)),
        make_pipeline(StandardScaler(), GaussianNB(var_smoothing=1e-3)),
        DecisionTreeClassifier(max_depth=DEPTH, random_state=0),
    ),
    "regression": (
        make_pipeline(StandardScaler(), Ridge()),
        make_pipeline(StandardScaler(), KNeighborsRegressor(NEIGHBOURS)),
        DecisionTreeRegressor(max_depth=DEPTH, random_state=0),
    ),
}


def unlike_models(problem: Problem) -> tuple[list[Any], list[np.ndarray]]:
    """Fitted models, and the rows each was fitted to.

    Parameters
    ----------
    problem : Problem
        Its own ensemble is not used.

    Returns
    -------
    models, samples : list
    """
    rng = np.random.default_rng(problem.seed)
    models, samples = [], []
    for kind in KINDS[problem.task]:
        for _ in range(OF_EACH):
            rows = rng.integers(len(problem.y), size=len(problem.y))
            models.append(clone(kind).fit(problem.X[rows], problem.y[rows]))
            samples.append(rows)
    return models, samples
