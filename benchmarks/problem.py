"""One problem: a data set, split with a seed, and an ensemble fitted to it.

Members are the paper's trees and linear models, and the SVMs and networks it names but does not
test. Those two read standardised columns (and targets); SVMs are trained on at most `SVM_ROWS`
rows, networks take `MLP_ITERATIONS` quasi-Newton steps.
"""

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from benchmarks.datasets import Dataset, load

TEST_SHARE = 0.3
MOST_TEST = 8000
"""Of the suite, where a share of the rows trains."""
SVM_ROWS = 1000
"""Kernel SVMs cost the square of the rows, thirty times over."""
MLP_ITERATIONS = 40
FLOOR = 1e-3
"""Share of the uniform class distribution mixed in: the logarithm of 0 has no temperature."""
NO_BASE = "none"
"""The base of a method that bags nothing (XGBoost)."""
N_MEMBERS = {"DecisionTree": 100, "LogisticRegression": 50, "Ridge": 50, "SVM": 30, "MLP": 30}
BASES = {
    "classification": ("DecisionTree", "LogisticRegression", "SVM", "MLP"),
    "regression": ("DecisionTree", "Ridge", "SVM", "MLP"),
}
"""The first two of each are the paper's."""


def member(task: str, base: str) -> Any:
    """An unfitted member."""
    how = {"hidden_layer_sizes": (16,), "solver": "lbfgs", "max_iter": MLP_ITERATIONS}
    if base == "DecisionTree":
        return DecisionTreeClassifier() if task == "classification" else DecisionTreeRegressor()
    if base == "LogisticRegression":
        return LogisticRegression(max_iter=1000)
    if base == "Ridge":
        return Ridge()
    if task == "classification":
        # SVC(probability=True) is deprecated in scikit-learn 1.9; this is what it advises.
        platt = CalibratedClassifierCV(SVC(), ensemble=False, cv=3)
        return make_pipeline(StandardScaler(), platt if base == "SVM" else MLPClassifier(**how))
    model = make_pipeline(StandardScaler(), SVR() if base == "SVM" else MLPRegressor(**how))
    return TransformedTargetRegressor(model, transformer=StandardScaler())


def bag_of(task: str, base: Any, X: np.ndarray, y: np.ndarray, **bagging: Any) -> Any:
    """A fitted bag."""
    bag = (BaggingClassifier if task == "classification" else BaggingRegressor)(base, **bagging)
    with warnings.catch_warnings():
        # lbfgs on raw columns and the few steps of the networks stop early; so be it.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return bag.fit(X, y)


@dataclass(frozen=True)
class Problem:
    """Training rows, test rows and the ensemble fitted on the former (None for base "none")."""

    name: str
    task: str
    base: str
    seed: int
    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    n_classes: int
    ensemble: Any

    def votes(self, estimator: Any, X: np.ndarray) -> np.ndarray:
        """A bag member's class probabilities (rows, C), or its predictions (rows, 1)."""
        if self.task == "regression":
            return estimator.predict(X)[:, None]
        votes = np.zeros((len(X), self.n_classes))  # a bootstrap may miss a class
        votes[:, estimator.classes_.astype(int)] = estimator.predict_proba(X)
        return votes

    @cached_property
    def oob_mask(self) -> np.ndarray:
        """Which rows are out of which member's bag, (M, N)."""
        mask = np.ones((len(self.y), len(self.ensemble.estimators_)), dtype=bool)
        for j, rows in enumerate(self.ensemble.estimators_samples_):
            mask[rows, j] = False
        return mask

    @cached_property
    def oob_votes(self) -> np.ndarray:
        """Every member's votes on the rows out of its bag, zero on the others, (M, N, C)."""
        found = np.zeros((*self.oob_mask.shape, max(self.n_classes, 1)))
        for j, estimator in enumerate(self.ensemble.estimators_):
            rows = np.flatnonzero(self.oob_mask[:, j])
            found[rows, j] = self.votes(estimator, self.X[rows])
        return found


def floored(predicted: np.ndarray) -> np.ndarray:
    if predicted.ndim == 1:
        return predicted
    return (1.0 - FLOOR) * predicted + FLOOR / predicted.shape[1]


def at_temperature(proba: np.ndarray, temperature: float) -> np.ndarray:
    """``p ** (1/T)``, normalised, after the floor."""
    logits = np.log(floored(proba)) / temperature
    scaled = np.exp(logits - logits.max(axis=1, keepdims=True))
    return scaled / scaled.sum(axis=1, keepdims=True)


def make_problem(dataset: Dataset, base: str, seed: int) -> Problem:
    """Load, split (30 % test rows) and fit the ensemble, all with one seed."""
    X, y = dataset.load()
    task = dataset.task
    n_classes = len(np.unique(y)) if task == "classification" else 0
    X, X_test, y, y_test = train_test_split(X, y, test_size=TEST_SHARE, random_state=seed)
    if base == "SVM":
        X, y = X[:SVM_ROWS], y[:SVM_ROWS]  # the split has shuffled them
    ensemble = None
    if base != NO_BASE:
        how = {"n_estimators": N_MEMBERS[base], "random_state": seed}
        ensemble = bag_of(task, member(task, base), X, y, **how)
    return Problem(dataset.name, task, base, seed, X, y, X_test, y_test, n_classes, ensemble)


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
