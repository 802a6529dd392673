"""Weights that are all below the drop threshold: nothing is left to rescale."""

import numpy as np
import pytest

from problems import LOSSES, evidence
from sparsebag.objective.penalties import ConcaveQuadratic
from sparsebag.objective.simplex_objective import SimplexObjective
from sparsebag.solvers.auto import SOLVERS
from sparsebag.solvers.base import drop_small_weights
from sparsebag.solvers.held_verdict import Verdict


@pytest.mark.parametrize("tol", [None, 1e-5])
def test_weights_that_are_all_small_are_kept(tol):
    objective = SimplexObjective(evidence(), LOSSES["log_loss"], ConcaveQuadratic(0.0))
    found = SOLVERS["active_set"]().solve(objective)
    kept = drop_small_weights(found, objective, 1.0, tol=tol)
    assert np.array_equal(kept.weights, found.weights)


def test_a_penalty_as_large_as_the_loss_makes_no_judge_blunt():
    sharp = {"gap": 0.0, "error": 1e-3, "trusted_share": 1.0, "n_equal": 100.0}
    assert Verdict(value=0.0, penalty=-0.4, **sharp).is_good
    assert not Verdict(value=-9.0, penalty=-9.0005, **sharp).is_good
