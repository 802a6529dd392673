"""What the objective of a stream takes from the part that is one block."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sparsebag.evidence.arrays import on_host
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.evidence.reservoir import SLACK, counted
from sparsebag.evidence.row_stream import concatenate
from sparsebag.objective.pass_journal import PassSums
from sparsebag.objective.row_facts import NoWeightError, RowFacts
from sparsebag.objective.simplex_objective import SimplexObjective


def joined(parts: list[SimplexObjective]) -> tuple[OOBEvidence, RowFacts]:
    """All rows of some blocks, with the prior votes they have there.

    Parameters
    ----------
    parts : list of SimplexObjective

    Returns
    -------
    OOBEvidence
    RowFacts
    """
    total = sum(part.facts.total for part in parts)
    facts = RowFacts(
        np.concatenate([on_host(p.facts.row_weight) * (p.facts.total / total) for p in parts]),
        np.concatenate([on_host(p.facts.uniform_vote) for p in parts], axis=1),
        total,
    )
    return concatenate([part.evidence for part in parts]), facts


class SampleOfParts:
    """Rows drawn by weight from all blocks of a stream, ``n_rows`` in all, in one pass over it.

    As `Reservoir` draws them, one threshold for all blocks: a block gives as many as it weighs,
    wherever heavy rows stand. Each row keeps the prior vote of the whole ensemble.

    Parameters
    ----------
    n_rows : int
    total : float
        Weight of all rows.
    seed : int

    Examples
    --------
    >>> from sparsebag.objective.losses import SquaredError
    >>> from sparsebag.objective.penalties import ConcaveQuadratic
    >>> sample = SampleOfParts(3, total=1004.0, seed=0)
    >>> for number, weight in enumerate((1000.0, 1.0)):
    ...     e = OOBEvidence(np.eye(4), None, np.ones(4), "regression", np.full(4, weight / 4))
    ...     sample.add(number, SimplexObjective(e, SquaredError(), ConcaveQuadratic(0.0)))
    >>> sample.rows()[0].n_rows
    3
    """

    def __init__(self, n_rows: int, total: float, seed: int) -> None:
        self.n_rows, self.total, self.seed = n_rows, total, seed
        self._held: list[_HeldRows] = []
        self._threshold = np.inf

    def add(self, number: int, part: SimplexObjective) -> None:
        """Offer the rows of a block.

        Parameters
        ----------
        number : int
            Of the block: with the seed it decides which rows are drawn.
        part : SimplexObjective
        """
        weight = on_host(part.facts.row_weight) * (part.facts.total / self.total)
        with np.errstate(divide="ignore", over="ignore"):
            keys = np.random.default_rng([self.seed, number]).exponential(size=len(weight)) / weight
        rows = np.flatnonzero(keys < self._threshold)  # never those without weight
        if len(rows):
            prior = on_host(part.facts.uniform_vote)[:, rows]
            self._held.append(_HeldRows(part.evidence.take(rows), prior, weight[rows], keys[rows]))
        if self._n_held > SLACK * self.n_rows:
            self._drop_surplus()

    def rows(self) -> tuple[OOBEvidence, RowFacts]:
        """The sample, in the order its rows came, each counting for those that went.

        Returns
        -------
        OOBEvidence
        RowFacts
        """
        if self._n_held > self.n_rows:
            self._drop_surplus()
        if not self._held:
            raise NoWeightError
        counts = np.concatenate([held.weight for held in self._held])
        if np.isfinite(self._threshold):
            counts = counted(counts, self._threshold)
        prior = np.concatenate([held.prior for held in self._held], axis=1)
        whole = concatenate([held.evidence for held in self._held])
        return whole, RowFacts(counts / counts.sum(), prior, self.total * float(counts.sum()))

    @property
    def _n_held(self) -> int:
        return sum(len(held.keys) for held in self._held)

    def _drop_surplus(self) -> None:
        keys = np.concatenate([held.keys for held in self._held])
        self._threshold = float(np.partition(keys, self.n_rows)[self.n_rows])
        for i, held in enumerate(self._held):  # one at a time: no copy of all of them
            self._held[i] = held.below(self._threshold)
        self._held = [held for held in self._held if len(held.keys)]


@dataclass(frozen=True)
class _HeldRows:
    """Drawn rows of one block."""

    evidence: OOBEvidence
    prior: np.ndarray
    weight: np.ndarray
    keys: np.ndarray

    def below(self, threshold: float) -> _HeldRows:
        stay = np.flatnonzero(self.keys < threshold)
        if len(stay) == len(self.keys):
            return self
        return _HeldRows(
            self.evidence.take(stay), self.prior[:, stay], self.weight[stay], self.keys[stay]
        )


def surveyed(sums: PassSums, block: OOBEvidence, part: SimplexObjective | None) -> PassSums:
    """What only the first pass has to find out, with one more block.

    Rows are counted as in memory: covered is what some member has out of bag, of whatever weight.

    Parameters
    ----------
    sums : PassSums
        Of the blocks before it.
    block : OOBEvidence
    part : SimplexObjective or None
        Of the block; None where no row of it counts.

    Returns
    -------
    PassSums
    """
    sums = replace(
        sums,
        n_rows=sums.n_rows + block.n_rows,
        n_covered=sums.n_covered + _n_covered(block, part),
        nbytes=sums.nbytes + block.nbytes,
    )
    if part is None:
        return sums
    mass = part.facts.total
    uniform_vote = on_host(part.facts.uniform_vote)
    # Of every class they sum to one; the true class's are in the evidence.
    votes = uniform_vote[0] if len(uniform_vote) == 1 else on_host(part.evidence.votes)
    targets = on_host(part.evidence.target).astype(np.float64)
    row_weight = on_host(part.facts.row_weight)
    return replace(
        sums,
        n_voted=sums.n_voted + int(np.count_nonzero(votes)),
        scale=sums.scale + mass * part.scale,
        square=sums.square + mass * float(row_weight @ targets**2),
        squared_weight=sums.squared_weight + mass * (mass * float(row_weight @ row_weight)),
    )


def _n_covered(block: OOBEvidence, part: SimplexObjective | None) -> int:
    if part is not None and block.sample_weight is None:  # found already, without another read
        return int(np.count_nonzero(on_host(part.facts.row_weight)))
    return int(np.count_nonzero(on_host(block.covered())))
