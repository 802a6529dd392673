"""What an objective knows of its rows beside the votes: their weight and their prior vote."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device

from sparsebag.evidence.blocks import row_blocks
from sparsebag.evidence.evidence import NOT_COVERED, WEIGHTLESS, Channels, OOBEvidence
from sparsebag.objective.evidence_passes import passes_of

Array = Any


class NoWeightError(ValueError):
    """No row with weight is out of bag for any member.

    Parameters
    ----------
    n_covered : int, optional
        Rows some member has out of bag, where they were counted: which of the two is amiss.
    """

    def __init__(self, n_covered: int | None = None) -> None:
        if n_covered is None:
            words = (
                "no row of weight is out of bag for any member, so there is nothing to judge the "
                "members by."
            )
        else:
            words = WEIGHTLESS if n_covered else NOT_COVERED
        super().__init__(words)


@dataclass(frozen=True)
class RowFacts:
    """What an objective knows of its rows beside the votes; found once, whoever has weight.

    Attributes
    ----------
    row_weight : array of shape (M,)
        s: summing to one, zero for rows no member has out of bag.
    uniform_vote : array of shape (K, M)
        u: the whole ensemble's uniform out-of-bag vote.
    total : float
        What the row weights summed to before they were divided by it.
    """

    row_weight: Array
    uniform_vote: Array
    total: float


def find_facts(evidence: OOBEvidence, channels: Channels) -> RowFacts:
    """Weights and uniform votes of the evidence's rows, in one pass over it.

    Parameters
    ----------
    evidence : OOBEvidence
    channels : Channels
        The votes the loss reads.

    Returns
    -------
    RowFacts
    """
    weight, total = _row_weight(evidence.covered(), evidence.sample_weight)
    return RowFacts(weight, _uniform_vote(evidence, channels), total)


def facts_of_prior(prior: np.ndarray, sample_weight: Array | None) -> RowFacts:
    """The same from what is kept of a stream's block.

    Parameters
    ----------
    prior : ndarray of shape (B,)
        The uniform votes, NaN where no member has the row out of bag.
    sample_weight : array of shape (B,) or None

    Returns
    -------
    RowFacts

    Examples
    --------
    >>> facts_of_prior(np.array([0.5, np.nan, 0.25]), np.array([3.0, 1.0, 1.0])).row_weight.tolist()
    [0.75, 0.0, 0.25]
    """
    idle = np.isnan(prior)
    weight, total = _row_weight(~idle, sample_weight)
    return RowFacts(weight, np.where(idle, 0.0, prior.astype(np.float64))[None, :], total)


def _row_weight(covered: Array, sample_weight: Array | None) -> tuple[Array, float]:
    xp = array_namespace(covered)
    if not covered.shape[0]:
        raise NoWeightError
    weight = xp.astype(covered, xp.float64)
    largest = 1.0
    if sample_weight is not None:
        largest = float(xp.max(sample_weight)) or 1.0
        weight = weight * (sample_weight / largest)  # huge ones would overflow their sum
    total = float(xp.sum(weight))
    if total == 0.0:
        raise NoWeightError
    return weight / total, total * largest


def _uniform_vote(evidence: OOBEvidence, channels: Channels) -> Array:
    xp = array_namespace(evidence.votes)
    ones = xp.ones(evidence.n_members, dtype=xp.float64, device=device(evidence.votes))
    parts = []
    for rows in row_blocks(evidence.votes):
        total, count = passes_of(evidence, channels, rows)[2].forward(ones)
        parts.append(total / xp.clip(count, min=1.0))
    return xp.concat(parts, axis=1)
