"""Members that are no trees: weights on the simplex, judged by votes they had no part in."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import BaggingClassifier, BaggingRegressor, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss
from sklearn.neural_network import MLPRegressor
from sklearn.preprocessing import scale
from sklearn.tree import DecisionTreeClassifier

import problems
import sparsebag as sb
import toy
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.judge.out_of_bag import judge_members, row_risks, weights_of_sizes
from sparsebag.objective.full_vote_risk import PairMoments
from toy import DIABETES, IRIS

CANCER = (scale(toy.CANCER[0]), toy.CANCER[1])

LAYERS = {"hidden_layer_sizes": (4,), "solver": "lbfgs", "alpha": 1.0}
NETWORK = MLPRegressor(**LAYERS, max_iter=2000, random_state=0)
BAGS = {
    "logistic": (BaggingClassifier(LogisticRegression(), 20, random_state=0), CANCER),
    "multinomial": (BaggingClassifier(LogisticRegression(C=0.1), 20, random_state=0), IRIS),
    "networks": (BaggingRegressor(NETWORK, 10, max_features=0.8, random_state=0), DIABETES),
}


@pytest.mark.parametrize("how", [{}, {"max_estimators": 3}, {"tolerance": 0.2}], ids=str)
@pytest.mark.parametrize("name", BAGS)
@pytest.mark.filterwarnings("ignore::sparsebag.UncoveredRowsWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_weights_are_on_the_simplex(name, how):
    bag, (X, y) = BAGS[name]
    bag.fit(X, y)
    small = sb.compress(bag, X, y, **how)
    assert small.weights_.shape == (len(bag.estimators_),)
    assert small.weights_.min() >= 0.0
    assert small.weights_.sum() == pytest.approx(1.0)
    assert small.n_active_ <= how.get("max_estimators", 20)
    assert str(small.selection_).startswith("members  ")
    assert abs(small.score(X, y) - bag.score(X, y)) < 0.05
    assert small.path_.judged_by == "out-of-bag rows"


@pytest.mark.parametrize("how", [{}, {"max_estimators": 1}], ids=str)
def test_linear_regressors_become_one(how):
    X, y = scale(DIABETES[0]), DIABETES[1]
    bag = BaggingRegressor(Ridge(), 20, random_state=0).fit(X, y)
    small = sb.compress(bag, X, y, **how)
    assert small.compile().n_models == 1
    np.testing.assert_allclose(small.predict(X), bag.predict(X), rtol=1e-10)


def test_linear_regressors_that_become_one_are_weighted_where_that_pays():
    """Three of six columns say nothing: members that have those are worth less."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 6))
    y = X[:, :3].sum(axis=1) + 0.1 * rng.normal(size=1000)
    bag = BaggingRegressor(Ridge(), 20, max_features=0.5, random_state=0).fit(X[:500], y[:500])
    small = sb.compress(bag, X[:500], y[:500])
    assert small.compile().n_models == 1
    assert small.score(X[500:], y[500:]) > bag.score(X[500:], y[500:]) + 0.1


@pytest.mark.parametrize("k", [3, 7, 0.6])
def test_a_budget_of_members_is_spent(k):
    forest = RandomForestClassifier(20, random_state=0).fit(*CANCER)
    small = sb.compress(forest, *CANCER, refine=None, max_estimators=k)
    assert small.n_active_ == (k if k > 1 else k * 20)


@pytest.mark.parametrize("how", [{"max_estimators": 3}, {"max_bytes": 1100}], ids=str)
@pytest.mark.parametrize("local", ["auto", True])
def test_linear_regressors_with_a_gate_keep_to_budgets(local, how):
    X = np.random.default_rng(0).normal(size=(1000, 5))
    y = 3.0 * np.abs(X[:, 0])
    bag = BaggingRegressor(Ridge(), 12, max_samples=0.05, oob_score=True, random_state=0).fit(X, y)
    small = sb.compress(bag, X, y, local=local, **how)
    assert small.local_.used == ("max_estimators" in how)
    assert small.compile().n_models == (3 if small.local_.used else 1)
    assert small.nbytes_ <= 1100


@pytest.mark.parametrize("seed", [1, 2])
def test_calibration_is_of_votes_of_the_deployed_size(seed):
    """Fewer are heard out of bag: their temperature is 5 to 8% from the best on other rows."""
    X, y = toy.DIGITS
    forest = RandomForestClassifier(50, random_state=seed).fit(X[::2], y[::2])
    small = sb.compress(forest, X[::2], y[::2], refine=None, max_estimators=5)
    found = small.calibration_.calibrator
    votes = replace(small.compile(), calibrator=None).predict_proba(X[1::2])
    tried = [replace(found, temperature=t).transform(votes) for t in np.geomspace(0.1, 10.0, 50)]
    best = min(log_loss(y[1::2], proba) for proba in tried)
    assert log_loss(y[1::2], small.predict_proba(X[1::2])) < 1.02 * best


@pytest.mark.parametrize(("columns", "votes"), [(1.0, "equal votes"), (0.5, "simplex weights")])
def test_trees_on_the_same_columns_vote_equally(columns, votes):
    bag = BaggingClassifier(DecisionTreeClassifier(), 20, max_features=columns, random_state=0)
    small = sb.compress(bag.fit(*CANCER), *CANCER, refine=None, max_estimators=7)
    assert len(set(small.weights_[small.weights_ > 0.0])) == (1 if columns == 1.0 else 7)
    assert f"method   members selected, {votes}" in str(small.selection_)


def test_rounding_on_one_side_of_the_diagonal_does_not_matter():
    """Sums in float32 are not quite symmetric; this matrix is not definite either."""
    products = np.array([[1.0, 2.0 + 1e-5], [2.0, 1.0]])
    made = PairMoments(products, np.ones((2, 2)), 1.0, 0.0, 0.0)
    (weights,) = weights_of_sizes(made, [1])
    assert weights.sum() == 1.0


def evidence(n_classes, **how):
    """Of regression where ``n_classes`` is None."""
    loss = "squared_error" if n_classes is None else "brier"
    return problems.evidence(loss, n_classes=n_classes or 3, **how)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n_classes=st.sampled_from([None, 2, 3, 5]),
    floor=st.sampled_from([0.0, 0.1]),
)
def test_held_out_risks_are_the_squared_errors_of_the_vote(seed, n_classes, floor):
    made = evidence(n_classes, seed=seed, n_rows=40, n_members=6, holdout=True)
    votes = problems.every_vote(made)
    rng = np.random.default_rng(seed)
    weights = [rng.dirichlet(np.ones(6)), np.eye(6)[2], np.full(6, 1 / 6)]
    target = np.asarray(made.target)
    if n_classes is None:
        truth, floor = target[:, None], 0.0
    else:
        truth = (target[:, None] == np.arange(n_classes)).astype(float)
    for found, w in zip(row_risks(made, weights, floor), weights, strict=True):
        vote = np.einsum("n,rnc->rc", w, votes)
        if n_classes is not None:
            vote = (1 - floor) * vote + floor / n_classes
        np.testing.assert_allclose(found, np.sum((vote - truth) ** 2, axis=1), atol=1e-10)


def test_out_of_bag_risks_are_those_of_the_whole_vote_on_average():
    """Votes of members that are independent given the row: the mask tells nothing of them."""
    rng = np.random.default_rng(0)
    n_rows, n = 40_000, 8
    target = rng.normal(size=n_rows)
    votes = target[:, None] + 0.5 * rng.normal(size=(n_rows, 1)) + rng.normal(size=(n_rows, n))
    mask = rng.random((n_rows, n)) < 0.5
    w = np.arange(1.0, n + 1) / 36
    (found,) = row_risks(OOBEvidence(votes, mask, target, "regression"), [w], 0.0)
    known = np.isfinite(found)
    assert known.mean() > 0.9
    exact = 0.25 + w @ w
    assert found[known].mean() == pytest.approx(exact, rel=0.03)


def test_rows_too_few_members_have_are_not_known():
    votes, target = np.zeros((3, 2)), np.ones(3)
    mask = np.array([[True, True], [True, False], [False, False]])
    made = OOBEvidence(votes, mask, target, "regression")
    both, alone = row_risks(made, [np.array([0.5, 0.5]), np.array([1.0, 0.0])], 0.0)
    np.testing.assert_allclose(both, [1.0, np.nan, np.nan])
    np.testing.assert_allclose(alone, [1.0, 1.0, np.nan])


@pytest.mark.parametrize("n_classes", [None, 2, 3])
def test_sizes_rise_and_the_whole_comes_last(n_classes):
    made = evidence(n_classes, n_rows=300, n_members=20)
    path = judge_members(made, 1e-3, None, np.zeros(20))
    assert np.all(np.diff(path.curve.n_members) >= 0)
    assert path.curve.n_members[-1] == 20
    assert path.curve.ratio[-1] == 1.0
    for weights, count in zip(path.weights, path.curve.n_members, strict=True):
        assert np.count_nonzero(weights) == count
        assert weights.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("seed", range(3))
def test_few_rows_in_common_are_not_taken_for_a_sure_thing(seed):
    """Three trees have hardly a row all of them have out of bag; one is not as good as three."""
    rows = IRIS[0][::2], IRIS[1][::2]
    forest = RandomForestClassifier(3, random_state=seed).fit(*rows)
    with pytest.warns(sb.UncoveredRowsWarning):
        small = sb.compress(forest, *rows, refine=None, max_estimators=1)
    low, high = small.selection_.interval
    assert high > low


def test_members_without_nodes_have_no_budget_of_them():
    bag, (X, y) = BAGS["logistic"]
    bag.fit(X, y)
    with pytest.raises(ValueError, match="max_nodes counts tree nodes, and these members"):
        sb.compress(bag, X, y, max_nodes=0.1)
    low, high = sb.compress(bag, X, y).selection_.interval  # of all members, calibrated
    assert low < high
