"""Problems of the suite: a share of the shuffled rows trains an ensemble, others judge it."""

from typing import Any

import numpy as np
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from benchmarks.datasets.suite import load
from benchmarks.problem import Problem

MOST_TEST = 8000


def split_rows(name: str, seed: int, train_share: float, most_train: int) -> Problem:
    """Shuffled training and test rows of a data set, without an ensemble.

    Classes are numbered from 0; test rows of classes that no training row has are left out.
    """
    X, y, task = load(name, 10**9, seed)
    n = min(int(train_share * len(X)), most_train)
    test = slice(n, n + MOST_TEST)
    X, y, X_test, y_test = X[:n], y[:n], X[test], y[test]
    n_classes = 0
    if task == "classification":
        known = np.unique(y)
        keep = np.isin(y_test, known)
        X_test, y_test = X_test[keep], np.searchsorted(known, y_test[keep])
        y, n_classes = np.searchsorted(known, y), len(known)
    return Problem(name, task, "", seed, X, y, X_test, y_test, n_classes, None)


def new_ensemble(task: str, kind: str, n_members: int, seed: int, **tree: Any) -> Any:
    """An unfitted forest, or a bag of decision trees; ``tree`` are parameters of its trees."""
    classify = task == "classification"
    if kind == "forest":
        forest = RandomForestClassifier if classify else RandomForestRegressor
        return forest(n_members, random_state=seed, **tree)
    base = (DecisionTreeClassifier if classify else DecisionTreeRegressor)(**tree)
    return (BaggingClassifier if classify else BaggingRegressor)(base, n_members, random_state=seed)
