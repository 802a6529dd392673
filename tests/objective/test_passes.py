"""The compiled products equal the general ones, on every shape a block can have."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsebag.objective import _passes
from sparsebag.objective.passes import ArrayPasses, NativePasses, make_passes


@settings(max_examples=80, deadline=None)
@given(
    n_rows=st.integers(0, 23),
    n_members=st.integers(1, 131),
    dtype=st.sampled_from([np.float32, np.float64]),
    seed=st.integers(0, 1000),
)
def test_compiled_products_equal_the_general_ones(n_rows, n_members, dtype, seed):
    rng = np.random.default_rng(seed)
    votes = rng.normal(size=(n_rows, n_members)).astype(dtype)
    mask = rng.random((n_rows, n_members)) < 0.4
    native, general = NativePasses(votes, mask), ArrayPasses((votes,), mask, np, dtype)
    tolerance = {"rtol": 0, "atol": 1e-4 if dtype is np.float32 else 1e-11}
    w = rng.dirichlet(np.ones(n_members))
    for ours, theirs in zip(native.forward(w), general.forward(w), strict=True):
        np.testing.assert_allclose(ours, theirs, **tolerance)
    a, b = rng.normal(size=(1, n_rows)), rng.normal(size=n_rows)
    np.testing.assert_allclose(native.transposed(a, b), general.transposed(a, b), **tolerance)


def test_the_compiled_products_are_used_where_they_apply():
    votes, mask = np.ones((3, 4), np.float32), np.ones((3, 4), bool)
    assert isinstance(make_passes((votes,), mask, np, np.float32), NativePasses)
    assert isinstance(make_passes((votes,), None, np, np.float32), ArrayPasses)
    assert isinstance(make_passes((votes, votes), mask, np, np.float32), ArrayPasses)
    assert isinstance(make_passes((votes[:, ::2],), mask[:, ::2], np, np.float32), ArrayPasses)


def test_a_true_that_is_not_one_byte_is_still_true():
    votes, mask = np.ones((3, 4)), np.ones((3, 4), bool)
    odd = (mask.astype(np.uint8) * 255).view(bool)
    w = np.full(4, 0.25)
    assert np.array_equal(NativePasses(votes, odd).forward(w)[1], [1.0, 1.0, 1.0])
    assert np.array_equal(NativePasses(votes, mask).forward(w)[1], [1.0, 1.0, 1.0])


def test_an_output_of_another_type_is_refused():
    votes, mask = np.ones((3, 4), np.float32), np.ones((3, 4), np.uint8)
    on = np.ones(3, np.float32)
    with pytest.raises(TypeError):
        _passes.transposed(votes, mask, on, on, np.zeros(4))


def test_shapes_are_checked_before_the_kernel_runs():
    votes, mask = np.ones((3, 4)), np.ones((3, 4), np.uint8)
    with pytest.raises(ValueError, match="array shapes disagree"):
        _passes.forward(votes, mask, np.ones(5), np.empty(3), np.empty(3))
    with pytest.raises(ValueError, match="array shapes disagree"):
        _passes.transposed(votes, mask[:2], np.ones(3), np.ones(3), np.zeros(4))
