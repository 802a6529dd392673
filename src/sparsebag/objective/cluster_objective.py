"""The objective of evidence that lives on the workers of a Dask cluster.

Each worker's row blocks are evidence, so their parts of the objective are `SimplexObjective`s that
stay where the rows are::

    f(w) = Σ_b Σ_{i in b} s_i φ(p_i(w)) + penalty(w)      s: row weights, summing to one over all

and likewise the gradient and the Hessian: sums over blocks, added up as a tree. Weights travel to
the workers, sums come back; evidence never moves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sparsebag.evidence.arrays import on_host
from sparsebag.evidence.callers_warning import warn_caller
from sparsebag.evidence.cluster_rows import ClusterBlocks
from sparsebag.evidence.evidence import OOBEvidence, UncoveredRowsWarning, warn_of_uneven
from sparsebag.evidence.reservoir import draw_by_weight
from sparsebag.evidence.row_stream import concatenate
from sparsebag.objective.cluster_glance import look_at
from sparsebag.objective.losses import Loss
from sparsebag.objective.on_simplex import HostObjective
from sparsebag.objective.pass_threads import at_most_pass_threads
from sparsebag.objective.penalties import ConcaveQuadratic, Penalty, restrict_penalty
from sparsebag.objective.row_facts import NoWeightError, RowFacts, find_facts
from sparsebag.objective.simplex_objective import FACE_BYTES, FACE_SHARE, SimplexObjective

Array = Any
NO_PENALTY = ConcaveQuadratic(0.0)


@dataclass(frozen=True)
class Survey:
    """What is known of blocks of rows; those of disjoint blocks add.

    Attributes
    ----------
    n_rows : tuple of int
        Rows of each block, in order.
    n_covered : int
        Rows that some member has out of bag.
    nbytes : int
        Votes and mask.
    scale, square : float
        Weighted sums of the uniform ensemble's loss and of the squared targets.
    squared_weight : float
        Sum of the squared row weights, which themselves sum to one over all blocks.
    eps : float
        Rounding of the votes.
    """

    n_rows: tuple[int, ...]
    n_covered: int
    nbytes: int
    scale: float
    square: float
    squared_weight: float
    eps: float

    def __add__(self, other: Survey) -> Survey:
        return Survey(
            self.n_rows + other.n_rows,
            self.n_covered + other.n_covered,
            self.nbytes + other.nbytes,
            self.scale + other.scale,
            self.square + other.square,
            self.squared_weight + other.squared_weight,
            max(self.eps, other.eps),
        )


class ClusterObjective(HostObjective):
    """Weighted OOB loss plus penalty over row blocks on a cluster's workers.

    Parameters
    ----------
    blocks : ClusterBlocks
        Of `OOBEvidence`, all of the same members.
    loss : Loss
    penalty : Penalty
    floor, prior_mass : float, default 0
        As in `SimplexObjective`.

    Examples
    --------
    >>> import pytest
    >>> dask = pytest.importorskip("dask")
    >>> from sparsebag.objective.losses import SquaredError
    >>> half = OOBEvidence(np.eye(2), None, np.ones(2), "regression")
    >>> blocks = ClusterBlocks(lambda: [dask.delayed(half), dask.delayed(half)])
    >>> f = ClusterObjective(blocks, SquaredError(), NO_PENALTY)
    >>> f.n_rows, round(f.value(f.uniform_weights()), 6)
    (4, 0.25)
    """

    def __init__(
        self,
        blocks: ClusterBlocks,
        loss: Loss,
        penalty: Penalty,
        *,
        floor: float = 0.0,
        prior_mass: float = 0.0,
    ) -> None:
        self.loss, self.penalty = loss, penalty
        self.floor, self.prior_mass = floor, prior_mass
        seen = look_at(blocks)
        self.task, self._n_members, self._has_mask, self._is_weighted = seen[0].kind
        self.total_weight: float = float(sum(block.weight for block in seen))
        self._parts = blocks.derived(_part, loss, floor, self.total_weight)
        self.survey: Survey = self._parts.sum(_survey)

    # -- what it is --------------------------------------------------------------------------

    @property
    def n_members(self) -> int:
        """Number of weights, N."""
        return self._n_members

    @property
    def n_rows(self) -> int:
        """Number of rows, M."""
        return sum(self.survey.n_rows)

    @property
    def has_mask(self) -> bool:
        """Whether members vote only on the rows out of their bags."""
        return self._has_mask

    @property
    def is_streamed(self) -> bool:
        """Whether a pass reads rows from somewhere slower than memory; here it does not."""
        return False

    @property
    def nbytes_per_pass(self) -> int:
        """Bytes of evidence one value-and-gradient pass reads, on all workers together."""
        return self.survey.nbytes

    @property
    def scale(self) -> float:
        """What tolerances are relative to: see `ObjectiveOnSimplex`."""
        if self.task == "classification":
            return 1.0
        return max(self.survey.scale, np.finfo(float).tiny)

    @property
    def rounding(self) -> float:
        """Differences between two values smaller than this mean nothing."""
        eps = self.survey.eps
        if self.task == "classification":
            return eps
        return self._rounding_of_regression(eps, self.survey.square)

    # -- passes ------------------------------------------------------------------------------

    def value_and_gradient(self, weights: Array) -> tuple[float, np.ndarray]:
        """Objective and gradient, in one pass over the evidence."""
        weights = self.asarray(weights)
        sums = self._parts.sum(_value_and_gradient, weights, self.prior_mass)
        value = float(sums[0]) + float(self.penalty.value(weights))
        return value, sums[1:] + self.penalty.gradient(weights)

    def hessian(self, weights: Array) -> np.ndarray:
        """Dense Hessian (N × N); meant for restricted objectives."""
        weights = self.asarray(weights)
        sums = self._parts.sum(_hessian, weights, self.prior_mass)
        return np.asarray(sums + self._penalty_hessian(weights))

    def rows_won(self) -> np.ndarray:
        """For each member, the number of rows on which its own vote has the least loss."""
        return np.asarray(self._parts.sum(_rows_won))

    # -- other objectives of the same rows -----------------------------------------------------

    def restrict(self, members: Array) -> ClusterObjective:
        """The same objective on a face of the simplex; its columns are copied on the workers."""
        members = on_host(members)
        face = self._copy()
        face._parts = self._parts.derived(_restricted, members)
        face._n_members = len(members)
        face.penalty = restrict_penalty(self.penalty, members)
        return face

    def can_hold(self, n_members: int) -> bool:
        """Whether copying so many members' columns is worth it and within the memory allowed."""
        share = n_members / self.n_members
        nbytes = self.nbytes_per_pass
        return share < 1.0 and share * nbytes <= max(FACE_BYTES, nbytes / FACE_SHARE)

    def row_sample(self, n_rows: int, seed: int) -> SimplexObjective:
        """The same objective on rows drawn at random, in memory; all where there are no more.

        Rows with weights are drawn by them, and count for those like them that were not drawn.
        """
        sizes = self.survey.n_rows
        counts: np.ndarray | None = None
        if self._is_weighted and n_rows < self.n_rows:
            # One number a row comes here, so that the draw does not depend on the cuts.
            weight = np.concatenate(self._parts.each(_row_weight))
            rows, counts = draw_by_weight(weight, n_rows, np.random.default_rng(seed))
            picked = by_block(sizes, rows)
        else:
            picked = picked_rows(sizes, n_rows, seed)
        parts = [part for part in self._parts.each(_rows_of, own=picked) if part is not None]
        drawn, votes, weights = (list(column) for column in zip(*parts, strict=True))
        n_channels = next((len(vote) for vote in votes if vote is not None), 1)
        votes = [
            np.zeros((n_channels, part.n_rows)) if vote is None else vote
            for vote, part in zip(votes, drawn, strict=True)
        ]
        mass = np.concatenate(weights) if counts is None else counts
        # Of all rows one, which the sum may miss by a bit; see `_part` on what steps make of a bit.
        total = float(mass.sum()) if n_rows < self.n_rows else 1.0
        facts = RowFacts(mass / total, np.concatenate(votes, axis=1), total * self.total_weight)
        return SimplexObjective(
            concatenate(drawn),
            self.loss,
            self.penalty,
            floor=self.floor,
            prior_mass=self.prior_mass,
            facts=facts,
        )

    def loss_value(self, weights: Array) -> float:
        """The loss alone, without the penalty."""
        return self.value(weights) - float(self.penalty.value(self.asarray(weights)))

    def warn_of_rows(self) -> None:
        """Say how many rows are left out, and so where a few weigh so much that they decide."""
        missing = self.n_rows - self.survey.n_covered
        if missing:
            warn_caller(
                f"{missing} of {self.n_rows} rows are out of bag for no member and are left out; "
                "more members, or a smaller max_samples, would cover them.",
                UncoveredRowsWarning,
            )
        warn_of_uneven(1.0, self.survey.squared_weight, self.survey.n_covered)

    def with_prior_mass(self, prior_mass: float) -> ClusterObjective:
        """The same objective with another prior mass; shares the evidence."""
        other = self._copy()
        other.prior_mass = prior_mass
        return other

    def with_penalty(self, penalty: Penalty) -> ClusterObjective:
        """The same objective with another penalty; shares the evidence."""
        other = self._copy()
        other.penalty = penalty
        return other

    def _copy(self) -> ClusterObjective:
        other = object.__new__(ClusterObjective)
        other.__dict__.update(self.__dict__)
        return other


def picked_rows(sizes: tuple[int, ...], n_rows: int, seed: int) -> list[np.ndarray]:
    """Rows drawn at random without replacement, as positions within each block.

    Parameters
    ----------
    sizes : tuple of int
        Rows of each block.
    n_rows : int
        How many to draw; all of them where there are no more.
    seed : int

    Returns
    -------
    list of ndarray

    Examples
    --------
    >>> [rows.tolist() for rows in picked_rows((2, 1), 3, seed=0)]
    [[0, 1], [0]]
    """
    total = sum(sizes)
    drawn = np.arange(total)
    if n_rows < total:
        drawn = np.sort(np.random.default_rng(seed).choice(total, n_rows, replace=False))
    return by_block(sizes, drawn)


def by_block(sizes: tuple[int, ...], rows: np.ndarray) -> list[np.ndarray]:
    """Rows of all blocks, numbered through, as positions within each.

    Parameters
    ----------
    sizes : tuple of int
        Rows of each block.
    rows : ndarray of ascending indices

    Returns
    -------
    list of ndarray

    Examples
    --------
    >>> [some.tolist() for some in by_block((2, 3), np.array([1, 2, 4]))]
    [[1], [0, 2]]
    """
    ends = np.cumsum(sizes)
    cuts = np.searchsorted(rows, ends[:-1])
    return [some - first for some, first in zip(np.split(rows, cuts), ends - sizes, strict=True)]


# -- what workers do -------------------------------------------------------------------------


@dataclass(frozen=True)
class _Part:
    """A block's part of the objective; without one where none of its rows has weight."""

    evidence: OOBEvidence
    objective: SimplexObjective | None

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self.evidence.nbytes


def _part(evidence: OOBEvidence, loss: Loss, floor: float, total: float) -> _Part:
    """The part whose row weights sum to its share of ``total``, that of all blocks."""
    try:
        facts = find_facts(evidence, evidence.channels(loss.channel))
    except NoWeightError:
        return _Part(evidence, None)
    weight = facts.row_weight * (facts.total / total)
    if evidence.sample_weight is None:
        # To the last bit as in memory: hundreds of steps would make 1e-5 of a bit.
        weight = evidence.covered().astype(np.float64) / total
    facts = replace(facts, row_weight=weight)
    objective = SimplexObjective(evidence, loss, NO_PENALTY, floor=floor, facts=facts)
    return _Part(evidence, objective)


def _survey(part: _Part) -> Survey:
    evidence, objective = part.evidence, part.objective
    n_covered = int(np.count_nonzero(evidence.covered()))
    eps = float(np.finfo(evidence.votes.dtype).eps)
    scale = square = squared_weight = 0.0
    if objective is not None:
        weight = objective.facts.row_weight
        scale, squared_weight = objective.scale, float(weight @ weight)
        square = float(weight @ evidence.target.astype(np.float64) ** 2)
    return Survey(
        (evidence.n_rows,), n_covered, evidence.nbytes, scale, square, squared_weight, eps
    )


def _value_and_gradient(part: _Part, weights: np.ndarray, prior_mass: float) -> np.ndarray | None:
    if part.objective is None:
        return None
    objective = part.objective.with_prior_mass(prior_mass)
    with at_most_pass_threads(1):  # a scheduler counts a task as one processor's work
        value, gradient = objective.value_and_gradient(weights)
    return np.concatenate([[value], gradient])


def _hessian(part: _Part, weights: np.ndarray, prior_mass: float) -> np.ndarray | None:
    if part.objective is None:
        return None
    return np.asarray(part.objective.with_prior_mass(prior_mass).hessian(weights))


def _rows_won(part: _Part) -> np.ndarray | None:
    return None if part.objective is None else np.asarray(part.objective.rows_won())


def _restricted(part: _Part, members: np.ndarray) -> _Part:
    if part.objective is None:
        return _Part(part.evidence.take_members(members), None)
    face = part.objective.restrict(members)
    return _Part(face.evidence, face)


def _row_weight(part: _Part) -> np.ndarray:
    """What each row counts for, of one for all blocks together."""
    if part.objective is None:
        return np.zeros(part.evidence.n_rows)
    return np.asarray(part.objective.facts.row_weight)


def _rows_of(
    part: _Part, rows: np.ndarray
) -> tuple[OOBEvidence, np.ndarray | None, np.ndarray] | None:
    """Some rows, with the whole ensemble's votes and their weights; None where there are none."""
    if not len(rows):
        return None
    votes = None if part.objective is None else part.objective.facts.uniform_vote[:, rows]
    return part.evidence.take(rows), votes, _row_weight(part)[rows]
