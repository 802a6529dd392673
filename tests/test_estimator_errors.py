"""Bad input gets one clear sentence: what was wrong, what was expected, what to do."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.ensemble import (
    BaggingClassifier,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
    VotingClassifier,
)
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from sparsebag import SparseBaggingClassifier, SparseBaggingRegressor, compress
from sparsebag.objective.losses import SquaredError
from sparsebag.solvers.active_set import ActiveSet
from sparsebag.solvers.projected_gradient import ProjectedGradient
from sparsebag.solvers.slsqp import SLSQP

IRIS = load_iris(return_X_y=True)
CANCER = load_breast_cancer(return_X_y=True)
DIABETES = load_diabetes(return_X_y=True)


def forest(**settings):
    return RandomForestClassifier(40, random_state=0, **settings)


class NeverFitted(RandomForestClassifier):
    """Fails the test where an argument is found bad only after the ensemble was fitted."""

    def fit(self, *args, **kwargs):
        raise AssertionError("the ensemble was fitted before the arguments were checked")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"lam": -0.1}, "The 'lam' parameter of SparseBaggingClassifier must be"),
        ({"max_nodes": 1.5}, "The 'max_nodes' parameter of SparseBaggingClassifier must be None"),
        ({"evidence": "cv"}, "The 'evidence' parameter of SparseBaggingClassifier must be a str"),
        ({"loss": "hinge"}, "loss='hinge' is not known; use 'auto' or one of"),
        ({"loss": "squared_error"}, "loss='squared_error' does not fit classification; use one of"),
        ({"loss": SquaredError()}, "loss='squared_error' does not fit classification; use one of"),
        ({"solver": "simplex"}, "solver='simplex' is not known; use one of ['auto', 'active_set'"),
        ({"tolerance": -0.01}, "tolerance=-0.01 must be a fraction from 0 up to but not 1"),
        ({"tolerance": np.nan}, "tolerance=nan must be a fraction from 0 up to but not 1"),
        ({"tolerance": 1.0}, "tolerance=1.0 must be a fraction from 0 up to but not 1"),
        ({"tolerance": 5}, "tolerance=5 must be a fraction from 0 up to but not 1"),
        ({"tolerance": True}, "tolerance=True must be a fraction from 0 up to but not 1"),
        ({"tolerance": "1%"}, "tolerance='1%' must be a fraction from 0 up to but not 1"),
        ({"calibration": "isotonic"}, "calibration='isotonic' is not known; use 'auto', 'temp"),
        ({"calibration": 3}, "calibration=3 cannot calibrate: it needs fit, and predict"),
        (
            {"max_estimators": 5, "lam": 0.1},
            "max_estimators=5 sets the size and lam=0.1 the penalty; use one of the two",
        ),
        (
            {"max_nodes": 50, "preset": "paper"},
            "max_nodes=50 sets the size and lam=0.05 the penalty; use one of the two",
        ),
        ({"evidence": "holdout"}, "evidence='holdout' needs a fitted ensemble, because the rows"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_a_bad_setting_is_named_before_the_ensemble_is_fitted(settings, sentence):
    with pytest.raises(ValueError, match="^" + re.escape(sentence)):
        SparseBaggingClassifier(NeverFitted(), **settings).fit(*IRIS)


@pytest.mark.parametrize(
    ("estimator", "sentence"),
    [
        (LogisticRegression(), "cannot compress a LogisticRegression; pass a BaggingClassifier"),
        (GradientBoostingClassifier(), "cannot compress a GradientBoostingClassifier; pass a"),
        (RandomForestClassifier, "cannot compress the class RandomForestClassifier; pass a"),
        ("forest", "cannot compress a str; pass a BaggingClassifier/Regressor, RandomForest*"),
        (make_pipeline(StandardScaler(), forest()), "a Pipeline cannot be compressed as a whole;"),
    ],
    ids=["linear", "boosting", "class", "string", "pipeline"],
)
def test_what_is_no_bagging_ensemble_is_refused_before_it_is_fitted(estimator, sentence):
    with pytest.raises(TypeError, match=re.escape(sentence)):
        SparseBaggingClassifier(estimator).fit(*IRIS)
    if not isinstance(estimator, (type, str)):
        with pytest.raises(TypeError, match=re.escape(sentence)):
            SparseBaggingClassifier(FrozenEstimator(estimator)).fit(*IRIS)


def test_a_regressor_in_the_classifier_and_the_reverse():
    regressor = RandomForestRegressor(10)
    with pytest.raises(ValueError, match="does regression; use SparseBaggingRegressor for it"):
        SparseBaggingClassifier(regressor).fit(*IRIS)
    with pytest.raises(ValueError, match="does regression; use SparseBaggingRegressor for it"):
        SparseBaggingClassifier(FrozenEstimator(regressor.fit(*DIABETES))).fit(*DIABETES)
    with pytest.raises(ValueError, match="does classification; use SparseBaggingClassifier for it"):
        SparseBaggingRegressor(forest()).fit(*DIABETES)


@pytest.mark.parametrize("method", ["predict", "predict_proba", "predict_log_proba"])
def test_prediction_before_fit(method):
    with pytest.raises(NotFittedError, match=r"is not fitted yet\. Call 'fit'"):
        getattr(SparseBaggingClassifier(), method)(IRIS[0])
    with pytest.raises(NotFittedError, match=r"is not fitted yet\. Call 'fit'"):
        SparseBaggingRegressor().predict(IRIS[0])
    with pytest.raises(NotFittedError, match=r"is not fitted yet\. Call 'fit'"):
        SparseBaggingClassifier().report(*IRIS)


def test_a_frozen_ensemble_that_is_not_fitted():
    sentence = "this RandomForestClassifier is not fitted; fit it first"
    with pytest.raises(NotFittedError, match=sentence):
        SparseBaggingClassifier(FrozenEstimator(forest())).fit(*IRIS)
    with pytest.raises(NotFittedError, match=sentence):
        compress(forest(), *IRIS)


@pytest.mark.parametrize(
    ("ensemble", "how"),
    [
        (forest(bootstrap=False), {"refine": None}),
        (forest(bootstrap=False), {"lam": 0.0}),
        (ExtraTreesClassifier(10), {"refine": None}),
        (VotingClassifier([("nb", GaussianNB()), ("tree", DecisionTreeClassifier())]), {}),
    ],
    ids=["forest", "penalised", "extra trees", "voter"],
)
def test_no_bootstrap_and_no_held_out_rows(ensemble, how):
    """Weights are judged out of bag; pruned trees by a rehearsal, which needs no bags."""
    sentence = r"no out-of-bag rows .*Use a bootstrapped ensemble, or .*evidence='holdout'"
    with pytest.raises(ValueError, match=sentence):
        SparseBaggingClassifier(ensemble, **how).fit(*IRIS)
    with pytest.raises(ValueError, match=sentence):
        compress(ensemble.fit(*IRIS), *IRIS, **how)


def test_a_bag_without_bootstrap_that_draws_fewer_rows_has_unseen_ones():
    bag = BaggingClassifier(n_estimators=30, bootstrap=False, max_samples=0.5, random_state=0)
    weights = {"refine": None, "max_estimators": 8}
    assert SparseBaggingClassifier(bag, **weights).fit(*IRIS).n_active_ <= 8
    assert SparseBaggingClassifier(bag, lam=0.0).fit(*IRIS).n_active_ < 30
    bag.set_params(max_samples=1.0)
    for how in (weights, {"lam": 0.0}):
        with pytest.raises(ValueError, match="no row is out of bag for any member"):
            SparseBaggingClassifier(bag, **how).fit(*IRIS)


class TestRowsThatAreNotTheTrainingRows:
    fitted = forest().fit(*CANCER)
    sentence = "X, y are not the ensemble's training rows in their original order"

    def refused(self, X, y, sentence=None):
        with pytest.raises(ValueError, match=sentence or self.sentence):
            SparseBaggingClassifier(FrozenEstimator(self.fitted)).fit(X, y)

    def test_reordered(self):
        order = np.random.default_rng(0).permutation(len(CANCER[1]))
        self.refused(CANCER[0][order], CANCER[1][order])

    def test_one_fewer(self):
        self.refused(CANCER[0][:-1], CANCER[1][:-1])

    def test_other_targets(self):
        self.refused(CANCER[0], 1 - CANCER[1])

    def test_other_columns(self):
        self.refused(CANCER[0][:, ::-1], CANCER[1])
        self.refused(
            CANCER[0][:, :5], CANCER[1], "X has 5 columns but the ensemble was fitted on 30"
        )

    def test_other_names(self):
        X, y = CANCER
        frame = pd.DataFrame(X).add_prefix("f")
        named = forest().fit(frame, y)
        with pytest.raises(ValueError, match="column names differ"):
            compress(named, frame.add_prefix("g"), y)

    def test_another_class(self):
        self.refused(CANCER[0], CANCER[1] + 1, "y holds a class the ensemble was not trained on")


@pytest.mark.parametrize(
    ("X", "y", "sentence"),
    [
        (IRIS[0], None, "requires y to be passed, but the target y is None"),
        (
            IRIS[0],
            np.c_[IRIS[1], IRIS[1]],
            r"y has shape \(150, 2\); multi-output problems are not",
        ),
        (IRIS[0][:1], IRIS[1][:1], "there is one sample only"),
        (IRIS[0], np.where(IRIS[1] == 0, np.nan, IRIS[1]), "y holds NaN or infinity"),
        (IRIS[0], IRIS[1] + 0.5, "Unknown label type"),
    ],
    ids=["no targets", "two outputs", "one row", "NaN", "continuous"],
)
def test_bad_targets_are_named_before_the_ensemble_is_fitted(X, y, sentence):
    with pytest.raises(ValueError, match=sentence):
        SparseBaggingClassifier(NeverFitted()).fit(X, y)


def test_one_class():
    with pytest.raises(ValueError, match=r"one class only \(7\); classification needs two"):
        SparseBaggingClassifier(forest()).fit(IRIS[0], np.full(150, 7))


@pytest.mark.parametrize("evidence", ["oob", "holdout"])
def test_no_rows(evidence):
    X, y = IRIS
    with pytest.raises(ValueError, match="there are no rows: y is empty") as raised:
        compress(forest().fit(X, y), X[:0], y[:0], evidence=evidence)
    assert "multi-output" not in str(raised.value)


def test_one_member():
    with pytest.raises(ValueError, match="one member only; there is nothing to choose from"):
        SparseBaggingClassifier(RandomForestClassifier(1)).fit(*IRIS)


def test_a_fitted_multi_output_forest():
    X, y = IRIS
    both = forest().fit(X, np.c_[y, y])
    with pytest.raises(ValueError, match="multi-output ensembles are not supported"):
        compress(both, X, y)


@pytest.mark.parametrize("weight", [np.zeros(150), -np.ones(150), np.full(150, np.nan)])
def test_unusable_sample_weights(weight):
    fitted = FrozenEstimator(forest().fit(*IRIS))
    with pytest.raises(ValueError, match=r"sample_weight (must not be negative|holds NaN)"):
        SparseBaggingClassifier(fitted).fit(*IRIS, sample_weight=weight)
    with pytest.raises(ValueError, match="sample_weight has 149 "):
        SparseBaggingClassifier(fitted).fit(*IRIS, sample_weight=np.ones(149))


@pytest.mark.parametrize(
    "solver",
    [ProjectedGradient(max_iter=1), ActiveSet(max_iter=1), SLSQP(max_iter=1)],
    ids=lambda solver: solver.name,
)
def test_a_solver_that_stops_early_warns_with_its_gap_and_stays_on_the_simplex(solver):
    small = SparseBaggingClassifier(forest(), lam=0.0, solver=solver)
    with pytest.warns(ConvergenceWarning, match=r"iteration limit, .*stationarity gap \d\.\d+e"):
        small.fit(*CANCER)
    assert not small.solution_.status.success
    assert small.weights_.min() >= 0
    assert small.weights_.sum() == pytest.approx(1)
    assert small.score(*CANCER) > 0.9
