"""Small ensembles of every kind of member, under a gate."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_diabetes, load_iris
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.tree import DecisionTreeClassifier

from made_up_gates import linear_gate
from sparsebag.deploy.from_members import compile_members
from sparsebag.deploy.weighted_vote import WeightedVote
from sparsebag.evidence.from_ensemble import read_ensemble
from sparsebag.evidence.members import FittedMembers

IRIS = load_iris(return_X_y=True)
TWO = (IRIS[0][:100] + np.random.default_rng(0).normal(size=(100, 4)), IRIS[1][:100])
DIABETES = load_diabetes(return_X_y=True)


def bag(model, data, **how):
    kind = BaggingRegressor if data is DIABETES else BaggingClassifier
    return kind(model, 6, random_state=0, **how).fit(*data)


def mixed(data):
    trees = [DecisionTreeClassifier(random_state=s).fit(*data) for s in range(2)]
    lines = [LogisticRegression(C=c).fit(*data) for c in (0.1, 1.0)]
    neighbours = [KNeighborsClassifier(n, algorithm="brute").fit(*data) for n in (3, 9)]
    ordered = [trees[0], lines[0], neighbours[0], trees[1], neighbours[1], lines[1]]
    return FittedMembers(ordered)


CASES = {
    "forest": (lambda: RandomForestClassifier(6, random_state=0).fit(*IRIS), IRIS),
    "two classes": (lambda: RandomForestClassifier(6, random_state=0).fit(*TWO), TWO),
    "regression": (lambda: RandomForestRegressor(6, random_state=0).fit(*DIABETES), DIABETES),
    "subset trees": (lambda: bag(DecisionTreeClassifier(), IRIS, max_features=2), IRIS),
    "missed class": (lambda: bag(DecisionTreeClassifier(), IRIS, max_samples=4), IRIS),
    "ridge": (lambda: bag(Ridge(), DIABETES), DIABETES),
    "logistic": (lambda: bag(LogisticRegression(), TWO), TWO),
    "multinomial, missed class": (lambda: bag(LogisticRegression(), IRIS, max_samples=5), IRIS),
    "networks": (lambda: bag(MLPClassifier((7, 5), max_iter=10), IRIS), IRIS),
    "networks, regression": (
        lambda: bag(MLPRegressor(hidden_layer_sizes=(7,), max_iter=10), DIABETES),
        DIABETES,
    ),
    "neighbours": (lambda: bag(KNeighborsClassifier(3, algorithm="brute"), IRIS), IRIS),
    "neighbours, regression": (lambda: bag(KNeighborsRegressor(3), DIABETES), DIABETES),
    "mixed": (lambda: mixed(IRIS), IRIS),
}


def compiled_and_vote(case, calibrator=None, **how):
    make, (X, _) = CASES[case]
    pool = read_ensemble(make())
    k = len(pool.members)
    weights = np.full(k, 1 / k)
    own = linear_gate(k, X.shape[1], 3, **how)
    model = compile_members(pool, weights, 1e-3, calibrator, own)
    return model, WeightedVote(pool, weights, 1e-3, calibrator, own), X
