"""The estimators and `compress`: what is learned and printed, predictions, settings, rows."""

import functools
import inspect
import os
import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
    VotingClassifier,
)
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

import sparsebag as sb
from evidence.votes import bootstrapped
from sparsebag import SparseBaggingClassifier, SparseBaggingRegressor, compress
from sparsebag.deploy.from_members import compile_members
from sparsebag.evidence.from_ensemble import read_ensemble
from sparsebag.objective.losses import Brier
from sparsebag.settings import DEFAULT_FLOOR
from sparsebag.solvers.active_set import ActiveSet
from toy import CANCER, DIABETES, DIGITS, IRIS, with_missing

N = 30


def small_forest(**settings):
    return RandomForestClassifier(N, random_state=0, **settings)


def fitted(X, y, **how):
    """Iris has too few rows to be sure of much less than tolerance=0.5."""
    return SparseBaggingClassifier(small_forest(), tolerance=0.5).fit(X, y, **how)


@pytest.fixture(scope="module")
def classifier():
    return fitted(*IRIS)


@pytest.mark.parametrize("is_regressor", [False, True])
def test_weights_are_on_the_simplex_with_exact_zeros(is_regressor, classifier):
    regressor = SparseBaggingRegressor(RandomForestRegressor(N, random_state=0))
    small = regressor.fit(*DIABETES) if is_regressor else classifier
    assert small.weights_.shape == (N,)
    assert small.weights_.min() >= 0
    assert small.weights_.sum() == pytest.approx(1, abs=1e-12)
    assert_array_equal(small.active_, np.flatnonzero(small.weights_))
    assert small.n_active_ == len(small.active_) == len(small.estimators_)
    assert small.n_nodes_ == sum(tree.tree_.node_count for tree in small.estimators_)
    assert small.n_nodes_ < small.selection_.before.nodes
    assert small.solution_ is None


BAGS = {
    "forest": small_forest(),
    "columns drawn": BaggingClassifier(
        n_estimators=N, max_features=0.5, bootstrap_features=True, random_state=0
    ),
    "classes missing": BaggingClassifier(
        KNeighborsClassifier(1), n_estimators=N, max_samples=6, random_state=0
    ),
    "no predict_proba": BaggingClassifier(RidgeClassifier(), n_estimators=N, random_state=0),
}


@functools.cache
def fitted_bag(name):
    return BAGS[name].fit(*IRIS)


def vote_by_hand(small, members, X, floor=DEFAULT_FLOOR, features=None):
    """(1 - ε) Σ w_j P_j + ε / C, member by member, columns and classes put where they belong."""
    features = features or [slice(None)] * len(members)
    said = zip(small.weights_, members, features, strict=True)
    n_classes = len(small.classes_)
    total = np.zeros((len(X), n_classes))
    for weight, member, columns in said:
        if hasattr(member, "predict_proba"):
            proba = member.predict_proba(X[:, columns])
            total[:, member.classes_.astype(int)] += weight * proba
        else:
            total[np.arange(len(X)), member.predict(X[:, columns]).astype(int)] += weight
    return (1 - floor) * total + floor / n_classes


@pytest.mark.parametrize(("loss", "floor"), [("log_loss", "auto"), ("brier", 0.0), ("auto", 0.2)])
@pytest.mark.parametrize("name", BAGS)
def test_probabilities_are_the_survivors_weighted_mean(name, loss, floor):
    X, y = IRIS
    bag = fitted_bag(name)
    plain = {"refine": None, "calibration": None}
    small = SparseBaggingClassifier(
        FrozenEstimator(bag), loss=loss, floor=floor, max_estimators=9, **plain
    ).fit(X, y)
    assert small.n_active_ < N
    proba = small.predict_proba(X)
    floor = DEFAULT_FLOOR if floor == "auto" else floor
    features = getattr(bag, "estimators_features_", None)
    expected = vote_by_hand(small, bag.estimators_, X, floor, features)
    assert_allclose(proba, expected, atol=1e-12)
    assert_allclose(proba.sum(axis=1), 1, rtol=1e-15)
    assert_array_equal(small.predict(X), small.classes_[proba.argmax(axis=1)])
    assert_allclose(np.exp(small.predict_log_proba(X)), proba, atol=1e-15)


def test_a_zero_probability_has_a_logarithm_without_a_warning():
    X, y = IRIS
    plain = {"refine": None, "calibration": None}
    small = SparseBaggingClassifier(small_forest(), loss="brier", floor=0.0, **plain).fit(X, y)
    assert np.isneginf(small.predict_log_proba(X)).any()


def test_string_labels():
    X, y = IRIS
    names = np.array(["setosa", "versicolor", "virginica"])
    small, number = fitted(X, names[y]), fitted(X, y)
    assert_array_equal(small.classes_, names)
    assert_array_equal(small.weights_, number.weights_)
    assert_array_equal(small.predict(X), names[number.predict(X)])
    category = fitted(X, pd.Series(names[y], dtype="category"))
    assert_array_equal(category.predict(X), small.predict(X))
    small.fit(*CANCER)  # forgets the former fit
    assert small.n_features_in_ == CANCER[0].shape[1]
    assert_array_equal(small.classes_, [0, 1])
    assert small.predict_proba(CANCER[0][:3]).shape == (3, 2)


def test_missing_values_where_the_trees_take_them():
    X, y = IRIS
    gaps = X.copy()
    gaps[::7, 0] = np.nan
    small = fitted(gaps, y)
    assert np.isfinite(small.predict_proba(gaps)).all()
    with pytest.raises(ValueError, match="contains NaN"):  # scikit-learn's trees: dense only
        small.predict(sp.csr_array(gaps))
    with pytest.raises(ValueError, match="contains infinity"):
        small.predict(np.where(np.isnan(gaps), np.inf, gaps))


@pytest.mark.parametrize("kind", ["classifier", "regressor"])
def test_the_seed_fixes_the_weights_whatever_the_threads(kind):
    cls, forest, (X, y) = {
        "classifier": (SparseBaggingClassifier, RandomForestClassifier(N), CANCER),
        "regressor": (SparseBaggingRegressor, RandomForestRegressor(N), DIABETES),
    }[kind]
    one = cls(forest, tolerance=0.1, random_state=3, n_jobs=1).fit(X, y)
    two = cls(forest, tolerance=0.1, random_state=3, n_jobs=2).fit(X, y)
    other = cls(forest, tolerance=0.1, random_state=4).fit(X, y)
    assert_array_equal(one.weights_, two.weights_)
    assert_array_equal(one.predict(X), two.predict(X))
    vote = "predict_proba" if kind == "classifier" else "predict"
    assert not np.array_equal(getattr(one, vote)(X), getattr(other, vote)(X))


def test_without_a_random_state_the_ensembles_own_is_kept(classifier):
    again = SparseBaggingClassifier(small_forest(), tolerance=0.5, random_state=None).fit(*IRIS)
    assert_array_equal(again.weights_, classifier.weights_)
    default = SparseBaggingClassifier(random_state=0).fit(*IRIS)
    assert len(default.weights_) == 100


def test_a_fitted_ensemble_that_is_not_frozen_is_fitted_anew():
    X, y = IRIS
    forest = small_forest().fit(X[:100], y[:100])
    small = SparseBaggingClassifier(forest, random_state=7)
    before = small.get_params()
    small.fit(X, y)
    after = small.get_params()
    assert all(before[name] is after[name] for name in before.keys() | after.keys())
    assert forest.random_state == 0
    assert len(small.classes_) == 3
    assert len(forest.classes_) == 2


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # SLSQP's own limit
def test_the_paper_preset_runs_slsqp_without_floor_and_drops_dust():
    X, y = CANCER
    small = SparseBaggingClassifier(small_forest(), preset="paper").fit(X, y)
    assert small.solution_.solver == "slsqp"
    assert small.weights_[small.active_].min() > 1e-5
    forest = small_forest().fit(X, y)
    expected = vote_by_hand(small, forest.estimators_, X, 0.0)
    assert_allclose(small.predict_proba(X), expected, atol=1e-12)
    explicit = SparseBaggingClassifier(small_forest(), preset="paper", floor=0.1, solver="auto")
    assert explicit.fit(X, y).predict_proba(X).min() >= 0.05 - 1e-12
    for own in ({"lam": 0.5}, {"prior_mass": 0.5}, {"loss": "brier"}):
        other = SparseBaggingClassifier(small_forest(), preset="paper", **own).fit(X, y)
        assert not np.array_equal(other.weights_, small.weights_)
    auto = SparseBaggingClassifier(small_forest(), preset="paper", lam="auto").fit(X, y)
    assert_array_equal(auto.weights_, small.weights_)


@pytest.fixture(scope="module")
def held_out():
    """A convex problem: votes on held-out rows, no penalty. Its minimum is one number."""
    X, y = make_classification(600, 10, n_informative=5, flip_y=0.2, random_state=1)
    models = [
        ("nb", GaussianNB()),
        ("lr", LogisticRegression()),
        *[(f"t{d}", DecisionTreeClassifier(max_depth=d, random_state=0)) for d in (1, 2, 3, 5)],
    ]
    return VotingClassifier(models).fit(X[:300], y[:300]), X[300:], y[300:]


def fit_on(voter, X, y, sample_weight=None):
    """Weights alone: a calibrator draws its voters by chance, row by row."""
    how = {"lam": 0.0, "evidence": "holdout", "calibration": None}
    return compress(voter, X, y, sample_weight=sample_weight, **how)


def test_doubling_a_weight_is_repeating_the_row_and_their_scale_does_not_matter(held_out):
    voter, X, y = held_out
    counts = np.random.default_rng(0).integers(0, 4, len(y))  # 0 leaves the row out
    weighted = fit_on(voter, X, y, sample_weight=counts)
    repeated = fit_on(voter, np.repeat(X, counts, axis=0), np.repeat(y, counts))
    plain = fit_on(voter, X, y)
    assert weighted.solution_.objective == pytest.approx(repeated.solution_.objective, abs=2e-6)
    assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=5e-3)
    assert abs(weighted.solution_.objective - plain.solution_.objective) > 1e-3
    weight = np.random.default_rng(2).random(len(y))
    one, other = (fit_on(voter, X, y, sample_weight=s * weight) for s in (1.0, 1024.0))
    assert_array_equal(one.weights_, other.weights_)


def test_sample_weight_reaches_both_the_ensemble_and_the_loss():
    X, y = CANCER
    weight = np.where(y == 0, 2.0, 1.0)
    small = fitted(X, y, sample_weight=weight)
    forest = small_forest().fit(X, y, sample_weight=weight)
    frozen = SparseBaggingClassifier(FrozenEstimator(forest), tolerance=0.5)
    both = clone(frozen).fit(X, y, sample_weight=weight)
    assert_array_equal(small.predict_proba(X), both.predict_proba(X))
    forest_only = clone(frozen).fit(X, y)
    assert not np.array_equal(small.predict_proba(X), forest_only.predict_proba(X))


MANY = 40
# Half the rows train, half judge, for what has no bootstrap.
TRAIN, JUDGE = np.arange(0, 569, 2), np.arange(1, 569, 2)


@pytest.fixture(scope="module")
def forest():
    return RandomForestClassifier(MANY, random_state=0).fit(*CANCER)


@pytest.mark.parametrize(
    ("ensemble", "data", "expected"),
    [
        (RandomForestClassifier(MANY, random_state=0), CANCER, SparseBaggingClassifier),
        (BaggingRegressor(n_estimators=MANY, random_state=0), DIABETES, SparseBaggingRegressor),
    ],
    ids=["forest", "regression bag"],
)
def test_the_right_estimator_comes_out_and_the_ensemble_stays_as_it_was(ensemble, data, expected):
    X, y = data
    before = pickle.dumps(ensemble.fit(X, y))
    small = compress(ensemble, X, y, max_nodes=0.2)
    assert type(small) is expected
    small.predict(X)
    assert pickle.dumps(ensemble) == before
    assert small.estimator is ensemble  # a clone fits and compresses it anew


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


PENALISED = {"lam": [0.2], "loss": ["brier", Brier()], "floor": [0.1], "prior_mass": [0.5]}
PENALISED |= {"solver": ["active_set", ActiveSet(tol=1e-4)], "n_jobs": [2]}
SELECTED = {"tolerance": [0.0], "confidence": [0.999], "max_estimators": [4], "max_nodes": [100]}
SELECTED |= {"max_bytes": [1_200], "calibration": [None], "refine": [None], "floor": [0.3]}
SELECTED |= {"rehearsal": [2, False], "lam": [0.0], "n_jobs": [2], "solver": ["active_set"]}
BASES = {"lam": (0.0, PENALISED), "tolerance": (0.1, SELECTED)}
SETTINGS = [
    (base, name, value)
    for base, (_, table) in BASES.items()
    for name, values in table.items()
    for value in values
]


@functools.cache
def as_it_is(base, forest):
    return compress(forest, *CANCER, **{base: BASES[base][0]})


@pytest.mark.parametrize(("base", "name", "value"), SETTINGS)
def test_every_setting_reaches_the_estimator(base, name, value, forest):
    plain = as_it_is(base, forest)
    alone = value is False or (base, name) == ("tolerance", "lam")  # a tolerance needs a judge
    given = {} if alone else {base: BASES[base][0]}
    small = compress(forest, *CANCER, **{**given, name: value})
    assert small.get_params()[name] == value
    if base == "lam":  # weights of the penalised way
        assert np.array_equal(small.weights_, plain.weights_) == (name == "n_jobs")
    else:
        same = np.array_equal(small.predict_proba(CANCER[0]), plain.predict_proba(CANCER[0]))
        assert same == (name in ("n_jobs", "solver"))


@pytest.mark.parametrize("refine", [None, "auto"])
def test_sample_weight_moves_the_vote(forest, refine):
    X, y = CANCER
    weight = np.random.default_rng(0).integers(1, 10, len(y))
    how = {"refine": refine, "max_nodes": 0.2}
    small = compress(forest, X, y, sample_weight=weight, **how)
    plain = compress(forest, X, y, **how)
    assert not np.array_equal(small.predict_proba(X), plain.predict_proba(X))
    same = compress(forest, X, y, sample_weight=pd.Series(weight), **how)
    assert_array_equal(small.predict_proba(X), same.predict_proba(X))


def test_progress_goes_to_standard_error(forest, capsys):
    events = []  # what is printed, to a callback
    compress(forest, *CANCER, max_nodes=0.2, verbose=events.append)
    rehearsed = [(e.number, e.total) for e in events if e.step == "rehearsal step"]
    assert rehearsed == [(part, 12) for part in range(1, 13)]
    assert sorted(event.seconds for event in events) == [event.seconds for event in events]
    compress(forest, *CANCER, max_nodes=0.2, verbose=2)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count(" s left\n") == 11
    told = [line.split(" s  ")[1].split(",")[0] for line in printed.err.splitlines()]
    rehearsed = [f"rehearsal step {part} of 12" for part in range(1, 13)]
    assert told == ["reading the ensemble and its rows", *rehearsed, "pruning and refitting"]
    compress(forest, *CANCER, lam=0.0, verbose=1)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "fitting weights" in printed.err
    compress(forest, *CANCER, lam=0.0)
    assert capsys.readouterr() == ("", "")


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
    expected = vote_by_hand(small, voter.estimators_, X)
    assert_allclose(small.predict_proba(X), expected, atol=1e-12)


@pytest.mark.parametrize("n_columns", [None, 10])
def test_a_list_with_its_in_bag_rows_and_columns(n_columns):
    X, y = CANCER
    tree = DecisionTreeClassifier(max_features="sqrt", random_state=0)
    bag = bootstrapped(tree, X, y, MANY, n_columns=n_columns)
    known = {name: getattr(bag, name) for name in ("estimators_samples", "estimators_features")}
    how = {"max_estimators": 9, "refine": None, "calibration": None}
    small = compress(bag.models, X, y, **known, **how)
    assert type(small) is SparseBaggingClassifier
    assert small.n_active_ <= 9
    kept = [bag.models[j] for j in small.active_]
    assert all(ours is theirs for ours, theirs in zip(kept, small.estimators_, strict=True))
    expected = vote_by_hand(small, bag.models, X, features=bag.estimators_features)
    assert_allclose(small.predict_proba(X), expected, atol=1e-12)


@pytest.mark.parametrize("container", [list, tuple])
def test_a_list_judged_by_held_out_rows(container):
    X, y = CANCER
    unfitted = GaussianNB(), DecisionTreeClassifier()
    models = container(model.fit(X[TRAIN], y[TRAIN]) for model in unfitted)
    small = compress(models, X[JUDGE], y[JUDGE], evidence="holdout")
    assert small.weights_.shape == (2,)
    assert small.report(X[JUDGE], y[JUDGE]).n_rows == len(JUDGE)
    copied = pickle.loads(pickle.dumps(small))
    assert_array_equal(copied.predict_proba(X), small.predict_proba(X))
    assert copied.report(X[JUDGE], y[JUDGE], baseline=models).n_rows == len(JUDGE)


class Column:
    """Of no library we know: it has predict."""

    def __init__(self, column):
        self.column = column

    def predict(self, X):
        return np.asarray(X)[:, self.column]


class Sign(Column):
    """And classes_ and predict_proba."""

    classes_ = np.array([0, 1])

    def predict_proba(self, X):
        p = 1 / (1 + np.exp(-super().predict(X)))
        return np.column_stack([1 - p, p])

    def predict(self, X):
        return self.predict_proba(X).argmax(axis=1)


@pytest.mark.parametrize(
    ("kind", "estimator"), [(Sign, SparseBaggingClassifier), (Column, SparseBaggingRegressor)]
)
def test_models_of_other_libraries_go_to_the_estimator_of_their_task(kind, estimator):
    X = np.random.default_rng(0).normal(size=(200, 4))
    y = (X[:, 2] > 0).astype(int) if kind is Sign else X[:, 2]
    small = compress([kind(j) for j in range(4)], X, y, evidence="holdout")
    assert isinstance(small, estimator)
    assert small.weights_.argmax() == 2
    assert small.predict(X).shape == (200,)


def test_without_a_tolerance_the_budget_is_spent():
    X, y = CANCER
    forest = RandomForestClassifier(60, random_state=0).fit(X, y)
    lenient = compress(forest, X, y, max_nodes=0.2, tolerance=0.5)
    spent = compress(forest, X, y, max_nodes=0.2)
    assert lenient.n_nodes_ < spent.n_nodes_ <= 0.2 * spent.selection_.before.nodes
    assert spent.selection_.expected_risk <= lenient.selection_.expected_risk
    # calibration comes last: without it the rest is the same, recipes apart, which it judges
    plain, unjudged = (
        compress(forest, X, y, max_nodes=0.2, rehearsal=False, calibration=calibration)
        for calibration in (None, "auto")
    )
    assert np.array_equal(plain.weights_, unjudged.weights_)
    uncalibrated = replace(unjudged.compile(), calibrator=None)
    assert np.array_equal(plain.predict_proba(X), uncalibrated.predict_proba(X))


FORESTS = {
    "two classes": (RandomForestClassifier(30, random_state=0), CANCER),
    "ten classes": (RandomForestClassifier(20, random_state=0), (DIGITS[0][:600], DIGITS[1][:600])),
    "regression": (RandomForestRegressor(30, random_state=0), DIABETES),
    "missing values": (RandomForestClassifier(30, random_state=0), with_missing(CANCER)),
    "small": (RandomForestClassifier(30, random_state=0), IRIS),
}
CALLS = [
    *({}, {"tolerance": 0.0}, {"tolerance": 0.5, "confidence": 0.95}),
    *({"max_nodes": nodes} for nodes in (0.05, 0.1, 1, 3)),
    {"max_estimators": 5, "max_nodes": 300, "max_bytes": 50_000},
    *({"max_bytes": 2000}, {"rehearsal": False}, {"refine": None}, {"calibration": None}),
    {"lam": 0.05},
]


@pytest.fixture(scope="module", params=FORESTS)
def problem(request):
    ensemble, (X, y) = FORESTS[request.param]
    return ensemble.fit(X, y), X, y


def fits_a_screen(text):
    lines = text.splitlines()
    assert len(lines) <= 8
    assert max(map(len, lines)) < 90  # none ends in the middle of a word because of its length
    assert all(line == line.rstrip() for line in lines)
    assert "nan" not in text.replace("finance", "")
    return lines


@pytest.mark.parametrize("how", CALLS, ids=str)
def test_what_was_chosen_is_printed_drawn_and_saved(problem, how, tmp_path):
    _, X, _ = problem
    small = compress(*problem, **how)
    lines = fits_a_screen(str(small.selection_))
    heads = [line.split()[0] for line in lines]
    assert heads[0] == "trees"
    assert {"file", "quality", "method"} <= set(heads)
    curve = small.path_
    from_others = how.keys().isdisjoint({"lam", "rehearsal"})  # a size was chosen from others
    assert ("next" in heads) == (curve is not None) == from_others
    assert "max_nodes=" not in lines[-1]  # the model may be smaller than any size named there
    if curve is not None:
        frame, html = curve.to_frame(), curve._repr_html_()
        assert len(frame) == len(curve)
        assert np.all(np.diff(frame["share"]) >= 0)
        assert frame["share"].iloc[-1] == 1.0
        assert np.all(np.isfinite(frame.to_numpy(dtype=float)))
        assert html.startswith("<svg")
        assert "nan" not in html
        assert small.selection_.curve is curve
    path = tmp_path / "small.sbag"
    small.save(path)
    assert os.path.getsize(path) == small.nbytes_
    loaded = sb.load(path)  # bit for bit
    assert_array_equal(loaded.predict(X), small.predict(X))
    if hasattr(small, "classes_"):
        assert_array_equal(loaded.predict_proba(X), small.predict_proba(X))
        assert_array_equal(loaded.predict_proba_one(X[3]), small.predict_proba(X[3:4])[0])


@pytest.mark.filterwarnings("ignore::sparsebag.UncoveredRowsWarning")
def test_of_members_that_are_no_trees():
    bag = BaggingClassifier(LogisticRegression(C=0.1), 20, random_state=0).fit(*IRIS)
    text = str(compress(bag, *IRIS).selection_)
    lines = fits_a_screen(text)
    assert lines[0].startswith("members  20 → ")
    assert "nodes" not in text  # there are none, so none are spoken of
    assert "0 bytes" not in text


def test_a_file_is_never_larger_than_the_whole_ensembles(problem):
    ensemble, X, y = problem
    pool = read_ensemble(ensemble)
    n = len(pool.members)
    for calibrated in (None, "auto"):
        small = compress(ensemble, X, y, calibration=calibrated)
        calibrator = None if small.calibration_ is None else small.calibration_.calibrator
        whole = compile_members(pool, np.full(n, 1.0 / n), small.compile().floor, calibrator)
        assert small.nbytes_ <= whole.file_bytes


@pytest.mark.parametrize("how", [{}, {"refine": None}], ids=str)
def test_weights_are_told_of(how):
    forest = RandomForestClassifier(30, max_depth=4, class_weight="balanced", random_state=0)
    small = sb.compress(forest.fit(*CANCER), *CANCER, **how)
    line = fits_a_screen(str(small.selection_))[4]
    assert line.startswith("quality  class-weighted Brier score ")
    assert line.endswith("%)")
    weight = np.where(CANCER[1] == 1, 5.0, 1.0)
    forest = RandomForestClassifier(30, random_state=0).fit(*CANCER, sample_weight=weight)
    small = sb.compress(forest, *CANCER, sample_weight=weight, **how)
    assert small.path_.score == "weighted Brier score"


@pytest.mark.parametrize("how", [{}, {"rehearsal": 2}, {"refine": None}], ids=str)
@pytest.mark.parametrize("budget", [{"max_nodes": 0.2}, {"max_nodes": 0.0125}, {}])
def test_no_size_is_shown_twice(problem, how, budget):
    if how == {"refine": None} and budget == {"max_nodes": 0.0125}:
        pytest.skip("no whole tree is that small")
    lines = str(sb.compress(*problem, **how, **budget).path_).splitlines()
    sizes = [line.split()[0] for line in lines]
    assert len(set(sizes)) == len(sizes), lines


@pytest.mark.parametrize("how", [{"tolerance": 0.01}, {"confidence": 0.95}], ids=str)
def test_what_nothing_judges_cannot_be_promised(problem, how):
    said = f"{next(iter(how))}= .*need a rehearsal, .* leave rehearsal at 'auto', or name a budget"
    with pytest.raises(ValueError, match=said):
        sb.compress(*problem, rehearsal=False, **how)
    sb.compress(*problem, rehearsal=False, refine=None, **how)  # out-of-bag rows judge


def test_a_forest_of_one_tree_is_pruned():
    X, y = CANCER
    forest = RandomForestClassifier(1, random_state=0).fit(X, y)
    small = sb.compress(forest, X, y, max_nodes=np.float32(0.5))  # NumPy's numbers are numbers
    assert small.n_nodes_ <= 0.5 * forest[0].tree_.node_count
    assert small.score(X, y) > 0.9
    with pytest.raises(ValueError, match="'max_nodes' parameter of compress must be"):
        sb.compress(forest, X, y, max_nodes=-1)
