"""The CUDA kernels equal the general products. Triton's interpreter runs them on any machine."""

import os

import numpy as np
import pytest

from sparsebag.objective.fused_passes import FusedPasses
from sparsebag.objective.passes import ArrayPasses
from sparsebag.objective.triton_device import can_fuse

torch = pytest.importorskip("torch", reason="torch is not installed (make test-all installs it)")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read where Triton is first imported
pytest.importorskip("triton", reason="triton is not installed (it comes with torch for CUDA)")


def blocks(n_rows=37, n_members=70, dtype=torch.float32, seed=0):
    rng = np.random.default_rng(seed)
    mask = torch.asarray(rng.random((n_rows, n_members)) < 0.4, device=DEVICE)
    votes = torch.asarray(rng.random((n_rows, n_members)), device=DEVICE).to(dtype)
    weights = torch.asarray(rng.dirichlet(np.ones(n_members)), device=DEVICE)
    return votes, mask, weights


def close(ours, theirs):
    np.testing.assert_allclose(ours.cpu().numpy(), theirs.cpu().numpy(), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("masked", [True, False])
def test_products_equal_the_general_ones(dtype, channels, masked):
    given = [blocks(dtype=dtype, seed=k) for k in range(channels)]
    mask, weights = given[0][1] if masked else None, given[0][2]
    votes = tuple(v for v, _, _ in given)
    # What stands where a row was in the bag is never read.
    spoilt = tuple(v if mask is None else torch.where(mask, v, torch.nan) for v in votes)
    zeroed = tuple(v if mask is None else v * mask for v in votes)
    ours = FusedPasses(spoilt, mask)
    general = ArrayPasses(zeroed, mask, _namespace(), torch.float32)
    for a, b in zip(ours.forward(weights), general.forward(weights), strict=True):
        close(a, b)
    on_votes = torch.asarray(np.random.default_rng(1).normal(size=(channels, 37)), device=DEVICE)
    close(ours.transposed(on_votes, on_votes[0]), general.transposed(on_votes, on_votes[0]))


def test_host_arrays_are_left_to_the_general_products():
    votes, mask, _ = blocks()
    assert can_fuse((votes,), mask) == (DEVICE == "cuda")
    assert not can_fuse((np.ones((2, 2), np.float32),), None)


def _namespace():
    from array_api_compat import array_namespace

    return array_namespace(torch.ones(1))
