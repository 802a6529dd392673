"""The objective of evidence that is read block by block: larger than memory, or made on the way.

A block is evidence, so its part of the objective is a `SimplexObjective`. With W_b the weight of a
block's rows and f_b its own mean loss, everything is a weighted sum over blocks::

    f(w) = Σ_b (W_b / Σ W) f_b(w) + penalty(w)

and likewise the gradient and the Hessian. A pass holds one block at a time. What is worth holding
longer (a face's columns, a sample of rows, the rows' prior votes) is held while it fits the memory
allowed, and read again where it does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sparsebag.evidence.arrays import on_host
from sparsebag.evidence.evidence import (
    LEAST_TOTAL,
    NOT_TO_BE_SUMMED,
    OOBEvidence,
    warn_of_uneven,
)
from sparsebag.evidence.from_predictions import ALL_ZERO
from sparsebag.evidence.pass_report import PassReport
from sparsebag.evidence.random_rows import random_rows, thinned
from sparsebag.evidence.reservoir import Reservoir
from sparsebag.evidence.row_stream import RowStream
from sparsebag.evidence.same_rows import SameRows
from sparsebag.objective.block_kernel import make_block_kernel
from sparsebag.objective.block_parts import SampleOfParts, joined, surveyed
from sparsebag.objective.known_blocks import KnownBlocks
from sparsebag.objective.losses import Loss
from sparsebag.objective.on_simplex import HostObjective
from sparsebag.objective.one_read import is_readable
from sparsebag.objective.pass_journal import SINGLE_EPS, PassJournal, PassSums
from sparsebag.objective.penalties import ConcaveQuadratic, Penalty, restrict_penalty
from sparsebag.objective.row_facts import NoWeightError, RowFacts, facts_of_prior
from sparsebag.objective.simplex_objective import NO_VOTE, SimplexObjective

Array = Any

DEFAULT_MEMORY = 1 << 30
HELD_SHARE = 4
"""A sample of rows, or a face's columns, may take this part of the memory allowed: a sample, a face
of it, and the copy while either is put together, leave as much again for blocks."""
FACTS_SHARE = 8
"""Likewise the rows' weights and prior votes."""
NO_PENALTY = ConcaveQuadratic(0.0)
NO_ROWS = "the stream gave no rows; there is nothing to judge the members by."


class StreamObjective(HostObjective):
    """Weighted OOB loss plus penalty over a stream of row blocks.

    Parameters
    ----------
    stream : RowStream
        Must be replayable: every evaluation reads it once, and must find the same rows.
    loss : Loss
    penalty : Penalty
    floor, prior_mass : float, default 0
        As in `SimplexObjective`.
    memory_limit : int, default 1 GiB
        Bytes that may be held beside a few blocks.
    journal : PassJournal, optional
        Where passes are recorded, so that a killed solve can go on.
    verbose : int, default 0
        Progress within passes, on standard error.

    Examples
    --------
    >>> from sparsebag.evidence.array_rows import ArrayRows
    >>> from sparsebag.objective.losses import SquaredError
    >>> stream = ArrayRows(np.eye(4), None, np.ones(4), task="regression", block_rows=3)
    >>> f = StreamObjective(stream, SquaredError(), NO_PENALTY)
    >>> round(f.value(f.uniform_weights()), 6), f.n_passes
    (0.5625, 1.0)
    """

    is_streamed = True

    def __init__(
        self,
        stream: RowStream,
        loss: Loss,
        penalty: Penalty,
        *,
        floor: float = 0.0,
        prior_mass: float = 0.0,
        memory_limit: int = DEFAULT_MEMORY,
        journal: PassJournal | None = None,
        verbose: int = 0,
    ) -> None:
        self.stream = SameRows(stream, None if journal is None else journal.blocks)
        self.loss, self.penalty = loss, penalty
        self.floor, self.prior_mass = floor, prior_mass
        self.memory_limit, self.journal, self.verbose = memory_limit, journal, verbose
        self._reads = _Reads()
        self._members: np.ndarray | None = None
        self._blocks = KnownBlocks(memory_limit // FACTS_SHARE)
        n_classes = None if stream.classes is None else len(stream.classes)
        self._kernel = make_block_kernel(loss, floor, stream.task, n_classes)
        self._known: PassSums | None = None

    # -- what it is --------------------------------------------------------------------------

    @property
    def n_members(self) -> int:
        """Number of weights, N."""
        return self.stream.n_members if self._members is None else len(self._members)

    @property
    def n_rows(self) -> int:
        """Number of rows, M; where the stream does not say, one pass counts them."""
        return self.stream.n_rows if self.stream.n_rows is not None else self._survey().n_rows

    @property
    def n_passes(self) -> float:
        """How often the stream was read, parts of it included."""
        return self._reads.passes

    @property
    def has_mask(self) -> bool:
        """Whether members vote only on the rows out of their bags."""
        return self.stream.has_mask

    @property
    def nbytes_per_pass(self) -> int:
        """Bytes of evidence one value-and-gradient pass reads."""
        return self._survey().nbytes * self.n_members // self.stream.n_members

    @property
    def n_uncovered(self) -> int:
        """Rows no member has out of bag."""
        survey = self._survey()
        return survey.n_rows - survey.n_covered

    def warn_of_uneven_rows(self) -> None:
        """Say so where a few rows weigh so much that they decide alone."""
        survey = self._survey()
        warn_of_uneven(survey.total, survey.squared_weight, survey.n_covered)

    @property
    def scale(self) -> float:
        """What tolerances are relative to: see `ObjectiveOnSimplex`."""
        if self.stream.task == "classification":
            return 1.0
        survey = self._survey()
        return max(survey.scale / survey.total, np.finfo(float).tiny)

    @property
    def rounding(self) -> float:
        """Differences between two values smaller than this mean nothing."""
        eps = self._reads.vote_eps
        if self.stream.task == "classification":
            return eps
        survey = self._survey()
        return self._rounding_of_regression(eps, survey.square / survey.total)

    # -- passes ------------------------------------------------------------------------------

    def value_and_gradient(self, weights: Array) -> tuple[float, np.ndarray]:
        """Objective and gradient, in one pass over the stream."""
        weights = self.asarray(weights)
        whole = self._members is None
        journal = self.journal if whole else None
        sums = PassSums.start(weights) if journal is None else journal.recall(weights)
        if not sums.is_done:
            sums = self._run_pass(sums, journal)
        if whole:
            self._known, self._reads.vote_eps = sums, sums.vote_eps
        if not len(self.stream.digests):
            raise ValueError(NO_ROWS)
        if sums.total == 0.0:
            raise NoWeightError(sums.n_covered if whole else None)
        if not LEAST_TOTAL <= sums.total < np.inf:
            raise ValueError(NOT_TO_BE_SUMMED)
        if whole and not sums.n_voted and self.stream.task == "classification":
            raise ValueError(ALL_ZERO)
        value = sums.value / sums.total + float(self.penalty.value(weights))
        return value, sums.gradient / sums.total + self.penalty.gradient(weights)

    def hessian(self, weights: Array) -> np.ndarray:
        """Dense Hessian (N × N); meant for restricted objectives."""
        n = self.n_members
        products, total = np.zeros((n, n)), 0.0
        for part in self._parts():
            if part is not None:
                at = part.asarray(weights)
                products += part.facts.total * on_host(part.hessian(at))
                total += part.facts.total
        self._reads.passes += 1.0
        return np.asarray(products / total + self._penalty_hessian(self.asarray(weights)))

    def rows_won(self) -> np.ndarray:
        """For each member, the number of rows on which its own vote has the least loss."""
        self._reads.passes += 1.0
        parts = (on_host(part.rows_won()) for part in self._parts() if part is not None)
        return np.asarray(sum(parts, np.zeros(self.n_members)))

    # -- other objectives of the same rows -----------------------------------------------------

    def restrict(self, members: Array) -> SimplexObjective | StreamObjective:
        """The same objective on a face of the simplex, in memory where its columns fit."""
        members = on_host(members)
        if self.can_hold(len(members)):
            return self._in_memory(members)
        face = self._copy()
        face._members = members if self._members is None else self._members[members]
        face.penalty = restrict_penalty(self.penalty, members)
        return face

    def can_hold(self, n_members: int) -> bool:
        """Whether so many members' columns fit the memory allowed."""
        share = n_members / self.n_members
        return share * self.nbytes_per_pass <= self.memory_limit / HELD_SHARE

    def face_sample(self, members: Array, seed: int) -> SimplexObjective:
        """The same on a face, and on as many rows drawn at random as the memory allowed holds."""
        members = on_host(members)
        nbytes = self.nbytes_per_pass * len(members) / self.n_members
        share = self.memory_limit / HELD_SHARE / nbytes
        n_rows = None if share >= 1.0 else max(1, int(share * self._survey().n_rows))
        return self._in_memory(members, n_rows, seed)

    def row_sample(self, n_rows: int, seed: int) -> SimplexObjective:
        """The same objective on rows drawn at random, in memory.

        Fewer rows where so many would not fit the memory allowed.
        """
        bytes_a_row = max(1, self._survey().nbytes // self.n_rows)
        affordable = max(1, self.memory_limit // HELD_SHARE // bytes_a_row)
        sample = SimplexObjective(
            self.sample_rows(min(n_rows, affordable), seed),
            self.loss,
            self.penalty,
            floor=self.floor,
            prior_mass=self.prior_mass,
        )
        return sample if self._members is None else sample.restrict(self._members)

    def sample_rows(self, n_rows: int, seed: int) -> OOBEvidence:
        """Rows drawn at random: read where they are, kept from the first pass, or from one more."""
        total = self.stream.n_rows
        if total is not None and hasattr(self.stream, "take"):
            n_rows = min(n_rows, total)
            self._reads.passes += n_rows / total
            return random_rows(self.stream, n_rows, seed, self.memory_limit // HELD_SHARE)
        reservoir = self._reads.reservoir
        self._reads.reservoir = None  # its rows are the caller's now
        if reservoir is None:
            # Drawn as the first pass would have: a solve that goes on after a kill, and has not
            # read it, finds the same rows.
            whole = self._copy()
            whole._members = None
            report = self._sample_report()
            for number, part in enumerate(whole._parts(), start=1):
                if part is not None:
                    reservoir = reservoir or Reservoir(self._affordable_rows(part.evidence))
                    reservoir.add(part.evidence)
                report.block(number)
            self._reads.passes += 1.0
        if reservoir is None:
            raise NoWeightError
        return thinned(reservoir.evidence(), n_rows, seed)

    def with_prior_mass(self, prior_mass: float) -> StreamObjective:
        """The same objective with another prior mass; shares the stream."""
        other = self._copy()
        other.prior_mass, other.journal = prior_mass, None
        return other

    def with_penalty(self, penalty: Penalty) -> StreamObjective:
        """The same objective with another penalty; shares the stream."""
        other = self._copy()
        other.penalty = penalty
        return other

    # -- blocks --------------------------------------------------------------------------------

    def _run_pass(self, sums: PassSums, journal: PassJournal | None) -> PassSums:
        report = PassReport(self.stream.n_blocks, sums.n_blocks, self.verbose)
        weights, single = sums.weights, sums.weights.astype(np.float32)
        value, gradient, total = sums.value, sums.gradient.copy(), sums.total
        n_blocks = sums.n_blocks
        # Rows that only come in order are sampled while they come the first time: those too whose
        # sums are on record from before a kill, or the sample would take a pass of its own.
        samples = self._known is None and not hasattr(self.stream, "take")
        first, summed = 0 if samples else n_blocks, n_blocks
        again = self._sample_report() if first < summed else report
        reservoir: Reservoir | None = None
        for number, block, is_face in self._numbered_blocks(first):
            kernel = self._kernel if self._kernel_reads(number, block, is_face) else None
            part = None
            if kernel is None or self._known is None:
                part = self._part(number, block, is_face)
            if part is not None and samples:
                reservoir = reservoir or Reservoir(self._affordable_rows(part.evidence))
                reservoir.add(part.evidence)
            if number < summed:
                again.block(number + 1)
                continue
            if self._known is None:
                sums = surveyed(sums, block, part)
            if kernel is not None:
                loss, mass = kernel.add(
                    block,
                    single,
                    gradient,
                    prior=self._blocks.prior(number),
                    prior_mass=self.prior_mass,
                    least_denominator=NO_VOTE,
                )
                value += loss
                total += mass
            elif part is not None:
                mean, slope = part.value_and_gradient(part.asarray(weights))
                value += part.facts.total * mean
                gradient += part.facts.total * on_host(slope)
                total += part.facts.total
                vote_eps = float(part.xp.finfo(part.evidence.votes.dtype).eps)
                sums, self._reads.vote_eps = replace(sums, vote_eps=vote_eps), vote_eps
            n_blocks += 1
            if journal is not None and journal.is_due:
                journal.save(sums.now(value, gradient.copy(), total, n_blocks))
            report.block(n_blocks)
        self._reads.reservoir = reservoir or self._reads.reservoir
        sums = replace(sums.now(value, gradient, total, n_blocks), is_done=True)
        if self._known is not None:
            sums = sums.with_survey(self._known)
        if journal is not None:
            journal.save(sums)
        self._reads.passes += (n_blocks - first) / max(n_blocks, 1)
        return sums

    def _sample_report(self) -> PassReport:
        begin = "reading the rows once more, for the sample held between passes"
        return PassReport(self.stream.n_blocks, 0, self.verbose, what="sample", begin=begin)

    def _parts(self) -> Iterator[SimplexObjective | None]:
        """Each block's part; None for a block without a row of weight."""
        return (self._part(*given) for given in self._numbered_blocks(0))

    def _part(self, number: int, block: OOBEvidence, is_face: bool) -> SimplexObjective | None:
        if self._blocks.is_idle(number):
            return None
        try:
            part = SimplexObjective(
                block,
                self.loss,
                NO_PENALTY,
                floor=self.floor,
                prior_mass=self.prior_mass,
                facts=self._facts(number, block),
            )
        except NoWeightError:
            self._blocks.keep_facts(number, None)
            return None
        if not self._blocks.is_known(number) and not self._is_kernels(block):
            self._blocks.keep_facts(number, part.facts)
        return part if self._members is None or is_face else part.restrict(self._members)

    def _facts(self, number: int, block: OOBEvidence) -> RowFacts | None:
        """Of a block's rows: as kept, or as the kernel finds them; None: from the evidence."""
        known = self._blocks.facts(number, block)
        if known is not None or self._kernel is None or not self._is_kernels(block):
            return known
        prior = self._kernel.find_prior(block)
        self._blocks.keep_prior(number, prior)
        return facts_of_prior(prior, block.sample_weight)

    def _is_kernels(self, block: OOBEvidence) -> bool:
        readable = is_readable(block.votes, block.oob_mask, self.loss)
        return self._kernel is not None and readable

    def _kernel_reads(self, number: int, block: OOBEvidence, is_face: bool) -> bool:
        """Whether the kernel reads a block as it is: of the members asked for, no others.

        A prior vote that is not held it finds in the block, so a face's columns do not do: theirs
        is not the whole ensemble's.
        """
        is_whole = self._members is None or (is_face and self._blocks.has_prior(number))
        return is_whole and is_readable(block.votes, block.oob_mask, self.loss)

    def _numbered_blocks(self, skip: int) -> Iterator[tuple[int, OOBEvidence, bool]]:
        """Blocks with their numbers, and whether they hold the face's columns alone."""
        if self.stream.n_blocks is None:
            for number, block in enumerate(self.stream.blocks()):
                if number >= skip:
                    yield number, block, False
            return
        for number in range(skip, self.stream.n_blocks):
            # With the rows' prior votes known, other members' columns need not be read.
            is_face = self._members is not None and self._blocks.is_known(number)
            yield number, self.stream.block(number, self._members if is_face else None), is_face

    def _affordable_rows(self, block: OOBEvidence) -> int:
        bytes_a_row = max(1, block.nbytes // block.n_rows)
        return max(1, self.memory_limit // HELD_SHARE // bytes_a_row)

    def _in_memory(
        self, members: np.ndarray, n_rows: int | None = None, seed: int = 0
    ) -> SimplexObjective:
        """A face's columns, of all rows or of so many drawn by weight."""
        face = self._copy()
        face._members = members if self._members is None else self._members[members]
        parts = ((i, part) for i, part in enumerate(face._parts()) if part is not None)
        if n_rows is None:
            evidence, facts = joined([part for _, part in parts])
        else:
            sample = SampleOfParts(n_rows, self._survey().total, seed)
            for number, part in parts:
                sample.add(number, part)
            evidence, facts = sample.rows()
        self._reads.passes += 1.0
        return SimplexObjective(
            evidence,
            self.loss,
            restrict_penalty(self.penalty, members),
            floor=self.floor,
            prior_mass=self.prior_mass,
            facts=facts,
        )

    def _survey(self) -> PassSums:
        if self._known is None:
            self.value_and_gradient(self.uniform_weights())
        assert self._known is not None
        return self._known

    def _copy(self) -> StreamObjective:
        other = object.__new__(StreamObjective)
        other.__dict__.update(self.__dict__)
        return other


@dataclass
class _Reads:
    """What objectives that share a stream have read of it."""

    passes: float = 0.0
    vote_eps: float = SINGLE_EPS
    reservoir: Reservoir | None = None
