"""Small ensembles with their evidence, for the tests of refitted leaves."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, make_friedman1
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.tree import DecisionTreeClassifier

from sparsebag.evidence.collect import collect_evidence
from sparsebag.evidence.from_ensemble import read_ensemble
from sparsebag.evidence.members import FittedMembers
from sparsebag.refine.routed_rows import RoutedRows
from sparsebag.refine.targets import Targets


def clean(n_rows: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """A smooth function, hardly any noise: plain trees are biased."""
    return make_friedman1(n_rows, noise=0.1, random_state=0)


def hand_made_bag(X: np.ndarray, y: np.ndarray, n_members: int) -> FittedMembers:
    """Trees on drawn rows and half of the columns; some never see a rare class."""
    rng = np.random.default_rng(0)
    rows = [rng.integers(0, len(y), len(y)) for _ in range(n_members)]
    half = X.shape[1] // 2
    columns = [np.sort(rng.permutation(X.shape[1])[:half]) for _ in range(n_members)]
    trees = [
        DecisionTreeClassifier(random_state=0).fit(X[np.ix_(r, c)], y[r])
        for r, c in zip(rows, columns, strict=True)
    ]
    assert any(len(tree.classes_) < len(np.unique(y)) for tree in trees)
    return FittedMembers(trees, rows, columns)


@cache
def grown(kind: str, n_members: int = 40) -> tuple[Any, Any, Any, Any, Any]:
    """Pool, rows, targets, evidence and the ensemble of a named problem."""
    if kind == "regression":
        X, y = clean()
        ensemble = RandomForestRegressor(n_members, random_state=0)
    elif kind == "best-first regression":
        X, y = clean()
        ensemble = RandomForestRegressor(n_members, max_leaf_nodes=40, random_state=0)
    elif kind == "noisy regression":
        X, y = load_diabetes(return_X_y=True)
        ensemble = RandomForestRegressor(n_members, random_state=0)
    elif kind == "binary":
        X, y = load_breast_cancer(return_X_y=True)
        ensemble = RandomForestClassifier(n_members, random_state=0)
    elif kind == "multiclass":
        X, y = load_iris(return_X_y=True)
        ensemble = RandomForestClassifier(n_members, random_state=0)
    else:
        assert kind == "columns drawn, classes missing"
        X, y = load_iris(return_X_y=True)
        rare = np.r_[0:103]  # three rows of the last class: bags without it
        X, y = X[rare], y[rare]
        ensemble = hand_made_bag(X, y, n_members)
    if not isinstance(ensemble, FittedMembers):
        ensemble.fit(X, y)
    pool = read_ensemble(ensemble)
    evidence = collect_evidence(pool, X, y, class_votes=True)
    return pool, X, y, evidence, ensemble


KINDS = [
    "regression",
    "best-first regression",
    "noisy regression",
    "binary",
    "multiclass",
    "columns drawn, classes missing",
]


def parts(kind: str, sample_weight: np.ndarray | None = None) -> tuple[RoutedRows, Targets, Any]:
    """Routed rows, targets and evidence of a named problem."""
    pool, X, _, evidence, _ = grown(kind)
    return RoutedRows(pool, pool.prepare(X), sample_weight), Targets.of(evidence), evidence
