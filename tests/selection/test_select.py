"""From an ensemble to a choice: sizes, budgets, what is said about it, and whether it is true."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_digits,
    make_classification,
    make_friedman1,
)
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
    VotingClassifier,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import sparsebag as sb
from sparsebag import RegretWarning
from sparsebag.evidence.from_ensemble import read_ensemble
from sparsebag.selection.budget import member_prices
from sparsebag.selection.explain import changed
from sparsebag.selection.guard import Choice
from sparsebag.selection.path import PathPoint
from sparsebag.selection.select import _measured
from sparsebag.selection.table import COLUMNS
from sparsebag.selection.tolerance import check_tolerance

compress = partial(sb.compress, refine=None, calibration=None)  # members alone are chosen here
N = 50
CANCER = load_breast_cancer(return_X_y=True)
DIABETES = load_diabetes(return_X_y=True)
DIGITS = load_digits(return_X_y=True)
SCALED = StandardScaler().fit_transform(CANCER[0]), CANCER[1]
ENSEMBLES = {
    "forest": (RandomForestClassifier(N, random_state=0), CANCER),
    "ten classes": (RandomForestClassifier(N, random_state=0), DIGITS),
    "extra trees": (ExtraTreesClassifier(N, bootstrap=True, random_state=0), CANCER),
    "bag": (BaggingClassifier(n_estimators=N, random_state=0), CANCER),
    "bag of columns": (
        BaggingClassifier(n_estimators=N, max_features=0.4, random_state=0),
        CANCER,
    ),
    "logistic": (BaggingClassifier(LogisticRegression(), n_estimators=N, random_state=0), SCALED),
    "regression forest": (RandomForestRegressor(N, random_state=0), DIABETES),
    "regression extra trees": (ExtraTreesRegressor(N, bootstrap=True, random_state=0), DIABETES),
    "neighbours": (
        BaggingRegressor(KNeighborsRegressor(), n_estimators=N, max_features=0.5, random_state=0),
        DIABETES,
    ),
}


@pytest.fixture(scope="module")
def forest():
    return RandomForestClassifier(N, random_state=0).fit(*CANCER)


@pytest.fixture(scope="module")
def digits():
    X, X_test, y, y_test = train_test_split(*DIGITS, test_size=0.5, random_state=0)
    return RandomForestClassifier(60, random_state=0).fit(X, y), X, y, X_test, y_test


def brier(model, X, y):
    return np.mean(np.sum((model.predict_proba(X) - (y[:, None] == model.classes_)) ** 2, axis=1))


# -- every kind of ensemble -------------------------------------------------------------------


@pytest.mark.parametrize("name", ENSEMBLES)
def test_it_chooses_and_says_so(name):
    ensemble, (X, y) = ENSEMBLES[name]
    small = compress(ensemble.fit(X, y), X, y, tolerance=0.1)
    chosen, table = small.selection_, small.path_
    assert 1 <= small.n_active_ < N
    assert_array_equal(small.weights_, chosen.weights)
    assert small.weights_.sum() == pytest.approx(1)
    assert chosen.meets_tolerance
    assert chosen.increase <= chosen.bound <= chosen.tolerance == 0.1
    assert chosen.expected_risk == pytest.approx((1 + chosen.increase) * chosen.full_risk)
    assert small.solution_.objective == chosen.expected_risk
    assert small.solution_.status.success
    score = "squared error" if y is DIABETES[1] else "Brier score"
    noun = "members" if name in ("logistic", "neighbours") else "trees"
    said = str(chosen)
    assert said.startswith(f"Kept {small.n_active_} of {N} {noun}")
    summed = "" if y is DIABETES[1] else ", summed over classes"
    expected = f"{chosen.expected_risk:.4g} (standard error"
    assert f"Expected {score} on new rows{summed}: {expected}" in said
    against = f"Against all {N} {noun} ({chosen.full_risk:.4g}), on the same rows: "
    assert f"{against}{changed(chosen.increase)}, and with 95% confidence" in said
    bound = f"{changed(chosen.bound)}: within the 10.0% you accept (tolerance=0.1)"
    assert f"{'at least' if chosen.bound < 0 else 'at most'} {bound}" in said
    worth_it = round(chosen.random_members) > small.n_active_
    assert ("drawn at random would be needed" in said) == worth_it
    assert ("drawn at random are expected to do as well" in said) != worth_it
    assert (" nodes (" in said) == (noun == "trees")
    assert table is chosen.table


def test_the_table_has_every_size_and_ends_with_the_whole(forest):
    small = compress(forest, *CANCER, tolerance=0.1)
    table, prices = small.path_, member_prices(read_ensemble(forest))
    assert_array_equal(table.k, range(1, N + 1))
    assert (table.k[-1], table.nodes[-1], table.bytes[-1]) == prices.of(np.arange(N))
    assert table.expected_risk[-1] == small.selection_.full_risk
    assert table.random_risk[-1] == small.selection_.full_risk
    assert np.all(np.diff(table.random_risk) <= 0)
    assert np.all(table.standard_error > 0)
    assert table.chosen.sum() == 1
    assert table.k[table.chosen] == small.n_active_
    assert table.nodes[table.chosen] == prices.nodes[small.active_].sum()
    assert table.bytes[table.chosen] == prices.bytes[small.active_].sum()
    frame = table.to_frame()
    assert list(frame.columns) == list(COLUMNS)
    assert len(frame) == len(table) == N
    assert_array_equal(frame["expected_risk"], table.expected_risk)
    lines = str(table).splitlines()
    assert lines[0].split() == ["k", "nodes", "bytes", "expected", "risk", "±", "error", "random-k"]
    assert len(lines) <= 24
    kept = [line for line in lines if line.endswith("<- kept")]
    assert [int(line.split()[0]) for line in kept] == [small.n_active_]
    figures = [line for line in lines[1:] if line.split()[0].isdigit()]
    assert int(figures[-1].split()[0]) == N
    assert lines[len(figures) + 1 :] == list(table.notes)
    assert table.notes[0] == "expected risk: the Brier score on new rows, summed over classes"


def test_the_penalised_way_has_no_selection(forest):
    small = compress(forest, *CANCER, lam=0.0)
    assert small.selection_ is None
    assert small.path_ is None


# -- tolerance and budgets --------------------------------------------------------------------


@pytest.mark.parametrize("most", [28, 30, 32, 33, 35, 40, 60])
@pytest.mark.parametrize("steps", [{}, {"refine": None, "calibration": None}])
def test_what_is_said_of_the_promise_is_what_the_bound_says(noisy_forest, most, steps):
    """A bound within the tolerance is no reason to warn, and one above it is."""
    forest, X, y = noisy_forest
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RegretWarning)
        small = compress(forest, X, y, max_estimators=most, **steps)
    chosen, regret = small.selection_, any(w.category is RegretWarning for w in caught)
    assert chosen.meets_tolerance == (chosen.bound <= chosen.tolerance) == (not regret)
    assert ("more than the 1.0% you accept" in str(chosen)) == regret


@pytest.fixture(scope="module")
def noisy_forest():
    X, y = make_classification(600, 12, n_informative=6, flip_y=0.1, random_state=0)
    return RandomForestClassifier(60, random_state=0).fit(X, y), X, y


def test_the_stated_risk_does_not_grow_with_the_tolerance(noisy_forest):
    """One tree is what it is, whatever loss was accepted."""
    forest, X, y = noisy_forest
    kept = [compress(forest, X, y, tolerance=t, refine=None) for t in (10.0, 1e9)]
    assert [small.n_active_ for small in kept] == [1, 1]
    first, last = (small.selection_.expected_risk for small in kept)
    assert first == pytest.approx(last, rel=1e-6)


def test_more_tolerance_never_keeps_more(forest):
    sizes = [compress(forest, *CANCER, tolerance=t).n_active_ for t in (0.0, 0.05, 0.2, 1.0, 10.0)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > 2 * sizes[2]
    assert sizes[-1] == 1


@dataclass(frozen=True)
class Halving:
    """A path on which k members, each worth some votes, have risk 1 + 1 / (k votes)."""

    points: list
    votes: float = 1.0
    measured: float | None = None
    full_risk = 1.0

    @property
    def sizes(self):
        return np.array([len(point.members) for point in self.points])

    def expected(self):
        added = 1.0 / (self.sizes * self.votes) if self.measured is None else [self.measured]
        return 1.0 + np.asarray(added)

    def error_of(self, share=0.0):
        return np.zeros(len(self.points))

    def degrees_of_freedom(self):
        return 100.0

    def only(self, point, measured=None):
        return replace(self, points=[point], measured=measured)

    def as_measured(self, point, measured):
        return replace(self, votes=1.0 / (measured * len(point.members)))


WORTHS = [lambda k: 0.6, lambda k: 1.0, lambda k: 5.0, lambda k: 20 / k, lambda k: 0.99 * 49 / k]


@pytest.mark.parametrize("worth", WORTHS)
def test_of_refitted_members_the_fewest_that_keep_the_promise_are_kept(worth):
    points = [PathPoint(np.arange(k), np.full(k, 1.0 / k)) for k in range(1, 200)]
    tolerance, tried = 0.0201, []

    class Members:
        def measure(self, point):
            tried.append(len(point.members))
            return 1.0 / (tried[-1] * worth(tried[-1]))

    first = Choice(position=49, meets_tolerance=True, optimism=0.0)
    allowed = np.ones(len(points), dtype=bool)
    choice, measured = _measured(Members(), Halving(points), first, tolerance, allowed)
    keeps = [k for k in range(1, 200) if 1.0 / (k * worth(k)) <= tolerance]
    kept = len(points[choice.position].members)
    assert choice.meets_tolerance == bool(keeps)
    assert len(tried) <= 8
    assert measured == 1.0 / (kept * worth(kept))
    if keeps:
        assert kept == keeps[0]
    assert tried[-1] == kept  # survivors are those that were measured last


def test_nothing_is_sure_and_the_whole_is_kept(forest):
    X, y = CANCER
    few = RandomForestClassifier(20, random_state=0).fit(X[:60], y[:60])
    small = compress(few, X[:60], y[:60], tolerance=0.0)
    assert small.n_active_ == 20
    assert_allclose(small.weights_, 1 / 20)
    chosen = small.selection_
    assert chosen.expected_risk == chosen.full_risk
    assert chosen.increase == chosen.bound == 0
    assert str(chosen).startswith("Kept all 20 trees, with equal weights: no smaller ensemble")
    assert "set max_estimators or raise tolerance" in str(chosen)
    assert small.path_.chosen[-1]


@pytest.mark.parametrize("budget", [{"max_bytes": 10**9}, {"max_estimators": N}])
def test_a_budget_that_buys_everything_is_spent_on_the_best(budget):
    """Half of the trees are stumps: all of them together are not the best there is."""
    X, y = make_friedman1(1500, random_state=0)
    rows = np.random.default_rng(0).integers(500, size=(N, 500))
    trees = [
        DecisionTreeRegressor(max_depth=1 if j % 2 else None, random_state=j).fit(X[r], y[r])
        for j, r in enumerate(rows)
    ]
    given = {"estimators_samples": rows, "refine": None}
    small = sb.compress(trees, X[:500], y[:500], tolerance=None, **budget, **given)
    assert small.n_active_ < N
    assert "%" in str(small.selection_)
    assert "-100" not in str(small.selection_)
    whole = np.mean([tree.predict(X[500:]) for tree in trees], axis=0)
    assert np.mean((small.predict(X[500:]) - y[500:]) ** 2) < 0.8 * np.mean((whole - y[500:]) ** 2)


@pytest.mark.parametrize("most", [1, 2, 10])
def test_a_number_of_members_that_loses_too_much_is_a_warning_with_the_loss(forest, most):
    with pytest.warns(RegretWarning) as caught:
        small = compress(forest, *CANCER, max_estimators=most, tolerance=0.0)
    assert small.n_active_ == most
    chosen = small.selection_
    assert not chosen.meets_tolerance
    assert chosen.bound > 0
    said = str(caught[0].message)
    assert said.startswith(f"within max_estimators={most} no ensemble is sure to stay within the 0")
    assert f"Brier score is expected to be {abs(chosen.increase):.1%} " in said
    assert f"may be up to {chosen.bound:.1%} higher (95% confidence)" in said
    assert f"but the best within max_estimators={most}" in str(chosen)
    assert len(small.path_) == most + 1


def test_a_budget_that_is_enough_does_not_warn(forest):
    small = compress(forest, *CANCER, max_estimators=20, tolerance=0.2)
    assert small.n_active_ < 20
    assert small.selection_.meets_tolerance
    whole = compress(forest, *CANCER, max_estimators=N, tolerance=0.0)
    assert whole.selection_.meets_tolerance


@pytest.mark.parametrize("name", ["max_nodes", "max_bytes"])
def test_nodes_and_bytes_stay_within_their_budget(forest, name):
    prices = member_prices(read_ensemble(forest))
    each = prices.nodes if name == "max_nodes" else prices.bytes
    most = int(0.2 * each.sum())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RegretWarning)
        small = compress(forest, *CANCER, **{name: most})
    assert 0.5 * most < each[small.active_].sum() <= most
    # Small members are preferred: the same price buys more of them.
    assert each[small.active_].mean() < each.mean()


@pytest.mark.filterwarnings("ignore::sparsebag.RegretWarning")
@pytest.mark.filterwarnings("ignore::sparsebag.UncoveredRowsWarning")
@pytest.mark.parametrize("name", ["max_nodes", "max_bytes"])
def test_a_budget_for_the_smallest_member_only_buys_that_one(name):
    """Although another is better: what one cannot pay is not chosen."""
    X, y = DIABETES
    rows = [np.random.default_rng(j).integers(0, len(y), len(y)) for j in range(6)]
    trees = [
        DecisionTreeRegressor(max_depth=d, random_state=0).fit(X[r], y[r])
        for d, r in zip([4, 3, 1, 4, 3, 4], rows, strict=True)
    ]
    state = trees[2].tree_.__getstate__()
    sizes = {
        "max_nodes": trees[2].tree_.node_count,
        "max_bytes": state["nodes"].nbytes + state["values"].nbytes,
    }
    small = compress(trees, X, y, estimators_samples=rows, **{name: sizes[name]})
    assert small.active_.tolist() == [2]
    with pytest.raises(ValueError, match=f"{name}={sizes[name] - 1} is less than the smallest"):
        compress(trees, X, y, estimators_samples=rows, **{name: sizes[name] - 1})


def test_nodes_of_what_has_none():
    bag = BaggingRegressor(Ridge(), n_estimators=30, random_state=0).fit(*DIABETES)
    with pytest.raises(ValueError, match="max_nodes counts the nodes of trees, but not every"):
        compress(bag, *DIABETES, max_nodes=100)


@pytest.mark.parametrize("value", [-0.1, np.nan, np.inf, "1%", True, [0.1]])
def test_a_bad_tolerance_is_refused(value):
    with pytest.raises(ValueError, match=r"^tolerance must be a finite number .*; got "):
        check_tolerance(value)
    assert check_tolerance(np.float32(0.5)) == 0.5
    assert check_tolerance(0) == 0


# -- kinds of evidence ------------------------------------------------------------------------


def test_a_voter_judged_by_held_out_rows():
    X, y = CANCER
    labels = np.array(["malignant", "benign"])[y]
    members = [
        ("nb", GaussianNB()),
        ("lr", make_pipeline(StandardScaler(), LogisticRegression())),
        ("stump", DecisionTreeClassifier(max_depth=1)),
    ]
    voter = VotingClassifier(members, voting="soft").fit(X[::2], labels[::2])
    small = compress(voter, X[1::2], labels[1::2], evidence="holdout", tolerance=0.2)
    assert 1 in small.active_  # the regression, better than the three together
    assert 2 not in small.active_  # the stump
    assert small.selection_.increase < -0.1
    exact = brier(small, X[1::2], labels[1::2])
    assert small.selection_.expected_risk == pytest.approx(exact, rel=0.25)
    whole = brier(voter, X[1::2], labels[1::2])
    assert small.selection_.full_risk == pytest.approx(whole, rel=0.01)  # but for the floor


@pytest.mark.parametrize("weights", [[1, 50, 1], [9, 1, 1]])
def test_a_voter_is_compared_with_its_own_weighted_vote(weights):
    X, y = CANCER
    members = [
        ("nb", GaussianNB()),
        ("lr", make_pipeline(StandardScaler(), LogisticRegression())),
        ("stump", DecisionTreeClassifier(max_depth=1)),
    ]
    voter = VotingClassifier(members, voting="soft", weights=weights).fit(X[::2], y[::2])
    small = compress(voter, X[1::2], y[1::2], evidence="holdout", tolerance=0.0, floor=0.0)
    whole = brier(voter, X[1::2], y[1::2])
    assert small.selection_.full_risk == pytest.approx(whole, rel=1e-4)
    if weights[1] == 50:  # as good as it gets: kept as it is
        assert_allclose(small.weights_, np.array(weights) / sum(weights))
        assert "with the weights they have" in str(small.selection_)
    one = compress(voter, X[1::2], y[1::2], evidence="holdout", tolerance=None, max_estimators=1)
    assert one.active_.tolist() == [1]
    assert (one.selection_.increase < -0.1) == (weights[1] == 1)


def test_a_voter_with_weights_that_are_no_shares_is_refused():
    X, y = CANCER
    members = [("nb", GaussianNB()), ("stump", DecisionTreeClassifier(max_depth=1))]
    voter = VotingClassifier(members, voting="soft", weights=[2, -1]).fit(X[::2], y[::2])
    with pytest.raises(ValueError, match="must not be negative"):
        compress(voter, X[1::2], y[1::2], evidence="holdout")


def test_sample_weights_weigh_the_risk(forest):
    X, y = CANCER
    plain = compress(forest, X, y, tolerance=0.1).selection_
    ones = compress(forest, X, y, tolerance=0.1, sample_weight=np.full(len(y), 7.0)).selection_
    assert_allclose(ones.weights, plain.weights, atol=1e-6)
    assert ones.expected_risk == pytest.approx(plain.expected_risk, rel=1e-6)
    rare = compress(forest, X, y, tolerance=0.1, sample_weight=np.where(y == 0, 9.0, 1.0))
    assert abs(rare.selection_.full_risk / plain.full_risk - 1) > 0.1


def test_string_labels_change_nothing(forest):
    X, y = CANCER
    labels = np.array(["malignant", "benign"])[y]
    named = RandomForestClassifier(N, random_state=0).fit(X, labels)
    one, other = compress(named, X, labels, tolerance=0.1), compress(forest, X, y, tolerance=0.1)
    assert one.selection_.expected_risk == pytest.approx(other.selection_.expected_risk, rel=1e-3)
    assert set(one.predict(X)) == {"malignant", "benign"}


def test_an_ensemble_without_error_needs_one_member():
    X = np.random.default_rng(0).normal(size=(300, 3))
    y = (X[:, 0] > 0).astype(int)
    trees = [DecisionTreeClassifier(max_depth=1).fit(X, y) for _ in range(5)]
    small = compress(trees, X, y, evidence="holdout", floor=0.0)
    assert small.n_active_ == 1
    chosen = small.selection_
    assert chosen.expected_risk == chosen.full_risk == chosen.increase == chosen.bound == 0
    assert chosen.random_members == 1
    assert "Against all 5 trees (0), on the same rows: 0.0% higher" in str(chosen)
    assert "would be needed" not in str(chosen)


@pytest.mark.parametrize("tolerance", [0.0, 1.0])
def test_two_members(tolerance):
    X, y = DIABETES
    pair = [Ridge().fit(X[::2], y[::2]), DecisionTreeRegressor(max_depth=1).fit(X[::2], y[::2])]
    small = compress(pair, X[1::2], y[1::2], evidence="holdout", tolerance=tolerance)
    assert 1 <= small.n_active_ <= 2
    assert len(small.path_) == 2
    assert small.n_active_ == 1 or tolerance == 0


@pytest.mark.filterwarnings("ignore::sparsebag.UncoveredRowsWarning")
@pytest.mark.parametrize("n_rows", [6, 10, 16])
@pytest.mark.parametrize("seed", range(5))
def test_a_handful_of_rows_and_trees_does_not_break(n_rows, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 3))
    for ensemble, y in (
        (RandomForestClassifier(8, random_state=seed), rng.permutation(n_rows) % 2),
        (RandomForestRegressor(8, random_state=seed), rng.normal(size=n_rows)),
    ):
        small = compress(ensemble.fit(X, y), X, y)
        assert np.isfinite(small.weights_).all()
        assert small.weights_.sum() == pytest.approx(1)


def lonely_members():
    """Each row is out of bag for one member only."""
    X = np.random.default_rng(0).normal(size=(40, 3))
    y = X[:, 0] + X[:, 1]
    rows = [np.flatnonzero(np.arange(40) % 4 != j) for j in range(4)]
    models = [DecisionTreeRegressor(max_depth=2).fit(X[r], y[r]) for r in rows]
    return models, X, y, rows


def test_members_that_share_no_row_are_all_kept():
    models, X, y, rows = lonely_members()
    small = compress(models, X, y, estimators_samples=rows, tolerance=5.0)
    assert_allclose(small.weights_, 1 / 4)
    assert np.isnan(small.selection_.expected_risk)
    assert "no two of them have a row out of bag together" in str(small.selection_)
    assert small.path_.k.tolist() == [4]
    assert "<- kept" in str(small.path_)


def test_members_that_share_no_row_and_a_budget():
    models, X, y, rows = lonely_members()
    with pytest.raises(ValueError, match=r"no two members have a row out of bag together.*holdout"):
        compress(models, X, y, estimators_samples=rows, max_estimators=2)


# -- is it true? ------------------------------------------------------------------------------


def test_the_expected_risk_is_that_on_rows_never_used():
    errors, doubts = [], []
    for split in range(4):
        X, X_test, y, y_test = train_test_split(*DIGITS, test_size=0.5, random_state=split)
        forest = RandomForestClassifier(40, random_state=0).fit(X, y)
        for tolerance in (0.1, 0.4):
            small = compress(forest, X, y, tolerance=tolerance)
            proba, truth = small.predict_proba(X_test), y_test[:, None] == small.classes_
            each = np.sum((proba - truth) ** 2, axis=1)
            chosen, row_error = small.selection_, np.std(each) / np.sqrt(len(each))
            errors.append(chosen.expected_risk / each.mean() - 1)
            doubt = np.hypot(chosen.standard_error, row_error)
            doubts.append((chosen.expected_risk - each.mean()) / doubt)
    assert abs(np.mean(errors)) < 0.06  # the out-of-bag ratio is off by 30 % and more here
    assert np.abs(doubts).max() < 3.5


def test_the_promise_is_kept_on_rows_never_used(digits):
    forest, X, y, X_test, y_test = digits
    small = compress(forest, X, y, tolerance=0.1)
    assert small.n_active_ < 40
    assert brier(small, X_test, y_test) < 1.1 * brier(forest, X_test, y_test)


def test_the_choice_is_better_than_as_many_drawn_at_random(digits):
    forest, X, y, X_test, y_test = digits
    small = compress(forest, X, y, max_estimators=12, tolerance=0.4)
    k, rng = small.n_active_, np.random.default_rng(0)
    each = np.stack([tree.predict_proba(X_test) for tree in forest.estimators_])
    truth = y_test[:, None] == forest.classes_
    risks = [
        np.mean(np.sum((each[rng.choice(60, k, replace=False)].mean(axis=0) - truth) ** 2, axis=1))
        for _ in range(30)
    ]
    assert brier(small, X_test, y_test) < np.mean(risks)
    kept = small.path_.chosen
    assert small.path_.random_risk[kept][0] == pytest.approx(np.mean(risks), rel=0.12)
    assert small.selection_.expected_risk < small.path_.random_risk[kept][0]


def test_a_budget_that_allows_all_changes_nothing():
    forest = RandomForestRegressor(40, random_state=0).fit(*DIABETES)
    free = sb.compress(forest, *DIABETES, tolerance=0.05)
    for budget in ({"max_estimators": 40}, {"max_nodes": 10**8}, {"max_bytes": 10**9}):
        same = sb.compress(forest, *DIABETES, tolerance=0.05, **budget)
        np.testing.assert_array_equal(same.weights_, free.weights_)
        assert str(same.selection_) == str(free.selection_)
