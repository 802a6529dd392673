"""The full-vote risk: what weighted members will cost when *all* of them vote, as deployed.

Out of bag a row hears only some 37 % of the members, so the out-of-bag ratio judges k members by
the votes of 0.37 k. For the quadratic scores (squared error, Brier) there is an exact way round::

    risk(w) = wᵀ G w        G_jl = mean of e_ij·e_il over the rows out of bag for both j and l

with e the residual, target minus vote, summed over classes. Each entry is a mean over *its own*
rows, and rows differ far more than members do, so an entry would mostly tell how hard its rows
are. Each product is therefore taken relative to the row's mean product over all its pairs, and
the mean of those is added back: nearly the same expectation, a fraction of the noise.

N members give an N×N matrix, accumulated in one pass over row blocks; after it nothing depends on
the number of rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sparsebag.evidence.evidence import OOBEvidence

SMALLEST_SHARE = 1e-9
"""Of the row weight: below it a pair was never out of bag together, but for rounding."""
BLOCK_VOTES = 1 << 19
"""Votes held at a time."""


@dataclass(frozen=True)
class PairMoments:
    """Sums over rows for every pair of members. Those of disjoint sets of rows add.

    Attributes
    ----------
    products : ndarray of shape (N, N)
        Row-weighted products of residuals, each less the row's mean product.
    counts : ndarray of shape (N, N)
        Weight of the rows out of bag for both members.
    row_weight : float
        Weight of the rows.
    own_level, pair_level : float
        Weighted sums of the rows' mean squares and mean products, to be added back.
    """

    products: np.ndarray
    counts: np.ndarray
    row_weight: float
    own_level: float
    pair_level: float

    def __add__(self, other: PairMoments) -> PairMoments:
        return PairMoments(
            self.products + other.products,
            self.counts + other.counts,
            self.row_weight + other.row_weight,
            self.own_level + other.own_level,
            self.pair_level + other.pair_level,
        )

    def mean(self) -> tuple[float, float]:
        """Mean diagonal and off-diagonal of G, weighted by how many rows each entry rests on.

        One member's risk, and what no number of members averages away: k members drawn at random
        are expected to cost ``pair + (own - pair) / k``.
        """
        own_products, own_counts = np.trace(self.products), np.trace(self.counts)
        pair_products = self.products.sum() - own_products
        pair_counts = max(self.counts.sum() - own_counts, 1e-300)
        own = self.own_level / self.row_weight + own_products / own_counts
        return float(own), float(self.pair_level / self.row_weight + pair_products / pair_counts)

    def matrix(self) -> np.ndarray:
        """G as measured; the mean for pairs that are never out of bag together.

        Returns
        -------
        ndarray of shape (N, N)
        """
        is_own = np.eye(len(self.counts), dtype=bool)
        level = np.where(is_own, self.own_level, self.pair_level) / self.row_weight
        own, pair = self.mean()
        seen = self.counts > SMALLEST_SHARE * self.row_weight
        measured = level + self.products / np.where(seen, self.counts, 1.0)
        return np.where(seen, measured, np.where(is_own, own, pair))


def pair_moments(
    evidence: OOBEvidence, row_weight: np.ndarray, *, floor: float = 0.0
) -> PairMoments:
    """Products of members' residuals, summed over rows.

    Parameters
    ----------
    evidence : OOBEvidence
        Of regression, of two classes, or with ``class_votes`` of more.
    row_weight : ndarray of shape (M,)
        As `pair_row_weight` has it.
    floor : float, default 0
        Share of the uniform class distribution in each vote, as deployed.

    Returns
    -------
    PairMoments

    Examples
    --------
    Held-out votes (no mask): the full-vote risk is the mean squared error itself.

    >>> votes = np.array([[1.0, 3.0], [2.0, 2.0], [0.0, 1.0]])
    >>> target = np.array([1.0, 2.0, 2.0])
    >>> evidence = OOBEvidence(votes, None, target, "regression")
    >>> moments = pair_moments(evidence, pair_row_weight(evidence))
    >>> w = np.array([0.5, 0.5])
    >>> round(float(w @ moments.matrix() @ w), 6)
    1.083333
    >>> round(float(np.mean((votes @ w - target) ** 2)), 6)
    1.083333
    """
    n = evidence.n_members
    products, counts, diagonal = np.zeros((n, n)), np.zeros((n, n)), np.zeros(n)
    own_level = pair_level = 0.0
    for block, mask, residual in residual_blocks(evidence, floor):
        s, n_voting = row_weight[block], mask.sum(axis=1)
        squares = np.sum(residual**2, axis=2)
        total = squares.sum(axis=1)
        own = total / np.maximum(n_voting, 1.0)
        pair = np.sum(residual.sum(axis=1) ** 2, axis=1) - total
        pair /= np.maximum(n_voting * (n_voting - 1.0), 1.0)
        weighted = s[:, None] * mask
        counts += weighted.T @ mask
        products -= (pair[:, None] * weighted).T @ mask
        planes = np.moveaxis(residual, 2, 0)
        if evidence.n_classes == 2:  # the second class's residuals are the first's, turned round
            planes = np.sqrt(2.0) * planes[:1]
        for e in planes:
            products += (s[:, None] * e).T @ e
        diagonal += s @ (squares - own[:, None] * mask)
        own_level += float(s @ own)
        pair_level += float(s @ pair)
    np.fill_diagonal(products, diagonal)
    return PairMoments(products, counts, float(row_weight.sum()), own_level, pair_level)


def pair_row_weight(evidence: OOBEvidence) -> np.ndarray:
    """Row weights, summing to one; zero for rows that fewer than two members have out of bag.

    Parameters
    ----------
    evidence : OOBEvidence

    Returns
    -------
    ndarray of shape (M,)
    """
    weight = np.ones(evidence.n_rows)
    if evidence.sample_weight is not None:
        weight = np.array(evidence.sample_weight, dtype=float)
    if evidence.oob_mask is not None:
        n_voting = np.asarray(evidence.oob_mask).sum(axis=1)
        weight = np.where(n_voting >= min(2, evidence.n_members), weight, 0.0)
    if not weight.sum() > 0:
        raise ValueError(
            "no two members share an out-of-bag row, so their joint vote cannot be judged; use "
            "more members, or pass held-out rows with evidence='holdout'."
        )
    return np.asarray(weight / weight.sum())


def vote_blocks(evidence: OOBEvidence) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
    """Blocks of rows with mask (rows, N) and votes (rows, N, C); C is 1 in regression."""
    width = evidence.n_members * (evidence.n_classes or 1)
    step = max(1, BLOCK_VOTES // width)
    for start in range(0, evidence.n_rows, step):
        block = slice(start, min(start + step, evidence.n_rows))
        part = evidence.take(block)
        shape = (part.n_rows, part.n_members)
        mask = np.ones(shape) if part.oob_mask is None else np.asarray(part.oob_mask, dtype=float)
        if part.n_classes is None:
            yield block, mask, np.asarray(part.votes, dtype=np.float64)[:, :, None]
            continue
        if part.n_classes == 2:  # what the true class does not have, the other one has
            of_true = np.asarray(part.votes, dtype=np.float64)
            is_second = np.asarray(part.target)[:, None] == 1
            of_second = np.where(is_second, of_true, 1.0 - of_true)
            yield block, mask, np.stack([1.0 - of_second, of_second], axis=2)
            continue
        assert part.class_votes is not None
        planes = [p.toarray() if hasattr(p, "toarray") else p for p in part.class_votes]
        yield block, mask, np.stack([np.asarray(p, dtype=np.float64) for p in planes], axis=2)


def residual_blocks(
    evidence: OOBEvidence, floor: float
) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
    """Blocks of rows with mask (rows, N) and target minus vote (rows, N, C), zero in bag."""
    for block, mask, votes in vote_blocks(evidence):
        target = np.asarray(evidence.target)[block]
        if evidence.n_classes is None:
            residual = target[:, None, None] - votes
        else:
            hot = target[:, None] == np.arange(evidence.n_classes)
            residual = hot[:, None, :] - ((1.0 - floor) * votes + floor / evidence.n_classes)
        yield block, mask, np.where(mask[:, :, None] > 0.0, residual, 0.0)
