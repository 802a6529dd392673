"""Row blocks of evidence with their products."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from array_api_compat import array_namespace

from sparsebag.evidence.arrays import working_dtype
from sparsebag.evidence.blocks import row_blocks
from sparsebag.evidence.evidence import Channels, OOBEvidence, zero_in_bag
from sparsebag.objective.passes import Passes, make_passes
from sparsebag.objective.triton_device import can_fuse

Array = Any
FUSED_BLOCK_ENTRIES = 1 << 32
"""Of a block on a CUDA device: what is done between its two products, a dozen small steps on one
number a row, then takes no time beside them."""


def reads_views(evidence: OOBEvidence, channels: Channels) -> bool:
    """Whether passes read the evidence as it is: zero in the bag, or zeroed by the kernels.

    Parameters
    ----------
    evidence : OOBEvidence
    channels : Channels
        The votes the loss reads.

    Returns
    -------
    bool
    """
    if evidence.is_zeroed or evidence.oob_mask is None:
        return True
    return can_fuse(channels.votes, evidence.oob_mask)


def pass_blocks(evidence: OOBEvidence, channels: Channels) -> Iterator[slice]:
    """Row slices for products. Those of the kernels make no copies, so theirs may be large.

    Parameters
    ----------
    evidence : OOBEvidence
    channels : Channels

    Returns
    -------
    iterator of slice
    """
    fused = can_fuse(channels.votes, evidence.oob_mask)
    return row_blocks(evidence.votes, entries=FUSED_BLOCK_ENTRIES if fused else None)


def passes_of(
    evidence: OOBEvidence, channels: Channels, rows: slice
) -> tuple[tuple[Array, ...], Array | None, Passes]:
    """A row block of every channel, zero where the rows were in the bag, and its products.

    Parameters
    ----------
    evidence : OOBEvidence
    channels : Channels
    rows : slice

    Returns
    -------
    votes : tuple of K matrices
    mask : array or None
    passes : Passes
    """
    votes = tuple(v[rows, :] for v in channels.votes)
    mask = evidence.oob_mask
    mask = None if mask is None else mask[rows, :]
    if not reads_views(evidence, channels):
        votes = tuple(zero_in_bag(v, mask) for v in votes)
    xp = array_namespace(evidence.votes)
    return votes, mask, make_passes(votes, mask, xp, working_dtype(evidence.votes))
