"""Paths by number of members: sizes, weights, order, limits."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from sparsebag.selection.path import PathPoint, budget_path, larger_points

N = 25


def risk_matrix(seed=0, n=N, n_rows=400):
    """Of members with a common error and skills of their own."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=(n_rows, 1))
    errors = common + rng.uniform(0.5, 2.0, n) * rng.normal(size=(n_rows, n))
    return errors.T @ errors / n_rows


def risk_at(risk, point):
    w = point.spread(len(risk))
    return w @ risk @ w


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("limit", [1, 7, N, N + 10])
def test_point_k_has_k_members_with_weights_on_the_simplex(limit, seed):
    path = budget_path(risk_matrix(seed), limit)
    assert len(path) == min(limit, N)
    for k, point in enumerate(path, start=1):
        assert len(point.members) == len(point.weights) == k
        assert_array_equal(point.members, np.unique(point.members))
        assert point.weights.min() > 0
        assert point.weights.sum() == pytest.approx(1, abs=1e-9)


def test_the_first_is_the_best_alone_and_weights_spread_over_all():
    risk = risk_matrix()
    path = budget_path(risk, 3)
    assert path[0].members.tolist() == [np.argmin(np.diag(risk))]
    spread = path[2].spread(N)
    assert spread.shape == (N,)
    assert_array_equal(np.flatnonzero(spread), path[2].members)


def test_independent_members_enter_by_their_risk_with_weights_inverse_to_it():
    own = np.random.default_rng(0).permutation(np.arange(1.0, 11.0))
    order = np.argsort(own)
    path = budget_path(np.diag(own), 10, evenness=0.0)
    for k, point in enumerate(path, start=1):
        best = np.sort(order[:k])
        assert_array_equal(point.members, best)
        assert_allclose(point.weights, (1 / own[best]) / np.sum(1 / own[best]), rtol=1e-4)


def test_risk_falls_while_further_members_gain_by_themselves():
    risk = np.diag(np.linspace(1, 3, N)) + 0.5  # all of them get weight: no ridge is needed
    risks = [risk_at(risk, point) for point in budget_path(risk, N, evenness=0.0)]
    assert np.all(np.diff(risks) < 0)


def test_evenness_evens_the_weights_out():
    risk = risk_matrix(1)
    spread = [
        [point.weights @ point.weights for point in budget_path(risk, 6, evenness=evenness)]
        for evenness in (0.0, 1.0, 1e5)
    ]
    assert spread[0][-1] > spread[1][-1] > spread[2][-1]
    assert_allclose(spread[2], 1 / np.arange(1, 7), rtol=1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_weights_are_corrected_for_the_members_at_hand(seed):
    risk = risk_matrix(seed)
    for point in budget_path(risk, 5, evenness=0.0):
        face = risk[np.ix_(point.members, point.members)]
        slope = face @ point.weights
        assert_allclose(slope, point.weights @ slope, rtol=1e-3)  # stationary on the face


def test_it_is_as_good_as_the_best_of_all_pairs():
    risk = risk_matrix(4, n=8)
    found = risk_at(risk, budget_path(risk, 2, evenness=0.0)[1])
    best = np.inf
    for j in range(8):
        for k in range(j):
            t = np.linspace(0, 1, 1001)
            pair = t**2 * risk[j, j] + (1 - t) ** 2 * risk[k, k] + 2 * t * (1 - t) * risk[j, k]
            best = min(best, pair.min())
    assert found <= 1.02 * best


def test_members_that_repeat_each_other_can_all_be_had():
    path = budget_path(np.ones((6, 6)), 6)
    assert [len(point.members) for point in path] == [1, 2, 3, 4, 5, 6]
    assert_allclose(path[-1].weights, 1 / 6, atol=1e-6)


def test_a_matrix_that_is_not_positive_definite_has_a_path_too():
    risk = np.full((5, 5), 1.5)
    np.fill_diagonal(risk, 1.0)
    assert [len(point.members) for point in budget_path(risk, 5)] == [1, 2, 3, 4, 5]


# -- prices -----------------------------------------------------------------------------------


def test_of_equals_the_cheap_ones_enter_first():
    risk = np.eye(6) + 0.5
    price = np.array([9.0, 9.0, 1.0, 9.0, 1.0, 1.0])
    path = budget_path(risk, 6, price)
    assert sorted(path[2].members.tolist()) == [2, 4, 5]
    assert sorted(path[5].members.tolist()) == list(range(6))


def test_the_scale_of_prices_does_not_matter():
    risk, price = risk_matrix(), np.random.default_rng(0).uniform(1, 5, N)
    for one, other in zip(
        budget_path(risk, 8, price), budget_path(risk, 8, 1000 * price), strict=True
    ):
        assert_array_equal(one.members, other.members)
    plain = budget_path(risk, 8)
    assert any(
        not np.array_equal(a.members, b.members)
        for a, b in zip(plain, budget_path(risk, 8, price), strict=True)
    )


def test_what_cannot_be_paid_never_enters():
    risk = np.diag([1.0, 2.0, 3.0, 4.0])
    path = budget_path(risk, 4, np.array([np.inf, 2.0, 1.0, np.inf]))
    assert [point.members.tolist() for point in path] == [[2], [1, 2]]


def test_spread_puts_weights_at_their_members():
    point = PathPoint(np.array([1, 3]), np.array([0.4, 0.6]))
    assert point.spread(5).tolist() == [0, 0.4, 0, 0.6, 0]


def test_larger_points_take_the_others_by_their_worth():
    risk = np.full((8, 8), 0.1)
    np.fill_diagonal(risk, [1.0, 1.0, 5.0, 1.0, 2.0, 3.0, 4.0, 1.0])
    points = larger_points(risk, np.array([0, 1, 3, 7]), 7)
    assert [point.members.tolist() for point in points] == [
        [0, 1, 3, 4, 7],
        [0, 1, 3, 4, 5, 7],
        [0, 1, 3, 4, 5, 6, 7],
    ]
    assert all(np.allclose(point.weights, 1.0 / len(point.members)) for point in points)
    dear = np.where(np.arange(8) == 4, np.inf, 1.0)
    assert all(4 not in point.members for point in larger_points(risk, np.array([0]), 7, dear))
