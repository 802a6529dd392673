"""The kernels' own logarithms, which rows share: as good as NumPy's of every row."""

import numpy as np
import pytest

from problems import is_native
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.objective.losses import LogLoss
from sparsebag.objective.objective import Objective
from sparsebag.objective.penalties import ConcaveQuadratic

N_MEMBERS = 9
ONE_ALONE = np.eye(N_MEMBERS)[0]
"""All weight on one member: its votes are the ensemble's, without any rounding."""


def log_loss(votes, row_weight=None, clip=1e-15):
    rng = np.random.default_rng(0)
    matrix = rng.random((len(votes), N_MEMBERS), dtype=np.float32)
    matrix[:, 0] = votes
    e = OOBEvidence(
        matrix,
        np.ones(matrix.shape, bool),
        np.zeros(len(votes), int),
        "classification",
        row_weight,
        classes=np.array([0, 1]),
    )
    f = Objective(e, LogLoss(clip=clip), ConcaveQuadratic(0.0))
    assert is_native(f)
    return f.value_and_gradient(ONE_ALONE)[0]


@pytest.mark.parametrize("n_rows", [1, 3, 8, 15, 16, 17, 64, 127, 1000])
@pytest.mark.parametrize("least", [1e-14, 0.05, 0.999])
def test_the_loss_is_the_mean_of_every_rows_logarithm(kernel, n_rows, least):
    votes = np.geomspace(least, 1.0, n_rows).astype(np.float32)
    expected = -np.log(votes.astype(np.float64)).mean()
    assert log_loss(votes) == pytest.approx(expected, rel=1e-14, abs=1e-14)


@pytest.mark.parametrize("n_rows", [5, 16, 300])
@pytest.mark.parametrize("kind", ["uneven", "some zero", "blocks of two"])
def test_rows_with_weights_of_their_own(kernel, n_rows, kind):
    rng = np.random.default_rng(n_rows)
    votes = rng.uniform(1e-3, 1.0, n_rows).astype(np.float32)
    weight = {
        "uneven": rng.lognormal(0.0, 5.0, n_rows),
        "some zero": (np.arange(n_rows) % 7 > 0).astype(float),
        "blocks of two": 1.0 + (np.arange(n_rows) // 40) % 2,
    }[kind]
    expected = -np.average(np.log(votes.astype(np.float64)), weights=weight)
    assert log_loss(votes, weight) == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("clip", [1e-45, 1e-15])
def test_votes_whose_product_no_double_holds(kernel, clip):
    votes = np.full(200, 1e-38, dtype=np.float32)
    votes[::3] = 0.7
    expected = -np.log(np.maximum(votes.astype(np.float64), clip)).mean()
    assert log_loss(votes, clip=clip) == pytest.approx(expected, rel=1e-14)


def test_without_a_clip_a_vote_of_zero_costs_everything(kernel):
    votes = np.linspace(0.0, 1.0, 50, dtype=np.float32)
    assert log_loss(votes, clip=0.0) == np.inf
    assert np.isfinite(log_loss(votes[1:], clip=0.0))
