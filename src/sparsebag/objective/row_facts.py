"""What an objective knows of its rows beside the votes: their weight and their prior vote."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from array_api_compat import array_namespace, device

from sparsebag.evidence.blocks import row_blocks
from sparsebag.evidence.evidence import Channels, OOBEvidence
from sparsebag.objective.evidence_passes import passes_of

Array = Any


class NoWeightError(ValueError):
    """No row with weight is out of bag for any member."""

    def __init__(self) -> None:
        super().__init__(
            "no row with a positive sample_weight is out of bag for any member, so there is "
            "nothing to judge the members by."
        )


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
    xp = array_namespace(evidence.votes)
    weight = xp.astype(evidence.covered(), xp.float64)
    largest = 1.0
    if evidence.sample_weight is not None:
        largest = float(xp.max(evidence.sample_weight)) or 1.0
        weight = weight * (evidence.sample_weight / largest)  # huge ones would overflow their sum
    total = float(xp.sum(weight))
    if total == 0.0:
        raise NoWeightError
    return RowFacts(weight / total, _uniform_vote(evidence, channels), total * largest)


def _uniform_vote(evidence: OOBEvidence, channels: Channels) -> Array:
    xp = array_namespace(evidence.votes)
    ones = xp.ones(evidence.n_members, dtype=xp.float64, device=device(evidence.votes))
    parts = []
    for rows in row_blocks(evidence.votes):
        total, count = passes_of(evidence, channels, rows)[2].forward(ones)
        parts.append(total / xp.clip(count, min=1.0))
    return xp.concat(parts, axis=1)
