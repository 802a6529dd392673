"""The CUDA kernel that reads evidence once equals the general way; Triton's interpreter runs it."""

import os
from dataclasses import replace

import numpy as np
import pytest

from problems import LOSSES, evidence, interior_point
from sparsebag.objective.fused_one_read import FusedOneRead, make_fused_one_read
from sparsebag.objective.penalties import ConcaveQuadratic
from sparsebag.objective.simplex_objective import NO_VOTE, SimplexObjective

torch = pytest.importorskip("torch", reason="torch is not installed (make test-all installs it)")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read where Triton is first imported
pytest.importorskip("triton", reason="triton is not installed (it comes with torch for CUDA)")

FLOOR, PRIOR_MASS = 1e-3, 0.02


def on_device(f, votes, dtype):
    """What the kernel is given for an objective, whatever its size."""
    return FusedOneRead(
        like=votes,
        votes=votes.to(dtype),
        mask=torch.asarray(f.evidence.oob_mask.view(np.uint8), device=DEVICE),
        uniform_vote=torch.asarray(f.facts.uniform_vote[0], device=DEVICE),
        target=torch.asarray(f._channels.targets[0].astype(np.float64), device=DEVICE),
        row_weight=torch.asarray(f.facts.row_weight, device=DEVICE),
        is_log_loss=f.loss.name == "log_loss",
        least_vote=float(getattr(f.loss, "clip", -np.inf)),
        kept_share=1.0 - f.floor,
        floor=f.floor / (f.evidence.n_classes or 1),
        multiplicity=f._channels.multiplicity,
    )


@pytest.mark.parametrize(
    ("loss", "n_classes"), [("log_loss", 3), ("squared_error", 3), ("brier", 2)]
)
@pytest.mark.parametrize("n_members", [33, 64])
def test_as_the_general_way(loss, n_classes, n_members):
    e = evidence(
        loss, n_rows=23, n_members=n_members, n_classes=n_classes, weighted=True, dtype=np.float32
    )
    f = SimplexObjective(e, LOSSES[loss], ConcaveQuadratic(0.0), floor=FLOOR, prior_mass=PRIOR_MASS)
    weights = interior_point(n_members)
    value, gradient = f.value_and_gradient(weights)
    # What stands where a row was in the bag is never read.
    votes = torch.asarray(np.where(e.oob_mask, f._channels.votes[0], np.nan), device=DEVICE)
    kernel = on_device(f, votes, torch.float32)
    found, slope = kernel.loss_and_gradient(
        torch.asarray(weights, device=DEVICE), prior_mass=PRIOR_MASS, least_denominator=NO_VOTE
    )
    assert found == pytest.approx(value, rel=1e-5, abs=1e-6)
    np.testing.assert_allclose(
        slope.cpu().numpy(), gradient, rtol=1e-4, atol=1e-5 * np.abs(gradient).max()
    )


def test_host_arrays_are_left_to_the_compiled_kernel():
    e = evidence("log_loss", n_members=5000, n_rows=8, dtype=np.float32)
    f = SimplexObjective(e, LOSSES["log_loss"], ConcaveQuadratic(0.0))
    assert make_fused_one_read(e, f._channels, f.facts, f.loss, f.floor) is None


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device")
def test_long_rows_on_a_device_are_read_once():
    e = evidence("log_loss", n_members=5000, n_rows=64, dtype=np.float32)
    here = SimplexObjective(e, LOSSES["log_loss"], ConcaveQuadratic(0.0), prior_mass=PRIOR_MASS)
    there = SimplexObjective(
        replace(
            e,
            votes=torch.asarray(e.votes, device=DEVICE),
            oob_mask=torch.asarray(e.oob_mask, device=DEVICE),
            target=torch.asarray(e.target, device=DEVICE),
        ),
        LOSSES["log_loss"],
        ConcaveQuadratic(0.0),
        prior_mass=PRIOR_MASS,
    )
    assert isinstance(there._one_read, FusedOneRead)
    weights = interior_point(5000)
    value, gradient = there.value_and_gradient(torch.asarray(weights, device=DEVICE))
    expected, slow = here.value_and_gradient(weights)
    assert value == pytest.approx(expected, rel=1e-6)
    np.testing.assert_allclose(gradient.cpu().numpy(), slow, atol=1e-5 * np.abs(slow).max())
