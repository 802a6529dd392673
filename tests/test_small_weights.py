"""Weights up to 1e-5 are dropped where that is harmless; gap and status are of what is returned."""

import numpy as np
import pytest

import sparsebag as sb
from sparsebag.solvers.active_set import ActiveSet
from sparsebag.solvers.base import Status


def needed_dust(n_rows=2000):
    """Two members, the second so wild that its best weight is 5e-6; no less will do."""
    rng = np.random.default_rng(0)
    errors = rng.normal(size=(n_rows, 2))
    errors = np.linalg.qr(errors)[0] * np.sqrt(n_rows)  # their products are 1 and 0 exactly
    return errors * [1.0, 447.2], np.zeros(n_rows)


def gap_of(votes, weights):
    vote = votes @ weights
    gradient = 2 * votes.T @ vote / len(votes)
    return weights @ gradient - gradient.min()


def in_memory(votes, y, **how):
    return sb.fit_weights(votes, None, y, loss="squared_error", prior_mass=0.0, **how)


def streamed(votes, y, **how):
    stream = sb.stream_rows(votes, None, y, task="regression")
    return sb.fit_weights(stream, loss="squared_error", prior_mass=0.0, **how)


@pytest.mark.parametrize("fit", [in_memory, streamed])
def test_a_converged_solve_keeps_the_small_weights_it_needs(fit):
    votes, y = needed_dust()
    solution = fit(votes, y)
    scale = np.mean(votes.mean(axis=1) ** 2)
    assert solution.status is Status.CONVERGED
    assert 1e-6 < solution.weights[1] < 1e-5
    assert solution.stationarity_gap <= 1e-5 * scale
    assert solution.stationarity_gap == pytest.approx(gap_of(votes, solution.weights), abs=1e-6)


@pytest.mark.parametrize("fit", [in_memory, streamed])
def test_the_papers_preset_drops_them_all_the_same_and_says_no_more_than_is_true(fit):
    votes, y = needed_dust()
    solution = fit(votes, y, preset="paper", lam=0.0, solver="active_set")
    assert solution.weights.tolist() == [1.0, 0.0]
    assert solution.status is Status.OWN_TEST
    assert solution.stationarity_gap == pytest.approx(gap_of(votes, solution.weights), rel=1e-6)


def test_harmless_dust_is_dropped():
    votes, y = needed_dust()
    votes = np.column_stack([votes[:, 0], 1.0 + votes[:, 0], votes[:, 0] + 1e-9])
    start = np.array([1.0 - 2e-6, 1e-6, 1e-6])
    solution = in_memory(votes, y, start=start, solver=ActiveSet(tol=1e-2))
    assert solution.status is Status.CONVERGED
    assert solution.weights[solution.weights > 0].min() > 1e-5
