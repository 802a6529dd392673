"""The full-vote risk: what weighted members will cost when *all* of them vote, as deployed.

Out of bag a row hears only some 37 % of the members, so the out-of-bag ratio judges k members by
the votes of 0.37 k. For the quadratic scores (squared error, Brier) there is an exact way round::

    risk(w) = wᵀ G w        G_jl = mean of e_ij·e_il over the rows out of bag for both j and l

with e the residual, target minus vote, summed over classes. Each entry is a mean over *its own*
rows, and rows differ far more than members do, so an entry would mostly tell how hard its rows
are. Each product is therefore taken relative to the row's mean product over all its pairs, and
the mean of those is added back: nearly the same expectation (`FullVoteRisk.kept_effects` makes up
for the rest), a fraction of the noise.

N members give an N×N matrix, accumulated in one pass over row blocks; after it nothing depends on
the number of rows. Its mean diagonal and mean off-diagonal alone give the risk of k members drawn
at random, in closed form.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from array_api_compat import array_namespace, device

from sparsebag.evidence.arrays import is_on_cuda, on_host, working_dtype
from sparsebag.evidence.blocks import row_blocks
from sparsebag.evidence.evidence import OOBEvidence, zero_in_bag
from sparsebag.evidence.on_demand import OnDemandPlane
from sparsebag.objective.gram import add_gram

Array = Any
FEWEST_VOTERS = 2
"""Rows fewer members have out of bag say nothing about pairs and are left out."""
SMALLEST_SHARE = 1e-9
"""Of the row weight: below it a pair was never out of bag together, but for rounding."""


class NoPairsError(ValueError):
    """No two members have a row of weight out of bag together."""

    @classmethod
    def of_no_rows(cls) -> NoPairsError:
        """The sentence for the user."""
        return cls(
            "no two members have a row out of bag together, so nothing tells how they vote "
            "together; use more members, or pass held-out rows with evidence='holdout'."
        )


@dataclass(frozen=True)
class Exchangeable:
    """The risk matrix of members that are all alike: one diagonal, one off-diagonal value.

    Attributes
    ----------
    own : float
        Mean risk of one member.
    pair : float
        Mean product of two members' residuals: what no number of members averages away.
    """

    own: float
    pair: float

    def at(self, concentration: Any) -> Any:
        """Risk of weights with this sum of squares, on members all alike."""
        return self.pair + (self.own - self.pair) * concentration

    def scaled(self, by: float) -> Exchangeable:
        """The same members, in another unit."""
        return Exchangeable(by * self.own, by * self.pair)

    def random_k(self, k: Any) -> Any:
        """Expected risk of k members drawn without replacement, with equal weights.

        Examples
        --------
        >>> Exchangeable(own=0.3, pair=0.1).random_k(2)
        0.2
        """
        return self.at(1.0 / k)

    def members_needed(self, risk: float) -> float:
        """How many random members reach a risk; infinite where no number does."""
        if risk >= self.own:
            return 1.0
        gap = risk - self.pair
        return float((self.own - self.pair) / gap) if gap > 0 else float("inf")


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

    def __sub__(self, other: PairMoments) -> PairMoments:
        return PairMoments(
            self.products - other.products,
            np.maximum(self.counts - other.counts, 0.0),
            self.row_weight - other.row_weight,
            self.own_level - other.own_level,
            self.pair_level - other.pair_level,
        )

    def scaled(self, by: float) -> PairMoments:
        """The same rows with that many times their weight."""
        return PairMoments(
            by * self.products,
            by * self.counts,
            by * self.row_weight,
            by * self.own_level,
            by * self.pair_level,
        )

    def deviations(self, shares: np.ndarray | None = None) -> np.ndarray:
        """G less its row level, entry by entry; 0 for pairs that are never out of bag together.

        Parameters
        ----------
        shares : ndarray of shape (N, N), optional
            Share of the rows each pair has out of bag together, known from more rows than these;
            steadies the entries of few rows. Default: from these rows.

        Returns
        -------
        ndarray of shape (N, N)
        """
        counts = self.counts if shares is None else shares * self.row_weight
        seen = counts > SMALLEST_SHARE * self.row_weight
        return np.asarray(np.where(seen, self.products / np.where(seen, counts, 1.0), 0.0))

    def exchangeable(self) -> Exchangeable:
        """Mean diagonal and off-diagonal of G, weighted by how many rows each entry rests on."""
        own_products, own_counts = np.trace(self.products), np.trace(self.counts)
        pair_products = self.products.sum() - own_products
        pair_counts = self.counts.sum() - own_counts
        own = self.own_level / self.row_weight + own_products / own_counts
        pair = self.pair_level / self.row_weight
        return Exchangeable(float(own), float(pair + pair_products / max(pair_counts, 1e-300)))

    def matrix(self) -> np.ndarray:
        """G as measured; the mean for pairs that are never out of bag together.

        Returns
        -------
        ndarray of shape (N, N)
        """
        mean = self.exchangeable()
        levels = np.full(self.counts.shape, self.pair_level / self.row_weight)
        alike = np.full(self.counts.shape, mean.pair)
        np.fill_diagonal(levels, self.own_level / self.row_weight)
        np.fill_diagonal(alike, mean.own)
        seen = self.counts > SMALLEST_SHARE * self.row_weight
        return np.asarray(np.where(seen, levels + self.deviations(), alike))


class PairRisk(Protocol):
    """What selection reads: each row's risks, and pair sums over any rows. See `FullVoteRisk`."""

    n_members: int
    row_weight: np.ndarray
    own_risk: np.ndarray
    pair_risk: np.ndarray

    def kept_effects(self) -> tuple[float, float]:
        """Share of a member's effects that the row levels leave."""
        ...

    def row_risk(self, weights: np.ndarray) -> np.ndarray:
        """Each row's risk under some weights of held-out members."""
        ...

    def moments(self, rows: np.ndarray | None = None) -> PairMoments:
        """Pair sums over some rows."""
        ...


class FullVoteRisk:
    """The full-vote risk of an ensemble's members, from their evidence.

    Parameters
    ----------
    evidence : OOBEvidence
        Of regression, of two classes, or with ``class_votes`` of more.
    floor : float, default 0
        Share of the uniform class distribution in each vote, as deployed.

    Attributes
    ----------
    row_weight : ndarray of shape (M,)
        Row weights, summing to one; 0 for rows that fewer than two members have out of bag.
    total_weight : float
        What they summed to before.
    own_risk, pair_risk, voters : ndarray of shape (M,)
        Each row's mean squared residual, mean product of two members' residuals, and number of
        members that have it out of bag.

    Examples
    --------
    Held-out votes (no mask): the full-vote risk is the mean squared error itself.

    >>> votes = np.array([[1.0, 3.0], [2.0, 2.0], [0.0, 1.0]])
    >>> target = np.array([1.0, 2.0, 2.0])
    >>> risk = FullVoteRisk(OOBEvidence(votes, None, target, "regression"))
    >>> w = np.array([0.5, 0.5])
    >>> round(float(w @ risk.moments().matrix() @ w), 6)
    1.083333
    >>> round(float(np.mean((votes @ w - target) ** 2)), 6)
    1.083333
    """

    def __init__(self, evidence: OOBEvidence, *, floor: float = 0.0) -> None:
        self.evidence = evidence
        self.n_members = evidence.n_members
        self._xp = array_namespace(evidence.votes)
        self._floor = floor if evidence.n_classes else 0.0
        kind = "prediction" if evidence.task == "regression" else "every_class"
        self._channels = evidence.channels(kind)
        self._targets = on_host(self._channels.targets)
        self._unit = 1.0
        if evidence.task == "regression":
            # Squares of residuals are summed in the votes' precision, whatever the target's unit.
            self._unit = float(np.std(self._targets)) or 1.0
        self.own_risk, self.pair_risk, voters = self._row_risks()
        self.voters = voters
        weight = (voters >= min(FEWEST_VOTERS, self.n_members)).astype(float)
        if evidence.sample_weight is not None:
            weight *= on_host(evidence.sample_weight)
        if not weight.sum() > 0:
            raise NoPairsError.of_no_rows()
        self.total_weight = float(weight.sum())
        self.row_weight: np.ndarray = weight / self.total_weight

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self.evidence.nbytes

    def uniform_row_risk(self) -> np.ndarray:
        """Each row's risk under all members with equal weights.

        Returns
        -------
        ndarray of shape (M,)
        """
        share = 1.0 / self.n_members
        return np.asarray(share * self.own_risk + (1.0 - share) * self.pair_risk)

    def row_risk(self, weights: np.ndarray) -> np.ndarray:
        """Each row's risk under some weights of held-out members, exactly.

        Parameters
        ----------
        weights : ndarray of shape (N,)
            On the simplex.

        Returns
        -------
        ndarray of shape (M,)
        """
        if self.evidence.oob_mask is not None:
            raise ValueError("only where all members vote on every row is a row's risk known.")
        xp, found = self._xp, np.zeros(self.evidence.n_rows)
        on = device(self.evidence.votes)
        for block, residuals, _ in self._blocks(np.arange(self.evidence.n_rows)):
            w = xp.asarray(weights, dtype=residuals[0].dtype, device=on)
            squares = sum(xp.astype(e @ w, xp.float64) ** 2 for e in residuals)
            found[block] = self._channels.multiplicity * self._unit**2 * on_host(squares)
        return found

    def kept_effects(self) -> tuple[float, float]:
        """Share of a member's effects, in company and alone, that the row levels leave.

        A row's mean product holds the member's own products, so taking it away takes part of what
        is particular about the member: (2/c)(N-c)/(N-2) in company and (N-c)/(c(N-1)) alone, with
        c voters. A few percent at a hundred members, a third at ten.

        Returns
        -------
        tuple of float
        """
        if self.evidence.oob_mask is None:
            return 1.0, 1.0
        return kept_effects(self.n_members, self.voters, self.row_weight)

    def moments(self, rows: np.ndarray | None = None) -> PairMoments:
        """Pair sums over some rows.

        Parameters
        ----------
        rows : ndarray of indices, optional
            Default: all rows.

        Returns
        -------
        PairMoments
        """
        rows = np.arange(self.evidence.n_rows) if rows is None else rows
        rows = rows[self.row_weight[rows] > 0]
        weight = self.row_weight[rows]
        products, own, counts = self.pair_sums(rows)
        total, n = float(weight.sum()), self.n_members
        if self.evidence.oob_mask is None:
            return PairMoments(on_host(products), np.full((n, n), total), total, 0.0, 0.0)
        centred = on_host(products)  # these arrays are ours to write to
        np.fill_diagonal(centred, on_host(own))
        return PairMoments(
            centred,
            on_host(counts),
            total,
            float(weight @ self.own_risk[rows]),
            float(weight @ self.pair_risk[rows]),
        )

    def pair_sums(self, rows: np.ndarray) -> tuple[Array, Array, Array]:
        """Centred products (their diagonal aside), squares and counts, where the evidence lives.

        Parameters
        ----------
        rows : ndarray of indices

        Returns
        -------
        tuple of arrays of shape (N, N), (N,) and (N, N)
        """
        xp, n = self._xp, self.n_members
        on = device(self.evidence.votes)
        products = xp.zeros((n, n), dtype=xp.float64, device=on)
        counts = xp.zeros((n, n), dtype=xp.float64, device=on)
        levels = xp.zeros((n, n), dtype=xp.float64, device=on)
        own = xp.zeros(n, dtype=xp.float64, device=on)
        for block, residuals, mask in self._blocks(rows):
            s = xp.asarray(self.row_weight[block], dtype=residuals[0].dtype, device=on)
            for e in residuals:
                add_gram(products, e, s, self._channels.multiplicity * self._unit**2)
            if mask is not None:
                square_unit = self._unit**2
                d = self.pair_risk[block] / square_unit
                d = xp.asarray(d, dtype=mask.dtype, device=on)
                add_gram(counts, mask, s)
                add_gram(levels, mask, s * d, square_unit)
                # On the diagonal a product is a square, and its level the row's mean square.
                square = self.own_risk[block] / square_unit
                square = xp.asarray(square, dtype=mask.dtype, device=on)
                own += square_unit * xp.sum((s * square)[:, None] * mask, axis=0, dtype=xp.float64)
        own = xp.linalg.diagonal(products) - own
        products -= levels
        return products, own, counts

    # -- blocks of rows ----------------------------------------------------------------------

    def _row_risks(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        n_rows = self.evidence.n_rows
        own, pair, voters = np.zeros(n_rows), np.zeros(n_rows), np.zeros(n_rows)
        xp = self._xp
        for block, residuals, mask in self._blocks(np.arange(n_rows)):
            squares = sum(xp.sum(xp.astype(e, xp.float64) ** 2, axis=1) for e in residuals)
            sums = sum(xp.sum(e, axis=1, dtype=xp.float64) ** 2 for e in residuals)
            scale = self._channels.multiplicity * self._unit**2
            squares, sums = scale * on_host(squares), scale * on_host(sums)
            count = np.full(len(block), float(self.n_members))
            if mask is not None:
                count = on_host(xp.sum(mask, axis=1, dtype=xp.float64))
            own[block] = squares / np.maximum(count, 1.0)
            pair[block] = (sums - squares) / np.maximum(count * (count - 1.0), 1.0)
            voters[block] = count
        return own, pair, voters

    def _blocks(self, rows: np.ndarray) -> Iterator[tuple[np.ndarray, list[Array], Array | None]]:
        """Row indices, residuals a channel (0 where in bag), and the mask as floats."""
        xp, mask = self._xp, self.evidence.oob_mask
        on, dtype = device(self.evidence.votes), working_dtype(self.evidence.votes)
        # Where memory is read at terabytes a second, doubles are still twice the bytes.
        single = is_on_cuda(self.evidence.votes) and self.evidence.task == "classification"
        wide = dtype if single else xp.float64
        for place in row_blocks(self.evidence.votes, len(rows)):
            block = rows[place]
            index = xp.asarray(block, device=on)
            seen = None if mask is None else xp.astype(_take(xp, mask, index), xp.bool)
            kept = None if seen is None else xp.astype(seen, dtype)
            residuals = []
            for votes, target in zip(self._channels.votes, self._targets, strict=True):
                v = xp.astype(_take(xp, votes, index), dtype, copy=False)
                goal = target[block]
                if self._floor:
                    # target - ((1-ε)v + ε/C), with the shift on the target's side
                    goal = goal - self._floor / (self.evidence.n_classes or 1)
                    v = (1.0 - self._floor) * v
                e = xp.asarray(goal, dtype=wide, device=on)[:, None] - v
                e = xp.astype(e / self._unit if self._unit != 1.0 else e, dtype, copy=False)
                residuals.append(zero_in_bag(e, seen))
            yield block, residuals, kept


def kept_effects(n: int, voters: np.ndarray, row_weight: np.ndarray) -> tuple[float, float]:
    """`FullVoteRisk.kept_effects`, from each row's number of voters.

    Parameters
    ----------
    n : int
        Number of members.
    voters, row_weight : ndarray of shape (M,)

    Returns
    -------
    tuple of float
    """
    if n < 3:
        return 1.0, 1.0
    used = (row_weight > 0) & (voters >= FEWEST_VOTERS)
    c, s = voters[used], row_weight[used]
    in_company, alone = s * c * (c - 1.0), s * c
    lost_company = np.sum(in_company * (2.0 / c) * (n - c) / (n - 2.0)) / in_company.sum()
    lost_alone = np.sum(alone * (n - c) / (c * (n - 1.0))) / alone.sum()
    return max(float(1.0 - lost_company), 0.1), max(float(1.0 - lost_alone), 0.1)


def _take(xp: Any, matrix: Any, rows: Any) -> Any:
    if isinstance(matrix, OnDemandPlane):
        return matrix[rows]
    return matrix[rows].toarray() if sp.issparse(matrix) else xp.take(matrix, rows, axis=0)
