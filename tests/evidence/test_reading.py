"""Reading forests, bags, voters, lists and other libraries: what members say of unseen rows."""

import copy
import pickle
import sys

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_diabetes
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
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import sparsebag as sb
from evidence.votes import bootstrapped, classes, evidence_of, numbers, uniform_vote
from models import RF, XGB, of, rare
from sparsebag.evidence.from_ensemble import read_ensemble
from sparsebag.evidence.members import FittedMembers
from sparsebag.evidence.readers import optional_import
from sparsebag.evidence.readers.from_arrays import Leaf, built_tree, category_split
from sparsebag.evidence.training_rows import prove_training_rows


def by_hand(model, X, y):
    """What one model gives the true class (labels are 0, 1, ... or sorted), or predicts."""
    if hasattr(model, "predict_proba"):
        return model.predict_proba(X)[np.arange(len(y)), np.searchsorted(model.classes_, y)]
    return model.predict(X) == y if hasattr(model, "classes_") else model.predict(X)


def assert_votes_by_hand(given, X, y, evidence):
    for j, model in enumerate(given.models):
        rows = np.setdiff1d(np.arange(len(y)), given.estimators_samples[j])
        block = X[rows]
        if given.estimators_features is not None:
            block = block[:, given.estimators_features[j]]
        np.testing.assert_array_equal(evidence.votes[rows, j], by_hand(model, block, y[rows]))
        np.testing.assert_array_equal(np.flatnonzero(evidence.oob_mask[:, j]), rows)


@pytest.mark.parametrize(
    "model",
    [
        RandomForestClassifier(6, random_state=0, max_samples=0.3),
        RandomForestClassifier(6, random_state=0, class_weight="balanced"),
        BaggingClassifier(None, 6, random_state=0, bootstrap=False, max_samples=60),
        BaggingClassifier(LogisticRegression(), 6, random_state=0, max_samples=0.5),
    ],
    ids=["forest", "weighted", "pasting", "bag"],
)
def test_masks_copies_and_the_model_itself(model):
    """The mask is the complement of the bags; pickles and copies say the same; nothing changes."""
    X, y = classes()
    model.fit(np.r_[X, X], np.r_[y, y])  # a repeated row is unseen unless it was drawn itself
    X, y = np.r_[X, X], np.r_[y, y]
    before = pickle.dumps(model)
    evidence = evidence_of(model, X, y)
    for j, rows in enumerate(model.estimators_samples_):
        np.testing.assert_array_equal(np.flatnonzero(~evidence.oob_mask[:, j]), np.unique(rows))
    assert pickle.dumps(model) == before
    for again in (pickle.loads(before), copy.deepcopy(model), FrozenEstimator(model)):
        np.testing.assert_array_equal(evidence_of(again, X, y).votes, evidence.votes)


def test_a_class_missing_from_a_bootstrap_gets_no_vote():
    X, y = classes(2)
    y[0] = 2
    bag = BaggingClassifier(KNeighborsClassifier(3), 12, random_state=0).fit(X, y)
    missing = [j for j, member in enumerate(bag.estimators_) if len(member.classes_) == 2]
    assert 0 < len(missing) < 12
    evidence = evidence_of(bag, X, y, class_votes=True)
    for j in missing:
        assert not evidence.class_votes[2][:, [j]].toarray().any()
        assert np.all(evidence.votes[y == 2, j] == 0)
    total = sum(plane.toarray() for plane in evidence.class_votes)
    np.testing.assert_allclose(total[evidence.oob_mask], 1.0, rtol=1e-6)
    for base in (SVC(), DecisionTreeClassifier(), LogisticRegression()):  # seen with no weight
        bag = BaggingClassifier(base, 8, random_state=0).fit(X, y)
        evidence = evidence_of(bag, X, y, class_votes=True)
        assert evidence.n_classes == 3
        assert np.all(evidence.votes[evidence.oob_mask] <= 1)


class NoClasses(ClassifierMixin, BaseEstimator):
    """A voter without classes_; a bag can use it, so can we."""

    def fit(self, X, y):
        self.most_ = np.bincount(y).argmax()
        return self

    def predict(self, X):
        return np.full(len(X), self.most_)


def test_a_voter_without_classes_and_bags_of_every_row_and_of_none():
    X, y = classes()
    bag = BaggingClassifier(NoClasses(), 20, random_state=0).fit(X, y)
    evidence = evidence_of(bag, X, y)
    assert np.array_equal(evidence.votes[:, 0] == 1, evidence.oob_mask[:, 0] & (y == 2))
    bag = BaggingClassifier(None, 5, bootstrap=False, max_features=0.5).fit(X, y)
    for class_votes in (False, True):
        assert not evidence_of(bag, X, y, class_votes=class_votes).covered().any()
    models = [DecisionTreeClassifier(random_state=j).fit(*classes(seed=1)) for j in range(3)]
    evidence = evidence_of(FittedMembers(models, [[], [], []]), X, y)
    assert evidence.oob_mask.all()
    assert evidence.verified_by is None


def test_warm_start():
    """A forest keeps every seed; a bag forgets its first bags, but not its members."""
    X, y = classes()
    forest = RandomForestClassifier(3, warm_start=True, random_state=0).fit(X, y)
    forest.set_params(n_estimators=8).fit(X, y)
    whole = RandomForestClassifier(8, random_state=0).fit(X, y)
    np.testing.assert_array_equal(evidence_of(forest, X, y).votes, evidence_of(whole, X, y).votes)
    bag = BaggingClassifier(None, 3, warm_start=True, random_state=0).fit(X, y)
    bag.set_params(n_estimators=5).fit(X, y)
    assert evidence_of(bag, *classes(seed=1), source="holdout").n_members == 5


def test_labels_of_every_kind():
    X, y = classes()
    kinds = {
        "floats": np.array([0.0, 1.0, 2.0])[y],
        "booleans": y > 0,
        "negative": np.array([-5, 0, 7])[y],
        "strings": np.array(["b", "a", "c"])[y],
        "objects": np.array(["b", "a", "c"], dtype=object)[y],
    }
    for labels in kinds.values():
        forest = RandomForestClassifier(4, random_state=0).fit(X, labels)
        evidence = evidence_of(forest, X, labels)
        np.testing.assert_array_equal(evidence.classes[evidence.target], labels)


def test_targets_that_single_precision_blurs_are_kept_in_double():
    X, y = numbers()
    seconds = 1.7e9 + np.round(y)  # clock times of one day, in seconds since 1970
    forest = RandomForestRegressor(30, random_state=0).fit(X, seconds)
    evidence = evidence_of(forest, X, seconds)
    assert evidence.votes.dtype == np.float64
    rows = evidence.oob_mask[:, 0]
    np.testing.assert_array_equal(evidence.votes[rows, 0], forest.estimators_[0].predict(X[rows]))


@pytest.mark.parametrize("n_columns", [None, 4])
@pytest.mark.parametrize(
    ("model", "data"),
    [
        (DecisionTreeClassifier(), classes),
        (LogisticRegression(), classes),
        (LinearSVC(), classes),
        (KNeighborsClassifier(), classes),
        (make_pipeline(StandardScaler(), LogisticRegression()), classes),
        (DecisionTreeRegressor(max_depth=4), numbers),
        (Ridge(), numbers),
    ],
    ids=lambda value: type(value).__name__,
)
def test_lists(model, data, n_columns):
    X, y = data()
    given = bootstrapped(model, X, y, n_columns=n_columns)
    assert_votes_by_hand(given, X, y, evidence_of(given, X, y, dtype=np.float64))


def test_trees_beside_other_models():
    """Not all members are trees, so X stays as given; the trees' leaves are proof all the same."""
    X, y = classes()
    trees = bootstrapped(DecisionTreeClassifier(), X, y, 3)
    linear = bootstrapped(LogisticRegression(), X, y, 3, seed=1)
    samples = [*trees.estimators_samples, *linear.estimators_samples]
    given = FittedMembers([*trees.models, *linear.models], samples)
    for rows in (X, X.astype(np.float32)):
        evidence = evidence_of(given, rows, y, dtype=np.float64)
        assert evidence.verified_by == "leaf counts"
    assert_votes_by_hand(given, X, y, evidence_of(given, X, y, dtype=np.float64))
    shuffled = np.random.default_rng(0).permutation(len(y))
    with pytest.raises(ValueError, match="not the ensemble's training rows"):
        evidence_of(given, X[shuffled], y[shuffled])


def test_models_that_know_different_classes():
    X, y = classes()
    names = np.array(["c", "a", "b"])[y]
    first = LogisticRegression().fit(X[y != 2], names[y != 2])
    second = LogisticRegression().fit(X[y != 0], names[y != 0])
    evidence = evidence_of([first, second], X, names, source="holdout", class_votes=True)
    assert evidence.classes.tolist() == ["a", "b", "c"]
    assert np.all(evidence.votes[y == 2, 0] == 0)
    assert np.all(evidence.votes[y == 0, 1] == 0)
    expected = first.predict_proba(X[y == 1])[:, 0]
    np.testing.assert_allclose(evidence.votes[y == 1, 0], expected, rtol=1e-6)


MODELS = [
    ("logistic", LogisticRegression()),
    ("tree", DecisionTreeClassifier(max_depth=3, random_state=0)),
    ("neighbours", KNeighborsClassifier()),
    ("gone", "drop"),
]
VOTES_ONLY = [(f"{c}", LinearSVC(C=c)) for c in (0.01, 0.1, 1.0)]
REGRESSORS = [("tree", DecisionTreeRegressor()), ("gone", "drop"), ("line", LinearRegression())]


@pytest.mark.parametrize(
    ("ensemble", "data"),
    [
        (VotingClassifier(MODELS, voting="soft"), classes),
        (VotingClassifier(MODELS), classes),  # reads probabilities where there are some
        (VotingClassifier(VOTES_ONLY), classes),
        (VotingRegressor(REGRESSORS), numbers),
        (ExtraTreesClassifier(5, random_state=0), classes),
        (ExtraTreesRegressor(5, random_state=0), numbers),
        (RandomForestClassifier(5, random_state=0), classes),
        (BaggingRegressor(Ridge(), 5, random_state=0), numbers),
    ],
    ids=["soft", "hard", "votes", "regressor", "extra trees", "extra regression", "forest", "bag"],
)
@pytest.mark.parametrize("as_list", [False, True])
def test_every_member_votes_on_held_out_rows(ensemble, data, as_list):
    X, y = data(n_rows=301)
    new, y_new = X[1::2], y[1::2]
    ensemble.fit(X[::2], y[::2])
    given = list(ensemble.estimators_) if as_list else ensemble
    evidence = evidence_of(given, new, y_new, source="holdout", dtype=np.float64)
    assert (evidence.oob_mask, evidence.source, evidence.verified_by) == (None, "holdout", None)
    assert evidence.votes.shape == (150, len(ensemble.estimators_))
    for j, member in enumerate(ensemble.estimators_):
        np.testing.assert_array_equal(evidence.votes[:, j], by_hand(member, new, y_new))


def table(X):
    """A DataFrame with a text column, and columns by name."""
    kinds = np.where(X[:, 0] > 0, "high", "low")
    return pd.DataFrame({"kind": kinds, "a": X[:, 1], "b": X[:, 2]})


def test_data_frames_with_strings_for_pipelines():
    def columns():
        return make_column_transformer((OneHotEncoder(), ["kind"]), (StandardScaler(), ["a", "b"]))

    X, y = classes(n_rows=300)
    new, y_new = table(X[1::2]), y[1::2]
    pipelines = [
        ("logistic", make_pipeline(columns(), LogisticRegression())),
        ("tree", make_pipeline(columns(), DecisionTreeClassifier(max_depth=3))),
    ]
    voter = VotingClassifier(pipelines, voting="soft").fit(table(X[::2]), y[::2])
    expected = voter.predict_proba(new)[np.arange(len(y_new)), y_new]
    in_any_order = new[["b", "kind", "a"]].assign(more=1)
    for ensemble in (voter, list(voter.estimators_)):
        for frame in (new, in_any_order):
            evidence = evidence_of(ensemble, frame, y_new, source="holdout", block_rows=40)
            np.testing.assert_allclose(uniform_vote(evidence), expected, rtol=1e-5)


def test_text_and_columns_of_a_data_frame_by_name():
    texts, y = ["good dog", "bad cat", "good cat", "bad dog"] * 10, np.array([1, 0, 1, 0] * 10)
    members = [(f"{c}", make_pipeline(TfidfVectorizer(), LogisticRegression(C=c))) for c in (1, 9)]
    voter = VotingClassifier(members, voting="soft").fit(texts, y)
    for given in (texts, np.array(texts), pd.Series(texts)):
        vote = uniform_vote(evidence_of(voter, given, y, source="holdout"))
        np.testing.assert_allclose(vote, by_hand(voter, texts, y), rtol=1e-6)
    X, y = classes()
    frame, columns = pd.DataFrame(X, columns=[*"abcdef"]), [np.array([0, 2, 3]), np.array([5, 1])]
    for model in (LogisticRegression, DecisionTreeClassifier):
        models = [model().fit(frame.iloc[:, c], y) for c in columns]
        evidence = evidence_of(FittedMembers(models, None, columns), frame, y, source="holdout")
        for j, c in enumerate(columns):
            expected = by_hand(models[j], frame.iloc[:, c], y)
            np.testing.assert_allclose(evidence.votes[:, j], expected, rtol=1e-6)


@pytest.mark.parametrize("kind", [sp.csr_array, sp.csc_matrix, sp.coo_matrix])
def test_sparse_for_models_that_take_x_as_it_is(kind):
    X, y = many_zeros()
    members = [("a", LogisticRegression()), ("b", DecisionTreeClassifier(max_depth=3))]
    voter = VotingClassifier(members, voting="soft").fit(kind(X), y)
    votes = evidence_of(voter, X, y, source="holdout").votes
    sparse = evidence_of(voter, kind(X), y, source="holdout", block_rows=50).votes
    np.testing.assert_allclose(sparse, votes, atol=1e-6)


def test_training_rows_in_another_order_pass_as_held_out():
    X, y = classes(3)
    forest = RandomForestClassifier(6, random_state=0).fit(X, y)
    assert evidence_of(forest, X[::-1], y[::-1], source="holdout").oob_mask is None


ENSEMBLES = {
    "forest": RandomForestClassifier(8, random_state=0),
    "bag of trees": BaggingClassifier(None, 8, max_features=0.6, random_state=0),
    "bag of linear models": BaggingClassifier(LogisticRegression(), 8, random_state=0),
    "bag of linear patches": BaggingClassifier(
        LinearSVC(), 8, max_features=0.6, bootstrap_features=True, random_state=0
    ),
    "bag of neighbours": BaggingClassifier(KNeighborsClassifier(), 8, random_state=0),
}


def many_zeros():
    """Integer features, mostly zero, exact in every dtype and storage."""
    X, y = classes()
    X = np.round(X).astype(np.float64)
    X[np.random.default_rng(0).random(X.shape) < 0.4] = 0
    return X, y


def int64_indices(X, kind):
    X = kind(X)
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    return X


DENSE = {
    "Fortran order": np.asfortranarray,
    "single precision": lambda X: X.astype(np.float32),
    "Fortran single": lambda X: np.asfortranarray(X.astype(np.float32)),
    "integers": lambda X: X.astype(np.int64),
    "small integers": lambda X: X.astype(np.int8),
    "strided": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    "list": lambda X: X.tolist(),
    "DataFrame": lambda X: pd.DataFrame(X, columns=list("abcdef")),
    "DataFrame of integers": lambda X: pd.DataFrame(X.astype(int), columns=list("abcdef")),
    "DataFrame of nullable integers": lambda X: pd.DataFrame(X).astype("Int64"),
    "DataFrame with another index": lambda X: pd.DataFrame(X, index=range(len(X), 0, -1)),
}
SPARSE = {
    "csr_matrix": sp.csr_matrix,
    "csc_matrix": sp.csc_matrix,
    "csr_array": sp.csr_array,
    "csc_array": sp.csc_array,
    "coo_array": sp.coo_array,
    "single precision": lambda X: sp.csr_matrix(X.astype(np.float32)),
    "64-bit indices": lambda X: int64_indices(X, sp.csr_array),
}


@pytest.mark.parametrize("form", DENSE)
@pytest.mark.parametrize("ensemble", ENSEMBLES)
def test_dense(ensemble, form):
    X, y = many_zeros()
    given = DENSE[form](X)
    model = ENSEMBLES[ensemble].fit(given, y)
    evidence = evidence_of(model, given, y)
    expected = evidence_of(ENSEMBLES[ensemble].fit(X, y), X, y)
    np.testing.assert_allclose(evidence.votes, expected.votes, atol=1e-3)
    if "tree" in ensemble or ensemble == "forest":
        np.testing.assert_array_equal(evidence.votes, expected.votes)


@pytest.mark.parametrize("form", SPARSE)
@pytest.mark.parametrize("ensemble", ENSEMBLES)
def test_sparse(ensemble, form):
    X, y = many_zeros()
    model = ENSEMBLES[ensemble].fit(sp.csr_matrix(X), y)
    given = SPARSE[form](X)
    before = given.copy()
    evidence = evidence_of(model, given, y, block_rows=32, class_votes=True)
    expected = evidence_of(model, sp.csr_matrix(X), y, class_votes=True)
    np.testing.assert_allclose(evidence.votes, expected.votes, atol=1e-6)
    assert type(given) is type(before)
    assert given.dtype == before.dtype
    if hasattr(given, "indices"):
        assert given.indices.dtype == before.indices.dtype


@pytest.mark.parametrize(
    "kind", [list, pd.Series, lambda y: y[:, None], lambda y: pd.Series(y, y[::-1]), pd.DataFrame]
)
def test_targets_and_row_weights_in_every_form(kind):
    X, y = classes()
    names, weight = np.array(["a", "b", "c"])[y], np.arange(len(y))
    forest = RandomForestClassifier(4, random_state=0).fit(X, names)
    assert evidence_of(forest, X, names).sample_weight is None
    evidence = evidence_of(forest, X, kind(names), sample_weight=kind(weight))
    np.testing.assert_array_equal(evidence.target, y)
    np.testing.assert_array_equal(evidence.sample_weight, weight)
    assert evidence.sample_weight.dtype == np.float64
    category = pd.Series(names).astype("category")
    np.testing.assert_array_equal(evidence_of(forest, X, category).target, y)


RNG = np.random.default_rng(0)


def with_gaps(categories=False):
    X, y = load_diabetes(return_X_y=True)
    X = X.astype(np.float32)
    X[RNG.uniform(size=X.shape) < 0.1] = np.nan
    if categories:
        X[:, 1] = RNG.integers(0, 12, len(X))
        y = y + 60.0 * np.isin(X[:, 1], [2, 3, 7, 11])
    return X, y


@pytest.mark.parametrize("categories", [False, True], ids=["numbers", "categories"])
@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_regression_forests_are_read_exactly(library, categories):
    X, y = with_gaps(categories)
    if library == "xgboost":
        kinds = ["c" if j == 1 and categories else "q" for j in range(X.shape[1])]
        how = {"feature_types": kinds, "enable_categorical": True, "max_cat_to_onehot": 4}
        model = of(library, "XGBRFRegressor", **XGB, **how)().fit(X, y)
    else:
        how = {"categorical_feature": [1]} if categories else {}
        model = of(library, "LGBMRegressor", **RF)().fit(X, y, **how)
    pool = read_ensemble(model)
    mean_vote = np.mean([member.predict(pool.prepare(X)) for member in pool.members], axis=0)
    assert_allclose(mean_vote, model.predict(X), rtol=1e-4)
    assert pool.in_bag is None


@pytest.mark.parametrize(
    ("library", "name"), [("xgboost", "XGBClassifier"), ("lightgbm", "LGBMClassifier")]
)
def test_boosting_is_refused(library, name):
    model = of(library, name, n_estimators=3, n_jobs=1)().fit(*rare())
    with pytest.raises(TypeError, match=r"as boosting does; pass a random forest \(XGBRF"):
        sb.compress(model, *rare())


@pytest.mark.parametrize("how", [{}, {"bootstrap": True, "replacement": False}])
def test_balanced_bags_are_known(how):
    X, y = rare()
    kind = "BalancedRandomForestClassifier"
    model = of("imblearn.ensemble", kind, n_estimators=10, random_state=0, **how)().fit(X, y)
    pool = read_ensemble(model)
    assert prove_training_rows(pool, pool.prepare(X), y) == "leaf counts"
    with pytest.raises(ValueError, match="not the ensemble's training rows"):
        sb.compress(model, X[::-1], y[::-1])


def test_a_set_of_categories_becomes_splits_on_numbers():
    inside, outside = Leaf(np.array([1.0]), 1.0), Leaf(np.array([0.0]), 1.0)
    codes = [0, 1, 4, 9]
    split = category_split(0, codes, inside, outside, missing_inside=True)
    tree = built_tree(split, lambda k: k, 1, None)
    rows = np.append(np.arange(12.0), np.nan)[:, None]
    assert_array_equal(tree.predict(rows), [*np.isin(np.arange(12), codes), 1.0])


def test_a_library_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "skops.io", None)
    with pytest.raises(ImportError, match=r"needs skops; pip install 'sparsebag\[cli\]'"):
        optional_import("skops.io", "cli", "saving a Pipeline")
