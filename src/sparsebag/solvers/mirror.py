"""Simplex SGD: stochastic mirror descent over row minibatches, for rows that are read few times.

A pass over all rows is what costs, so it is made for its gradient at one point, the anchor, and
everything between two passes happens on a sample of rows held in memory. With f the whole
objective, f_S the sample's and a the anchor, the sample is tilted::

    F(w) = f_S(w) + (∇f(a) - ∇f_S(a))·w

so that ∇F(a) = ∇f(a): the sample's noise is gone to first order (variance reduction: Johnson and
Zhang 2013; with the sample minimised to the end, Shamir, Srebro and Zhang 2014). Between passes:

1. stochastic steps over minibatches of the sample, each with the minibatch's gradient at w, less
   the one at a, plus ∇f(a). Multiplicative (exponentiated gradient) or projected; the step length
   follows from the gradients seen (Streeter and McMahan 2010), the iterates are averaged
   (`stochastic_steps`).
2. what passes have shown of the curvature f_S lacks is added to F (`secants`).
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

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sparsebag.objective.objective import Objective
from sparsebag.objective.penalties import ConcaveQuadratic, Tilted
from sparsebag.objective.simplex_objective import SimplexObjective
from sparsebag.solvers.active_set import ActiveSet, suits_active_set
from sparsebag.solvers.base import Solution, Solver, Status, Watch, one_blas_thread
from sparsebag.solvers.faces import next_face
from sparsebag.solvers.geometry import Entropy, Euclid, Geometry
from sparsebag.solvers.newton import END_STEPS, end_by_newton, may_end_with_newton, newton_end
from sparsebag.solvers.point import Point
from sparsebag.solvers.projected_gradient import ProjectedGradient, leave_flat_centre
from sparsebag.solvers.secants import Secants
from sparsebag.solvers.simplex import check_start
from sparsebag.solvers.stochastic_steps import stochastic_steps

Array = Any

SAMPLE_BYTES = 256 << 20
"""Evidence of the rows held between passes."""
FEWEST_ROWS = 4096
"""Rows the sample has at least, where there are so many."""
INNER_SHARE = 0.002
"""Between passes the tilted sample is minimised to this share of the gap that is left."""
FACE_NEWCOMERS = (2.0, 1.0, 0.5, 0.25)
"""Members without weight in the exact polish, as a multiple of those with: columns cost memory, a
member that was left out costs two passes. The most that fit; rows left out cost a pass or two."""
TRUSTED_SHARE = 0.5
"""Share of the goal within which a gap found on the sample is as good as one found by a pass."""
SURE_ERRORS = 4.0
"""Standard errors of the sample's slopes that are added to them then; the largest of thousands."""
NOISE_PARTS = 16
"""Parts of the sample whose spread gives them."""
MOST_FAILURES = 8
"""Rounds in a row that may fail to lower the objective before the solve is called stalled."""
NEAR_GOAL = 10.0
"""Times the goal: a gap from which on a round that fails is followed by Newton steps. Values are
alike up to rounding there, and shorter and shorter steps would take every pass there is."""
PULL_GROWTH = 8.0
MOST_BENT_STEPS = 200
"""Iterations on a sample of corrected curvature; one that is bent the wrong way has no end."""


NO_PENALTY = ConcaveQuadratic(0.0)


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
        Most passes over all rows; one more is made where small weights are dropped afterwards.
    sample_bytes : int, default 256 MiB
        Evidence of the rows held in memory between passes.
    seed : int, default 0
        Of the sample.
    verbose : int, default 0
        Progress on standard error.
    """

    tol: float = 1e-5
    max_iter: int = 5000
    max_passes: int = 30
    sample_bytes: int = SAMPLE_BYTES
    seed: int = 0
    verbose: int = 0
    name: str = "mirror"
    requires: frozenset[str] = frozenset({"gradient"})
    geometry: Geometry = field(default_factory=Entropy)

    def solve(self, objective: Objective, start: Array | None = None) -> Solution:
        """Minimise the objective from ``start`` (default: the simplex's centre)."""
        watch = Watch(self.name, self.verbose)
        begin = objective.uniform_weights() if start is None else objective.asarray(start)
        begin = check_start(begin, objective.n_members)
        with one_blas_thread():
            point = Point.at(objective, begin, watch)
            if start is None:
                point = leave_flat_centre(objective, point, watch, objective.goal(self.tol))
            return _Rounds(self, objective, watch).run(point)

    def sample_of(self, objective: Objective) -> SimplexObjective:
        """The rows held between passes."""
        bytes_a_row = max(1, objective.nbytes_per_pass // objective.n_rows)
        n_rows = max(FEWEST_ROWS, self.sample_bytes // bytes_a_row)
        return objective.row_sample(min(n_rows, objective.n_rows), self.seed)


@dataclass(frozen=True)
class ProjectedSGD(Mirror):
    """The projected sibling of `Mirror`: Euclidean steps, everything else alike."""

    name: str = "projected_sgd"
    geometry: Geometry = field(default_factory=Euclid)


class _Rounds:
    """A pass, work on the sample, a pass, and so on."""

    def __init__(self, solver: Mirror, objective: Objective, watch: Watch) -> None:
        self.solver, self.objective, self.watch = solver, objective, watch
        self.goal = objective.goal(solver.tol)
        self.pull = 0.0
        self.n_passes = watch.n_evaluations
        self.face: Array = None
        self.face_rows: SimplexObjective | None = None
        self.is_exact = False
        self.has_tried_newton = False
        self.secants = Secants()
        self.tilted_from: tuple[SimplexObjective, Point, Array] | None = None

    def run(self, best: Point) -> Solution:
        """Alternate until the gap over all rows meets the goal."""
        status = Status.MAX_ITERATIONS
        failures, n_rounds = 0, 0
        try:
            sample = self.solver.sample_of(self.objective)
            is_whole = sample.n_rows >= self.objective.n_rows
            while self._may_go_on() and best.gap > self.goal:
                face = next_face(best, self.objective.xp, FACE_NEWCOMERS[0])
                if n_rounds and (held := self._face_to_polish(best, sample)) is not None:
                    inner, on_held = self._polish(best, held)
                    if (end := self._end_by_sample(sample, best, held, inner, on_held)) is not None:
                        best = end
                        break
                elif n_rounds and self._may_sample_face(best, face, sample):
                    inner = self._face_round(best)
                else:
                    inner = self._round(sample, best, is_first=n_rounds == 0)
                n_rounds += 1
                if inner.status is Status.INTERRUPTED:
                    status = Status.INTERRUPTED
                    break
                moved = Point.at(self.objective, inner.weights, self.watch)
                self.n_passes += 1
                self._learn_curvature(moved)
                self.watch.iteration(moved.value, moved.gap, int((moved.weights > 0).sum()))
                rounding = self.objective.rounding
                lower = moved.value < best.value - rounding
                # Near the end values no longer tell two points apart, gaps still do.
                if lower or (moved.value <= best.value + rounding and moved.gap < best.gap):
                    self.pull /= PULL_GROWTH
                    best, failures = moved, 0
                    if is_whole and inner.status is not Status.CONVERGED:
                        status = inner.status  # more rounds would ask the same question again
                        break
                    continue
                failures += 1
                if failures > MOST_FAILURES or inner.status is Status.STALLED or is_whole:
                    status = Status.STALLED
                    break
                if (end := self._end_at_once(best)) is not None:
                    best = end
                    break
                self._pull_harder(best, moved)
                self.secants = Secants()
            if best.gap <= self.goal and status is not Status.INTERRUPTED:
                best, status = self._last_digits(best), Status.CONVERGED
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
        return self.watch.solution(best.weights, best.value, best.gradient, status)

    def _may_go_on(self) -> bool:
        return self.n_passes < self.solver.max_passes

    def _last_digits(self, best: Point) -> Point:
        """Newton steps over all rows where the last round was not exact: two passes, or three."""
        most_steps = min(END_STEPS, self.solver.max_passes - self.n_passes - 1)  # and a Hessian
        if self.is_exact or most_steps < 1:
            return best
        return end_by_newton(self.objective, best, self.watch, self.goal, most_steps)

    def _end_at_once(self, best: Point) -> Point | None:
        """Newton steps from near the goal, once a solve; None where they do not reach it."""
        if self.has_tried_newton or best.gap > NEAR_GOAL * self.goal:
            return None
        self.has_tried_newton = True
        self.is_exact = False  # the best point is not that of the round that failed
        before = self.watch.n_evaluations
        ended = self._last_digits(best)
        self.n_passes += self.watch.n_evaluations - before
        self.is_exact = ended.gap <= self.goal
        return ended if self.is_exact else None

    def _face_to_polish(self, best: Point, sample: SimplexObjective) -> Array | None:
        """The largest face whose columns, of all rows, fit the memory allowed."""
        whole = sample.n_rows >= self.objective.n_rows
        enough = self.n_passes + 2 <= self.solver.max_passes  # its columns, then all members
        for share in FACE_NEWCOMERS if enough and not whole else ():
            face = next_face(best, self.objective.xp, share)
            if self.objective.can_hold(int(face.shape[0])):
                return face
        return None

    def _may_sample_face(self, best: Point, face: Array, sample: SimplexObjective) -> bool:
        """Draw rows of a face anew if the one at hand lacks a member that asks for weight."""
        draw = getattr(self.objective, "face_sample", None)
        if draw is None or sample.n_rows >= self.objective.n_rows:
            return False
        wanted = next_face(best, self.objective.xp)
        if self.face is not None and np.isin(wanted, self.face).all():
            return True
        if self.n_passes + 2 > self.solver.max_passes or 2 * len(face) > self.objective.n_members:
            return False
        self.face, self.face_rows = face, draw(face, self.solver.seed)
        self._count_columns()
        return True

    def _face_round(self, anchor: Point) -> Solution:
        """A round on the face's sample, which has more rows for having fewer columns."""
        assert self.face_rows is not None
        face = self.face
        inside = Point(anchor.weights[face], anchor.value, anchor.gradient[face])
        inner = self._round(self.face_rows, inside, is_first=False)
        weights = self.objective.xp.zeros_like(anchor.weights)
        weights[face] = inner.weights
        return replace(inner, weights=weights)

    def _round(self, sample: SimplexObjective, anchor: Point, *, is_first: bool) -> Solution:
        """Minimise the sample, tilted to have the whole's gradient at the anchor."""
        _, at_anchor = sample.value_and_gradient(anchor.weights)
        self._count(sample, 1, sample.nbytes_per_pass)
        linear = anchor.gradient - at_anchor
        own = self.objective.penalty
        if is_first and not own.is_convex and sample.n_rows < self.objective.n_rows:
            # A concave penalty decides for one of several like members; a sample decides wrongly,
            # so the first round leaves the choice to later ones, which see more.
            own = NO_PENALTY
        if self.tilted_from is not None and self.tilted_from[0] is not sample:
            self.secants = Secants()  # of other rows, or other columns
        self.tilted_from = sample, anchor, at_anchor
        tilt = Tilted(own, linear, anchor.weights, self.pull)
        tilted = sample.with_penalty(tilt)
        begin = anchor.weights
        if is_first:
            begin = stochastic_steps(tilted, anchor, self.solver.geometry, self.watch)
        is_whole = sample.n_rows >= self.objective.n_rows
        wanted = self.goal / 2 if is_whole else max(self.goal / 4, INNER_SHARE * anchor.gap)
        inner = self._solve_bent(sample, tilt, begin, wanted)
        if inner is None:
            inner = self._solve(tilted, begin, wanted)
        self._count(sample, inner.n_evaluations, inner.nbytes_read)
        self.is_exact = is_whole and inner.status is Status.CONVERGED
        if self.is_exact:
            end = Watch(self.watch.name)
            ended = end_by_newton(tilted, Point.at(tilted, inner.weights, end), end, wanted)
            self._count(sample, end.n_evaluations, end.nbytes_read)
            inner = replace(inner, weights=ended.weights)
        return inner

    def _solve_bent(
        self, sample: SimplexObjective, tilt: Tilted, begin: Array, wanted: float
    ) -> Solution | None:
        """With the curvature passes have shown; None where there is none, or it leads nowhere."""
        if not self.secants.bends:
            return None
        bent = sample.with_penalty(replace(tilt, bends=self.secants.bends))
        inner = polisher(bent, wanted / bent.scale, MOST_BENT_STEPS).solve(bent, begin)
        self.watch.nbytes_read += inner.nbytes_read
        if inner.status in (Status.CONVERGED, Status.INTERRUPTED):
            self.watch.n_iterations += inner.n_iterations
            return replace(inner, nbytes_read=0)
        self.secants = Secants()
        return None

    def _polish(self, point: Point, face: Array) -> tuple[Solution, Point]:
        """Minimise exactly over the members with weight and those asking for some, on all rows."""
        restricted = self.objective.restrict(face)
        self._count_columns()
        inner = self._solve(restricted, point.weights[face], self.goal / 2)
        own = Watch(self.watch.name)  # of columns in memory, not of rows that are streamed
        ended = Point.at(restricted, inner.weights, own)
        if inner.status is Status.CONVERGED and may_end_with_newton(self.objective, len(face)):
            ended = newton_end(restricted, ended, own)
        self.watch.nbytes_read += inner.nbytes_read + own.nbytes_read
        self.is_exact = True
        weights = self.objective.xp.zeros_like(point.weights)
        weights[face] = ended.weights
        return replace(inner, weights=weights), ended

    def _end_by_sample(
        self, sample: SimplexObjective, anchor: Point, face: Array, inner: Solution, on_face: Point
    ) -> Point | None:
        """The face's minimum, if no member outside it can ask for weight; None: a pass must tell.

        Value and gradient on the face are those of all rows. Outside it the gradient is that of the
        last pass, and what the sample says has changed since then. Far from that pass the sample's
        noise alone looks like a gap; near it the noise is small, and a pass would say the same. How
        small parts of the sample tell: with some standard errors more, no slope may miss the goal.
        """
        if not self.objective.is_streamed or inner.status is not Status.CONVERGED:
            return None
        here = sample.value_and_gradient(inner.weights)[1]
        there = sample.value_and_gradient(anchor.weights)[1]
        self._count(sample, 2, 2 * sample.nbytes_per_pass)
        gradient = anchor.gradient + here - there
        gradient[face] = on_face.gradient
        end = Point(inner.weights, on_face.value, gradient)
        if end.gap > TRUSTED_SHARE * self.goal:
            return None
        xp = self.objective.xp
        error = self._error_of_change(sample, anchor.weights, inner.weights)
        error[face] = 0.0
        worst = float(xp.max(xp.sum(end.weights * gradient) - gradient + SURE_ERRORS * error))
        return end if worst <= self.goal else None

    def _error_of_change(self, sample: SimplexObjective, there: Array, here: Array) -> Array:
        """Standard errors of the change of the sample's gradient from one point to another."""
        xp = self.objective.xp
        parts, shares = [], []
        for k in range(min(NOISE_PARTS, sample.n_rows)):
            part = sample.at_rows(slice(k, None, NOISE_PARTS))
            change = part.value_and_gradient(here)[1] - part.value_and_gradient(there)[1]
            parts.append(change)
            shares.append(part.facts.total / sample.facts.total)
        self._count(sample, 2, 2 * sample.nbytes_per_pass)
        if len(parts) < 2:
            return xp.full_like(here, float("inf"))
        mean = sum(share * part for share, part in zip(shares, parts, strict=True))
        square = sum(
            share**2 * (part - mean) ** 2 for share, part in zip(shares, parts, strict=True)
        )
        return xp.sqrt(square * (len(parts) / (len(parts) - 1)))

    def _solve(self, objective: Objective, begin: Array, wanted: float) -> Solution:
        tol = wanted / objective.scale
        inner = polisher(objective, tol, self.solver.max_iter).solve(objective, begin)
        self.watch.n_iterations += inner.n_iterations
        return inner

    def _count_columns(self) -> None:
        """Reading a face's columns is a pass like any other."""
        self.watch.n_evaluations += 1
        self.watch.nbytes_read += self.objective.nbytes_per_pass
        self.n_passes += 1

    def _count(self, sample: SimplexObjective, n_evaluations: int, nbytes: int) -> None:
        """What the sample costs; a sample of all rows is a pass like any other."""
        self.watch.nbytes_read += nbytes
        if sample.n_rows >= self.objective.n_rows:
            self.watch.n_evaluations += n_evaluations

    def _learn_curvature(self, moved: Point) -> None:
        """What the pass says of the curvature the sample lacked along the step it proposed."""
        if self.tilted_from is None:
            return
        sample, anchor, at_anchor = self.tilted_from
        if sample.n_rows >= self.objective.n_rows:
            return
        face = self.face if sample is self.face_rows else slice(None)
        weights, gradient = moved.weights[face], moved.gradient[face]
        _, here = sample.value_and_gradient(weights)
        self._count(sample, 1, sample.nbytes_per_pass)
        self.secants.add(weights - anchor.weights, gradient - anchor.gradient, here - at_anchor)

    def _pull_harder(self, best: Point, moved: Point) -> None:
        """Trust the sample less far from the anchor: as much as its curvature there, then more."""
        xp = self.objective.xp
        step, bend = moved.weights - best.weights, moved.gradient - best.gradient
        curvature = abs(float(xp.sum(step * bend))) / max(float(xp.sum(step * step)), 1e-300)
        self.pull = max(PULL_GROWTH * self.pull, curvature)


def polisher(
    objective: Objective, tol: float, max_iter: int, *, newton_end: bool = False
) -> Solver:
    """The exact solver for an objective in memory; `select_solver` has the reasons."""
    if suits_active_set(objective):
        return ActiveSet(tol=tol, max_iter=max_iter, newton_end=newton_end)
    return ProjectedGradient(tol=tol, max_iter=max_iter, newton_end=newton_end)
