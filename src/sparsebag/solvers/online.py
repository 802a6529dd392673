"""Weights from rows that come once: one pass, a bounded sample, and what the rest corrects.

A uniform sample S of the rows so far is held. Each row that comes adds its gradient at the current
anchor a_e, a point fixed for as long as the rows seen have not doubled. At any time, with n_e the
weight of the rows met at anchor e and ḡ_e their mean gradient there::

    F(w) = f_S(w) + Σ_e (n_e / n) (ḡ_e - ∇f_S(a_e))·w

is minimised: the sample gives the curvature, all rows the gradient (streaming variance reduction:
Frostig, Ge, Kakade and Sidford 2015). While all rows fit the sample, F is the objective itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsebag.evidence.arrays import on_host
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.evidence.reservoir import Reservoir
from sparsebag.evidence.row_stream import concatenate
from sparsebag.objective.losses import Loss
from sparsebag.objective.penalties import ConcaveQuadratic, Penalty, Tilted
from sparsebag.objective.row_facts import NoWeightError
from sparsebag.objective.simplex_objective import SimplexObjective
from sparsebag.solvers.base import Solution, Status, Watch, one_blas_thread
from sparsebag.solvers.mirror import polisher
from sparsebag.solvers.simplex import stationarity_gap

HELD_SHARE = 0.1
"""Rows kept out of the sample, to measure the stationarity gap on rows it was not fitted to."""
HELD_PART = 8
"""Room for held rows, as a part of the sample's."""
FEWEST_ROWS = 256
NO_PENALTY = ConcaveQuadratic(0.0)


@dataclass
class _Anchor:
    """Sums over the rows that came while these were the weights."""

    weights: np.ndarray
    gradient: np.ndarray
    value: float = 0.0
    total: float = 0.0


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
        verbose: int = 0,
    ) -> None:
        self.loss, self.penalty = loss, penalty
        self.floor, self.prior_mass = floor, prior_mass
        self.tol, self.max_iter, self.seed, self.verbose = tol, max_iter, seed, verbose
        self._sample_bytes = sample_bytes
        self._sample: Reservoir | None = None
        self._held: Reservoir | None = None
        self._split = np.random.default_rng(seed + 1)
        self._anchors: list[_Anchor] = []
        self._next_anchor_at = 0
        self._watch = Watch("mirror", verbose)
        self.n_rows = 0

    def add(self, block: OOBEvidence) -> None:
        """Take in a block of rows.

        Parameters
        ----------
        block : OOBEvidence
        """
        if self._sample is None:
            bytes_a_row = max(1, block.nbytes // block.n_rows)
            n_rows = max(FEWEST_ROWS, self._sample_bytes // bytes_a_row)
            self._sample = Reservoir(n_rows, self.seed)
            self._held = Reservoir(n_rows // HELD_PART, self.seed)
        step = max(1, self._sample.n_rows // (2 * HELD_PART))  # a block may exceed the sample
        for first in range(0, block.n_rows, step):
            self._add(block.take(slice(first, first + step)))

    def _add(self, block: OOBEvidence) -> None:
        assert self._sample is not None
        assert self._held is not None
        room = min(r.n_rows - r.n_seen for r in (self._sample, self._held))
        if room < block.n_rows and not self._anchors:
            self._overflow()
        self.n_rows += block.n_rows
        self._watch.nbytes_read += block.nbytes
        held = self._split.random(block.n_rows) < HELD_SHARE
        if held.any():
            self._held.add(block.take(np.flatnonzero(held)))
        if not held.all():
            self._sample.add(block.take(np.flatnonzero(~held)))
        if self._anchors:
            self._meet(block)
            if self.n_rows >= self._next_anchor_at:
                self._new_anchor()

    def solution(self) -> Solution:
        """The weights so far, their estimated objective, and the gap on held rows.

        Returns
        -------
        Solution
        """
        if self._sample is None:
            raise ValueError("no rows yet; call partial_fit with some first.")
        with one_blas_thread():
            if not self._anchors:
                whole = self._whole()
                found = self._minimise(whole, None)
                value, gradient = whole.value_and_gradient(found.weights)
                status = found.status
                gap = stationarity_gap(found.weights, gradient)
            else:
                tilted, level = self._tilted(self.penalty)
                found = self._minimise(tilted, self._anchors[-1].weights)
                value = level + tilted.value(found.weights)
                gap = self._gap_on_held_rows(found.weights)
                status = Status.OWN_TEST if found.status.success else found.status
        return Solution(
            weights=found.weights,
            objective=value,
            stationarity_gap=gap,
            status=status,
            n_iterations=self._watch.n_iterations,
            n_evaluations=1,
            nbytes_read=self._watch.nbytes_read,
            seconds=self._watch.seconds,
            solver="mirror",
            trace=tuple(self._watch.trace),
        )

    # -- anchors -------------------------------------------------------------------------------

    def _overflow(self) -> None:
        """The sample is full: its solution is the first anchor, its rows the first met there."""
        with one_blas_thread():
            # Without the penalty: a concave one decides for one of several like members, and the
            # rows to come may decide otherwise.
            whole = self._whole().with_penalty(NO_PENALTY)
            weights = self._minimise(whole, None).weights
            value, gradient = whole.value_and_gradient(weights)
        total = whole.facts.total
        self._anchors = [_Anchor(weights, total * on_host(gradient), total * value, total)]
        self._next_anchor_at = 2 * self.n_rows

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
            tilted, level = self._tilted(self.penalty)
            found = self._minimise(tilted, self._anchors[-1].weights)
            value, gradient = tilted.value_and_gradient(found.weights)
        gap = stationarity_gap(found.weights, gradient)
        self._watch.iteration(level + value, gap, found.n_active)
        self._anchors.append(_Anchor(found.weights, np.zeros_like(found.weights)))
        self._next_anchor_at = 2 * self.n_rows

    # -- the sample ------------------------------------------------------------------------------

    def _tilted(self, penalty: Penalty) -> tuple[SimplexObjective, float]:
        """F, less a constant, and the constant: its value estimates the whole objective's."""
        assert self._sample is not None
        sample = self._objective(self._sample.evidence(), NO_PENALTY)
        linear, level = self._correction(sample)
        last = self._anchors[-1].weights
        return sample.with_penalty(Tilted(penalty, linear, last)), level

    def _correction(self, rows: SimplexObjective) -> tuple[np.ndarray, float]:
        """What all rows met at the anchors say beyond these few: a gradient and a level."""
        met = [anchor for anchor in self._anchors if anchor.total > 0]
        total = sum(anchor.total for anchor in met)
        linear, level = np.zeros(rows.n_members), 0.0
        for anchor in met:
            value, gradient = rows.value_and_gradient(rows.asarray(anchor.weights))
            share = anchor.total / total
            tilt = anchor.gradient / anchor.total - on_host(gradient)
            linear += share * tilt
            level += share * (anchor.value / anchor.total - value - float(tilt @ anchor.weights))
        return linear, level

    def _whole(self) -> SimplexObjective:
        """All rows so far, while they are all held."""
        assert self._sample is not None
        assert self._held is not None
        parts = [r.evidence() for r in (self._sample, self._held) if r.n_seen]
        return self._objective(concatenate(parts), self.penalty)

    def _gap_on_held_rows(self, weights: np.ndarray) -> float:
        """The gap, with the held rows in the sample's place: they did not choose the weights."""
        assert self._held is not None
        held = self._objective(self._held.evidence(), NO_PENALTY)
        linear, _ = self._correction(held)
        gradient = on_host(held.value_and_gradient(weights)[1]) + linear
        return stationarity_gap(weights, gradient + self.penalty.gradient(weights))

    def _minimise(self, objective: SimplexObjective, start: Any) -> Solution:
        solver = polisher(objective, self.tol, self.max_iter)
        found = solver.solve(objective, start)
        self._watch.n_iterations += found.n_iterations
        self._watch.nbytes_read += found.nbytes_read
        return found

    def _objective(self, evidence: OOBEvidence, penalty: Penalty) -> SimplexObjective:
        return SimplexObjective(
            evidence, self.loss, penalty, floor=self.floor, prior_mass=self.prior_mass
        )
