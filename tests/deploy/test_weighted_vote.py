"""The deployed vote equals scikit-learn's own where the weights are equal, and a sum by hand."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_diabetes, load_iris
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from sparsebag.deploy.weighted_vote import WeightedVote
from sparsebag.evidence.from_ensemble import read_ensemble

IRIS = load_iris(return_X_y=True)
DIABETES = load_diabetes(return_X_y=True)

CLASSIFIERS = {
    "forest": RandomForestClassifier(10, random_state=0),
    "extra trees": ExtraTreesClassifier(10, random_state=0),
    "bag of trees": BaggingClassifier(random_state=0),
    "columns drawn": BaggingClassifier(max_features=0.5, bootstrap_features=True, random_state=0),
    # Six rows a member: most bootstraps miss a class.
    "classes missing": BaggingClassifier(KNeighborsClassifier(1), max_samples=6, random_state=0),
    "bag of linear models": BaggingClassifier(LogisticRegression(C=0.1), random_state=0),
    "no predict_proba": BaggingClassifier(RidgeClassifier(), random_state=0),
    "voter": VotingClassifier([("nb", GaussianNB()), ("tree", DecisionTreeClassifier())]),
}
CLASSIFIERS["voter"].set_params(voting="soft")
REGRESSORS = {
    "forest": RandomForestRegressor(10, random_state=0),
    "extra trees": ExtraTreesRegressor(10, random_state=0),
    "bag of trees": BaggingRegressor(random_state=0),
    "columns drawn": BaggingRegressor(max_features=0.5, bootstrap_features=True, random_state=0),
    "bag of linear models": BaggingRegressor(LinearRegression(), random_state=0),
    "voter": VotingRegressor([("lr", LinearRegression()), ("tree", DecisionTreeRegressor())]),
}


def uniform_vote(ensemble, floor=0.0):
    pool = read_ensemble(ensemble)
    return WeightedVote(pool, np.full(len(pool.members), 1 / len(pool.members)), floor)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_equal_weights_and_no_floor_give_scikit_learns_probabilities(name):
    X, y = IRIS
    ensemble = CLASSIFIERS[name].fit(X, y)
    assert_allclose(uniform_vote(ensemble).predict_proba(X), ensemble.predict_proba(X), atol=1e-12)


@pytest.mark.parametrize("name", REGRESSORS)
def test_equal_weights_give_scikit_learns_regression(name):
    X, y = DIABETES
    ensemble = REGRESSORS[name].fit(X, y)
    assert_allclose(uniform_vote(ensemble).predict(X), ensemble.predict(X), rtol=1e-12)


def test_the_classes_missing_case_misses_classes():
    bag = CLASSIFIERS["classes missing"].fit(*IRIS)
    assert any(len(member.classes_) < 3 for member in bag.estimators_)


def test_the_floor_mixes_in_the_uniform_distribution():
    X, y = IRIS
    forest = RandomForestClassifier(10, random_state=0).fit(X, y)
    floored = uniform_vote(forest, floor=0.3).predict_proba(X)
    assert_allclose(floored, 0.7 * forest.predict_proba(X) + 0.1, atol=1e-12)
    assert floored.min() >= 0.1 - 1e-12


def test_unequal_weights_weigh():
    X, y = DIABETES
    forest = RandomForestRegressor(3, random_state=0).fit(X, y)
    pool = read_ensemble(forest)
    vote = WeightedVote(pool, np.array([0.5, 0.2, 0.3]))
    by_hand = sum(w * tree.predict(X) for w, tree in zip([0.5, 0.2, 0.3], forest, strict=True))
    assert_allclose(vote.predict(X), by_hand, rtol=1e-12)


@pytest.mark.parametrize("n_jobs", [2, -1])
def test_threads_do_not_change_a_bit(n_jobs):
    forest = RandomForestClassifier(20, random_state=0).fit(*IRIS)
    vote = uniform_vote(forest, 0.01)
    assert_array_equal(vote.predict_proba(IRIS[0], n_jobs), vote.predict_proba(IRIS[0]))
    regression = uniform_vote(RandomForestRegressor(20, random_state=0).fit(*DIABETES))
    assert_array_equal(regression.predict(DIABETES[0], n_jobs), regression.predict(DIABETES[0]))


@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csr_array, sp.csc_array, sp.coo_array])
def test_sparse_rows(kind):
    X, y = IRIS
    forest = RandomForestClassifier(10, random_state=0).fit(X, y)
    assert_array_equal(
        uniform_vote(forest).predict_proba(kind(X)), uniform_vote(forest).predict_proba(X)
    )


def test_rows_sum_to_one_to_the_last_bit_scorers_look_at():
    X, y = IRIS
    bag = BaggingClassifier(LogisticRegression(C=0.1), n_estimators=7, random_state=0).fit(X, y)
    assert_allclose(uniform_vote(bag, 0.001).predict_proba(X).sum(axis=1), 1, rtol=1e-15)
