"""`compress`: fitted ensemble in, smaller fitted estimator out, the ensemble unchanged."""

from __future__ import annotations

import inspect
import pickle
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
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
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from sparsebag import SparseBaggingClassifier, SparseBaggingRegressor, compress
from sparsebag.objective.losses import Brier
from sparsebag.solvers.active_set import ActiveSet

IRIS = load_iris(return_X_y=True)
CANCER = load_breast_cancer(return_X_y=True)
DIABETES = load_diabetes(return_X_y=True)
N = 40
# Half the rows train, half judge, for what has no bootstrap.
TRAIN, JUDGE = np.arange(0, 569, 2), np.arange(1, 569, 2)

FOREST = RandomForestClassifier(N, random_state=0)
BOOTSTRAPPED = {
    "forest": (FOREST, CANCER),
    "extra trees": (ExtraTreesClassifier(N, bootstrap=True, random_state=0), CANCER),
    "bag": (BaggingClassifier(n_estimators=N, random_state=0), CANCER),
    "regression forest": (RandomForestRegressor(N, random_state=0), DIABETES),
    "regression extra trees": (ExtraTreesRegressor(N, bootstrap=True, random_state=0), DIABETES),
    "regression bag": (BaggingRegressor(n_estimators=N, random_state=0), DIABETES),
}


@pytest.fixture(scope="module")
def forest():
    return RandomForestClassifier(N, random_state=0).fit(*CANCER)


@pytest.mark.parametrize("name", BOOTSTRAPPED)
def test_the_right_estimator_comes_out_and_the_ensemble_stays_as_it_was(name):
    ensemble, (X, y) = BOOTSTRAPPED[name]
    ensemble.fit(X, y)
    before = pickle.dumps(ensemble)
    small = compress(ensemble, X, y, max_nodes=0.2)
    assert small.n_nodes_ <= 0.2 * small.selection_.before.nodes
    expected = SparseBaggingRegressor if "regression" in name else SparseBaggingClassifier
    assert type(small) is expected
    small.predict(X)
    assert pickle.dumps(ensemble) == before
    assert small.estimator.estimator is ensemble


def test_it_is_the_estimator_with_the_ensemble_frozen(forest):
    small = compress(forest, *CANCER, tolerance=0.1)
    assert compress(FrozenEstimator(forest), *CANCER, tolerance=0.1).estimator.estimator is forest
    same = SparseBaggingClassifier(FrozenEstimator(forest), tolerance=0.1).fit(*CANCER)
    assert_array_equal(small.weights_, same.weights_)
    assert_array_equal(small.predict_proba(CANCER[0]), same.predict_proba(CANCER[0]))


def test_both_take_the_same_settings_with_the_same_defaults():
    ours = inspect.signature(compress).parameters
    estimators = inspect.signature(SparseBaggingClassifier).parameters
    for name in set(estimators) - {"estimator", "random_state"}:
        assert ours[name].default == estimators[name].default


@pytest.fixture(scope="module")
def penalised(forest):
    """Weights of the penalised way as it is."""
    return compress(forest, *CANCER, lam=0.0).weights_


@pytest.fixture(scope="module")
def selected(forest):
    """Probabilities of a small model as it is."""
    return compress(forest, *CANCER, tolerance=0.2).predict_proba(CANCER[0])


@pytest.mark.parametrize(
    "settings",
    [
        {"lam": 0.2},
        {"loss": "brier"},
        {"loss": Brier()},
        {"solver": "active_set"},
        {"solver": ActiveSet(tol=1e-4)},
        {"floor": 0.1},
        {"prior_mass": 0.5},
        {"n_jobs": 2},
    ],
    ids=lambda setting: "-".join(setting),
)
def test_every_setting_of_the_penalised_way_reaches_the_estimator(settings, forest, penalised):
    small = compress(forest, *CANCER, **{"lam": 0.0, **settings})
    assert {name: small.get_params()[name] for name in settings} == settings
    changed = not np.array_equal(small.weights_, penalised)
    assert changed == ("n_jobs" not in settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"tolerance": 0.0},
        {"confidence": 0.99},
        {"max_estimators": 4},
        {"max_nodes": 100},
        {"max_bytes": 1_200},
        {"calibration": None},
        {"refine": None},
        {"rehearsal": 2},
        {"rehearsal": False},
        {"floor": 0.3},
        {"lam": 0.0},
        {"n_jobs": 2},
        {"solver": "active_set"},
    ],
    ids=lambda setting: "-".join(setting),
)
def test_every_setting_of_the_selection_reaches_the_estimator(settings, forest, selected):
    small = compress(forest, *CANCER, **{"tolerance": 0.2, **settings})
    assert {name: small.get_params()[name] for name in settings} == settings
    changed = not np.array_equal(small.predict_proba(CANCER[0]), selected)
    assert changed == (not settings.keys() & {"n_jobs", "solver"})


@pytest.mark.parametrize("refine", [None, "auto"])
def test_sample_weight_moves_the_vote(forest, refine):
    X, y = CANCER
    weight = np.random.default_rng(0).integers(1, 10, len(y))
    how = {"refine": refine, "max_nodes": 0.2}
    small = compress(forest, X, y, sample_weight=weight, **how)
    assert not np.array_equal(
        small.predict_proba(X), compress(forest, X, y, **how).predict_proba(X)
    )
    same = compress(forest, X, y, sample_weight=pd.Series(weight), **how)
    assert_array_equal(small.predict_proba(X), same.predict_proba(X))


def test_progress_goes_to_standard_error(forest, capsys):
    compress(forest, *CANCER, max_nodes=0.2, verbose=2)
    printed = capsys.readouterr()
    assert printed.out == ""
    told = [line.split(" s  ")[1] for line in printed.err.splitlines()]
    rehearsed = [f"rehearsal {fold} of 4" for fold in (1, 2, 3, 4)]
    assert told == ["reading the ensemble and its rows", *rehearsed, "teaching the small model"]
    compress(forest, *CANCER, lam=0.0, verbose=1)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "fitting weights" in printed.err
    compress(forest, *CANCER, lam=0.0)
    assert capsys.readouterr() == ("", "")


# -- held-out rows ----------------------------------------------------------------------------


@pytest.mark.parametrize("voting", ["soft", "hard"])
def test_a_voter_judged_by_held_out_rows(voting):
    X, y = CANCER
    names = np.array(["benign", "malignant"])[y]
    members = [
        ("nb", GaussianNB()),
        ("lr", make_pipeline(StandardScaler(), LogisticRegression())),
        ("stump", DecisionTreeClassifier(max_depth=1)),
    ]
    voter = VotingClassifier(members, voting=voting).fit(X[TRAIN], names[TRAIN])
    small = compress(voter, X[JUDGE], names[JUDGE], evidence="holdout", calibration=None)
    assert small.weights_.shape == (3,)
    assert small.score(X[JUDGE], names[JUDGE]) > 0.9
    proba = sum(
        w * m.predict_proba(X) for w, m in zip(small.weights_, voter.estimators_, strict=True)
    )
    assert_allclose(small.predict_proba(X), 0.999 * proba + 0.0005, atol=1e-12)


def test_a_regression_voter_judged_by_held_out_rows():
    X, y = DIABETES
    members = [("lr", LinearRegression()), ("tree", DecisionTreeRegressor(max_depth=2))]
    voter = VotingRegressor(members).fit(X[::2], y[::2])
    small = compress(voter, X[1::2], y[1::2], evidence="holdout", lam=0.0)
    assert type(small) is SparseBaggingRegressor
    best = max(member.score(X[1::2], y[1::2]) for member in voter.estimators_)
    assert small.score(X[1::2], y[1::2]) >= best - 1e-6


# -- a plain list of models -------------------------------------------------------------------


def hand_made_bag(X, y, n_features=None):
    rng = np.random.default_rng(0)
    models, rows, columns = [], [], []
    for seed in range(N):
        drawn = rng.integers(0, len(y), len(y))
        used = np.sort(rng.choice(X.shape[1], n_features or X.shape[1], replace=False))
        tree = DecisionTreeClassifier(max_features="sqrt", random_state=seed)
        models.append(tree.fit(X[np.ix_(drawn, used)], y[drawn]))
        rows.append(drawn)
        columns.append(used)
    return models, rows, columns


@pytest.mark.parametrize("n_features", [None, 10])
def test_a_list_with_its_in_bag_rows_and_columns(n_features):
    X, y = CANCER
    models, rows, columns = hand_made_bag(X, y, n_features)
    known = {"estimators_samples": rows, "estimators_features": n_features and columns}
    how = {"max_estimators": 9, "refine": None, "calibration": None}
    small = compress(models, X, y, **known, **how)
    assert type(small) is SparseBaggingClassifier
    assert small.n_active_ <= 9
    assert all(kept is models[j] for j, kept in zip(small.active_, small.estimators_, strict=True))
    expected = sum(
        w * m.predict_proba(X[:, used])
        for w, m, used in zip(small.weights_, models, columns, strict=True)
    )
    assert_allclose(small.predict_proba(X), 0.999 * expected + 0.0005, atol=1e-12)


@pytest.mark.parametrize("container", [list, tuple])
def test_a_list_judged_by_held_out_rows(container):
    X, y = CANCER
    models = container(
        model.fit(X[TRAIN], y[TRAIN]) for model in (GaussianNB(), DecisionTreeClassifier())
    )
    small = compress(models, X[JUDGE], y[JUDGE], evidence="holdout")
    assert small.weights_.shape == (2,)
    assert small.report(X[JUDGE], y[JUDGE]).n_rows == len(JUDGE)
    copied = pickle.loads(pickle.dumps(small))
    assert_array_equal(copied.predict_proba(X), small.predict_proba(X))
    assert copied.report(X[JUDGE], y[JUDGE], baseline=models).n_rows == len(JUDGE)


class OtherClassifier:
    """Of no library we know: it has classes_, predict and predict_proba."""

    classes_ = np.array([0, 1])

    def __init__(self, column):
        self.column = column

    def predict_proba(self, X):
        p = 1 / (1 + np.exp(-np.asarray(X)[:, self.column]))
        return np.column_stack([1 - p, p])

    def predict(self, X):
        return self.predict_proba(X).argmax(axis=1)


class OtherRegressor:
    def __init__(self, column):
        self.column = column

    def predict(self, X):
        return np.asarray(X)[:, self.column]


@pytest.mark.parametrize(
    ("kind", "estimator"),
    [(OtherClassifier, SparseBaggingClassifier), (OtherRegressor, SparseBaggingRegressor)],
)
def test_models_of_other_libraries_go_to_the_estimator_of_their_task(kind, estimator):
    X = np.random.default_rng(0).normal(size=(200, 4))
    y = X[:, 2] > 0 if kind is OtherClassifier else X[:, 2]
    models = [kind(j) for j in range(4)]
    small = compress(
        models, X, y.astype(int if kind is OtherClassifier else float), evidence="holdout"
    )
    assert isinstance(small, estimator)
    assert small.weights_.argmax() == 2
    assert small.predict(X).shape == (200,)


def test_without_a_tolerance_the_budget_is_spent():
    X, y = load_breast_cancer(return_X_y=True)
    forest = RandomForestClassifier(60, random_state=0).fit(X, y)
    lenient = compress(forest, X, y, max_nodes=0.2, tolerance=0.5)
    spent = compress(forest, X, y, max_nodes=0.2)
    assert lenient.n_nodes_ < spent.n_nodes_ <= 0.2 * spent.selection_.before.nodes
    assert spent.selection_.expected_risk <= lenient.selection_.expected_risk
    # calibration comes last: without it the rest is the same
    plain = compress(forest, X, y, max_nodes=0.2, calibration=None)
    assert np.array_equal(plain.weights_, spent.weights_)
    uncalibrated = replace(spent.compile(), calibrator=None)
    assert np.array_equal(plain.predict_proba(X), uncalibrated.predict_proba(X))


def test_linear_regressors_lose_nothing_for_being_one():
    """Their average is one model whatever their number, so none is dropped, budget or not."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 20))
    y = X @ rng.normal(size=20) + 3.0 * rng.normal(size=150)
    bag = BaggingRegressor(LinearRegression(), 40, random_state=0, oob_score=True).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        small = compress(bag, X, y, max_estimators=1, tolerance=0.05)
    assert small.n_active_ == 40
    np.testing.assert_allclose(small.predict(X), bag.predict(X), rtol=1e-10)
    assert small.compile().n_models == 1
