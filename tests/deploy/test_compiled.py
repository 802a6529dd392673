"""The compiled vote equals the members' own, by whatever path each of them goes."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_diabetes, load_digits, load_iris
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
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
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC, LinearSVR
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import sparsebag as sb
from sparsebag.calibration.temperature import Temperature
from sparsebag.deploy.compiled import CompiledEnsemble, resolve_threads
from sparsebag.deploy.from_members import compile_members
from sparsebag.deploy.weighted_vote import WeightedVote
from sparsebag.evidence.from_ensemble import read_ensemble
from tree_leaves import with_random_leaves

# Ten iterations are enough to predict with, and not enough to converge.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

IRIS = load_iris(return_X_y=True)
TWO = (IRIS[0][:100] + np.random.default_rng(0).normal(size=(100, 4)), IRIS[1][:100])
DIABETES = load_diabetes(return_X_y=True)


def bag(model, data, **how):
    kind = BaggingRegressor if data is DIABETES else BaggingClassifier
    return kind(model, 6, random_state=0, **how).fit(*data)


def mlp(kind, **how):
    return kind(hidden_layer_sizes=(7, 5), max_iter=10, random_state=0, **how)


def some_classes(model, without):
    X, y = IRIS
    return model.fit(X[y != without], y[y != without])


CASES = {
    "forest": ("trees", lambda: RandomForestClassifier(6, random_state=0).fit(*IRIS), IRIS),
    "two classes": ("trees", lambda: RandomForestClassifier(6, random_state=0).fit(*TWO), TWO),
    "regression": (
        "trees",
        lambda: RandomForestRegressor(6, random_state=0).fit(*DIABETES),
        DIABETES,
    ),
    "subset trees": (
        "trees",
        lambda: bag(DecisionTreeClassifier(), IRIS, max_features=2, bootstrap_features=True),
        IRIS,
    ),
    "trees that know some classes": (
        "trees",
        lambda: [some_classes(DecisionTreeClassifier(), c) for c in range(3)],
        IRIS,
    ),
    "lines that know some classes": (
        "linear",
        lambda: [some_classes(LogisticRegression(), c) for c in range(3)],
        IRIS,
    ),
    "neighbours that know some classes": (
        "other",
        lambda: bag(KNeighborsClassifier(1), IRIS, max_samples=4),
        IRIS,
    ),
    "missed class": ("trees", lambda: bag(DecisionTreeClassifier(), IRIS, max_samples=4), IRIS),
    "stumps of nothing": (
        "trees",
        lambda: bag(DecisionTreeRegressor(max_depth=1, min_samples_split=1000), DIABETES),
        DIABETES,
    ),
    "ridge": ("linear", lambda: bag(Ridge(), DIABETES, max_features=3), DIABETES),
    "least squares": ("linear", lambda: bag(LinearRegression(), DIABETES), DIABETES),
    "linear svr": ("linear", lambda: bag(LinearSVR(), DIABETES), DIABETES),
    "logistic": ("linear", lambda: bag(LogisticRegression(), TWO), TWO),
    "multinomial": ("linear", lambda: bag(LogisticRegression(), IRIS, max_features=2), IRIS),
    "multinomial, missed class": (
        "linear",
        lambda: bag(LogisticRegression(), IRIS, max_samples=5),
        IRIS,
    ),
    "sgd, one against the rest": (
        "linear",
        lambda: bag(SGDClassifier(loss="log_loss"), IRIS),
        IRIS,
    ),
    "linear svm votes": ("linear", lambda: bag(LinearSVC(), IRIS), IRIS),
    "ridge votes": ("linear", lambda: bag(RidgeClassifier(), TWO), TWO),
    "poisson is not linear": ("other", lambda: bag(PoissonRegressor(), DIABETES), DIABETES),
    "networks": ("mlp", lambda: bag(mlp(MLPClassifier), IRIS, max_features=3), IRIS),
    "networks, two classes": ("mlp", lambda: bag(mlp(MLPClassifier, activation="tanh"), TWO), TWO),
    "networks, regression": (
        "mlp",
        lambda: bag(mlp(MLPRegressor, activation="logistic"), DIABETES),
        DIABETES,
    ),
    "kernel svm votes": ("other", lambda: bag(SVC(), IRIS, max_features=2), IRIS),
    "neighbours": ("other", lambda: bag(KNeighborsClassifier(), IRIS), IRIS),
    "pipelines": (
        "other",
        lambda: bag(make_pipeline(StandardScaler(), LogisticRegression()), IRIS),
        IRIS,
    ),
}


def both(pool, floor=1e-3, seed=0):
    weights = np.random.default_rng(seed).dirichlet(np.ones(len(pool.members)))
    return compile_members(pool, weights, floor), WeightedVote(pool, weights, floor)


def outputs(model, X, **how):
    task = (
        getattr(model, "classes", None)
        if isinstance(model, CompiledEnsemble)
        else (model.pool.classes)
    )
    return model.predict(X, **how) if task is None else model.predict_proba(X, **how)


def assert_same(ours, theirs):
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).max() <= 1e-12 * max(1.0, np.abs(theirs).max())


@pytest.mark.parametrize("case", CASES)
def test_equals_the_members_own_vote(case):
    path, make, (X, _) = CASES[case]
    compiled, vote = both(read_ensemble(make()))
    assert set(compiled.paths) == {path}
    assert path in repr(compiled)
    expected = outputs(vote, X)
    assert_same(outputs(compiled, X), expected)
    assert_same(outputs(compiled, X.copy(order="F")), expected)
    assert_same(outputs(pickle.loads(pickle.dumps(compiled)), X), expected)


@pytest.mark.parametrize("case", [case for case in CASES if "some classes" not in case])
def test_equal_weights_give_scikit_learns_vote(case):
    _, make, (X, _) = CASES[case]
    ensemble = make()
    pool = read_ensemble(ensemble)
    equal = np.full(len(pool.members), 1 / len(pool.members))
    predict = ensemble.predict if pool.classes is None else ensemble.predict_proba
    for model in (compile_members(pool, equal), WeightedVote(pool, equal)):
        assert_same(outputs(model, X), predict(X))


def test_weights_and_the_floor_by_hand():
    X, y = IRIS
    forest, weights = RandomForestClassifier(3, random_state=0).fit(X, y), np.array([0.5, 0.2, 0.3])
    by_hand = sum(w * tree.predict_proba(X) for w, tree in zip(weights, forest, strict=True))
    for model in (
        compile_members(read_ensemble(forest), weights, 0.3),
        WeightedVote(read_ensemble(forest), weights, 0.3),
    ):
        assert_same(model.predict_proba(X), 0.7 * by_hand + 0.1)


@pytest.mark.parametrize("case", CASES)
def test_one_row_equals_the_batch(case):
    _, make, (X, _) = CASES[case]
    compiled, _ = both(read_ensemble(make()))
    for row in X[:7]:
        if compiled.classes is None:
            assert compiled.predict_one(row) == pytest.approx(compiled.predict(row[None])[0], 1e-12)
            continue
        assert_same(compiled.predict_proba_one(row), compiled.predict_proba(row[None])[0])
        assert compiled.predict_one(row) == compiled.predict(row[None])[0]
        assert compiled.predict_one(list(row)) == compiled.predict_one(row)


@pytest.mark.parametrize("rows", [0, 1, 7, 8, 9, 23, 24, 25, 1023, 1024, 1025, 3000])
@pytest.mark.parametrize("missing", [False, True])
def test_any_number_of_rows(rows, missing):
    X, y = load_digits(return_X_y=True)
    if missing:
        X = np.where(np.random.default_rng(0).random(X.shape) < 0.01, np.nan, X)
    compiled, vote = both(read_ensemble(RandomForestClassifier(9, random_state=0).fit(X, y)))
    X = np.resize(X, (rows, X.shape[1]))
    if rows == 0:
        assert compiled.predict_proba(X).shape == (0, 10)
        return
    assert_same(compiled.predict_proba(X), vote.predict_proba(X))
    assert_same(compiled.predict_proba(X.astype(np.float32)), vote.predict_proba(X))


def test_threads_change_nothing():
    X, y = load_digits(return_X_y=True)
    compiled, _ = both(read_ensemble(RandomForestClassifier(60, random_state=0).fit(X, y)))
    X = np.resize(X, (9000, X.shape[1]))
    one = compiled.predict_proba(X)
    for n_jobs in (2, 5, -1):
        assert np.array_equal(compiled.predict_proba(X, n_jobs=n_jobs), one)


def test_members_that_predict_for_themselves_have_no_size_of_zero():
    compiled, _ = both(read_ensemble(bag(KNeighborsClassifier(), IRIS)))
    assert repr(compiled).endswith("other; 3 classes, floor 0.001; the members' own bytes)")


def test_threads_change_nothing_for_other_members():
    compiled, _ = both(read_ensemble(CASES["kernel svm votes"][1]()))
    X = np.resize(IRIS[0], (600, 4))
    assert np.array_equal(compiled.predict_proba(X, n_jobs=2), compiled.predict_proba(X))


@pytest.mark.parametrize("case", ["forest", "multinomial", "networks"])
def test_sparse_rows_equal_dense_ones(case):
    _, make, (X, _) = CASES[case]
    compiled, _ = both(read_ensemble(make()))
    X = np.where(X > 1.0, X, 0.0)
    for kind in (sp.csr_matrix, sp.csc_array, sp.coo_matrix):
        assert_same(compiled.predict_proba(kind(X)), compiled.predict_proba(X))


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.float16, ">f8", ">f4", object, bool])
def test_any_numbers(dtype):
    X, y = load_digits(return_X_y=True)
    forest = RandomForestClassifier(5, random_state=0).fit(X, y)
    compiled, vote = both(read_ensemble(forest))
    assert_same(compiled.predict_proba(X.astype(dtype)), vote.predict_proba(X.astype(dtype)))


def test_strides_are_read_as_they_are():
    X, y = load_digits(return_X_y=True)
    compiled, _ = both(read_ensemble(RandomForestClassifier(5, random_state=0).fit(X, y)))
    wide = np.zeros((len(X), 200))
    wide[:, ::3][:, :64] = X
    assert_same(compiled.predict_proba(wide[:, ::3][:, :64]), compiled.predict_proba(X))
    assert_same(compiled.predict_proba(X[::-2]), compiled.predict_proba(X)[::-2])
    assert_same(compiled.predict_proba_one(wide[3, ::3][:64]), compiled.predict_proba_one(X[3]))


def test_a_mixed_ensemble_takes_several_paths():
    X, y = IRIS
    models = [
        ("tree", DecisionTreeClassifier(max_depth=3)),
        ("line", LogisticRegression()),
        ("net", mlp(MLPClassifier)),
        ("svm", SVC()),
    ]
    compiled, vote = both(read_ensemble(VotingClassifier(models).fit(X, y)))
    assert compiled.paths == ("trees", "linear", "mlp", "other")
    assert f"{compiled.nbytes:,} bytes and the other members' own)" in repr(compiled)
    assert_same(compiled.predict_proba(X), vote.predict_proba(X))
    assert_same(compiled.predict_proba_one(X[0]), compiled.predict_proba(X[:1])[0])


def test_copies_with_other_leaves():
    X, y = IRIS
    pool = read_ensemble(RandomForestClassifier(4, random_state=0).fit(X, y))
    compiled, vote = both(with_random_leaves(pool))
    own, _ = both(pool)
    assert_same(compiled.predict_proba(X), vote.predict_proba(X))
    assert np.abs(compiled.predict_proba(X) - own.predict_proba(X)).max() > 0.1


@pytest.mark.parametrize("case", ["forest", "two classes", "logistic"])
def test_a_temperature_is_applied_after_the_floor(case):
    _, make, (X, _) = CASES[case]
    pool = read_ensemble(make())
    weights = np.full(6, 1 / 6)
    plain = compile_members(pool, weights, 1e-3)
    warm = compile_members(pool, weights, 1e-3, Temperature(0.4))
    expected = Temperature(0.4).transform(plain.predict_proba(X))
    assert_same(warm.predict_proba(X), expected)
    assert_same(warm.predict_proba_one(X[3]), expected[3])
    assert "temperature" in repr(warm)


def test_any_calibrator_is_applied():
    class Reversed:
        kind, params = "reversed", {}

        def transform(self, proba):
            return proba[:, ::-1]

    X, _ = TWO
    pool = read_ensemble(CASES["two classes"][1]())
    plain = compile_members(pool, np.full(6, 1 / 6))
    turned = replace(plain, calibrator=Reversed())
    assert_same(turned.predict_proba(X), plain.predict_proba(X)[:, ::-1])
    assert_same(turned.predict_proba_one(X[0]), plain.predict_proba_one(X[0])[::-1])


@pytest.mark.parametrize("temperature", [0.0, -1.0, np.inf, np.nan])
def test_a_temperature_is_positive(temperature):
    with pytest.raises(ValueError, match="must be above 0 and finite"):
        Temperature(temperature)


def test_a_class_without_votes_gets_exactly_zero():
    X, y = TWO
    forest = RandomForestClassifier(7, random_state=0).fit(X, y)
    weights = np.random.default_rng(0).dirichlet(np.ones(7))
    proba = compile_members(read_ensemble(forest), weights).predict_proba(X)
    sure = forest.predict_proba(X).max(axis=1) == 1.0
    assert sure.any()
    assert np.all(proba[sure].min(axis=1) == 0.0)
    assert np.all(proba >= 0.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X: X[:, :3], "X has 3 features, but 4 were fitted"),
        (lambda X: X[0], "must be a table of rows and columns"),
        (lambda X: np.where(X[0, 0] == X, np.inf, X), "infinity or a value too large"),
        (lambda X: X * 1e300, "infinity or a value too large"),
    ],
)
def test_bad_rows_get_one_sentence(change, message):
    compiled, _ = both(read_ensemble(CASES["forest"][1]()))
    with pytest.raises(ValueError, match=message):
        compiled.predict_proba(change(IRIS[0]))


def test_bad_single_rows_get_one_sentence():
    compiled, _ = both(read_ensemble(CASES["forest"][1]()))
    with pytest.raises(ValueError, match="has 3 columns, but 4 were fitted"):
        compiled.predict_proba_one(np.zeros(3))
    with pytest.raises(ValueError, match="one row has one dimension"):
        compiled.predict_one([[1.0, 2.0]])
    with pytest.raises(ValueError, match="infinity"):
        compiled.predict_one(np.full(4, np.inf))


@pytest.mark.parametrize("n_rows", [2, 150])
def test_infinity_beside_nan_is_refused(n_rows):
    """The kernel looks for the largest magnitude, and that of NaN is above infinity's."""
    X, y = IRIS
    holes = np.where(np.random.default_rng(0).random(X.shape) < 0.1, np.nan, X)
    compiled, _ = both(read_ensemble(RandomForestClassifier(6, random_state=0).fit(holes, y)))
    rows = X[:n_rows].copy()
    rows[0, 0] = np.nan
    assert compiled.predict_proba(rows).shape == (n_rows, 3)
    for row, value in ((0, np.inf), (1, -np.inf)):
        bad = rows.copy()
        bad[row, 1] = value
        with pytest.raises(ValueError, match="infinity or a value too large"):
            compiled.predict_proba(bad)
    with pytest.raises(ValueError, match="infinity or a value too large"):
        compiled.predict_proba_one(np.array([np.nan, np.inf, 1.0, 1.0]))


@pytest.mark.parametrize("case", ["multinomial", "networks", "ridge"])
def test_members_that_cannot_read_nan_say_so(case):
    _, make, (X, _) = CASES[case]
    compiled, _ = both(read_ensemble(make()))
    with pytest.raises(ValueError, match="contains NaN"):
        outputs(compiled, np.where(np.arange(X.shape[1]) == 1, np.nan, X))


def test_trees_with_constraints_cannot_read_nan():
    X, y = DIABETES
    forest = RandomForestRegressor(5, monotonic_cst=[1] + [0] * 9, random_state=0).fit(X, y)
    compiled, _ = both(read_ensemble(forest))
    with pytest.raises(ValueError, match="contains NaN"):
        compiled.predict(np.full((3, 10), np.nan))
    with pytest.raises(ValueError, match="contains NaN"):
        compiled.predict_one(np.full(10, np.nan))


def test_a_regressor_has_no_probabilities():
    compiled, _ = both(read_ensemble(CASES["regression"][1]()))
    assert not hasattr(compiled, "predict_proba")
    for name in ("predict_proba", "predict_proba_one"):
        with pytest.raises(AttributeError, match="a regression ensemble has no predict_proba"):
            getattr(compiled, name)(DIABETES[0])


@pytest.mark.parametrize(("case", "has_classes"), [("regression", False), ("forest", True)])
def test_a_loaded_model_has_probabilities_if_it_has_classes(tmp_path, case, has_classes):
    compiled, _ = both(read_ensemble(CASES[case][1]()))
    sb.save(compiled, tmp_path / "model.sb")
    loaded = sb.load(tmp_path / "model.sb")
    assert hasattr(loaded, "predict_proba") is has_classes
    assert "Class probabilities" in CompiledEnsemble.predict_proba.__doc__


def test_counting_threads():
    assert resolve_threads(-1) >= 1
    with pytest.raises(ValueError, match="n_jobs=0 has no meaning"):
        resolve_threads(0)


def test_the_estimator_predicts_through_it_and_pickles_carry_it():
    X, y = IRIS
    small = sb.compress(RandomForestClassifier(60, random_state=0).fit(X, y), X, y)
    compiled = small.compile()
    assert compiled.paths == ("trees",) * small.n_active_
    assert np.array_equal(small.predict_proba(X), compiled.predict_proba(X.astype(np.float32)))
    copy = pickle.loads(pickle.dumps(small))
    assert np.array_equal(copy.compile().predict_proba(X), compiled.predict_proba(X))
    assert compiled.nbytes < len(pickle.dumps(small.estimators_))


def test_writing_to_the_arrays_cannot_harm_the_kernel():
    compiled, _ = both(read_ensemble(CASES["forest"][1]()))
    before = compiled.predict_proba(IRIS[0])
    (trees,) = compiled.groups
    trees.children[:] = 10**6
    assert np.array_equal(compiled.predict_proba(IRIS[0]), before)


@pytest.mark.parametrize(
    ("name", "at", "value", "message"),
    [
        ("children", (0, 0), 0, "a child does not come after its parent"),
        ("children", (0, 1), 10**6, "a child does not come after its parent"),
        ("children", (0, 1), -(10**6), "a leaf has no row in the table of values"),
        ("children", (1, 1), 2, "a node has two parents"),
        ("roots", (1,), 0, "a node has two parents"),
        ("feature", (0,), 4, "reads a feature that does not exist"),
        ("feature", (0,), -1, "reads a feature that does not exist"),
        ("threshold", (0,), np.nan, "a threshold is not a number"),
        ("values", (0, 0), np.inf, "a leaf value is not finite"),
    ],
)
def test_the_kernel_checks_every_index(name, at, value, message):
    compiled, _ = both(read_ensemble(CASES["forest"][1]()))
    (trees,) = compiled.groups
    array = getattr(trees, name).copy()
    array[at] = value
    with pytest.raises(ValueError, match=message):
        replace(trees, **{name: array})
