"""Spectral projected gradient over the simplex, on a shrinking set of members.

Barzilai-Borwein steps with a safeguarded line search (Birgin, Martínez and Raydan 2000), each
projected exactly, so weights become zero and stay exact. After a few passes most members are
out; the rest of the work runs on the survivors' columns alone, and passes over all members only
check that none should come back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sparsebag.objective.objective import Objective
from sparsebag.solvers.base import Solution, Status, Watch, one_blas_thread
from sparsebag.solvers.faces import at_face, next_face, on_face
from sparsebag.solvers.newton import end_by_newton, may_end_with_newton, newton_end
from sparsebag.solvers.point import SMALLEST_BACKTRACK, SUFFICIENT_DECREASE, Point
from sparsebag.solvers.simplex import check_start, project_to_simplex

Array = Any

STEP_BOUNDS = (1e-6, 1e12)
"""Safeguards of the spectral step, as multiples of the first: the loss may have any unit."""
WARM_UP_ITERATIONS = 4
"""Iterations on all members before the first restriction: enough to empty most of them."""
MONOTONE_ITERATIONS = 100
"""Iterations in which every step must descend: a search that may climb is faster on flat ground,
but early on it jumps from one local minimum's basin to another's."""
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
    memory : int, default 10
        How many past values the line search looks back at once the first iterations have
        settled the basin.
    verbose : int, default 0
        Progress on standard error.
    newton_end : bool, default True
        End with Newton steps on the members that are left, where the loss has a second derivative
        and they are few enough (`may_end_with_newton`): the gap stops at the tolerance, the weights
        are known to their sixth digit, wherever the rows are. Of rows that are streamed it takes a
        pass for the Hessian and one or two more; without it the fourth digit is open. Members that
        cannot be told apart in the votes' precision have no such weights and stay as they are.
    """

    tol: float = 1e-5
    max_iter: int = 2000
    memory: int = 10
    verbose: int = 0
    newton_end: bool = True
    name: str = "projected_gradient"
    requires: frozenset[str] = frozenset({"gradient"})

    def solve(self, objective: Objective, start: Array | None = None) -> Solution:
        """Minimise the objective from ``start`` (default: the simplex's centre)."""
        watch = Watch(self.name, self.verbose)
        begin = objective.uniform_weights() if start is None else objective.asarray(start)
        begin = check_start(begin, objective.n_members)
        with one_blas_thread():
            point = Point.at(objective, begin, watch)
            if start is None:
                point = leave_flat_centre(objective, point, watch, objective.goal(self.tol))
            return descend_over_faces(
                objective,
                point,
                watch,
                tol=self.tol,
                max_iter=self.max_iter,
                memory=self.memory,
                ends_with_newton=self.newton_end,
            )


def leave_flat_centre(objective: Objective, point: Point, watch: Watch, goal: float) -> Point:
    """One member, where the centre is stationary and that member is no worse.

    Members that cannot be told apart (all right on every row, say) make the centre stationary;
    with a concave penalty it is then a maximum, and without one a single member does as well.
    """
    if point.gap > goal:
        return point
    xp = objective.xp
    best = xp.argmin(point.gradient)
    vertex = xp.astype(xp.arange(objective.n_members, device=objective.device) == best, xp.float64)
    alone = Point.at(objective, vertex, watch)
    return alone if alone.value <= point.value + goal else point


def descend_over_faces(
    objective: Objective,
    point: Point,
    watch: Watch,
    *,
    tol: float,
    max_iter: int,
    memory: int,
    ends_with_newton: bool = False,
) -> Solution:
    """Alternate descent on the members with weight and checks over all members."""
    xp = objective.xp
    goal = objective.goal(tol)
    descent = SpectralDescent(watch, memory)
    status = Status.MAX_ITERATIONS
    allowed = WARM_UP_ITERATIONS
    face = None
    try:
        while watch.n_iterations < max_iter:
            allowed = min(allowed, max_iter - watch.n_iterations)
            before, is_exact = point, not ends_with_newton
            if face is None or not objective.can_hold(face.shape[0]):
                face = None
                point = descent.run(objective, point, goal, allowed)
            else:
                restricted = objective.restrict(face)
                inner = descent.run(restricted, on_face(point, face), goal / 2, allowed)
                if not is_exact and not descent.interrupted and inner.gap <= goal / 2:
                    is_exact = True  # most faces that get here are the last
                    if may_end_with_newton(objective, int(face.shape[0])):
                        inner = newton_end(restricted, inner, watch)
                point = at_face(objective, face, inner.weights, watch)
            if descent.interrupted:
                status = Status.INTERRUPTED
                break
            if point.gap <= goal:
                status = Status.CONVERGED
                if not is_exact:
                    point = end_by_newton(objective, point, watch, goal)
                break
            if descent.stalled and point.value >= before.value - objective.rounding:
                status = Status.STALLED
                break
            face = next_face(point, xp)
            allowed = ITERATIONS_PER_FACE
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    return watch.solution(point.weights, point.value, point.gradient, status)


class SpectralDescent:
    """Projected spectral steps; remembers its step length from face to face.

    Parameters
    ----------
    watch : Watch
    memory : int
        How many past values the line search looks back at.
    """

    def __init__(self, watch: Watch, memory: int) -> None:
        self.watch = watch
        self.memory = memory
        self.step: float | None = None
        self.first_step = 1.0
        self.stalled = False
        self.interrupted = False

    def run(self, objective: Objective, point: Point, goal: float, max_iter: int) -> Point:
        """Descend until the gap meets the goal, no step helps, or the iterations are used."""
        self.stalled = False
        history = [point.value]
        try:
            for _ in range(max_iter):
                n_active = int(objective.xp.count_nonzero(point.weights))
                self.watch.iteration(point.value, point.gap, n_active)
                if point.gap <= goal:
                    break
                window = 1 if self.watch.n_iterations <= MONOTONE_ITERATIONS else self.memory
                moved = self._step(objective, point, max(history[-window:]))
                if moved is None:
                    self.stalled, self.step = True, None
                    break
                point = moved
                history.append(point.value)
        except KeyboardInterrupt:
            self.interrupted = True
        return point

    def _step(self, objective: Objective, point: Point, ceiling: float) -> Point | None:
        xp = objective.xp
        if self.step is None:
            # The first step moves no weight by more than the average weight.
            spread = float(xp.max(point.gradient) - xp.min(point.gradient))
            self.first_step = self.step = 1.0 / (point.weights.shape[0] * spread)
        trial = project_to_simplex(point.weights - self.step * point.gradient)
        moved = _line_search(objective, point, trial - point.weights, ceiling, self.watch)
        if moved is not None:
            self._update_step(moved.weights - point.weights, moved.gradient - point.gradient, xp)
        return moved

    def _update_step(self, s: Array, y: Array, xp: Any) -> None:
        """Barzilai and Borwein's long step."""
        assert self.step is not None
        bend = float(xp.sum(s * y))
        # Negative curvature: the concave penalty rules, so go further.
        step = float(xp.sum(s * s)) / bend if bend > 0 else 2.0 * self.step
        low, high = (bound * self.first_step for bound in STEP_BOUNDS)
        self.step = min(max(step, low), high)


def _line_search(
    objective: Objective, point: Point, direction: Array, ceiling: float, watch: Watch
) -> Point | None:
    """Backtrack by safeguarded quadratic interpolation; None when no step is accepted."""
    xp = objective.xp
    slope = float(xp.sum(point.gradient * direction))
    length = 1.0
    if slope >= 0.0:
        return None
    while length >= SMALLEST_BACKTRACK:
        trial = xp.clip(point.weights + length * direction, min=0.0)
        moved = Point.at(objective, trial, watch)
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
