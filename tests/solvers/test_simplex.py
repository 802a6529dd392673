import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sparsebag.solvers.simplex import project_to_simplex, simplex_qp, stationarity_gap

vectors = arrays(np.float64, st.integers(1, 40), elements=st.floats(-1e3, 1e3))


@given(vectors, st.integers(0, 100))
def test_projection_is_the_nearest_point_of_the_simplex(v, seed):
    """v - P(v) makes no acute angle with any feasible direction; points of the simplex stay."""
    w = project_to_simplex(v)
    assert w.min() >= 0
    assert w.sum() == pytest.approx(1.0, abs=1e-12)
    other = np.random.default_rng(seed).dirichlet(np.ones(len(v)))
    assert (v - w) @ (other - w) <= 1e-9 * (1 + np.abs(v).max())
    np.testing.assert_allclose(project_to_simplex(other), other, atol=1e-12)


@given(vectors, st.integers(0, 100))
def test_gap_is_the_best_vertex_and_never_negative(g, seed):
    w = np.random.default_rng(seed).dirichlet(np.ones(len(g)))
    best = max(g @ (w - vertex) for vertex in np.eye(len(g)))
    assert stationarity_gap(w, g) == pytest.approx(best, abs=1e-8)
    assert stationarity_gap(w, g) >= 0


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), n=st.integers(2, 25))
def test_simplex_qp_meets_its_optimality_conditions(seed, n):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n, n))
    hessian, linear = root @ root.T + 1e-3 * np.eye(n), rng.normal(size=n)
    x = simplex_qp(hessian, linear, rng.dirichlet(np.ones(n)))
    slope = linear + hessian @ x
    assert x.min() >= 0
    assert x.sum() == pytest.approx(1.0, abs=1e-12)
    assert x @ (slope - slope.min()) < 1e-8
