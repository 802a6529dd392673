"""The training rows always pass the proof, whatever the forest was fitted with."""

import warnings

import numpy as np
import pytest
import sklearn
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from sparsebag.evidence.collect import encode_target
from sparsebag.evidence.from_ensemble import read_ensemble
from sparsebag.evidence.members import FittedMembers
from sparsebag.evidence.training_rows import prove_training_rows

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
    constrained = draw(st.booleans()) and n_classes <= 2 and not np.isnan(X.astype(float)).any()
    if constrained:
        shape["monotonic_cst"] = rng.integers(-1, 2, X.shape[1]).tolist()
    seeds = {"random_state": draw(st.integers(0, 100))}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of small bootstraps
        if family in ("forest", "extra"):
            kinds = {
                ("forest", True): RandomForestClassifier,
                ("forest", False): RandomForestRegressor,
                ("extra", True): ExtraTreesClassifier,
                ("extra", False): ExtraTreesRegressor,
            }
            seeds["max_samples"] = draw(st.sampled_from([None, 0.5, 12]))
            model = kinds[family, classification](5, bootstrap=True, **shape, **seeds)
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


BASES = {
    "linear": (LogisticRegression(), LinearRegression()),
    "neighbours": (KNeighborsClassifier(3), KNeighborsRegressor(3)),
}


@quick
@given(
    features(),
    st.sampled_from(list(BASES)),
    st.booleans(),
    ROW_WEIGHTS,
    st.sampled_from([1.0, 0.6]),
    st.booleans(),
)
def test_other_bags(data, base, classification, weighted, max_features, repeat_columns):
    X, rng = data
    X = np.nan_to_num(X)
    y = class_targets(X, rng, 3) if classification else rng.normal(size=len(X))
    weight = row_weights(weighted, rng, len(X)) if base == "linear" else None
    kind = BaggingClassifier if classification else BaggingRegressor
    bag = kind(
        BASES[base][0 if classification else 1],
        6,
        max_features=max_features,
        bootstrap_features=repeat_columns,
        oob_score=True,
        random_state=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of uncovered rows and of convergence
        try:
            bag.fit(X, y, sample_weight=weight)
        except ValueError:  # a class missing from a bag is too much for scikit-learn's own score
            return
    assert prove(bag, X, y) in ("out-of-bag predictions", None)


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
