"""Evidence of training rows: scikit-learn's out-of-bag estimate, and the proof that they are."""

import warnings
from functools import cache
from itertools import product

import numpy as np
import pytest
import sklearn
from sklearn.base import clone, is_classifier
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
from sklearn.utils import get_tags

import sparsebag as sb
from evidence.votes import classes, evidence_of, numbers, uniform_class_votes, uniform_vote
from sparsebag.evidence.collect import encode_target
from sparsebag.evidence.from_ensemble import read_ensemble
from sparsebag.evidence.members import FittedMembers
from sparsebag.evidence.training_rows import prove_training_rows

CLOSE = {"rtol": 0, "atol": 1e-12}
MANY = {"n_estimators": 30, "random_state": 1}
KEEP = {**MANY, "oob_score": True}

CLASSIFIER_BAGS = [
    (DecisionTreeClassifier(), {}),
    (ExtraTreeClassifier(), {}),
    (DecisionTreeClassifier(), {"max_samples": 0.5}),
    (DecisionTreeClassifier(), {"max_samples": 40}),
    (DecisionTreeClassifier(), {"max_features": 0.5}),
    (DecisionTreeClassifier(), {"bootstrap_features": True}),
    (LogisticRegression(), {"max_samples": 0.7, "max_features": 0.7, "bootstrap_features": True}),
    (LogisticRegression(), {}),
    (LinearSVC(), {}),
    (SVC(), {}),
    (KNeighborsClassifier(), {}),
    (MLPClassifier((5,), solver="lbfgs", max_iter=300, max_fun=30), {}),
    (make_pipeline(StandardScaler(), LogisticRegression()), {}),
    (make_pipeline(StandardScaler(), LinearSVC()), {"max_features": 0.6}),
    (RandomForestClassifier(3), {}),
]
REGRESSOR_BAGS = [
    (DecisionTreeRegressor(), {}),
    (DecisionTreeRegressor(), {"max_samples": 0.6, "max_features": 0.5}),
    (Ridge(), {"max_features": 0.7}),
    (SVR(C=100.0), {}),
    (KNeighborsRegressor(), {}),
    (make_pipeline(StandardScaler(), Ridge()), {"bootstrap_features": True}),
]
SHAPES = [{}, {"max_samples": 0.4}, {"max_depth": 2}, {"min_samples_leaf": 7}]
CLASS_WEIGHTS = (None, "balanced", "balanced_subsample", {0: 5.0, 1: 1.0, 2: 0.1})
CRITERIA = ("squared_error", "absolute_error", "poisson")
ALIKE = [
    *(BaggingClassifier(base, **KEEP, **how) for base, how in CLASSIFIER_BAGS),
    *(BaggingRegressor(base, **KEEP, **how) for base, how in REGRESSOR_BAGS),
    *(
        forest(bootstrap=True, class_weight=weight, **KEEP, **shape)
        for forest in (RandomForestClassifier, ExtraTreesClassifier)
        for shape, weight in product(SHAPES, CLASS_WEIGHTS)
    ),
    *(
        forest(bootstrap=True, criterion=criterion, **KEEP, **shape)
        for forest in (RandomForestRegressor, ExtraTreesRegressor)
        for shape, criterion in product(SHAPES, CRITERIA)
    ),
]
WEIGHTED = [
    RandomForestClassifier(**KEEP),
    RandomForestRegressor(**KEEP),
    BaggingClassifier(DecisionTreeClassifier(), **KEEP),
    BaggingClassifier(LogisticRegression(), **KEEP),
]


@pytest.mark.parametrize(
    ("model", "weighted"),
    [*((model, False) for model in ALIKE), *((model, True) for model in WEIGHTED)],
    ids=str,
)
def test_the_uniform_vote_is_scikit_learns(model, weighted):
    X, y = classes() if is_classifier(model) else numbers()
    y = y if is_classifier(model) else np.abs(y)  # Poisson's are not negative
    weight = np.random.default_rng(0).integers(0, 4, len(y)) * 1.0 if weighted else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of convergence, and of rows in every bag
        model.fit(X, y, sample_weight=weight)
    evidence = evidence_of(model, X, y, class_votes=True, dtype=np.float64)
    assert evidence.votes.dtype == np.float64
    rows = evidence.covered()
    if is_classifier(model):
        assert rows.mean() > 0.8
        kept = model.oob_decision_function_
        kept_true = kept[np.arange(len(y)), y]
        np.testing.assert_allclose(uniform_vote(evidence)[rows], kept_true[rows], **CLOSE)
        np.testing.assert_allclose(uniform_class_votes(evidence)[rows], kept[rows], **CLOSE)
    else:
        assert weighted or rows.all()
        kept = model.oob_prediction_[rows]
        np.testing.assert_allclose(uniform_vote(evidence)[rows], kept, rtol=1e-12)
    if not weighted:
        trees = "Tree" in type(model.estimator).__name__
        assert evidence.verified_by == ("leaf counts" if trees else "out-of-bag predictions")


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


@cache
def fitted(kind, name):
    """Each model once, with its rows, which pass; the tests below only read it."""
    X, y = classes(2, n_rows=200) if kind == "classifier" else numbers(200)
    y = y if kind == "classifier" else np.abs(y)
    model = (CLASSIFIERS if kind == "classifier" else REGRESSORS)[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of convergence
        model.fit(X, y)
    trees = "forest" in name or "tree" in name or name in ("stumps", "large leaves")
    expected = "leaf counts" if trees else "out-of-bag predictions"
    assert evidence_of(model, X, y).verified_by == expected
    return model, X, y


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


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize(("kind", "name"), MODELS)
def test_the_training_rows_pass_and_others_do_not(kind, name, wrong):
    model, X, y = fitted(kind, name)
    few_leaves = kind == "classifier" and name in ("stumps", "large leaves")
    if few_leaves and wrong == "other targets" and not hasattr(model, "_sample_weight"):
        pytest.skip("this scikit-learn may have weighted the rows, which few leaves do not tell")
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
    with pytest.raises(ValueError, match="out-of-bag predictions differ from the stored ones"):
        evidence_of(model, *reordered(X, y))
    with pytest.raises(ValueError, match="y does not reproduce the stored out-of-bag score"):
        evidence_of(model, *other_targets(X, y))
    assert evidence_of(model, *reordered(X, y), verify=False).verified_by is None


def test_predictions_kept_by_an_earlier_fit_prove_nothing():
    X, y = classes(n_rows=200)
    bag = BaggingClassifier(LogisticRegression(), **KEEP).fit(X, y)
    X, y = X[::-1], y[::-1]
    bag.set_params(oob_score=False).fit(X, y)
    assert hasattr(bag, "oob_decision_function_")
    assert evidence_of(bag, X, y).verified_by is None


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


LEAF_COUNTS_HOLD_FOR_NAN = tuple(map(int, sklearn.__version__.split(".")[:2])) >= (1, 8)


def prove(ensemble, X, y):
    pool = read_ensemble(ensemble)
    return prove_training_rows(pool, pool.prepare(X), encode_target(pool, y))


# Rows with ties, repeats, missing values, and differences that single precision loses.
FEATURES = {
    "plain": lambda X, rng: X,
    "integers": lambda X, rng: np.round(2 * X).astype(int),
    "repeats": lambda X, rng: X[rng.integers(0, len(X) // 4, len(X))],
    "missing": lambda X, rng: np.where(rng.random(X.shape) < 0.2, np.nan, X),
    "float32 ties": lambda X, rng: 1.0 + X * 1e-7,
    "single precision": lambda X, rng: X.astype(np.float32),
}
ROW_WEIGHTS = {
    "none": lambda rng, n: None,
    "random": lambda rng, n: rng.random(n),
    "zeros": lambda rng, n: rng.integers(0, 3, n) + (np.arange(n) < 3.0),
    "constant": lambda rng, n: np.full(n, 2.5),
}
TREES = {
    "max_depth": [None, 1, 3],
    "min_samples_leaf": [1, 1, 6],
    "max_features": [None, 1, 0.6],
    "max_leaf_nodes": [None, None, 4],
    "ccp_alpha": [0.0, 0.0, 0.02],
}
FORESTS = {
    "forest": (RandomForestRegressor, RandomForestClassifier),
    "extra": (ExtraTreesRegressor, ExtraTreesClassifier),
}


def tree_ensemble(features, weights, family, n_classes):
    """A forest, bag or list of trees of any shape, fitted, with its rows."""
    rng = np.random.default_rng([ord(features[0]), ord(weights[0]), ord(family[0]), n_classes])
    one_of = lambda *values: values[rng.integers(len(values))]  # noqa: E731
    X = FEATURES[features](rng.normal(size=(one_of(25, 60, 150), rng.integers(1, 6))), rng)
    n, numbers_of_X = len(X), X.astype(float)
    weight, shape = ROW_WEIGHTS[weights](rng, n), {k: one_of(*v) for k, v in TREES.items()}
    if n_classes:
        score = np.nan_to_num(numbers_of_X[:, 0])
        score = score + 0.5 * rng.normal(size=n) * (score.std() + 1e-3)
        y = score.argsort().argsort() * n_classes // n
        y[:n_classes] = np.arange(n_classes)
        subsample = ["balanced_subsample"] if family in FORESTS else []
        nothing = [{c: float(c) for c in range(n_classes)}] if n_classes > 2 else []
        shape["class_weight"] = one_of(None, "balanced", *subsample, *nothing)
        shape["criterion"] = one_of("gini", "entropy")
    else:
        y = np.exp(rng.normal(size=n)) * one_of(1.0, 1e-8, 1e6) + one_of(0.0, 1e4)
        shape["criterion"] = one_of(*CRITERIA)
    tree = (DecisionTreeClassifier if n_classes else DecisionTreeRegressor)(**shape)
    if features == "missing" and not get_tags(tree).input_tags.allow_nan:
        pytest.skip("this scikit-learn's trees read no NaN by this criterion")
    constrained = n_classes <= 2 and features != "missing" and one_of(False, True)
    if constrained:
        shape["monotonic_cst"] = rng.integers(-1, 2, X.shape[1]).tolist()
        tree.set_params(**shape)
    if family == "list":
        rows = [np.r_[np.arange(4), rng.integers(0, n, n)] for _ in range(3)]
        own = [None if weight is None else weight[r] for r in rows]
        fitted = [clone(tree).fit(X[r], y[r], w) for r, w in zip(rows, own, strict=True)]
        return FittedMembers(fitted, rows), X, y
    if family == "bag":
        how = {"max_samples": one_of(1.0, 0.5)}
        if not constrained:
            how |= {"max_features": one_of(1.0, 0.6), "bootstrap_features": one_of(False, True)}
        model = (BaggingClassifier if n_classes else BaggingRegressor)(tree, 5, **how)
    else:
        shape["max_samples"] = one_of(None, 0.5, 12)
        model = FORESTS[family][n_classes > 0](5, bootstrap=True, **shape)
    return model.set_params(random_state=0).fit(X, y, sample_weight=weight), X, y


@pytest.mark.filterwarnings("ignore")  # of small bootstraps
@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("weights", ROW_WEIGHTS)
@pytest.mark.parametrize("family", [*FORESTS, "bag", "list"])
@pytest.mark.parametrize("n_classes", [0, 2, 4])
def test_tree_ensembles(features, weights, family, n_classes):
    found = prove(*tree_ensemble(features, weights, family, n_classes))
    if LEAF_COUNTS_HOLD_FOR_NAN or features != "missing":  # else no proof, and no alarm
        assert found == "leaf counts"


def test_a_one_class_member_does_not_raise_an_alarm():
    """scikit-learn adds its single column to every class; what it kept is wrong, not X."""
    X = np.arange(40.0)[:, None]
    y = np.r_[1, np.zeros(39, dtype=int)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bag = BaggingClassifier(KNeighborsClassifier(1), 8, oob_score=True, random_state=0)
        bag.fit(X, y)
    assert any(len(m.classes_) == 1 for m in bag.estimators_)
    assert prove(bag, X, y) is None


@pytest.mark.parametrize("seed", range(3))
def test_many_rows_of_large_targets(seed):
    """Sums of many large numbers in another order still agree."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(20_000, 2)), 1e7 + rng.normal(size=20_000)
    forest = RandomForestRegressor(3, max_depth=2, random_state=seed).fit(X, y)
    assert prove(forest, X, y) == "leaf counts"


@pytest.mark.parametrize("criterion", ["squared_error", "absolute_error"])
def test_targets_that_are_a_little_off_are_told(criterion):
    """Between the least and the largest of each leaf, so that only its mean or median knows."""
    X, y = numbers(400)
    leaves = {"min_samples_leaf": 10, "criterion": criterion}
    forest = RandomForestRegressor(**MANY, **leaves).fit(X, y)
    off = 0.99 * y + 0.01 * y.mean()
    for members, how in (
        (forest, {}),
        (forest.estimators_, {"estimators_samples": forest.estimators_samples_}),
    ):
        with pytest.raises(ValueError, match="not the ensemble's training rows"):
            sb.compress(members, X, off, max_estimators=5, **how)
        sb.compress(members, X, y, max_estimators=5, **how)
