"""Simplex SGD: stochastic mirror descent over row minibatches, for rows that are read few times.

A pass over all rows is what costs, so it is made for its gradient at one point, the anchor, and
everything between two passes happens on a sample of rows held in memory. With f the whole
objective, f_S the sample's and a the anchor, the sample is tilted::

    F(w) = f_S(w) + (∇f(a) - ∇f_S(a))·w

so that ∇F(a) = ∇f(a): the sample's noise is gone to first order (variance reduction: Johnson and
Zhang 2013; with the sample minimised to the end, Shamir, Srebro and Zhang 2014). Between passes:

1. stochastic steps over minibatches of the sample, each with the minibatch's gradient at w, less
   the one at a, plus ∇f(a). Steps are multiplicative (exponentiated gradient), their length
   follows from the gradients seen (Streeter and McMahan 2010), the iterates are averaged.
2. what passes have shown of the curvature f_S lacks is added to F (`Surrogate`).
3. members whose average weight is negligible are screened out, and F is minimised exactly on the
   rest, which makes the zeros exact; its gradient can bring a member back.

The next pass finds objective, gradient and stationarity gap there; its point is the next anchor.
Where the columns of the members still in question fit the memory allowed, all their rows are read
in one pass and F gives way to f itself on them: a pass later the gap over all members is final.
Where only some of their rows fit, those make a far larger sample than rows of all members would.
At the end Newton steps settle the weights' sixth digit: on those columns, or where they do not fit
by a Hessian that takes a pass, while `max_passes` allows one and a pass to see where it leads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np

from sparsebag.objective.objective import Objective
from sparsebag.objective.penalties import ConcaveQuadratic, Penalty, Tilted
from sparsebag.solvers.active_set import ActiveSet, why_active_set
from sparsebag.solvers.base import Point, Solution, SolveLog, Solver, Status, one_blas_thread
from sparsebag.solvers.newton import newton_end
from sparsebag.solvers.projected_gradient import ProjectedGradient

Array = Any

FEWEST_ROWS = 4096
"""Rows the sample has at least, where there are so many."""
INNER_SHARE = 0.002
"""Between passes the tilted sample is minimised to this share of the gap that is left."""
FACE_NEWCOMERS = (2.0, 1.0, 0.5, 0.25)
"""Members without weight in the exact polish, as a multiple of those with: columns cost memory, a
member that was left out costs two passes. The most that fit; rows left out cost a pass or two."""
MOST_FAILURES = 8
"""Rounds in a row that may fail to lower the objective before the solve is called stalled."""
BATCHES = 32
"""Minibatches the sample is cut into, of 64 rows at least; one stochastic step each."""
PULL_GROWTH = 8.0
"""A round that fails is repeated nearer to the anchor, by so much."""


@dataclass(frozen=True)
class Mirror:
    """Variance-reduced stochastic mirror descent, with an exact end.

    Parameters
    ----------
    tol : float, default 1e-5
        Stop when the stationarity gap over all rows is below ``tol`` times the objective's scale.
    max_iter : int, default 5000
        Most iterations on the sample between two passes.
    max_passes : int, default 30
        Most passes over all rows, whatever for; the first is always made. Small weights are dropped
        afterwards where a pass is left to see what that does, and stay where none is.
    sample_bytes : int, default 256 MiB
        Evidence of the rows held in memory between passes.
    seed : int, default 0
        Of the sample.
    """

    tol: float = 1e-5
    max_iter: int = 5000
    max_passes: int = 30
    sample_bytes: int = 256 << 20
    seed: int = 0
    name: str = "mirror"
    requires: frozenset[str] = frozenset({"gradient"})

    def __post_init__(self) -> None:
        """Refuse a limit that would only be found wrong after the first pass."""
        passes: Any = self.max_passes
        if isinstance(passes, bool) or not isinstance(passes, Integral) or passes < 1:
            raise ValueError(f"max_passes must be a whole number, at least 1, got {passes!r}.")

    def solve(self, objective: Objective, start: Array | None = None) -> Solution:
        """Minimise the objective from ``start`` (default: the simplex's centre)."""
        log = SolveLog(self.name)
        with one_blas_thread():
            point = Point.start(objective, start, log, self.tol)
            return _Rounds(self, objective, log).run(point)

    def sample_of(self, objective: Objective) -> Objective:
        """The rows held between passes."""
        bytes_a_row = max(1, objective.nbytes_per_pass // objective.n_rows)
        n_rows = max(FEWEST_ROWS, self.sample_bytes // bytes_a_row)
        return objective.row_sample(min(n_rows, objective.n_rows), self.seed)


class _Rounds:
    """A pass, work on the sample, a pass, and so on."""

    def __init__(self, solver: Mirror, objective: Objective, log: SolveLog) -> None:
        self.solver, self.objective, self.log = solver, objective, log
        self.goal = objective.goal(solver.tol)
        self.surrogate = Surrogate(objective, log, self.goal, solver.max_iter)
        self.n_passes = log.n_evaluations
        self.face: Array = None
        self.face_rows: Objective | None = None
        self.is_exact = False

    def run(self, best: Point) -> Solution:
        """Alternate until the gap over all rows meets the goal."""
        status = Status.MAX_ITERATIONS
        failures, n_rounds = 0, 0
        try:
            goes_on = self._may_go_on() and best.gap > self.goal
            sample = self.solver.sample_of(self.objective) if goes_on else None
            is_whole = sample is not None and self.surrogate.is_whole(sample)
            while sample is not None and best.gap > self.goal:
                # A stream that was read whole needs no pass to say what all its rows say.
                by_sample = is_whole and not self._may_go_on() and not n_rounds
                if not (by_sample or self._may_go_on()):
                    break
                face = best.next_face(FACE_NEWCOMERS[0])
                if n_rounds and (held := self._face_to_polish(best, sample)) is not None:
                    inner = self._polish(best, held)
                elif n_rounds and self._may_sample_face(best, face, sample):
                    inner = self._face_round(best)
                else:
                    inner = self._round(sample, best, is_first=n_rounds == 0)
                n_rounds += 1
                if inner.status is Status.INTERRUPTED:
                    status = Status.INTERRUPTED
                    break
                moved = Point.at(sample if by_sample else self.objective, inner.weights, self.log)
                self.n_passes += not by_sample
                self.surrogate.learn_curvature(moved, self.face, self.face_rows)
                self.log.iteration(moved)
                rounding = self.objective.rounding
                lower = moved.value < best.value - rounding
                # Near the end values no longer tell two points apart, gaps still do.
                if lower or (moved.value <= best.value + rounding and moved.gap < best.gap):
                    self.surrogate.trust_more()
                    best, failures = moved, 0
                    if is_whole and inner.status is not Status.CONVERGED:
                        status = inner.status  # more rounds would ask the same question again
                        break
                    continue
                failures += 1
                if failures > MOST_FAILURES or inner.status is Status.STALLED or is_whole:
                    status = Status.STALLED
                    break
                self.surrogate.trust_less(best, moved)
            if best.gap <= self.goal and status is not Status.INTERRUPTED:
                best, status = self._last_digits(best), Status.CONVERGED
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
        found = self.log.solution(best, status)
        return replace(found, has_pass_left=self._may_go_on())

    def _may_go_on(self) -> bool:
        return self.n_passes < self.solver.max_passes

    def _last_digits(self, best: Point) -> Point:
        """Newton steps over all rows where the last round was not exact: two passes, or three."""
        left = self.solver.max_passes - self.n_passes
        if self.is_exact or left < 3:  # a Hessian, a step, and what all members say of it
            return best
        most_steps = min(4, max(1, left - 3))  # one pass is for small weights, if it can be
        before = self.log.n_evaluations
        ended = newton_end(self.objective, best, self.log, self.goal, most_steps)
        self.n_passes += self.log.n_evaluations - before
        return ended

    def _face_to_polish(self, best: Point, sample: Objective) -> Array | None:
        """The largest face whose columns, of all rows, fit the memory allowed."""
        whole = self.surrogate.is_whole(sample)
        enough = self.n_passes + 2 <= self.solver.max_passes  # its columns, then all members
        for share in FACE_NEWCOMERS if enough and not whole else ():
            face = best.next_face(share)
            if self.objective.can_hold(int(face.shape[0])):
                return face
        return None

    def _may_sample_face(self, best: Point, face: Array, sample: Objective) -> bool:
        """Draw rows of a face anew if the one at hand lacks a member that asks for weight."""
        if not self.objective.is_streamed or self.surrogate.is_whole(sample):
            return False
        wanted = best.next_face()
        if self.face is not None and np.isin(wanted, self.face).all():
            return True
        if self.n_passes + 2 > self.solver.max_passes or 2 * len(face) > self.objective.n_members:
            return False
        self.face, self.face_rows = face, self.objective.face_sample(face, self.solver.seed)
        self._count_columns()
        return True

    def _face_round(self, anchor: Point) -> Solution:
        """A round on the face's sample, which has more rows for having fewer columns."""
        assert self.face_rows is not None
        face = self.face
        inner = self._round(self.face_rows, anchor.on(face), is_first=False)
        weights = self.objective.xp.zeros_like(anchor.weights)
        weights[face] = inner.weights
        return replace(inner, weights=weights)

    def _round(self, sample: Objective, anchor: Point, *, is_first: bool) -> Solution:
        """Minimise the sample, tilted to have the whole's gradient at the anchor."""
        is_whole = self.surrogate.is_whole(sample)
        own = self.objective.penalty
        if is_first and not own.is_convex and not is_whole:
            # A concave penalty decides for one of several like members; a sample decides wrongly,
            # so the first round leaves the choice to later ones, which see more.
            own = ConcaveQuadratic(0.0)
        tilted = self.surrogate.tilt(sample, anchor, own)
        begin = anchor.weights
        if is_first:
            begin = stochastic_steps(tilted, anchor, self.log)
        wanted = self.goal / 2 if is_whole else max(self.goal / 4, INNER_SHARE * anchor.gap)
        inner = self.surrogate.minimise(tilted, begin, wanted)
        self.is_exact = is_whole and inner.status is Status.CONVERGED
        if self.is_exact:
            end = SolveLog(self.log.name)
            ended = newton_end(tilted, Point.at(tilted, inner.weights, end), end, wanted)
            self.surrogate.count(sample, end.n_evaluations, end.nbytes_read)
            inner = replace(inner, weights=ended.weights)
        return inner

    def _polish(self, point: Point, face: Array) -> Solution:
        """Minimise exactly over the members with weight and those asking for some, on all rows."""
        restricted = self.objective.restrict(face)
        self._count_columns()
        inner = self.surrogate.solve(restricted, point.weights[face], self.goal / 2)
        own = SolveLog(self.log.name)  # of columns in memory, not of rows that are streamed
        ended = Point.at(restricted, inner.weights, own)
        if inner.status is Status.CONVERGED:
            ended = newton_end(restricted, ended, own, self.goal / 2)
        self.log.nbytes_read += inner.nbytes_read + own.nbytes_read
        self.is_exact = True
        weights = self.objective.xp.zeros_like(point.weights)
        weights[face] = ended.weights
        return replace(inner, weights=weights)

    def _count_columns(self) -> None:
        """Reading a face's columns is a pass like any other."""
        self.log.n_evaluations += 1
        self.log.nbytes_read += self.objective.nbytes_per_pass
        self.n_passes += 1


class Surrogate:
    """What a sample, and the passes made so far, say of the objective between two passes.

    Tilted, the sample has the whole's gradient at the anchor; pulled, it is trusted less far from
    it; bent, it has the curvature that passes have shown and it lacks. Between two points whose
    gradient over all rows is known, the whole's gradient changed by y, and the model's by z. Along
    the step s between them the model is given the whole's curvature by what BFGS adds to a
    Hessian::

        y yᵀ / (s·y) - z zᵀ / (s·z)

    which leaves it positive where it was. The directions in which a sample misleads a solve are
    few, and one is mended a pass.

    Parameters
    ----------
    objective : Objective
        The whole, of all rows and members.
    log : SolveLog
        Counts what the sample costs.
    goal : float
        Gap over all members that a solve has to meet.
    max_iter : int
        Most iterations on the sample at a time.
    """

    def __init__(self, objective: Objective, log: SolveLog, goal: float, max_iter: int) -> None:
        self.objective, self.log, self.goal, self.max_iter = objective, log, goal, max_iter
        self._pull = 0.0
        self._bends: tuple[tuple[Array, float], ...] = ()
        self._tilted_from: tuple[Objective, Point, Array] | None = None

    def is_whole(self, sample: Objective) -> bool:
        """Whether the sample is all rows."""
        return sample.n_rows >= self.objective.n_rows

    def tilt(self, sample: Objective, anchor: Point, own: Penalty) -> Objective:
        """The sample with a penalty of its own and the whole's gradient at the anchor."""
        _, at_anchor = sample.value_and_gradient(anchor.weights)
        self.count(sample, 1, sample.nbytes_per_pass)
        if self._tilted_from is not None and self._tilted_from[0] is not sample:
            self._bends = ()  # they are of other rows, or other columns
        self._tilted_from = sample, anchor, at_anchor
        linear = anchor.gradient - at_anchor
        return sample.with_penalty(Tilted(own, linear, anchor.weights, self._pull))

    def minimise(self, tilted: Objective, begin: Array, wanted: float) -> Solution:
        """The tilted sample's minimum, to a gap: bent where that leads somewhere."""
        inner = self._minimise_bent(tilted, begin, wanted)
        if inner is None:
            inner = self.solve(tilted, begin, wanted)
        self.count(tilted, inner.n_evaluations, inner.nbytes_read)
        return inner

    def solve(self, objective: Objective, begin: Array, wanted: float) -> Solution:
        """Minimise what is in memory exactly, to a gap."""
        inner = polisher(objective, wanted / objective.scale, self.max_iter).solve(objective, begin)
        self.log.n_iterations += inner.n_iterations
        return inner

    def count(self, sample: Objective, n_evaluations: int, nbytes: int) -> None:
        """What the sample costs; a sample of all rows is a pass like any other."""
        self.log.nbytes_read += nbytes
        if self.is_whole(sample):
            self.log.n_evaluations += n_evaluations

    def learn_curvature(self, moved: Point, face: Array, face_rows: Any) -> None:
        """What a pass says of the curvature the sample lacked along the step it proposed.

        Parameters
        ----------
        moved : Point
            Where the pass was made.
        face : array of indices
            Members whose columns ``face_rows`` has.
        face_rows : Objective or None
            The sample of a face, if there is one; other samples are of all members.
        """
        if self._tilted_from is None:
            return
        sample, anchor, at_anchor = self._tilted_from
        if self.is_whole(sample):
            return
        members = face if sample is face_rows else slice(None)
        weights, gradient = moved.weights[members], moved.gradient[members]
        _, here = sample.value_and_gradient(weights)
        self.count(sample, 1, sample.nbytes_per_pass)
        change = gradient - anchor.gradient
        self._bends = secant_update(self._bends, weights - anchor.weights, change, here - at_anchor)

    def trust_more(self) -> None:
        """After a round that lowered the objective."""
        self._pull /= PULL_GROWTH

    def trust_less(self, best: Point, moved: Point) -> None:
        """Pull towards the anchor: as much as the curvature seen on the way, then more."""
        xp = self.objective.xp
        step, bend = moved.weights - best.weights, moved.gradient - best.gradient
        curvature = abs(float(xp.sum(step * bend))) / max(float(xp.sum(step * step)), 1e-300)
        self._pull = max(PULL_GROWTH * self._pull, curvature)
        self._bends = ()

    def _minimise_bent(self, tilted: Objective, begin: Array, wanted: float) -> Solution | None:
        """With the curvature passes have shown; None where there is none, or it leads nowhere."""
        if not self._bends:
            return None
        assert isinstance(tilted.penalty, Tilted)
        bent = tilted.with_penalty(replace(tilted.penalty, bends=self._bends))
        # One that is bent the wrong way has no end.
        inner = polisher(bent, wanted / bent.scale, 200).solve(bent, begin)
        self.log.nbytes_read += inner.nbytes_read
        if inner.status in (Status.CONVERGED, Status.INTERRUPTED):
            self.log.n_iterations += inner.n_iterations
            return replace(inner, nbytes_read=0)
        self._bends = ()
        return None


def polisher(objective: Objective, tol: float, max_iter: int) -> Solver:
    """The exact solver for an objective in memory; `select_solver` has the reasons."""
    kind = ActiveSet if why_active_set(objective) else ProjectedGradient
    return kind(tol=tol, max_iter=max_iter, newton_end=False)


def secant_update(
    bends: tuple[tuple[Array, float], ...], step: Array, has: Array, had: Array
) -> tuple[tuple[Array, float], ...]:
    """Corrections of rank one, as `Tilted` takes them, after one more step.

    Parameters
    ----------
    bends : tuple of (array of shape (N,), float)
        Vectors and signs so far.
    step, has, had : array of shape (N,)
        The step, the gradient's change over all rows, and over the sample alone.

    Returns
    -------
    tuple of (array of shape (N,), float)

    Examples
    --------
    >>> step = np.array([1.0, -1.0])
    >>> bends = secant_update((), step, has=4.0 * step, had=step)
    >>> round(float(sum(sign * (bend[0] - bend[1]) ** 2 for bend, sign in bends)), 6)
    6.0
    """
    for bend, sign in bends:
        had = had + sign * (bend * step).sum() * bend
    true, own = float((has * step).sum()), float((had * step).sum())
    if min(true, own) <= 1e-12 * float((step * step).sum()):  # no curvature: it says nothing
        return bends
    return (*bends, (has / true**0.5, 1.0), (had / own**0.5, -1.0))


def stochastic_steps(objective: Objective, anchor: Point, log: SolveLog) -> Array:
    """One epoch of exponentiated-gradient steps from the anchor; the average iterate, screened.

    ``objective`` is the tilted sample, so a minibatch's gradient less the one at the anchor, plus
    the anchor's, has the tilted gradient for a mean and no noise at the anchor.

    Parameters
    ----------
    objective : Objective
    anchor : Point
        With the tilted gradient there.
    log : SolveLog
        Counts the steps.

    Returns
    -------
    array of shape (N,)
    """
    xp, n = objective.xp, objective.n_members
    n_batches = max(1, min(BATCHES, objective.n_rows // 64))
    radius = math.sqrt(2.0 * math.log(max(n, 2)))  # of the simplex, in the divergence's unit
    weights, norm = anchor.weights, 1e-300
    average = 0.0 * weights
    for k in range(n_batches):
        batch = objective.at_rows(slice(k, None, n_batches))
        _, here = batch.value_and_gradient(weights)
        _, there = batch.value_and_gradient(anchor.weights)
        log.nbytes_read += 2 * batch.nbytes_per_pass
        log.n_iterations += 1
        gradient = here - there + anchor.gradient
        gradient = gradient - xp.min(gradient)
        norm = math.hypot(norm, 0.5 * float(xp.max(gradient)))
        weights = weights * xp.exp(-radius / norm * gradient)
        weights = weights / xp.sum(weights)
        average = average + (k + 1) * weights  # later iterates count more
    average = average / xp.sum(average)
    kept = xp.where(average >= 0.01 / n, average, 0.0 * average)
    return kept / xp.sum(kept)
