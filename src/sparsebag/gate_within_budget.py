"""A gate for what a selection kept: within the budget, and told in words that are true of both."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsebag.calibrating import VoteCalibration
from sparsebag.deploy.from_members import collapses_into_one
from sparsebag.evidence.members import MemberPool
from sparsebag.localising import localise
from sparsebag.refine.calibrator import Calibrator
from sparsebag.refine.localisation import Localisation
from sparsebag.selection.budget import Budget, member_prices
from sparsebag.settings import Settings

TOO_LARGE = "a gate of {:,} bytes and the members it weighs are more than {}"
KEEPS_ONE = (
    "within {} the selection keeps one member, and a gate weighs two or more; a budget of all {} "
    "{}keeps them"
)


def gate_of_survivors(
    settings: Settings,
    calibration: VoteCalibration,
    pool: MemberPool,
    X: Any,
    weights: np.ndarray,
    calibrator: Calibrator | None,
    *,
    budget: Budget,
    verbose: int = 0,
) -> Localisation:
    """A gate for survivors with weights, or why they have none.

    Parameters
    ----------
    settings : Settings
        Whose ``local`` is not None.
    calibration : VoteCalibration
    pool : MemberPool
        All members.
    X : array-like
        The rows of the evidence.
    weights : ndarray of shape (N,)
    calibrator : Calibrator or None
        What corrects the global vote.
    budget : Budget
    verbose : int, default 0

    Returns
    -------
    Localisation
        With the gate in ``dropped``, where it and the members are too large together.
    """
    active = np.flatnonzero(weights)
    counts = settings.lam is None  # a penalty knows no budget
    alone = len(active) == 1 < len(pool.members)
    if counts and alone and budget.named() and collapses_into_one(pool):
        # Without a gate all of them are one model, and deployed: no single one has the weight.
        rest = "" if budget.max_bytes is None else "and a gate "
        return Localisation(reason=KEEPS_ONE.format(budget, len(pool.members), rest))
    assert settings.local is not None
    local = localise(settings.local, calibration, pool, X, weights, calibrator, verbose)
    if counts and local.used and not _is_paid_for(local, pool, active, budget):
        return Localisation(
            reason=TOO_LARGE.format(local.nbytes, budget),
            considered=local.considered,
            dropped=local,
        )
    return local


def _is_paid_for(local: Localisation, pool: MemberPool, active: np.ndarray, budget: Budget) -> bool:
    n, nodes, nbytes = member_prices(pool).of(active)
    nbytes += local.nbytes - budget.of_gate
    return budget.max_bytes is None or budget.allows((n, nodes, nbytes))
