"""The paper's theory, and where it is wrong, as tests."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from problems import interior_point, objective, objective_on
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.solvers.projected_gradient import ProjectedGradient


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), n=st.integers(2, 30))
def test_a_strictly_concave_objective_ends_at_a_vertex(seed, n):
    """The loss is bounded in curvature; a large enough λ makes the whole objective concave."""
    rng = np.random.default_rng(seed)
    votes = rng.uniform(0.2, 0.9, (50, n))
    e = OOBEvidence(votes, None, np.zeros(50, int), "classification", classes=np.arange(2))
    largest = np.linalg.eigvalsh(votes.T @ votes / 50).max() / votes.min() ** 2
    f = objective_on(e, lam=float(largest), floor=0.0, prior_mass=0.0)
    start = rng.dirichlet(np.ones(n))
    assert np.linalg.eigvalsh(f.hessian(start)).max() < 0, "the problem must be concave"
    solution = ProjectedGradient().solve(f, start)
    assert solution.n_active == 1
    assert solution.weights.max() == 1.0
    assert ProjectedGradient().solve(f).n_active == 1, "from the centre too"


def test_the_oob_ratio_is_not_convex_even_without_penalty():
    """The paper calls its loss convex. One row, out of the bags of the first two of three."""
    votes, mask = np.array([[1.0, 0.0, 0.0]]), np.array([[True, True, False]])
    e = OOBEvidence(votes, mask, np.zeros(1, int), "classification", classes=np.arange(2))
    f = objective_on(e, lam=0.0, floor=0.0, prior_mass=0.0)
    ends = np.array([0.4, 0.6, 0.0]), np.array([0.4, 0.0, 0.6])
    assert f.value(np.mean(ends, axis=0)) > np.mean([f.value(w) for w in ends]) + 0.1


@pytest.mark.parametrize("loss", ["log_loss", "squared_error"])
def test_held_out_votes_without_penalty_are_convex(loss):
    f = objective(loss, lam=0.0, prior_mass=0.0, holdout=True)
    assert f.is_convex
    assert not objective(loss, lam=0.1, holdout=True).is_convex
    assert not objective(loss, lam=0.0).is_convex
    for seed in range(5):
        # Along the simplex: across it the loss does not change with the weights' scale.
        along = np.eye(f.n_members) - 1.0 / f.n_members
        curvature = along @ f.hessian(interior_point(f.n_members, seed)) @ along
        assert np.linalg.eigvalsh(curvature).min() > -1e-12
