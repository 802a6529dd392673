"""Squared error with a mask: ill-conditioned, so that first-order steps alone do not get there."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import sparsebag as sb
from sparsebag.evidence.from_predictions import from_predictions
from sparsebag.objective.losses import Brier, SquaredError
from sparsebag.objective.objective import Objective
from sparsebag.objective.penalties import ConcaveQuadratic
from sparsebag.solvers.active_set import ActiveSet


def rows_of(n_rows, n_members, seed, masked=True):
    rng = np.random.default_rng(seed)
    target = rng.normal(size=n_rows)
    noise = rng.normal(size=(n_rows, n_members)) * np.linspace(0.2, 3, n_members)
    mask = rng.random((n_rows, n_members)) < 0.37
    return (target[:, None] + noise).astype(np.float32), mask if masked else None, target


def objective_of(votes, mask, target, lam=0.02):
    evidence = from_predictions(votes, mask, target, task="regression")
    return Objective(evidence, SquaredError(), ConcaveQuadratic(lam), prior_mass=0.02)


@pytest.mark.parametrize(("n_rows", "n_members", "seed"), [(1295, 50, 7), (3199, 65, 0)])
def test_the_default_converges_in_memory_and_streamed(n_rows, n_members, seed):
    votes, mask, target = rows_of(n_rows, n_members, seed)
    settings = {"lam": 0.02, "loss": "squared_error"}
    here = sb.fit_weights(votes, mask, target, **settings)
    assert here.status.name == "CONVERGED"
    assert here.n_evaluations < 100
    streamed = sb.fit_weights(
        sb.stream_rows(votes, mask, target, task="regression"), memory_limit=1 << 20, **settings
    )
    assert streamed.status.name == "CONVERGED"
    assert streamed.objective == pytest.approx(here.objective, rel=1e-6)
    assert np.abs(streamed.weights - here.weights).max() < 1e-6


@pytest.mark.parametrize("lam", [0.0, 0.02])
@pytest.mark.parametrize("loss", [SquaredError(), Brier()])
def test_active_set_ends_at_the_minimum_without_a_mask(loss, lam):
    if loss.name == "brier":
        rng = np.random.default_rng(3)
        votes = (rng.random((2500, 40)) * np.linspace(0.5, 1, 40)).astype(np.float32)
        evidence = from_predictions(
            votes, None, rng.integers(0, 2, 2500), task="classification", every_class=True
        )
        f = Objective(evidence, loss, ConcaveQuadratic(lam), floor=1e-3, prior_mass=0.02)
    else:
        f = objective_of(*rows_of(2500, 40, 3, masked=False), lam=lam)
    ended = ActiveSet().solve(f)
    exact = ActiveSet(tol=1e-10).solve(f, ended.weights)
    assert ended.status.name == "CONVERGED"
    assert np.abs(ended.weights - exact.weights).max() < 1e-6


def fits_far_from_zero(offset, scale=1.0, dtype=np.float32):
    votes, mask, target = rows_of(3000, 20, 0)
    votes = (votes.astype(np.float64) * scale + offset).astype(dtype)
    target = target * scale + offset
    settings = {"lam": 0.0, "loss": "squared_error"}
    yield lambda: sb.fit_weights(votes, mask, target, **settings)
    yield lambda: sb.fit_weights(sb.stream_rows(votes, mask, target, task="regression"), **settings)


@pytest.mark.filterwarnings("ignore::sparsebag.UncoveredRowsWarning")
@pytest.mark.parametrize("offset", [1e5, 1e6, 1e8])
def test_a_minimum_that_rounding_hides_is_no_success(offset):
    for fit in fits_far_from_zero(offset):
        with pytest.warns(ConvergenceWarning, match="subtract the targets' mean"):
            found = fit()
        assert found.status.name == "STALLED"


@pytest.mark.filterwarnings("ignore::sparsebag.UncoveredRowsWarning")
@pytest.mark.parametrize(("offset", "dtype"), [(1e3, np.float32), (1e6, np.float64)])
def test_targets_at_a_bearable_distance_from_zero(offset, dtype):
    near = next(fits_far_from_zero(0.0, dtype=np.float64))()
    for fit in fits_far_from_zero(offset, dtype=dtype):
        found = fit()
        assert found.status.name == "CONVERGED"
        assert found.objective == pytest.approx(near.objective, rel=1e-4)


@pytest.mark.filterwarnings("ignore::sparsebag.UncoveredRowsWarning", "ignore::RuntimeWarning")
def test_huge_targets_are_solved_or_refused_in_a_sentence():
    near = next(fits_far_from_zero(0.0, dtype=np.float64))()
    for fit in fits_far_from_zero(0.0, scale=1e150, dtype=np.float64):
        found = fit()
        assert found.status.name == "CONVERGED"
        assert np.abs(found.weights - near.weights).max() < 1e-6
    for fit in fits_far_from_zero(0.0, scale=1e300, dtype=np.float64):
        with pytest.raises(
            FloatingPointError, match=r"divide targets and predictions|rescale them"
        ):
            fit()
