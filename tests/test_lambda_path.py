"""The paper's penalty at several strengths: each point is what a cold solve finds."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from sparsebag import fit_weights, lambda_path
from sparsebag.solvers.projected_gradient import ProjectedGradient

EXACT = ProjectedGradient(tol=1e-8, max_iter=5000)


def problem(n_rows=300, n_members=10):
    rng = np.random.default_rng(0)
    truth = rng.normal(size=n_rows)
    noise = rng.normal(size=(n_rows, n_members)) * np.linspace(0.5, 2.0, n_members)
    return truth[:, None] + noise, rng.random(noise.shape) < 0.37, truth


def uniform_loss(votes, mask, truth):
    vote = np.sum(votes * mask, axis=1) / np.maximum(mask.sum(axis=1), 1)
    seen = mask.any(axis=1)
    return np.mean((vote - truth)[seen] ** 2)


@pytest.mark.filterwarnings("ignore::sparsebag.UncoveredRowsWarning")
@pytest.mark.parametrize("relative", [False, True])
def test_warm_starts_end_where_cold_ones_do(relative):
    data = problem()
    unit = uniform_loss(*data) if relative else 1.0
    path = lambda_path(
        *data, [0.02, 0.0, 0.01], relative=relative, loss="squared_error", solver=EXACT
    )
    assert_allclose([lam for lam, _ in path], unit * np.array([0.0, 0.01, 0.02]), rtol=1e-6)
    for lam, solution in path:
        cold = fit_weights(*data, loss="squared_error", lam=lam, solver=EXACT)
        assert solution.objective == pytest.approx(cold.objective, abs=1e-6)
        assert_allclose(solution.weights, cold.weights, atol=5e-3)
    concentration = [solution.weights @ solution.weights for _, solution in path]
    assert concentration == sorted(concentration)


@pytest.mark.filterwarnings("ignore::sparsebag.UncoveredRowsWarning")
def test_a_relative_strength_means_the_same_in_any_unit():
    votes, mask, truth = problem()
    weights = [
        lambda_path(unit * votes, mask, unit * truth, [0.1], relative=True, loss="squared_error")[
            0
        ][1].weights
        for unit in (1.0, 50.0)
    ]
    assert_allclose(weights[0], weights[1], atol=1e-2)


def test_bad_strengths():
    with pytest.raises(ValueError, match="lams is empty; pass at least one strength"):
        lambda_path(*problem(), [], loss="squared_error")
    with pytest.raises(ValueError, match=r"lam must be .*not negative, got -1"):
        lambda_path(*problem(), [0.0, -1.0], loss="squared_error")
    with pytest.raises(ValueError, match="lams is empty; pass at least one strength"):
        lambda_path(*problem(), loss="squared_error")


def test_matrices_need_targets():
    with pytest.raises(ValueError, match="y is missing; pass one target a row"):
        lambda_path(problem()[0], lams=[0.0], loss="squared_error")
