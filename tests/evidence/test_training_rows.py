"""Evidence of training rows: scikit-learn's out-of-bag estimate, and the proof that they are."""

import warnings
from functools import cache
from itertools import product

import numpy as np
import pytest
import sklearn
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
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
    "bagged nets": BaggingClassifier(MLPClassifier((4,), solver="lbfgs", max_fun=20), **KEEP),
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
    with pytest.raises(ValueError, match="out-of-bag predictions differ from those it kept"):
        evidence_of(model, *reordered(X, y))
    with pytest.raises(ValueError, match="y does not give the out-of-bag score it kept"):
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


quick = settings(
    max_examples=200,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
LEAF_COUNTS_HOLD_FOR_NAN = tuple(map(int, sklearn.__version__.split(".")[:2])) >= (1, 8)


def prove(ensemble, X, y):
    pool = read_ensemble(ensemble)
    return prove_training_rows(pool, pool.prepare(X), encode_target(pool, y))


@st.composite
def features(draw):
    """Rows with ties, repeats, missing values, and differences that single precision loses."""
    n_rows, n_columns = draw(st.sampled_from([25, 60, 150])), draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    X = rng.normal(size=(n_rows, n_columns))
    kind = draw(st.sampled_from(["plain", "integers", "repeats", "missing", "float32 ties", "f4"]))
    if kind == "integers":
        X = np.round(2 * X).astype(int)
    if kind == "repeats":
        X = X[rng.integers(0, n_rows // 4, n_rows)]
    if kind == "missing":
        X[rng.random(X.shape) < 0.2] = np.nan
    if kind == "float32 ties":
        X = 1.0 + X * 1e-7
    if kind == "f4":
        X = X.astype(np.float32)
    return X, rng


TREES = st.fixed_dictionaries(
    {
        "max_depth": st.sampled_from([None, 1, 3]),
        "min_samples_leaf": st.sampled_from([1, 1, 6]),
        "max_features": st.sampled_from([None, 1, 0.6]),
        "max_leaf_nodes": st.sampled_from([None, None, 4]),
        "ccp_alpha": st.sampled_from([0.0, 0.0, 0.02]),
    }
)
ROW_WEIGHTS = st.sampled_from(["none", "none", "random", "zeros", "constant"])


def row_weights(kind, rng, n_rows):
    return {
        "none": lambda: None,
        "random": lambda: rng.random(n_rows),
        "zeros": lambda: rng.integers(0, 3, n_rows) + (np.arange(n_rows) < 3.0),
        "constant": lambda: np.full(n_rows, 2.5),
    }[kind]()


def class_targets(X, rng, n_classes):
    score = np.nan_to_num(X[:, 0].astype(float))
    score = score - score.mean() + 0.5 * rng.normal(size=len(X)) * (score.std() + 1e-3)
    y = np.searchsorted(np.quantile(score, np.linspace(0, 1, n_classes + 1)[1:-1]), score)
    y[:n_classes] = np.arange(n_classes)
    return y


def class_weights(kind, n_classes):
    if kind == "dict":
        return {c: float(c) for c in range(n_classes)}  # class 0 weighs nothing
    return None if kind == "none" else kind


@st.composite
def tree_ensembles(draw):
    """A fitted forest, bag or list of trees, with its rows."""
    X, rng = draw(features())
    shape = draw(TREES)
    family = draw(st.sampled_from(["forest", "extra", "bag", "list"]))
    classification = draw(st.booleans())
    weight = row_weights(draw(ROW_WEIGHTS), rng, len(X))
    if classification:
        n_classes = draw(st.integers(2, 4))
        y = class_targets(X, rng, n_classes)
        names = ["none", "balanced", "dict"]
        names += ["balanced_subsample"] if family in ("forest", "extra") else []
        if n_classes > 2 or draw(st.booleans()):
            shape["class_weight"] = class_weights(draw(st.sampled_from(names)), n_classes)
            if n_classes == 2 and isinstance(shape["class_weight"], dict):
                shape["class_weight"] = None
        shape["criterion"] = draw(st.sampled_from(["gini", "entropy"]))
    else:
        n_classes = 0
        y = np.exp(rng.normal(size=len(X))) * draw(st.sampled_from([1.0, 1e-8, 1e6]))
        y = y + draw(st.sampled_from([0.0, 1e4]))
        shape["criterion"] = draw(st.sampled_from(["squared_error", "absolute_error", "poisson"]))
        reads_nan = get_tags(DecisionTreeRegressor(**shape)).input_tags.allow_nan
        assume(reads_nan or not np.isnan(X.astype(float)).any())  # scikit-learn 1.6 by criterion
    constrained = draw(st.booleans()) and n_classes <= 2 and not np.isnan(X.astype(float)).any()
    if constrained:
        shape["monotonic_cst"] = rng.integers(-1, 2, X.shape[1]).tolist()
    seeds = {"random_state": draw(st.integers(0, 100))}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of small bootstraps
        if family in ("forest", "extra"):
            forests = RandomForestRegressor, RandomForestClassifier
            kinds = forests if family == "forest" else (ExtraTreesRegressor, ExtraTreesClassifier)
            seeds["max_samples"] = draw(st.sampled_from([None, 0.5, 12]))
            model = kinds[classification](5, bootstrap=True, **shape, **seeds)
            return model.fit(X, y, sample_weight=weight), X, y
        tree = DecisionTreeClassifier(**shape) if classification else DecisionTreeRegressor(**shape)
        if family == "list":
            rows = [rng.integers(0, len(X), len(X)) for _ in range(3)]
            rows = [np.r_[np.arange(4), r] for r in rows]
            models = [
                clone(tree).fit(X[r], y[r], sample_weight=None if weight is None else weight[r])
                for r in rows
            ]
            return FittedMembers(models, rows), X, y
        if not constrained:
            seeds["max_features"] = draw(st.sampled_from([1.0, 0.6]))
            seeds["bootstrap_features"] = draw(st.booleans())
        seeds["max_samples"] = draw(st.sampled_from([1.0, 0.5]))
        bag = (BaggingClassifier if classification else BaggingRegressor)(tree, 5, **seeds)
        return bag.fit(X, y, sample_weight=weight), X, y


@quick
@given(tree_ensembles())
def test_tree_ensembles(case):
    model, X, y = case
    missing = np.isnan(X.astype(float)).any()
    if LEAF_COUNTS_HOLD_FOR_NAN or not missing:
        assert prove(model, X, y) == "leaf counts"
    else:
        prove(model, X, y)  # nothing to prove by, and no alarm


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
