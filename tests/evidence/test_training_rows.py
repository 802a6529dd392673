"""X and y that are not the training rows, in order, are an error that says so."""

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
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from evidence.votes import bootstrapped, classes, evidence_of, numbers

MANY = {"n_estimators": 30, "random_state": 1}
KEEP = {**MANY, "oob_score": True}
CLASSIFIERS = {
    "forest": RandomForestClassifier(**MANY),
    "weighted forest": RandomForestClassifier(**MANY, class_weight="balanced_subsample"),
    "stumps": RandomForestClassifier(**MANY, max_depth=1),
    "large leaves": RandomForestClassifier(**MANY, min_samples_leaf=20),
    "monotonic forest": RandomForestClassifier(**MANY, monotonic_cst=[1, 0, 0, 0, 0, -1]),
    "extra trees": ExtraTreesClassifier(**MANY, bootstrap=True),
    "bagged trees": BaggingClassifier(**MANY, max_features=0.7),
    "bagged linear models": BaggingClassifier(LogisticRegression(), **KEEP),
    "bagged voters": BaggingClassifier(LinearSVC(), **KEEP),
    "bagged neighbours": BaggingClassifier(KNeighborsClassifier(), **KEEP),
    "bagged nets": BaggingClassifier(
        MLPClassifier((4,), solver="lbfgs", max_iter=300, max_fun=20), **KEEP
    ),
    "bagged pipelines": BaggingClassifier(
        make_pipeline(StandardScaler(), LogisticRegression()), **KEEP
    ),
}
REGRESSORS = {
    "forest": RandomForestRegressor(**MANY),
    "median forest": RandomForestRegressor(**MANY, criterion="absolute_error", max_depth=4),
    "poisson forest": RandomForestRegressor(**MANY, criterion="poisson"),
    "stumps": RandomForestRegressor(**MANY, max_depth=1),
    "monotonic forest": RandomForestRegressor(**MANY, monotonic_cst=[1, 0, 0, 0, 0, -1]),
    "extra trees": ExtraTreesRegressor(**MANY, bootstrap=True, max_samples=0.5),
    "bagged trees": BaggingRegressor(**MANY, bootstrap_features=True),
    "bagged linear models": BaggingRegressor(Ridge(), **KEEP),
    "bagged neighbours": BaggingRegressor(KNeighborsRegressor(), **KEEP),
}
MODELS = [("classifier", name) for name in CLASSIFIERS]
MODELS += [("regressor", name) for name in REGRESSORS]
FITTED: dict = {}


def fitted(kind, name):
    """Each model once, with its rows; the tests below only read it."""
    if (kind, name) not in FITTED:
        X, y = classes(2, n_rows=200) if kind == "classifier" else numbers(200)
        y = y if kind == "classifier" else np.abs(y)
        model = (CLASSIFIERS if kind == "classifier" else REGRESSORS)[name]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of convergence
            FITTED[kind, name] = model.fit(X, y), X, y
    return FITTED[kind, name]


PERMUTED = np.random.default_rng(0).permutation(200)
NOISE = np.random.default_rng(0).normal(size=(200, 6))
WRONG = {
    "reordered": lambda X, y: (X[PERMUTED], y[PERMUTED]),
    "reversed": lambda X, y: (X[::-1], y[::-1]),
    "shifted by one": lambda X, y: (np.roll(X, 1, axis=0), np.roll(y, 1)),
    "other targets": lambda X, y: (X, y[PERMUTED]),
    "perturbed": lambda X, y: (X + NOISE * X.std(axis=0), y),
    "columns swapped": lambda X, y: (X[:, ::-1], y),
    "other rows": lambda X, y: (X + 1.0, y),
}
reordered, other_targets = WRONG["reordered"], WRONG["other targets"]


@pytest.mark.parametrize(("kind", "name"), MODELS)
def test_the_training_rows_pass(kind, name):
    model, X, y = fitted(kind, name)
    trees = "forest" in name or "tree" in name or name in ("stumps", "large leaves")
    expected = "leaf counts" if trees else "out-of-bag predictions"
    assert evidence_of(model, X, y).verified_by == expected


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize(("kind", "name"), MODELS)
def test_other_rows_do_not(kind, name, wrong):
    model, X, y = fitted(kind, name)
    with pytest.raises(
        ValueError,
        match=r"X, y are not the ensemble's training rows in their original order: .*"
        r"Pass the arrays it was fitted on, or rows it has never seen with evidence='holdout'\.",
    ):
        evidence_of(model, *WRONG[wrong](X, y))


def test_the_sentence_names_what_was_found():
    model, X, y = fitted("classifier", "forest")
    with pytest.raises(ValueError, match="for member 0, routing its bagged rows does not give"):
        evidence_of(model, *reordered(X, y))
    with pytest.raises(ValueError, match="for member 0, the targets of its bagged rows do not"):
        evidence_of(model, *other_targets(X, y))
    model, X, y = fitted("classifier", "bagged linear models")
    with pytest.raises(ValueError, match="out-of-bag predictions differ from those it kept"):
        evidence_of(model, *reordered(X, y))
    with pytest.raises(ValueError, match="y does not give the out-of-bag score it kept"):
        evidence_of(model, *other_targets(X, y))


def test_the_proof_can_be_left_out():
    model, X, y = fitted("classifier", "forest")
    assert evidence_of(model, *reordered(X, y), verify=False).verified_by is None


def test_predictions_kept_by_an_earlier_fit_prove_nothing():
    X, y = classes(n_rows=200)
    bag = BaggingClassifier(LogisticRegression(), **KEEP).fit(X, y)
    X, y = X[::-1], y[::-1]
    bag.set_params(oob_score=False).fit(X, y)
    assert hasattr(bag, "oob_decision_function_")
    assert evidence_of(bag, X, y).verified_by is None


@pytest.mark.parametrize(
    ("model", "data"),
    [
        (DecisionTreeClassifier(), classes),
        (DecisionTreeClassifier(class_weight="balanced", max_depth=5), classes),
        (DecisionTreeRegressor(), numbers),
        (DecisionTreeRegressor(max_depth=4), numbers),
    ],
    ids=["classifier", "weighted", "regressor", "shallow"],
)
@pytest.mark.parametrize("wrong", ["reordered", "other targets", "perturbed"])
def test_trees_of_a_list(model, data, wrong):
    """Trained on repeated rows, where a bag's trees are trained on weights."""
    X, y = data(n_rows=200)
    given = bootstrapped(model, X, y)
    assert evidence_of(given, X, y).verified_by == "leaf counts"
    with pytest.raises(ValueError, match="not the ensemble's training rows"):
        evidence_of(given, *WRONG[wrong](X, y))


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_the_proof_knows_the_targets_scale(scale):
    X, y = numbers(200)
    for model in (RandomForestRegressor(**MANY), BaggingRegressor(Ridge(), **KEEP)):
        model.fit(X, y * scale)
        assert evidence_of(model, X, y * scale).verified_by
        with pytest.raises(ValueError, match="not the ensemble's training rows"):
            evidence_of(model, *other_targets(X, y * scale))


def test_one_swapped_pair_of_targets_is_found_in_a_deep_regression_forest():
    model, X, y = fitted("regressor", "forest")
    y = y.copy()
    y[[3, 4]] = y[[4, 3]]
    with pytest.raises(ValueError, match="do not give its leaf values"):
        evidence_of(model, X, y)
