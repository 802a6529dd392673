"""The full-vote risk of evidence on a cluster: each block's pair sums, added up as a tree.

Of every row three numbers come back (its own risk, its mean product, its voters): standard errors
are made of them. The pairs' sums are N×N, whatever the number of rows.
"""

from __future__ import annotations

import numpy as np

from sparsebag.evidence.cluster_rows import ClusterBlocks
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.objective.full_vote_risk import (
    FullVoteRisk,
    NoPairsError,
    PairMoments,
    kept_effects,
)


class ClusterRisk:
    """The full-vote risk of members whose evidence lives on a cluster's workers.

    Parameters
    ----------
    blocks : ClusterBlocks
        Of `OOBEvidence`.
    floor : float, default 0
        Share of the uniform class distribution in each vote, as deployed.

    Attributes
    ----------
    row_weight, own_risk, pair_risk : ndarray of shape (M,)
        As in `FullVoteRisk`.

    Examples
    --------
    >>> import pytest
    >>> dask = pytest.importorskip("dask")
    >>> votes, target = np.array([[1.0, 3.0], [2.0, 2.0], [0.0, 1.0]]), np.array([1.0, 2.0, 2.0])
    >>> whole = OOBEvidence(votes, None, target, "regression")
    >>> parts = [whole.take(slice(0, 2)), whole.take(slice(2, 3))]
    >>> risk = ClusterRisk(ClusterBlocks(lambda: [dask.delayed(part) for part in parts]))
    >>> w = np.array([0.5, 0.5])
    >>> round(float(w @ risk.moments().matrix() @ w), 6)
    1.083333
    """

    def __init__(self, blocks: ClusterBlocks, *, floor: float = 0.0) -> None:
        self._risks = blocks.derived(_risk, floor)
        found = self._risks.each(_rows)
        self.n_members: int = found[0][0]
        self._has_mask: bool = found[0][1]
        own, pair, voters, weight = (np.concatenate(c) for c in list(zip(*found, strict=True))[2:])
        if not weight.sum() > 0:
            raise NoPairsError.of_no_rows()
        self.own_risk, self.pair_risk, self._voters = own, pair, voters
        self.row_weight: np.ndarray = weight / weight.sum()
        self._sizes = [len(part[2]) for part in found]
        self._shares = [float(part[5].sum() / weight.sum()) for part in found]

    def kept_effects(self) -> tuple[float, float]:
        """As `FullVoteRisk.kept_effects`.

        Returns
        -------
        tuple of float
        """
        if not self._has_mask:
            return 1.0, 1.0
        return kept_effects(self.n_members, self._voters, self.row_weight)

    def row_risk(self, weights: np.ndarray) -> np.ndarray:
        """As `FullVoteRisk.row_risk`.

        Parameters
        ----------
        weights : ndarray of shape (N,)

        Returns
        -------
        ndarray of shape (M,)
        """
        return np.concatenate(self._risks.each(_row_risk, weights))

    def moments(self, rows: np.ndarray | None = None) -> PairMoments:
        """Pair sums over some rows, a tree reduction.

        Parameters
        ----------
        rows : ndarray of indices, optional
            Default: all rows.

        Returns
        -------
        PairMoments
        """
        rows = np.arange(len(self.row_weight)) if rows is None else np.sort(rows)
        ends = np.cumsum(self._sizes)
        cuts = np.searchsorted(rows, ends[:-1])
        local = [
            part - (end - size)
            for part, end, size in zip(np.split(rows, cuts), ends, self._sizes, strict=True)
        ]
        own = list(zip(local, self._shares, strict=True))
        found: PairMoments = self._risks.sum(_moments, own=own)
        return found


# -- what workers do -------------------------------------------------------------------------


def _risk(evidence: OOBEvidence, floor: float) -> FullVoteRisk | OOBEvidence:
    """The block's own risk; the bare evidence where no two members share a row of weight."""
    try:
        return FullVoteRisk(evidence, floor=floor)
    except NoPairsError:
        return evidence


def _rows(
    risk: FullVoteRisk | OOBEvidence,
) -> tuple[int, bool, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Members, mask, and each row's own risk, pair risk, voters and unnormalised weight."""
    if isinstance(risk, OOBEvidence):
        nothing = np.zeros(risk.n_rows)
        return risk.n_members, risk.oob_mask is not None, nothing, nothing, nothing, nothing
    masked = risk.evidence.oob_mask is not None
    return (
        risk.n_members,
        masked,
        risk.own_risk,
        risk.pair_risk,
        risk.voters,
        risk.row_weight * risk.total_weight,
    )


def _row_risk(risk: FullVoteRisk | OOBEvidence, weights: np.ndarray) -> np.ndarray:
    if isinstance(risk, OOBEvidence):
        return np.zeros(risk.n_rows)
    return risk.row_risk(weights)


def _moments(
    risk: FullVoteRisk | OOBEvidence, picked: tuple[np.ndarray, float]
) -> PairMoments | None:
    rows, share = picked
    if isinstance(risk, OOBEvidence) or not len(rows):
        return None
    return risk.moments(rows).scaled(share)
