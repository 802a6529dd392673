"""Weights from rows that come once: one pass, a bounded sample, and what the rest corrects.

A sample S of the rows so far is held. Each row that comes adds its gradient at the current
anchor a_e, a point fixed for as long as the rows seen have not doubled. At any time, with n_e the
weight of the rows met at anchor e, ḡ_e their mean gradient there, and S_e the rows of the sample
that are among them, of weight s_e::

    F(w) = f_S(w) + Σ_e (n_e / n ḡ_e - s_e / s ∇f_{S_e}(a_e))·w

is minimised: the sample gives the curvature, all rows the gradient (streaming variance reduction:
Frostig, Ge, Kakade and Sidford 2015). Each sampled row is compared at the anchor it was met at, so
that F has the objective for a mean also where early rows are unlike late ones; all of S at every
anchor would add what epochs differ by. While all rows fit the sample, F is the objective itself.

A sample that is small beside N has the wrong curvature, and the minimum of F may be far off. So
other rows H are held out, and F with H in place of S is the judge: it estimates the objective
without having proposed the weights. Minima of F are pulled towards the last anchor more or less,
and the cautious ones stay unless the judge is sure of a bolder one.

Where members' worth changes over time, the best weights are far from all anchors, and the
correction is noise. Any share β of it leaves the mean as it is (a control variate), so the share
is the one with the least spread over parts of the rows: near 1 where rows are alike, small where
they are not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsebag.evidence.arrays import on_host
from sparsebag.evidence.evidence import LEAST_TOTAL, NOT_TO_BE_SUMMED, OOBEvidence
from sparsebag.evidence.from_predictions import ALL_ZERO, has_votes
from sparsebag.evidence.reservoir import Reservoir
from sparsebag.evidence.row_stream import concatenate
from sparsebag.objective.losses import Loss
from sparsebag.objective.penalties import ConcaveQuadratic, Penalty, Tilted
from sparsebag.objective.row_facts import NoWeightError
from sparsebag.objective.simplex_objective import SimplexObjective
from sparsebag.solvers.base import (
    Point,
    Solution,
    SolveLog,
    Status,
    drop_small_weights,
    judged,
    one_blas_thread,
)
from sparsebag.solvers.held_verdict import (
    LEAST_EQUAL,
    Verdict,
    n_equal_rows,
    row_groups,
    standard_error,
    steadied,
    steadiest_share,
)
from sparsebag.solvers.surrogate import polisher

HELD_SHARE = 1 / 3
"""Share of the rows kept out of the sample, to judge weights by rows they were not fitted to."""
HELD_PART = 2
"""Room for held rows, as a part of the sample's."""
ADDED_PART = 16
"""Rows taken in at a time, as a part of the sample's."""
FEWEST_ROWS = 64
"""Rows of the sample, however small the memory."""
FEWEST_HELD = 3 * LEAST_EQUAL // 2
"""Rows held out then: half more than a verdict needs of equal weight, since rows of unequal weight
are worth fewer, and with just enough they could never give one."""
PULLS = (64.0, 8.0, 1.0)
"""Strengths of the pull towards the last anchor, in units of the sample's curvature on the way."""
SURE_ERRORS = 1.0
"""Standard errors by which bolder weights must be better: the judge is itself least sure of what is
far from all anchors."""
MOST_TRUSTED = 0.9
"""Share of the correction above which it is taken whole."""
NO_PENALTY = ConcaveQuadratic(0.0)


@dataclass
class _Anchor:
    """Sums over the rows that came while these were the weights."""

    weights: np.ndarray
    gradient: np.ndarray
    value: float = 0.0
    total: float = 0.0


@dataclass(frozen=True)
class _Judge:
    """Held rows, and what all rows say beyond them: a gradient and a level."""

    rows: SimplexObjective
    linear: np.ndarray
    level: float

    def value(self, weights: np.ndarray) -> np.ndarray:
        """The objective of these rows, and the correction of it."""
        return np.array([self.rows.value(weights), float(self.linear @ weights) + self.level])

    def slopes(self, weights: np.ndarray) -> np.ndarray:
        """Likewise how fast it falls towards each member."""
        both = np.stack([on_host(self.rows.gradient(weights)), self.linear])
        return np.asarray((both @ weights)[:, None] - both)


class OnlineSolve:
    """Simplex weights of rows that arrive in blocks and are not kept.

    Parameters
    ----------
    loss : Loss
    penalty : Penalty
    floor, prior_mass : float
        As in `SimplexObjective`.
    sample_bytes : int
        Evidence of the rows held.
    tol : float, default 1e-5
        To which the tilted sample is minimised.
    max_iter : int, default 2000
        Iterations each time.
    seed : int, default 0
        Of the sample.
    start : ndarray of shape (N,), optional
        Where the first solve starts; default: the simplex's centre.
    drop_threshold : float, default 0
        Weights up to it become zero in the end.
    drops_always : bool, default False
        Even if the solve of all rows, where they are all held, has then not converged.
    verbose : int, default 0
        Progress on standard error.
    """

    def __init__(
        self,
        loss: Loss,
        penalty: Penalty,
        *,
        floor: float,
        prior_mass: float,
        sample_bytes: int,
        tol: float = 1e-5,
        max_iter: int = 2000,
        seed: int = 0,
        start: np.ndarray | None = None,
        drop_threshold: float = 0.0,
        drops_always: bool = False,
        verbose: int = 0,
    ) -> None:
        self.loss, self.penalty = loss, penalty
        self.floor, self.prior_mass, self.drop_threshold = floor, prior_mass, drop_threshold
        self.drops_always = drops_always
        self.tol, self.max_iter, self.seed, self.verbose = tol, max_iter, seed, verbose
        self._sample_bytes = sample_bytes
        self._sample: Reservoir | None = None
        self._held: Reservoir | None = None
        self._split = np.random.default_rng(seed + 1)
        self._anchors: list[_Anchor] = []
        self._next_anchor_at = 0
        self._log = SolveLog("mirror", verbose)
        self._start = start
        self._n_weighing = 0
        self._has_votes = False
        self.n_rows = self.n_uncovered = 0
        self.row_weight = self.squared_weight = 0.0

    def add(self, block: OOBEvidence) -> None:
        """Take in a block of rows.

        Parameters
        ----------
        block : OOBEvidence
        """
        self.n_rows += block.n_rows
        weighs = on_host(block.covered())
        self.n_uncovered += int(np.sum(~weighs))
        self._has_votes = self._has_votes or has_votes(block)
        weight = np.ones(int(weighs.sum()))
        if block.sample_weight is not None:
            weight = on_host(block.sample_weight)[weighs]
            weighs = weighs & (on_host(block.sample_weight) > 0)
        with np.errstate(over="ignore"):  # huge weights: that rows are uneven is not told then
            self.row_weight += float(weight.sum())
            self.squared_weight += float(weight @ weight)
        if not weighs.any():
            return
        if not np.isfinite(self.row_weight) or self.row_weight < LEAST_TOTAL:
            raise ValueError(NOT_TO_BE_SUMMED)
        if not weighs.all():
            block = block.take(np.flatnonzero(weighs))
        if self._sample is None:
            bytes_a_row = max(1, block.nbytes // block.n_rows)
            n_rows = max(FEWEST_ROWS, self._sample_bytes // bytes_a_row)
            self._sample = Reservoir(n_rows, self.seed)
            self._held = Reservoir(max(FEWEST_HELD, n_rows // HELD_PART), self.seed)
        step = max(1, self._sample.n_rows // ADDED_PART)  # a block may exceed the sample
        with one_blas_thread():  # once: setting it costs more than some rows' gradient
            for first in range(0, block.n_rows, step):
                self._add(block.take(slice(first, first + step)))

    def _add(self, block: OOBEvidence) -> None:
        assert self._sample is not None
        assert self._held is not None
        room = min(r.n_rows - r.n_seen for r in (self._sample, self._held))
        if room < block.n_rows and not self._anchors:
            self._overflow()
        self._n_weighing += block.n_rows
        self._log.nbytes_read += block.nbytes
        held = self._split.random(block.n_rows) < HELD_SHARE
        epoch = max(0, len(self._anchors) - 1)  # rows before the first anchor are met there too
        if held.any():
            self._held.add(block.take(np.flatnonzero(held)), epoch)
        if not held.all():
            self._sample.add(block.take(np.flatnonzero(~held)), epoch)
        if self._anchors:
            self._meet(block)
            if self._n_weighing >= self._next_anchor_at:
                self._new_anchor()

    def solution(self) -> Solution:
        """The weights so far, their estimated objective, and the gap on held rows.

        Warns where that is no success.

        Returns
        -------
        Solution
        """
        if self.n_rows == 0:
            raise ValueError("there are no rows yet; pass some first.")
        if self._sample is None:
            raise NoWeightError(n_covered=self.n_rows - self.n_uncovered)
        if not self._has_votes:
            raise ValueError(ALL_ZERO)
        with one_blas_thread():
            if not self._anchors:
                judge = self._whole()
                minimum = drop_small_weights(
                    self._minimise(judge, self._start, newton_end=True),
                    judge,
                    self.drop_threshold,
                    tol=None if self.drops_always else self.tol,
                )
                weights, status = minimum.weights, minimum.status
                value, gap = minimum.objective, minimum.stationarity_gap
            else:
                judge = self._held_rows().rows
                weights = self._without_small(self._best())
                verdict = self._on_held_rows(weights)
                value, gap = verdict.value, verdict.gap
                status = Status.OWN_TEST if verdict.is_good else Status.ONE_PASS
        found = Solution(
            weights=weights,
            objective=value,
            stationarity_gap=gap,
            status=status,
            n_iterations=self._log.n_iterations,
            n_evaluations=1,
            nbytes_read=self._log.nbytes_read,
            seconds=self._log.seconds,
            solver="mirror",
            trace=tuple(self._log.trace),
        )
        return judged(found, judge)

    # -- anchors -------------------------------------------------------------------------------

    def _overflow(self) -> None:
        """The sample is full: its solution is the first anchor, its rows the first met there."""
        with one_blas_thread():
            # Without the penalty: a concave one decides for one of several like members, and the
            # rows to come may decide otherwise.
            whole = self._whole().with_penalty(NO_PENALTY)
            weights = self._minimise(whole, self._start).weights
            value, gradient = whole.value_and_gradient(weights)
        total = whole.facts.total
        self._anchors = [_Anchor(weights, total * on_host(gradient), total * value, total)]
        self._next_anchor_at = 2 * self._n_weighing

    def _meet(self, block: OOBEvidence) -> None:
        try:
            part = self._objective(block, NO_PENALTY)
        except NoWeightError:
            return
        anchor = self._anchors[-1]
        with one_blas_thread():
            value, gradient = part.value_and_gradient(part.asarray(anchor.weights))
        anchor.value += part.facts.total * value
        anchor.gradient += part.facts.total * on_host(gradient)
        anchor.total += part.facts.total

    def _new_anchor(self) -> None:
        with one_blas_thread():
            weights = self._best()
            verdict = self._on_held_rows(weights)
        self._log.iteration(Point(weights, verdict.value, np.full(len(weights), verdict.gap)))
        self._anchors.append(_Anchor(weights, np.zeros_like(weights)))
        self._next_anchor_at = 2 * self._n_weighing

    # -- the sample, and the rows that judge it ----------------------------------------------------

    def _best(self) -> np.ndarray:
        """Of the anchors and what the sample proposes, what held rows clearly like better."""
        groups = self._held_groups()
        best, liked = np.zeros(0), np.zeros(0)
        for weights in self._candidates():
            values = np.array([group.value(weights) for group in groups])
            if len(liked):
                gain = steadied(liked - values)
                if gain.mean() <= SURE_ERRORS * standard_error(gain):
                    continue
            best, liked = weights, values
        return best

    def _candidates(self) -> Iterator[np.ndarray]:
        """The cautious first: the last anchor, what lies near it, then what is farther off."""
        assert self._sample is not None
        sample = self._objective(self._sample.evidence(), NO_PENALTY)
        last = self._anchors[-1].weights
        linear, _ = self._correction(sample, self._sample.marks)
        free = self._minimise(sample.with_penalty(Tilted(self.penalty, linear, last)), last).weights
        step = free - last
        bend = sample.gradient(free) - sample.gradient(last)
        curvature = abs(float(step @ bend)) / max(float(step @ step), 1e-300)
        yield last
        begin = last
        for strength in PULLS:
            pulled = Tilted(self.penalty, linear, last, strength * curvature)
            begin = self._minimise(sample.with_penalty(pulled), begin).weights
            yield begin
        yield free
        alone = self._minimise(sample.with_penalty(self.penalty), last).weights
        yield alone
        share = self._trusted_share(sample, alone)
        if share < MOST_TRUSTED:
            less = sample.with_penalty(Tilted(self.penalty, share * linear, last))
            yield self._minimise(less, alone).weights
        for anchor in self._anchors[:-1]:
            yield anchor.weights

    def _trusted_share(self, sample: SimplexObjective, weights: np.ndarray) -> float:
        """The share of the sample's correction that makes its gradient there least noisy."""
        assert self._sample is not None
        marks = self._sample.marks
        slopes = []
        for rows in row_groups(sample.n_rows):
            part = sample.at_rows(rows)
            tilt, _ = self._correction(part, marks[rows])
            slopes.append(np.stack([on_host(part.gradient(weights)), tilt]))
        return steadiest_share(np.array(slopes))

    def _held_rows(self, rows: slice = slice(None)) -> _Judge:
        """Held rows, or some of them, and what the others say beyond them."""
        assert self._held is not None
        held = self._objective(self._held.evidence().take(rows), self.penalty)
        return _Judge(
            held, *self._correction(held.with_penalty(NO_PENALTY), self._held.marks[rows])
        )

    def _held_groups(self) -> list[_Judge]:
        assert self._held is not None
        return [self._held_rows(rows) for rows in row_groups(self._held.evidence().n_rows)]

    def _on_held_rows(self, weights: np.ndarray) -> Verdict:
        """Objective and gap as held rows see them.

        Held rows did not propose the weights. In every direction the slope is a mean over them, so
        parts of them show its spread.
        """
        assert self._held is not None
        groups = self._held_groups()
        values = np.array([group.value(weights) for group in groups])
        value = self._held_rows().value(weights)
        parts = np.array([group.slopes(weights) for group in groups])
        slopes = steadied(parts)
        along = slopes[:, int(np.argmax(slopes.mean(axis=0)))]
        return Verdict(
            value=float(value[0] + steadiest_share(values) * value[1]),
            gap=float(along.mean()),
            error=standard_error(along),
            trusted_share=steadiest_share(parts),
            n_equal=n_equal_rows(self._held.evidence()),
            penalty=float(self.penalty.value(weights)),
        )

    def _correction(self, rows: SimplexObjective, epochs: np.ndarray) -> tuple[np.ndarray, float]:
        """What all rows met at the anchors say beyond these few: a gradient and a level."""
        total = sum(anchor.total for anchor in self._anchors)
        linear, level = np.zeros(rows.n_members), 0.0
        for epoch, anchor in enumerate(self._anchors):
            linear += anchor.gradient / total
            level += (anchor.value - float(anchor.gradient @ anchor.weights)) / total
            drawn = np.flatnonzero(epochs == epoch)
            if not len(drawn):
                continue
            part = rows.at_rows(drawn)
            value, gradient = part.value_and_gradient(part.asarray(anchor.weights))
            share, slope = part.facts.total / rows.facts.total, on_host(gradient)
            linear -= share * slope
            level -= share * (value - float(slope @ anchor.weights))
        return linear, level

    def _whole(self) -> SimplexObjective:
        """All rows so far, while they are all held."""
        assert self._sample is not None
        assert self._held is not None
        parts = [r.evidence() for r in (self._sample, self._held) if r.n_seen]
        return self._objective(concatenate(parts), self.penalty)

    def _without_small(self, weights: np.ndarray) -> np.ndarray:
        kept = np.where(weights > self.drop_threshold, weights, 0.0)
        return np.asarray(kept / kept.sum()) if kept.any() else weights

    def _minimise(
        self, objective: SimplexObjective, start: Any, *, newton_end: bool = False
    ) -> Solution:
        solver = polisher(objective, self.tol, self.max_iter, newton_end=newton_end)
        found = solver.solve(objective, start)
        self._log.n_iterations += found.n_iterations
        self._log.nbytes_read += found.nbytes_read
        return found

    def _objective(self, evidence: OOBEvidence, penalty: Penalty) -> SimplexObjective:
        return SimplexObjective(
            evidence, self.loss, penalty, floor=self.floor, prior_mass=self.prior_mass
        )
