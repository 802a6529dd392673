"""Spectral projected gradient over the simplex, on a shrinking set of members.

Barzilai-Borwein steps with a safeguarded line search (Birgin, Martínez and Raydan 2000), each
projected exactly, so weights become zero and stay exact. After a few passes most members are
out; the rest of the work runs on the columns of those that are left, and passes over all members
only check that none should come back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sparsebag.objective.objective import Objective
from sparsebag.solvers.base import Point, Solution, SolveLog, Status, one_blas_thread
from sparsebag.solvers.newton import SMALLEST_BACKTRACK, SUFFICIENT_DECREASE, newton_end
from sparsebag.solvers.simplex import project_to_simplex

Array = Any

LONGEST_STEP = 1e12
"""Largest spectral step, as a multiple of the first: the loss may have any unit."""
WARM_UP_ITERATIONS = 7
"""Iterations on all members before the first restriction: enough to empty most of them."""
ITERATIONS_PER_FACE = 25
"""Iterations on one face before all members are looked at again."""


@dataclass(frozen=True)
class ProjectedGradient:
    """Spectral projected gradient; runs on any array namespace.

    Parameters
    ----------
    tol : float, default 1e-5
        Stop when the stationarity gap is below ``tol`` times the objective's scale. The gap
        bounds the excess loss where the objective is convex; in practice that is a hundredth.
    max_iter : int, default 2000
        Iteration limit, over all faces.
    newton_end : bool, default True
        End with Newton steps on the members that are left, where the loss has a second derivative
        and they are few enough: the weights are then known to their sixth digit, wherever the rows
        are. Without it the fourth digit is open. Of rows that are streamed it takes a pass for the
        Hessian and two or three more.
    """

    tol: float = 1e-5
    max_iter: int = 2000
    newton_end: bool = True
    name: str = "projected_gradient"
    requires: frozenset[str] = frozenset({"gradient"})

    def solve(self, objective: Objective, start: Array | None = None) -> Solution:
        """Minimise the objective from ``start`` (default: the simplex's centre)."""
        log, status = SolveLog(self.name), Status.MAX_ITERATIONS
        with one_blas_thread():
            point = Point.start(objective, start, log, self.tol)
            goal = objective.goal(self.tol)
            descent = SpectralDescent(log)
            face, allowed = None, WARM_UP_ITERATIONS
            with log.catch_interrupt():
                while log.n_iterations < self.max_iter and not log.interrupted:
                    allowed = min(allowed, self.max_iter - log.n_iterations)
                    before = point
                    if face is None or not objective.can_hold(face.shape[0]):
                        point = descent.run(objective, point, goal, allowed)
                    else:
                        part = objective.restrict(face)
                        inner = descent.run(part, point.on(face), goal / 2, allowed)
                        point = point.moved_on(face, inner, objective, log)
                    if point.gap <= goal:
                        status = Status.CONVERGED
                        if self.newton_end and not log.interrupted:
                            point = newton_end(objective, point, log, goal)
                        break
                    if descent.stalled and point.value >= before.value - objective.rounding:
                        status = Status.STALLED
                        break
                    face, allowed = point.next_face(), ITERATIONS_PER_FACE
        return log.solution(point, status)


class SpectralDescent:
    """Projected spectral steps; remembers its step length from face to face.

    Parameters
    ----------
    log : SolveLog
    """

    def __init__(self, log: SolveLog) -> None:
        self.log = log
        self.step: float | None = None
        self.first_step = 1.0
        self.stalled = False

    def run(self, objective: Objective, point: Point, goal: float, max_iter: int) -> Point:
        """Descend until the gap meets the goal, no step helps, or the iterations are used."""
        self.stalled, values = False, []
        with self.log.catch_interrupt():
            for _ in range(max_iter):
                self.log.iteration(point)
                if point.gap <= goal:
                    break
                values.append(point.value)
                # A search that may climb is faster on flat ground, but early on it jumps from one
                # local minimum's basin to another's: it looks back a tenth of the way so far.
                look_back = 1 + self.log.n_iterations // 10
                moved = self._step(objective, point, max(values[-look_back:]))
                if moved is None:
                    self.stalled, self.step = True, None
                    break
                point = moved
        return point

    def _step(self, objective: Objective, point: Point, ceiling: float) -> Point | None:
        xp = objective.xp
        if self.step is None:
            # The first step moves no weight by more than the average weight.
            spread = float(xp.max(point.gradient) - xp.min(point.gradient))
            self.first_step = self.step = 1.0 / (point.weights.shape[0] * spread)
        trial = project_to_simplex(point.weights - self.step * point.gradient)
        moved = _line_search(objective, point, trial - point.weights, ceiling, self.log)
        if moved is not None:
            s, y = moved.weights - point.weights, moved.gradient - point.gradient
            bend = float(xp.sum(s * y))
            # Barzilai and Borwein's long step. Negative curvature: the concave penalty rules, so
            # go further.
            step = float(xp.sum(s * s)) / bend if bend > 0 else 2.0 * self.step
            self.step = min(step, LONGEST_STEP * self.first_step)
        return moved


def _line_search(
    objective: Objective, point: Point, direction: Array, ceiling: float, log: SolveLog
) -> Point | None:
    """Backtrack by safeguarded quadratic interpolation; None when no step is accepted."""
    xp = objective.xp
    slope = float(xp.sum(point.gradient * direction))
    length = 1.0
    if slope >= 0.0:
        return None
    while length >= SMALLEST_BACKTRACK:
        trial = xp.clip(point.weights + length * direction, min=0.0)
        moved = Point.at(objective, trial, log)
        if moved.value <= ceiling + SUFFICIENT_DECREASE * length * slope:
            return moved
        # Near the end the decrease drowns in rounding; the slope at the trial, which does not,
        # then decides (the approximate Wolfe test of Hager and Zhang 2005).
        flat = moved.value <= point.value + objective.rounding
        new_slope = float(xp.sum(moved.gradient * direction))
        if flat and new_slope <= (2 * SUFFICIENT_DECREASE - 1) * slope:
            return moved
        excess = moved.value - point.value - length * slope
        guess = -0.5 * slope * length**2 / excess if excess > 0 else 0.5 * length
        length = min(max(guess, 0.1 * length), 0.5 * length)
    return None
