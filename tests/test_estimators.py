"""The estimators' own contract: learned attributes, predictions, determinism, sample weights."""

from __future__ import annotations

import functools
import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, make_classification
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    ExtraTreesClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
    VotingClassifier,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.tree import DecisionTreeClassifier

from sparsebag import SparseBaggingClassifier, SparseBaggingRegressor, compress
from sparsebag.settings import DEFAULT_FLOOR
from sparsebag.solvers.active_set import ActiveSet
from sparsebag.solvers.projected_gradient import ProjectedGradient
from sparsebag.solvers.slsqp import SLSQP

CANCER = load_breast_cancer(return_X_y=True)
IRIS = load_iris(return_X_y=True)
DIABETES = load_diabetes(return_X_y=True)
N = 30


def small_forest(**settings):
    return RandomForestClassifier(N, random_state=0, **settings)


# Iris has too few rows to be sure of much less than tolerance=0.5.


@pytest.fixture(scope="module")
def classifier():
    return SparseBaggingClassifier(small_forest(), tolerance=0.5).fit(*IRIS)


@pytest.fixture(scope="module")
def regressor():
    return SparseBaggingRegressor(RandomForestRegressor(N, random_state=0)).fit(*DIABETES)


# -- learned attributes -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["classifier", "regressor"])
def test_weights_are_on_the_simplex_with_exact_zeros(name, request):
    small = request.getfixturevalue(name)
    assert small.weights_.shape == (N,)
    assert small.weights_.min() >= 0
    assert small.weights_.sum() == pytest.approx(1, abs=1e-12)
    assert_array_equal(small.active_, np.flatnonzero(small.weights_))
    assert small.n_active_ == len(small.active_) == len(small.estimators_)
    assert small.n_nodes_ == sum(tree.tree_.node_count for tree in small.estimators_)
    assert small.n_nodes_ < small.selection_.before.nodes
    assert small.solution_ is None


def test_penalised_weights_are_the_solvers():
    small = SparseBaggingClassifier(small_forest(), lam=0.0).fit(*IRIS)
    assert_array_equal(small.solution_.weights, small.weights_)
    assert small.solution_.status.success
    assert small.weights_.min() == 0
    assert small.n_active_ < N


# -- predictions ------------------------------------------------------------------------------

BAGS = {
    "forest": small_forest(),
    "extra trees": ExtraTreesClassifier(N, bootstrap=True, random_state=0),
    "columns drawn": BaggingClassifier(
        n_estimators=N, max_features=0.5, bootstrap_features=True, random_state=0
    ),
    "classes missing": BaggingClassifier(
        KNeighborsClassifier(1), n_estimators=N, max_samples=6, random_state=0
    ),
    "no predict_proba": BaggingClassifier(RidgeClassifier(), n_estimators=N, random_state=0),
    "neural nets": BaggingClassifier(
        MLPClassifier(3, solver="lbfgs", alpha=1, max_iter=5000), n_estimators=N, random_state=0
    ),
}


@functools.cache
def fitted_bag(name):
    return BAGS[name].fit(*IRIS)


def vote_by_hand(small, bag, X, floor):
    """(1 - ε) Σ w_j P_j + ε / C, member by member, columns and classes put where they belong."""
    n_classes = len(small.classes_)
    total = np.zeros((len(X), n_classes))
    features = getattr(bag, "estimators_features_", [slice(None)] * len(small.weights_))
    for j, weight in enumerate(small.weights_):
        member, block = bag.estimators_[j], X[:, features[j]]
        if hasattr(member, "predict_proba"):
            total[:, member.classes_.astype(int)] += weight * member.predict_proba(block)
        else:
            total[np.arange(len(X)), member.predict(block).astype(int)] += weight
    return (1 - floor) * total + floor / n_classes


@pytest.mark.parametrize(("loss", "floor"), [("log_loss", "auto"), ("brier", 0.0), ("auto", 0.2)])
@pytest.mark.parametrize("name", BAGS)
def test_probabilities_are_the_survivors_weighted_mean(name, loss, floor):
    X, y = IRIS
    bag = fitted_bag(name)
    plain = {"refine": None, "calibration": None}
    small = SparseBaggingClassifier(
        FrozenEstimator(bag), loss=loss, floor=floor, max_estimators=9, **plain
    ).fit(X, y)
    assert small.n_active_ < N
    proba = small.predict_proba(X)
    expected = vote_by_hand(small, bag, X, DEFAULT_FLOOR if floor == "auto" else floor)
    assert_allclose(proba, expected, atol=1e-12)
    assert_allclose(proba.sum(axis=1), 1, rtol=1e-15)
    assert_array_equal(small.predict(X), small.classes_[proba.argmax(axis=1)])
    assert_allclose(np.exp(small.predict_log_proba(X)), proba, atol=1e-15)


def test_regression_is_the_survivors_weighted_mean():
    X, y = DIABETES
    bag = BaggingRegressor(n_estimators=N, max_features=0.5, random_state=0).fit(X, y)
    small = SparseBaggingRegressor(FrozenEstimator(bag), max_estimators=9, refine=None).fit(X, y)
    assert small.n_active_ <= 9
    expected = sum(
        w * member.predict(X[:, columns])
        for w, member, columns in zip(
            small.weights_, bag.estimators_, bag.estimators_features_, strict=True
        )
    )
    assert_allclose(small.predict(X), expected, rtol=1e-12)


def test_a_zero_probability_has_a_logarithm_without_a_warning():
    X, y = IRIS
    plain = {"refine": None, "calibration": None}
    small = SparseBaggingClassifier(small_forest(), loss="brier", floor=0.0, **plain).fit(X, y)
    assert np.isneginf(small.predict_log_proba(X)).any()


# -- kinds of input ---------------------------------------------------------------------------


def test_string_labels():
    X, y = IRIS
    names = np.array(["setosa", "versicolor", "virginica"])
    small = SparseBaggingClassifier(small_forest(), tolerance=0.5).fit(X, names[y])
    number = SparseBaggingClassifier(small_forest(), tolerance=0.5).fit(X, y)
    assert_array_equal(small.classes_, names)
    assert_array_equal(small.weights_, number.weights_)
    assert_array_equal(small.predict(X), names[number.predict(X)])
    category = SparseBaggingClassifier(small_forest(), tolerance=0.5).fit(
        X, pd.Series(names[y], dtype="category")
    )
    assert_array_equal(category.predict(X), small.predict(X))


@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csc_array, sp.coo_array])
def test_sparse_rows_give_the_dense_weights(kind):
    X, y = make_classification(200, 20, random_state=0)
    X[np.abs(X) < 0.5] = 0
    clf = SparseBaggingClassifier(small_forest(), tolerance=0.5, refine=None)
    dense, sparse = clone(clf).fit(X, y), clone(clf).fit(kind(X), y)
    assert_array_equal(sparse.weights_, dense.weights_)
    assert_array_equal(sparse.predict_proba(kind(X)), dense.predict_proba(X))


def test_lists_and_pandas_give_the_arrays_weights(classifier):
    X, y = IRIS
    frame = pd.DataFrame(X, columns=list("abcd"), index=np.arange(len(X))[::-1])
    labels = pd.Series(y, index=frame.index)
    named = SparseBaggingClassifier(small_forest(), tolerance=0.5).fit(frame, labels)
    assert_array_equal(named.weights_, classifier.weights_)
    assert_array_equal(named.feature_names_in_, list("abcd"))
    listed = SparseBaggingClassifier(small_forest(), tolerance=0.5).fit(X.tolist(), y.tolist())
    assert_array_equal(listed.weights_, classifier.weights_)
    assert_array_equal(listed.predict(X.tolist()), classifier.predict(X))


def test_missing_values_where_the_trees_take_them():
    X, y = IRIS
    gaps = X.copy()
    gaps[::7, 0] = np.nan
    small = SparseBaggingClassifier(small_forest(), tolerance=0.5).fit(gaps, y)
    assert np.isfinite(small.predict_proba(gaps)).all()
    with pytest.raises(ValueError, match="contains NaN"):  # scikit-learn's trees: dense only
        small.predict(sp.csr_array(gaps))
    with pytest.raises(ValueError, match="contains infinity"):
        small.predict(np.where(np.isnan(gaps), np.inf, gaps))


# -- chance and threads -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["classifier", "regressor"])
def test_the_seed_fixes_the_weights_whatever_the_threads(kind):
    cls, forest, (X, y) = {
        "classifier": (SparseBaggingClassifier, RandomForestClassifier(N), CANCER),
        "regressor": (SparseBaggingRegressor, RandomForestRegressor(N), DIABETES),
    }[kind]
    one = cls(forest, tolerance=0.1, random_state=3, n_jobs=1).fit(X, y)
    two = cls(forest, tolerance=0.1, random_state=3, n_jobs=2).fit(X, y)
    other = cls(forest, tolerance=0.1, random_state=4).fit(X, y)
    assert_array_equal(one.weights_, two.weights_)
    assert_array_equal(one.predict(X), two.predict(X))
    vote = "predict_proba" if kind == "classifier" else "predict"
    assert not np.array_equal(getattr(one, vote)(X), getattr(other, vote)(X))


def test_without_a_random_state_the_ensembles_own_is_kept(classifier):
    again = SparseBaggingClassifier(small_forest(), tolerance=0.5, random_state=None).fit(*IRIS)
    assert_array_equal(again.weights_, classifier.weights_)
    default = SparseBaggingClassifier(random_state=0).fit(*IRIS)
    assert len(default.weights_) == 100


# -- fitted here, or used as it is ------------------------------------------------------------


def test_a_fitted_ensemble_that_is_not_frozen_is_fitted_anew():
    X, y = IRIS
    forest = small_forest().fit(X[:100], y[:100])
    small = SparseBaggingClassifier(forest, random_state=7)
    before = small.get_params()
    small.fit(X, y)
    after = small.get_params()
    assert all(before[name] is after[name] for name in before.keys() | after.keys())
    assert forest.random_state == 0
    assert len(small.classes_) == 3
    assert len(forest.classes_) == 2


def test_a_frozen_ensemble_is_neither_fitted_nor_touched():
    X, y = IRIS
    forest = small_forest().fit(X, y)
    frozen = FrozenEstimator(forest)
    before = pickle.dumps(forest)
    small = SparseBaggingClassifier(frozen, random_state=9, n_jobs=2).fit(X, y)
    small.predict_proba(X)
    small.report(X, y)
    assert small.estimator is frozen
    assert frozen.estimator is forest
    assert pickle.dumps(forest) == before


def test_held_out_rows_judge_a_frozen_ensemble_without_bootstrap():
    X, y = CANCER
    trees = ExtraTreesClassifier(N, random_state=0).fit(X[:300], y[:300])
    small = SparseBaggingClassifier(FrozenEstimator(trees), evidence="holdout", max_nodes=0.2)
    small.fit(X[300:], y[300:])
    assert small.n_nodes_ <= 0.2 * small.selection_.before.nodes
    assert small.path_.judged_by == "held-out rows"
    assert small.score(X[300:], y[300:]) > 0.9


def test_refitting_forgets_the_former_fit():
    small = SparseBaggingClassifier(small_forest(), tolerance=0.5).fit(*IRIS)
    small.fit(*CANCER)
    assert small.n_features_in_ == CANCER[0].shape[1]
    assert_array_equal(small.classes_, [0, 1])
    assert small.predict_proba(CANCER[0][:3]).shape == (3, 2)


# -- the paper's preset -----------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # SLSQP's own limit
def test_the_paper_preset_runs_slsqp_without_floor_and_drops_dust():
    X, y = CANCER
    small = SparseBaggingClassifier(small_forest(), preset="paper").fit(X, y)
    assert small.solution_.solver == "slsqp"
    assert small.weights_[small.active_].min() > 1e-5
    forest = small_forest().fit(X, y)
    assert_allclose(small.predict_proba(X), vote_by_hand(small, forest, X, 0.0), atol=1e-12)
    explicit = SparseBaggingClassifier(small_forest(), preset="paper", floor=0.1, solver="auto")
    assert explicit.fit(X, y).predict_proba(X).min() >= 0.05 - 1e-12


# -- sample weights ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def held_out():
    """A convex problem: votes on held-out rows, no penalty. Its minimum is one number."""
    X, y = make_classification(600, 10, n_informative=5, flip_y=0.2, random_state=1)
    models = [
        ("nb", GaussianNB()),
        ("lr", LogisticRegression()),
        *[(f"t{d}", DecisionTreeClassifier(max_depth=d, random_state=0)) for d in (1, 2, 3, 5)],
    ]
    return VotingClassifier(models).fit(X[:300], y[:300]), X[300:], y[300:]


def fit_on(voter, X, y, sample_weight=None):
    """Weights alone: a calibrator draws its voters by chance, row by row."""
    how = {"lam": 0.0, "evidence": "holdout", "calibration": None}
    return compress(voter, X, y, sample_weight=sample_weight, **how)


def test_doubling_a_weight_is_repeating_the_row(held_out):
    voter, X, y = held_out
    counts = np.random.default_rng(0).integers(0, 4, len(y))  # 0 leaves the row out
    weighted = fit_on(voter, X, y, sample_weight=counts)
    repeated = fit_on(voter, np.repeat(X, counts, axis=0), np.repeat(y, counts))
    plain = fit_on(voter, X, y)
    assert weighted.solution_.objective == pytest.approx(repeated.solution_.objective, abs=2e-6)
    assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=5e-3)
    assert abs(weighted.solution_.objective - plain.solution_.objective) > 1e-3


def test_the_scale_of_sample_weights_does_not_matter(held_out):
    voter, X, y = held_out
    weight = np.random.default_rng(2).random(len(y))
    one, other = (fit_on(voter, X, y, sample_weight=s * weight) for s in (1.0, 1024.0))
    assert_array_equal(one.weights_, other.weights_)


def test_sample_weight_reaches_both_the_ensemble_and_the_loss():
    X, y = CANCER
    weight = np.where(y == 0, 2.0, 1.0)
    small = SparseBaggingClassifier(small_forest(), tolerance=0.5).fit(X, y, sample_weight=weight)
    forest = small_forest().fit(X, y, sample_weight=weight)
    frozen = SparseBaggingClassifier(FrozenEstimator(forest), tolerance=0.5)
    both = clone(frozen).fit(X, y, sample_weight=weight)
    assert_array_equal(small.predict_proba(X), both.predict_proba(X))
    forest_only = clone(frozen).fit(X, y)
    assert not np.array_equal(small.predict_proba(X), forest_only.predict_proba(X))


def test_a_bag_without_bootstrap_that_draws_fewer_rows_has_unseen_ones():
    bag = BaggingClassifier(n_estimators=30, bootstrap=False, max_samples=0.5, random_state=0)
    weights = {"refine": None, "max_estimators": 8}
    assert SparseBaggingClassifier(bag, **weights).fit(*IRIS).n_active_ <= 8
    assert SparseBaggingClassifier(bag, lam=0.0).fit(*IRIS).n_active_ < 30


@pytest.mark.parametrize(
    "solver",
    [ProjectedGradient(max_iter=1), ActiveSet(max_iter=1), SLSQP(max_iter=1)],
    ids=lambda solver: solver.name,
)
def test_a_solver_that_stops_early_warns_with_its_gap_and_stays_on_the_simplex(solver):
    small = SparseBaggingClassifier(small_forest(), lam=0.0, solver=solver)
    with pytest.warns(ConvergenceWarning, match=r"iteration limit, .*stationarity gap \d\.\d+e"):
        small.fit(*CANCER)
    assert not small.solution_.status.success
    assert small.weights_.min() >= 0
    assert small.weights_.sum() == pytest.approx(1)
    assert small.score(*CANCER) > 0.9
