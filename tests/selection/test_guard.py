"""The smallest size that surely meets the tolerance, and what is returned where none does."""

from __future__ import annotations

import numpy as np
import pytest

from sparsebag.objective.full_vote_risk import Exchangeable
from sparsebag.objective.pair_shrinkage import Shrinkage
from sparsebag.selection.guard import choose, upper_bound
from sparsebag.selection.judged_path import CrossFittedPath
from sparsebag.selection.path import PathPoint
from sparsebag.selection.row_risks import RowRisks

N = 50
OWN, PAIR = 0.3, 0.1


def path_of(sizes=range(1, 41), noise=0.0, own=OWN, pair=PAIR, gain_variance=0.0):
    """Members all alike, equal weights; rows that differ by ``noise`` in what they say."""
    rng = np.random.default_rng(0)
    wobble = noise * rng.normal(size=400)
    wobble -= wobble.mean()
    points = [PathPoint(np.arange(k), np.full(k, 1 / k)) for k in sizes]
    return CrossFittedPath(
        points=points,
        deviation=np.zeros((N, N)),
        rows=RowRisks(own + wobble, np.full(400, pair), np.full(400, 1 / 400)),
        random=Exchangeable(own, pair),
        shrinkage=Shrinkage(np.eye(2), 1.0, gain_variance * np.eye(2), gain_variance),
        slope=1.0,
        slope_error=0.0,
        n_members=N,
    )


def everything(path):
    return np.ones(len(path.points), dtype=bool)


def smallest(tolerance):
    """k with pair + (own - pair)/k ≤ (1 + tolerance) × full, by hand."""
    full = PAIR + (OWN - PAIR) / N
    return int(np.ceil((OWN - PAIR) / ((1 + tolerance) * full - PAIR) - 1e-9))


@pytest.mark.parametrize("tolerance", [0.05, 0.1, 0.5, 1.0, 3.0])
def test_the_smallest_that_meets_the_tolerance_wins(tolerance):
    path = path_of()
    choice = choose(path, tolerance, everything(path), full_allowed=True)
    assert len(path.points[choice.position].members) == smallest(tolerance)
    assert choice.meets_tolerance
    assert choice.optimism == pytest.approx(0, abs=1e-12)  # nothing is left to luck


def test_only_what_the_budget_allows_is_chosen():
    path = path_of()
    allowed = np.arange(1, 41) >= 30
    choice = choose(path, 1.0, allowed, full_allowed=True)
    assert len(path.points[choice.position].members) == 30


def test_none_and_the_whole_is_allowed():
    path = path_of(sizes=range(1, 4))
    choice = choose(path, 0.01, everything(path), full_allowed=True)
    assert choice.position is None
    assert choice.meets_tolerance


def test_none_and_the_whole_is_not_allowed():
    path = path_of(sizes=range(1, 11))
    allowed = np.arange(1, 11) <= 7
    choice = choose(path, 0.01, allowed, full_allowed=False)
    assert len(path.points[choice.position].members) == 7  # the best that is
    assert not choice.meets_tolerance
    assert choice.optimism >= 0


def test_doubt_costs_members():
    sizes = []
    for noise in (0.0, 0.5, 1.0):
        path = path_of(noise=noise)
        choice = choose(path, 0.3, everything(path), full_allowed=True)
        assert choice.optimism >= 0
        sizes.append(len(path.points[choice.position].members))
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1]
    sure, unsure = path_of(), path_of(gain_variance=1e-3)
    few = choose(sure, 0.3, everything(sure), full_allowed=True).position
    assert choose(unsure, 0.3, everything(unsure), full_allowed=True).position > few


def test_the_luck_of_being_chosen_is_counted():
    path = path_of(noise=1.0, gain_variance=1e-4)
    choice = choose(path, 0.3, everything(path), full_allowed=True)
    assert choice.optimism > 1e-4
    again = choose(path, 0.3, everything(path), full_allowed=True)
    other = choose(path, 0.3, everything(path), full_allowed=True, seed=1)
    assert choice == again
    assert choice.optimism != other.optimism


def test_the_chosen_points_bound_is_within_the_tolerance():
    path = path_of(noise=0.5, gain_variance=1e-5)
    choice = choose(path, 0.2, everything(path), full_allowed=False)
    bound = upper_bound(path, 0.2) + choice.optimism / path.full_risk
    assert choice.meets_tolerance
    assert bound[choice.position] <= 0.2
    assert np.all(bound[: choice.position] > 0.2)
    assert np.all(upper_bound(path, 0.2) >= path.expected() / path.full_risk - 1)


def test_without_any_risk_one_member_is_as_good_as_all():
    path = path_of(own=0.0, pair=0.0)
    choice = choose(path, 0.01, everything(path), full_allowed=True)
    assert choice.position == 0
    assert upper_bound(path, 0.01)[0] == 0
