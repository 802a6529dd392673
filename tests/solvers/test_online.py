"""Rows that come once: close to all rows at once, and no success claimed where it is not."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import sparsebag as sb
from problems import LOSSES, evidence
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.evidence.reservoir import Reservoir
from sparsebag.evidence.row_stream import concatenate
from sparsebag.objective.penalties import ConcaveQuadratic
from sparsebag.objective.simplex_objective import SimplexObjective
from sparsebag.solvers.base import Status
from sparsebag.solvers.online import OnlineSolve
from sparsebag.solvers.projected_gradient import ProjectedGradient

N_ROWS, N_MEMBERS = 20_000, 60


def correlated(seed):
    """True-class votes of members that are alike: a small sample has a poor curvature."""
    rng = np.random.default_rng(seed)
    logit = np.linspace(0.5, 2.5, N_MEMBERS) + 1.5 * rng.normal(size=(N_ROWS, N_MEMBERS))
    votes = 1 / (1 + np.exp(-logit - rng.normal(size=(N_ROWS, 1))))
    mask = rng.random((N_ROWS, N_MEMBERS)) < 0.37
    return OOBEvidence(
        (votes * mask).astype(np.float32),
        mask,
        rng.integers(0, 2, N_ROWS),
        "classification",
        classes=np.arange(2),
    )


def solve_once(e, sample_bytes, size=2000):
    settings = {"floor": 1e-3, "prior_mass": 0.02}
    penalty = ConcaveQuadratic(0.0)
    online = OnlineSolve(LOSSES["log_loss"], penalty, sample_bytes=sample_bytes, **settings)
    for first in range(0, e.n_rows, size):
        online.add(e.take(slice(first, first + size)))
    whole = SimplexObjective(e, LOSSES["log_loss"], penalty, **settings)
    return online.solution(), whole, ProjectedGradient().solve(whole)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_small_sample_does_not_lead_astray(seed):
    """It ended 15 and 16 % above the optimum, and called it success."""
    found, whole, exact = solve_once(correlated(seed), (1 << 20) // 4)
    assert whole.value(found.weights) < 1.01 * exact.objective
    assert found.objective == pytest.approx(exact.objective, rel=0.02)
    assert found.stationarity_gap < 0.05


def test_rows_with_weight_are_the_ones_sampled():
    """One row in a hundred has weight: the log-loss was said to be -0.81."""
    e = correlated(0)
    weight = np.zeros(N_ROWS)
    weight[::100] = 1.0
    e = OOBEvidence(e.votes, e.oob_mask, e.target, e.task, weight, e.classes)
    found, _, exact = solve_once(e, (1 << 20) // 4)
    assert found.objective == pytest.approx(exact.objective, rel=1e-4)
    assert found.status is Status.CONVERGED  # they all fit


def test_a_weighted_reservoir_estimates_weighted_sums():
    rng = np.random.default_rng(0)
    weight = rng.pareto(1.2, 3000)
    values = rng.normal(1.0, 1.0, 3000)
    totals, sizes = [], []
    for seed in range(200):
        reservoir = Reservoir(200, seed)
        for rows in np.array_split(np.arange(3000), 7):
            votes = np.ones((len(rows), 2))
            reservoir.add(OOBEvidence(votes, None, values[rows], "regression", weight[rows]))
        kept = reservoir.evidence()
        totals.append(kept.sample_weight @ kept.target)
        sizes.append(kept.n_rows)
    truth = weight @ values
    error = np.std(totals) / 200**0.5
    assert set(sizes) == {200}
    assert abs(np.mean(totals) - truth) < 4 * error
    assert error < 0.01 * truth


def test_a_gap_that_stays_is_told(monkeypatch):
    e = evidence(n_rows=3000, n_members=40, n_classes=2, dtype=np.float32)
    block = e.votes, e.oob_mask, e.target

    def solve(gap, error):
        monkeypatch.setattr(OnlineSolve, "_gap_on_held_rows", lambda *_: (gap, error))
        rows = sb.stream_rows(iter([block]), n_members=40, labels=[0, 1])
        return sb.fit_weights(rows, memory_limit=1 << 20)

    assert solve(0.1, 0.05).status is Status.OWN_TEST  # no more than held rows cannot tell from 0
    with pytest.warns(ConvergenceWarning, match="rows held out of the sample see a gap"):
        assert not solve(0.1, 0.02).status.success
    online = sb.OnlineWeights(labels=[0, 1], memory_limit=1 << 20).partial_fit(*block)
    with pytest.warns(ConvergenceWarning, match="more memory, or rows that can be read again"):
        assert online.solution_.status is Status.ONE_PASS


@pytest.mark.parametrize("first_has_none", [True, False])
def test_masks_and_weights_that_come_with_some_blocks(first_has_none):
    e = evidence(n_rows=1000, n_members=20, n_classes=2)
    bare, full = (0, 1) if first_has_none else (1, 0)
    mask, weight = e.oob_mask.copy(), np.full(1000, 1e3)
    rows = [slice(0, 500), slice(500, None)]
    mask[rows[bare]], weight[rows[bare]] = True, 1.0
    votes = np.where(e.oob_mask, e.votes, 0.5)
    online = sb.OnlineWeights(labels=[0, 1])
    for number, part in enumerate(rows):
        given = number == full
        online.partial_fit(
            votes[part],
            mask[part] if given else None,
            e.target[part],
            weight[part] if given else None,
        )
    exact = sb.fit_weights(votes, mask, e.target, sample_weight=weight)
    assert online.solution_.objective == pytest.approx(exact.objective, abs=1e-6)


def test_weights_that_come_with_some_blocks_of_a_stream():
    e = evidence(n_rows=6000, n_members=40, n_classes=2, dtype=np.float32)

    def blocks():
        yield e.votes[:3000], e.oob_mask[:3000], e.target[:3000], np.full(3000, 5.0)
        yield e.votes[3000:], e.oob_mask[3000:], e.target[3000:]

    weight = np.where(np.arange(6000) < 3000, 5.0, 1.0)
    exact = sb.fit_weights(e.votes, e.oob_mask, e.target, sample_weight=weight)
    rows = sb.stream_rows(blocks, n_members=40, labels=[0, 1])
    found = sb.fit_weights(rows)
    assert found.objective == pytest.approx(exact.objective, abs=1e-6)
    mixed = concatenate(list(rows.blocks()))
    assert np.array_equal(mixed.sample_weight, weight)


def test_days_without_anything_to_say():
    e = evidence(n_rows=6000, n_members=40, n_classes=2, dtype=np.float32)
    online = sb.OnlineWeights(labels=[0, 1], memory_limit=1 << 20)
    online.partial_fit(e.votes[:3000], 0 * e.oob_mask[:3000], e.target[:3000])
    online.partial_fit(e.votes[:0], e.oob_mask[:0], e.target[:0])
    with pytest.raises(ValueError, match="nothing to judge the members by"):
        online.weights_
    online.partial_fit(e.votes[3000:3500], e.oob_mask[3000:3500], e.target[3000:3500])
    exact = sb.fit_weights(e.votes[3000:3500], e.oob_mask[3000:3500], e.target[3000:3500])
    assert online.n_rows_ == 3500
    assert online.solution_.objective == pytest.approx(exact.objective, abs=1e-5)


def test_bad_calls_of_what_comes_once():
    e = evidence(n_rows=300, n_members=20, n_classes=2)
    one = e.votes[:, :1], e.oob_mask[:, :1], e.target
    with pytest.raises(ValueError, match="there is one member only"):
        sb.OnlineWeights(labels=[0, 1]).partial_fit(*one)

    def once(*blocks):
        return sb.stream_rows(iter(blocks), n_members=20, labels=[0, 1])

    block = e.votes, e.oob_mask, e.target
    with pytest.raises(ValueError, match="start"):
        sb.fit_weights(once(block), start=np.ones(3))
    start = np.eye(20)[4]
    assert sb.fit_weights(once(block), start=start).status.success
    with pytest.raises(ValueError, match="the stream gave no rows"):
        sb.fit_weights(once())
    empty = e.votes[:0], e.oob_mask[:0], e.target[:0]
    found = sb.fit_weights(once(empty, block, empty))
    assert found.objective == pytest.approx(sb.fit_weights(*block).objective, abs=1e-6)
    mask = e.oob_mask.copy()
    mask[:7] = False
    with pytest.warns(sb.UncoveredRowsWarning, match="7 of 300 rows"):
        sb.fit_weights(once((e.votes * mask, mask, e.target)))
