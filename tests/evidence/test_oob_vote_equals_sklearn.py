"""The uniform vote of the evidence is scikit-learn's own out-of-bag estimate."""

import warnings

import numpy as np
import pytest
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR, LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor, ExtraTreeClassifier

from evidence.votes import classes, evidence_of, numbers, uniform_class_votes, uniform_vote

CLOSE = {"rtol": 0, "atol": 1e-12}
KEEP = {"n_estimators": 25, "oob_score": True, "random_state": 1}

CLASSIFIER_BAGS = {
    "trees": (DecisionTreeClassifier(), {}),
    "extra trees": (ExtraTreeClassifier(), {}),
    "half the rows": (DecisionTreeClassifier(), {"max_samples": 0.5}),
    "forty rows": (DecisionTreeClassifier(), {"max_samples": 40}),
    "half the columns": (DecisionTreeClassifier(), {"max_features": 0.5}),
    "repeated columns": (DecisionTreeClassifier(), {"bootstrap_features": True}),
    "patches": (
        LogisticRegression(),
        {"max_samples": 0.7, "max_features": 0.7, "bootstrap_features": True},
    ),
    "logistic": (LogisticRegression(), {}),
    "linear SVM (votes)": (LinearSVC(), {}),
    "SVM (votes)": (SVC(), {}),
    "neighbours": (KNeighborsClassifier(), {}),
    "neural nets": (MLPClassifier((5,), solver="lbfgs", max_iter=300, max_fun=30), {}),
    "pipelines": (make_pipeline(StandardScaler(), LogisticRegression()), {}),
    "pipelines (votes)": (make_pipeline(StandardScaler(), LinearSVC()), {"max_features": 0.6}),
    "forests": (RandomForestClassifier(3), {}),
}
REGRESSOR_BAGS = {
    "trees": (DecisionTreeRegressor(), {}),
    "patches": (DecisionTreeRegressor(), {"max_samples": 0.6, "max_features": 0.5}),
    "ridge": (Ridge(), {"max_features": 0.7}),
    "SVM": (SVR(C=100.0), {}),
    "neighbours": (KNeighborsRegressor(), {}),
    "pipelines": (make_pipeline(StandardScaler(), Ridge()), {"bootstrap_features": True}),
}
FOREST_SETTINGS = {
    "plain": {},
    "max_samples": {"max_samples": 0.4},
    "shallow": {"max_depth": 2},
    "large leaves": {"min_samples_leaf": 7},
}
CLASS_WEIGHTS = (None, "balanced", "balanced_subsample", {0: 5.0, 1: 1.0, 2: 0.1})


# Rows drawn by weight may be in every bag; scikit-learn warns of them, and so do we, elsewhere.
ignore_uncovered = pytest.mark.filterwarnings("ignore:Some inputs do not have OOB scores")


def assert_equal_votes(evidence, kept, y):
    assert evidence.votes.dtype == np.float64
    rows = evidence.covered()
    assert rows.mean() > 0.8
    kept_true = kept[np.arange(len(y)), y]
    np.testing.assert_allclose(uniform_vote(evidence)[rows], kept_true[rows], **CLOSE)
    np.testing.assert_allclose(uniform_class_votes(evidence)[rows], kept[rows], **CLOSE)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("case", CLASSIFIER_BAGS)
def test_bag_of_classifiers(case):
    base, settings = CLASSIFIER_BAGS[case]
    X, y = classes()
    bag = BaggingClassifier(base, **KEEP, **settings).fit(X, y)
    evidence = evidence_of(bag, X, y, class_votes=True, dtype=np.float64)
    assert_equal_votes(evidence, bag.oob_decision_function_, y)
    expected = "leaf counts" if "Tree" in type(base).__name__ else "out-of-bag predictions"
    assert evidence.verified_by == expected


@pytest.mark.parametrize("case", REGRESSOR_BAGS)
def test_bag_of_regressors(case):
    base, settings = REGRESSOR_BAGS[case]
    X, y = numbers()
    bag = BaggingRegressor(base, **KEEP, **settings).fit(X, y)
    evidence = evidence_of(bag, X, y, dtype=np.float64)
    np.testing.assert_allclose(uniform_vote(evidence), bag.oob_prediction_, rtol=1e-12)


@ignore_uncovered
@pytest.mark.parametrize("class_weight", CLASS_WEIGHTS, ids=str)
@pytest.mark.parametrize("settings", FOREST_SETTINGS)
@pytest.mark.parametrize("forest", [RandomForestClassifier, ExtraTreesClassifier])
def test_forest_of_classifiers(forest, settings, class_weight):
    X, y = classes()
    fitted = forest(bootstrap=True, class_weight=class_weight, **KEEP, **FOREST_SETTINGS[settings])
    fitted.fit(X, y)
    evidence = evidence_of(fitted, X, y, class_votes=True, dtype=np.float64)
    assert_equal_votes(evidence, fitted.oob_decision_function_, y)
    assert evidence.verified_by == "leaf counts"


@pytest.mark.parametrize("criterion", ["squared_error", "absolute_error", "poisson"])
@pytest.mark.parametrize("settings", FOREST_SETTINGS)
@pytest.mark.parametrize("forest", [RandomForestRegressor, ExtraTreesRegressor])
def test_forest_of_regressors(forest, settings, criterion):
    X, y = numbers()
    y = np.abs(y)
    fitted = forest(bootstrap=True, criterion=criterion, **KEEP, **FOREST_SETTINGS[settings])
    fitted.fit(X, y)
    evidence = evidence_of(fitted, X, y, dtype=np.float64)
    np.testing.assert_allclose(uniform_vote(evidence), fitted.oob_prediction_, rtol=1e-12)


@ignore_uncovered
@pytest.mark.filterwarnings("ignore:invalid value encountered in divide")  # scikit-learn's 0 / 0
@pytest.mark.parametrize(
    "model",
    [
        RandomForestClassifier(**KEEP),
        RandomForestRegressor(**KEEP),
        BaggingClassifier(DecisionTreeClassifier(), **KEEP),
        BaggingClassifier(LogisticRegression(), **KEEP),
    ],
    ids=["forest", "regression", "bag", "lines"],
)
def test_fitted_with_sample_weight(model):
    X, y = classes()
    weight = np.random.default_rng(0).integers(0, 4, len(y)).astype(float)
    model.fit(X, y, sample_weight=weight)
    evidence = evidence_of(model, X, y, class_votes=True, dtype=np.float64)
    if evidence.classes is None:
        rows = evidence.covered()
        kept = model.oob_prediction_[rows]
        np.testing.assert_allclose(uniform_vote(evidence)[rows], kept, **CLOSE)
    else:
        assert_equal_votes(evidence, model.oob_decision_function_, y)


@pytest.mark.parametrize("kind", ["forest", "bag"])
def test_uncovered_rows_are_the_ones_sklearn_cannot_score(kind):
    X, y = classes(2)
    few = {"n_estimators": 4, "oob_score": True, "random_state": 0}
    make = RandomForestClassifier if kind == "forest" else BaggingClassifier
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns of the same rows
        model = make(**few).fit(X, y)
    evidence = evidence_of(model, X, y, dtype=np.float64)
    kept = model.oob_decision_function_[np.arange(len(y)), y]
    covered = evidence.covered()
    assert 0 < np.count_nonzero(~covered) < len(y)
    np.testing.assert_allclose(uniform_vote(evidence)[covered], kept[covered], **CLOSE)
    rows = model.oob_decision_function_[~covered]
    assert np.all(np.isnan(rows)) or not rows.any()  # NaN in a bag, zeros in a forest
    assert np.all(evidence.votes[~covered] == 0)
