"""The members that are bagged: the paper's two families, and the two it names but does not test.

SVMs and neural networks read standardised columns (and, in regression, standardised targets);
trees and linear models read the raw columns, as the paper's code does. Costs are kept small: SVMs
are trained on at most `SVM_ROWS` rows, networks take `MLP_ITERATIONS` quasi-Newton steps.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import BaggingClassifier, BaggingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

NO_BASE = "none"
"""The base of a method that bags nothing (XGBoost)."""
TREES, LINEAR_MODELS, OTHERS = 100, 50, 30
SVM_ROWS = 1000
"""Kernel SVMs cost the square of the rows, thirty times over."""
PLATT_FOLDS = 3
MLP_HIDDEN = (16,)
MLP_ITERATIONS = 40


@dataclass(frozen=True)
class BaseModel:
    """A member to bag, how many of it, and on how many training rows at most."""

    task: str
    name: str
    make: Callable[[], Any]
    n_members: int
    most_rows: int | None = None

    def fit_ensemble(self, X: np.ndarray, y: np.ndarray, seed: int) -> Any:
        """A fitted bag of this model."""
        kind = BaggingClassifier if self.task == "classification" else BaggingRegressor
        bag = kind(self.make(), n_estimators=self.n_members, random_state=seed)
        with warnings.catch_warnings():
            # lbfgs on raw columns and the few steps of the networks stop early; so be it.
            warnings.simplefilter("ignore", ConvergenceWarning)
            return bag.fit(X, y)


def _svm_classifier() -> Any:
    # SVC(probability=True) is deprecated in scikit-learn 1.9; this is Platt scaling as it advises.
    platt = CalibratedClassifierCV(SVC(), ensemble=False, cv=PLATT_FOLDS)
    return make_pipeline(StandardScaler(), platt)


def _svm_regressor() -> Any:
    return _with_scaled_target(make_pipeline(StandardScaler(), SVR()))


def _mlp_classifier() -> Any:
    network = MLPClassifier(hidden_layer_sizes=MLP_HIDDEN, solver="lbfgs", max_iter=MLP_ITERATIONS)
    return make_pipeline(StandardScaler(), network)


def _mlp_regressor() -> Any:
    network = MLPRegressor(hidden_layer_sizes=MLP_HIDDEN, solver="lbfgs", max_iter=MLP_ITERATIONS)
    return _with_scaled_target(make_pipeline(StandardScaler(), network))


def _with_scaled_target(regressor: Any) -> Any:
    return TransformedTargetRegressor(regressor, transformer=StandardScaler())


def _logistic_regression() -> Any:
    return LogisticRegression(max_iter=1000)


BASE_MODELS: tuple[BaseModel, ...] = (
    BaseModel("classification", "DecisionTree", DecisionTreeClassifier, TREES),
    BaseModel("classification", "LogisticRegression", _logistic_regression, LINEAR_MODELS),
    BaseModel("classification", "SVM", _svm_classifier, OTHERS, SVM_ROWS),
    BaseModel("classification", "MLP", _mlp_classifier, OTHERS),
    BaseModel("regression", "DecisionTree", DecisionTreeRegressor, TREES),
    BaseModel("regression", "Ridge", Ridge, LINEAR_MODELS),
    BaseModel("regression", "SVM", _svm_regressor, OTHERS, SVM_ROWS),
    BaseModel("regression", "MLP", _mlp_regressor, OTHERS),
)
BASE_NAMES = ("DecisionTree", "LogisticRegression", "Ridge", "SVM", "MLP", NO_BASE)


def base_model(task: str, name: str) -> BaseModel | None:
    """The base model of that name for the task; None where the task has none."""
    return next((b for b in BASE_MODELS if (b.task, b.name) == (task, name)), None)
