"""What is asked of row blocks on a cluster before anything is fitted to them.

Each worker sees its own rows alone, and rows that say nothing may be among others that do. So
whether they say anything at all is judged here, of all blocks together, in memory's words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sparsebag.evidence.blocks import row_blocks
from sparsebag.evidence.callers_warning import warnings_held_back
from sparsebag.evidence.cluster_matrices import NO_ROWS
from sparsebag.evidence.cluster_rows import ClusterBlocks
from sparsebag.evidence.evidence import OOBEvidence, warn_uncovered, zero_in_bag
from sparsebag.evidence.from_predictions import from_predictions


@dataclass(frozen=True)
class Glance:
    """A block at first sight.

    Attributes
    ----------
    kind : tuple
        Task, number of members, whether there are a mask and row weights: alike in all blocks.
    n_covered : int
        Rows that some member has out of bag.
    weight : float
        Sum of their weights.
    has_votes : bool
        Whether any vote is not zero; only asked of a user's own probabilities, else true.
    """

    kind: tuple[str, int, bool, bool]
    n_covered: int
    weight: float
    has_votes: bool


def look_at(blocks: ClusterBlocks) -> list[Glance]:
    """A glance at every block, or one sentence on why there is nothing to fit.

    Parameters
    ----------
    blocks : ClusterBlocks
        Of `OOBEvidence`.

    Returns
    -------
    list of Glance

    Examples
    --------
    >>> import pytest
    >>> dask = pytest.importorskip("dask")
    >>> half = OOBEvidence(np.eye(2), None, np.ones(2), "regression")
    >>> blocks = ClusterBlocks(lambda: [dask.delayed(half), dask.delayed(half)])
    >>> sum(glance.n_covered for glance in look_at(blocks))
    4
    """
    found: list[Glance] = blocks.each(_glance)
    if any(glance.kind != found[0].kind for glance in found):
        raise ValueError("the row blocks differ in their members, mask, sample weights or task.")
    has_votes = any(glance.has_votes for glance in found)
    if not has_votes or not any(glance.weight > 0 for glance in found):
        raise ValueError(_refusal(found, blocks.each(_refused_alone)))
    return found


def _refusal(found: Sequence[Glance], alone: Sequence[str | None]) -> str:
    """What a block that shows the fault of all would be refused with by itself."""
    most = max(glance.n_covered for glance in found)
    words = next(w for glance, w in zip(found, alone, strict=True) if glance.n_covered == most)
    assert words is not None
    return words


# -- what workers do -------------------------------------------------------------------------


def _glance(evidence: OOBEvidence) -> Glance:
    covered, weight = evidence.covered(), evidence.sample_weight
    n_covered = int(np.count_nonzero(covered))
    masked, weighted = evidence.oob_mask is not None, weight is not None
    return Glance(
        (evidence.task, evidence.n_members, masked, weighted),
        n_covered,
        float(n_covered if weight is None else np.sum(weight[covered])),
        not _is_own(evidence) or _has_votes(evidence),
    )


def _is_own(evidence: OOBEvidence) -> bool:
    """Whether these are a user's own probabilities, which may be of the wrong class."""
    return evidence.task == "classification" and evidence.source == "matrices"


def _has_votes(evidence: OOBEvidence) -> bool:
    mask = None if evidence.is_zeroed else evidence.oob_mask
    return any(
        bool(np.any(zero_in_bag(evidence.votes[rows], None if mask is None else mask[rows])))
        for rows in row_blocks(evidence.votes)
    )


def _refused_alone(evidence: OOBEvidence) -> str | None:
    """What memory would say of these rows if there were no others."""
    if not evidence.n_rows:
        return NO_ROWS
    try:
        if _is_own(evidence):
            assert evidence.classes is not None
            from_predictions(
                evidence.votes,
                evidence.oob_mask,
                evidence.classes[evidence.target],
                task="classification",
                labels=evidence.classes,
            )
        with warnings_held_back():
            warn_uncovered(evidence)
    except ValueError as error:
        return str(error)
    return None
