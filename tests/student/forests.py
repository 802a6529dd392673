"""Small ensembles of trees of every kind, with their rows."""

from functools import cache
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.tree import DecisionTreeClassifier

from sparsebag.evidence.from_ensemble import read_ensemble
from sparsebag.evidence.members import MemberPool
from sparsebag.student.teacher import Teacher
from toy import CANCER, DIABETES, IRIS, with_missing

N = 20


def with_zeros(X: np.ndarray) -> Any:
    return sp.csr_matrix(np.where(np.median(X, axis=0) < X, X, 0.0))


FORESTS = {
    "two classes": (RandomForestClassifier(N, random_state=0), CANCER),
    "three classes": (RandomForestClassifier(N, random_state=0), IRIS),
    "regression": (RandomForestRegressor(N, random_state=0), DIABETES),
    "missing values": (RandomForestClassifier(N, random_state=0), with_missing(IRIS)),
    "missing, regression": (RandomForestRegressor(N, random_state=0), with_missing(DIABETES)),
    "sparse": (RandomForestClassifier(N, random_state=0), (with_zeros(CANCER[0]), CANCER[1])),
    "extra trees": (ExtraTreesClassifier(N, bootstrap=True, random_state=0), IRIS),
    "extra, regression": (ExtraTreesRegressor(N, bootstrap=True, random_state=0), DIABETES),
    "columns drawn": (BaggingClassifier(n_estimators=N, max_features=0.4, random_state=0), CANCER),
    "columns drawn twice": (
        BaggingRegressor(n_estimators=N, max_features=0.5, bootstrap_features=True, random_state=0),
        DIABETES,
    ),
    "best first": (RandomForestClassifier(N, max_leaf_nodes=12, random_state=0), IRIS),
    "classes missing": (
        BaggingClassifier(DecisionTreeClassifier(), N, max_samples=6, random_state=0),
        IRIS,
    ),
}


@cache
def fitted(name: str) -> tuple[Any, MemberPool, Any, np.ndarray]:
    """Ensemble, pool, rows and targets of a named problem."""
    ensemble, (X, y) = FORESTS[name]
    ensemble = ensemble.fit(X, y)
    return ensemble, read_ensemble(ensemble), X, y


def one_hot(pool: MemberPool, y: np.ndarray) -> np.ndarray:
    if pool.classes is None:
        return np.asarray(y[:, None], dtype=float)
    return np.asarray(y[:, None] == pool.classes, dtype=float)


def teacher_of(name: str, weight: np.ndarray | None = None, **how: Any) -> Teacher:
    _, pool, X, y = fitted(name)
    weight = np.ones(len(y)) if weight is None else weight
    return Teacher(pool, pool.prepare(X), one_hot(pool, y), weight, **how)
