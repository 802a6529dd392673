"""Small ensembles of every kind of member, compiled and as they are."""

import warnings
from functools import cache

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    ExtraTreesClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
    VotingClassifier,
)
from sklearn.linear_model import (
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    Ridge,
    RidgeClassifier,
    SGDClassifier,
)
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC, LinearSVR
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from sparsebag.deploy.from_members import compile_members
from sparsebag.deploy.weighted_vote import WeightedVote
from sparsebag.evidence.from_ensemble import read_ensemble
from sparsebag.evidence.members import Member
from sparsebag.student.trees import pruned_tree
from synthetic_gates import linear_gate
from toy import CANCER, DIABETES, IRIS, with_missing

NAMED = (IRIS[0], np.array(["setosa", "versicolor", "virginica"])[IRIS[1]])
TWO = (IRIS[0][:100] + np.random.default_rng(0).normal(size=(100, 4)), IRIS[1][:100])
FOREST = RandomForestClassifier(6, random_state=0)
NUMBERS = RandomForestRegressor(6, random_state=0)
TREE, LINE = DecisionTreeClassifier(random_state=0), LogisticRegression()


def bag(model, **how):
    kind = BaggingClassifier if is_classifier(model) else BaggingRegressor
    return kind(model, 6, random_state=0, **how)


def mlp(kind, **how):
    return kind(hidden_layer_sizes=(7, 5), max_iter=10, random_state=0, **how)


def stump(depth):
    return DecisionTreeClassifier(max_depth=depth, random_state=0)


def near(k):
    return KNeighborsClassifier(k, algorithm="brute")


def soft(*models):
    return VotingClassifier([(f"m{j}", m) for j, m in enumerate(models)], voting="soft")


# Name: the path its members take, the ensemble or a model for all classes but one, the rows.
CASES = {
    "three classes": ("trees", FOREST, NAMED),
    "two classes": ("trees", FOREST, TWO),
    "regression": ("trees", NUMBERS, DIABETES),
    "extra trees": ("trees", ExtraTreesClassifier(6, bootstrap=True, random_state=0), IRIS),
    "missing values": ("trees", FOREST, with_missing(IRIS)),
    "missing, two classes": ("trees", FOREST, with_missing(CANCER)),
    "missing, regression": ("trees", NUMBERS, with_missing(DIABETES)),
    "feature subsets": ("trees", bag(TREE, max_features=2, bootstrap_features=True), IRIS),
    "a missed class": ("trees", bag(TREE, max_samples=4), NAMED),
    "trees that know some classes": ("trees", [TREE], IRIS),
    "single leaves": ("trees", bag(DecisionTreeRegressor(min_samples_split=9999)), DIABETES),
    "ridge": ("linear", bag(Ridge(), max_features=3, bootstrap_features=True), DIABETES),
    "least squares": ("linear", bag(LinearRegression()), DIABETES),
    "linear svr": ("linear", bag(LinearSVR()), DIABETES),
    "logistic": ("linear", bag(LINE), TWO),
    "multinomial": ("linear", bag(LINE, max_features=2), NAMED),
    "multinomial, missed class": ("linear", bag(LINE, max_samples=5), IRIS),
    "lines that know some classes": ("linear", [LINE], IRIS),
    "one against the rest": ("linear", bag(SGDClassifier(loss="log_loss", random_state=0)), IRIS),
    "linear svm votes": ("linear", bag(LinearSVC()), IRIS),
    "ridge votes": ("linear", bag(RidgeClassifier()), TWO),
    "networks": ("mlp", bag(mlp(MLPClassifier), max_features=3, bootstrap_features=True), IRIS),
    "networks, two classes": ("mlp", bag(mlp(MLPClassifier, activation="tanh")), TWO),
    "networks, regression": ("mlp", bag(mlp(MLPRegressor, activation="logistic")), DIABETES),
    "poisson is not linear": ("other", bag(PoissonRegressor()), DIABETES),
    "kernel svm votes": ("other", bag(SVC(), max_features=2), IRIS),
    "neighbours": ("other", bag(near(3)), IRIS),
    "neighbours, regression": ("other", bag(KNeighborsRegressor(3)), DIABETES),
    "neighbours, some classes": ("other", bag(KNeighborsClassifier(1), max_samples=4), IRIS),
    "pipelines": ("other", bag(make_pipeline(StandardScaler(), LINE)), IRIS),
    "mixed": (
        "trees linear other trees other mlp",
        soft(stump(3), LINE, near(9), stump(1), near(3), mlp(MLPClassifier)),
        IRIS,
    ),
    "trees and lines": ("trees linear", soft(TREE, LINE), IRIS),
}
OF_TREES = [name for name, (path, *_) in CASES.items() if path == "trees"]
OF_ARRAYS = [name for name, (path, *_) in CASES.items() if "other" not in path]


@cache
def fitted(name):
    """The ensemble, or models of which each has not seen one class."""
    _, model, (X, y) = CASES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a few steps do not converge; so be it
        if isinstance(model, list):
            return [clone(model[0]).fit(X[y != c], y[y != c]) for c in np.unique(y)]
        return clone(model).fit(X, y)


@cache
def pool_of(name):
    return read_ensemble(fitted(name))


def made(name, calibrator=None, *, gate=None, pool=None, floor=1e-3):
    """The compiled vote under uneven weights, the members' own, and rows; ``gate`` is a rank."""
    pool, X = pool_of(name) if pool is None else pool, CASES[name][2][0]
    k = len(pool.members)
    weights = np.random.default_rng(0).dirichlet(np.ones(k))
    gate = None if gate is None else linear_gate(k, X.shape[1], 3, rank=gate)
    how = (pool, weights, floor, None if pool.classes is None else calibrator, gate)
    return compile_members(*how), WeightedVote(*how), X


def outputs(model, X, **how):
    """Probabilities, or numbers."""
    classes = model.pool.classes if isinstance(model, WeightedVote) else model.classes
    return model.predict(X, **how) if classes is None else model.predict_proba(X, **how)


def one_of(model):
    """The same of one row."""
    return model.predict_one if model.classes is None else model.predict_proba_one


def assert_same(ours, theirs):
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).max() <= 1e-12 * max(1.0, np.abs(theirs).max())


def with_leaves(member: Member, values: np.ndarray, *, is_vote: bool) -> Member:
    """A copy of a tree whose nodes say ``values``: numbers, or shares of every class."""
    tree = member.estimator.tree_
    every, leaf = np.arange(tree.node_count), tree.children_left < 0
    n_features = tree.n_features if member.features is None else int(member.features.max()) + 1
    other = pruned_tree(member, every, leaf, values, is_vote, n_features)
    columns = np.arange(values.shape[1]) if is_vote else None
    return Member(other, None, columns)
