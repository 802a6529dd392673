"""Second order: sequential quadratic programming on the members that have weight.

Spectral steps first empty most members; then each iteration builds the exact Hessian on the
survivors and the loudest newcomers, makes it positive definite, solves the quadratic programme
over the simplex and searches along its step, so the objective never rises.

With prior mass τ = 0 (the paper's problem) the loss jumps where a row loses its last
out-of-bag voter. The solver then follows the minimiser as τ shrinks, and gives a small weight to
the members that serve the rows left without a vote, for as long as that lowers the objective.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sparsebag.objective.objective import Objective
from sparsebag.solvers.base import Solution, Status, Watch, one_blas_thread
from sparsebag.solvers.faces import next_face
from sparsebag.solvers.newton import (
    LARGEST_FACE,
    end_by_newton,
    may_end_with_newton,
    newton_end,
    newton_step,
)
from sparsebag.solvers.point import Point
from sparsebag.solvers.projected_gradient import SpectralDescent, leave_flat_centre
from sparsebag.solvers.simplex import check_start

Array = Any

SPECTRAL_ITERATIONS = 7
"""Spectral steps before each attempt at a Hessian."""
NEWTON_STEPS_PER_FACE = 8
INNER_SHARE = 0.01
"""Newton steps on one face before all members are looked at again: at most so many, or until
the gap there is this share of the gap over all members."""
NEWCOMERS_SHARE = 0.05
"""Weight offered to all newcomers of a face together."""
FIRST_MEMBERS = 30
"""Members a convex problem starts from: where any start leads to the same minimum, growing a
small face to the answer beats shrinking a large one."""
PRIOR_MASS_PATH = (1e-2, 1e-4, 1e-6, 1e-8, 1e-10)
"""τ on the way to the ill-posed problem."""
COVER_WEIGHT = 1e-4
"""Weight of a member that enters to serve rows without a vote: above what the paper drops."""


@dataclass(frozen=True)
class ActiveSet:
    """Newton steps on the support.

    Parameters
    ----------
    tol : float, default 1e-6
        Stop when the stationarity gap is below ``tol`` times the objective's scale.
    max_iter : int, default 500
        Iteration limit, spectral steps included.
    verbose : int, default 0
        Progress on standard error.
    newton_end : bool, default True
        End with Newton steps by one Hessian on the members that are left, as `ProjectedGradient`
        does and for the same reason: the weights are then known to their sixth digit.
    """

    tol: float = 1e-6
    max_iter: int = 500
    verbose: int = 0
    newton_end: bool = True
    name: str = "active_set"
    requires: frozenset[str] = frozenset({"gradient", "hessian"})

    def solve(self, objective: Objective, start: Array | None = None) -> Solution:
        """Minimise the objective from ``start`` (default: the simplex's centre)."""
        with one_blas_thread():
            return self._solve(objective, start)

    def _solve(self, objective: Objective, start: Array | None) -> Solution:
        watch = Watch(self.name, self.verbose)
        begin = objective.uniform_weights() if start is None else objective.asarray(start)
        weights = check_start(begin, objective.n_members)
        if objective.is_well_posed:
            if start is None and objective.is_convex:
                weights = champions(objective)
            point = Point.at(objective, weights, watch)
            if start is None:
                point = leave_flat_centre(objective, point, watch, objective.goal(self.tol))
            point, status = self._descend(objective, point, watch, self.newton_end)
            return watch.solution(point.weights, point.value, point.gradient, status)
        return self._follow_prior_mass(objective, weights, watch)

    def _follow_prior_mass(self, objective: Objective, weights: Array, watch: Watch) -> Solution:
        best = Point.at(objective, weights, watch)
        status = Status.OWN_TEST
        try:
            for prior_mass in PRIOR_MASS_PATH:
                softened = objective.with_prior_mass(prior_mass)
                point = Point.at(softened, weights, watch)
                point, ended = self._descend(softened, point, watch, ends_with_newton=False)
                weights = point.weights
                candidate = cover_rows(objective, weights, watch)
                best = candidate if candidate.value < best.value else best
                if ended in (Status.INTERRUPTED, Status.MAX_ITERATIONS):
                    status = ended
                    break
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
        return watch.solution(best.weights, best.value, best.gradient, status)

    def _descend(
        self, objective: Objective, point: Point, watch: Watch, ends_with_newton: bool
    ) -> tuple[Point, Status]:
        point, status, is_exact = self._descend_to_goal(objective, point, watch, ends_with_newton)
        if status is Status.CONVERGED and not is_exact:
            try:
                point = end_by_newton(objective, point, watch, objective.goal(self.tol))
            except KeyboardInterrupt:
                status = Status.INTERRUPTED
        return point, status

    def _descend_to_goal(
        self, objective: Objective, point: Point, watch: Watch, ends_with_newton: bool
    ) -> tuple[Point, Status, bool]:
        """The last: whether the Newton end has been made, or is not wanted."""
        xp, max_iter = objective.xp, self.max_iter
        is_exact = not ends_with_newton
        goal = objective.goal(self.tol)
        spectral = SpectralDescent(watch, memory=1)
        first = not objective.is_convex
        try:
            while watch.n_iterations < max_iter:
                if point.gap <= goal:
                    return point, Status.CONVERGED, is_exact
                before = point
                face = next_face(point, xp)
                if first or face.shape[0] > LARGEST_FACE:
                    first = False
                    allowed = min(SPECTRAL_ITERATIONS, max_iter - watch.n_iterations)
                    point, is_exact = (
                        spectral.run(objective, point, goal, allowed),
                        not ends_with_newton,
                    )
                    if spectral.interrupted:
                        return point, Status.INTERRUPTED, is_exact
                    if spectral.stalled and face.shape[0] > LARGEST_FACE:
                        return point, Status.STALLED, is_exact
                    continue
                point, interrupted, is_exact = self._newton_on_face(
                    objective, point, face, watch, goal, ends_with_newton
                )
                if interrupted:
                    return point, Status.INTERRUPTED, is_exact
                if point.value >= before.value - objective.rounding and point.gap > goal:
                    point = spectral.run(objective, point, goal, SPECTRAL_ITERATIONS)
                    is_exact = not ends_with_newton
                    if point.gap <= goal:
                        return point, Status.CONVERGED, is_exact
                    if point.value >= before.value - objective.rounding:
                        return point, Status.STALLED, is_exact
        except KeyboardInterrupt:
            return point, Status.INTERRUPTED, is_exact
        status = Status.CONVERGED if point.gap <= goal else Status.MAX_ITERATIONS
        return point, status, is_exact

    def _newton_on_face(
        self,
        objective: Objective,
        point: Point,
        face: Array,
        watch: Watch,
        goal: float,
        ends_with_newton: bool,
    ) -> tuple[Point, bool, bool]:
        """The point, whether it was interrupted, whether it needs no Newton end any more."""
        xp = objective.xp
        is_exact = not ends_with_newton
        restricted = objective.restrict(face)
        inner = Point(point.weights[face], point.value, point.gradient[face])
        interrupted = False
        try:
            inner = welcome_newcomers(restricted, inner, watch)
            for _ in range(NEWTON_STEPS_PER_FACE):
                watch.iteration(inner.value, inner.gap, int(xp.count_nonzero(inner.weights)))
                if inner.gap <= max(goal / 2, INNER_SHARE * point.gap):
                    break
                moved = newton_step(restricted, inner, watch)
                if moved is None:
                    break
                inner = moved
            if not is_exact and inner.gap <= goal / 2:  # most faces that get here are the last
                is_exact = True
                if may_end_with_newton(objective, int(face.shape[0])):
                    inner = newton_end(restricted, inner, watch)
        except KeyboardInterrupt:
            interrupted = True
        weights = xp.zeros_like(point.weights)
        weights[face] = inner.weights
        return Point.at(objective, weights, watch), interrupted, is_exact


def suits_active_set(objective: Objective) -> bool:
    """Whether first-order steps would take thousands of iterations where Newton steps take dozens.

    Mixtures of held-out votes are ill-conditioned; so is squared error, mask or not, whose members'
    errors differ in size by far more than probabilities can, while a Hessian of all of them is
    still small. Without prior mass nothing else of ours gets anywhere.

    Parameters
    ----------
    objective : Objective

    Returns
    -------
    bool
    """
    if "hessian" not in objective.provides:
        return False
    is_stiff = objective.loss.channel == "prediction" and objective.n_members <= LARGEST_FACE
    return is_stiff or not objective.is_well_posed or not objective.has_mask


def champions(objective: Objective) -> Array:
    """Weights on the members that are best on most rows, by how many rows those are."""
    xp = objective.xp
    counts = objective.rows_won()
    threshold = xp.sort(counts)[max(0, counts.shape[0] - FIRST_MEMBERS)]
    weights = xp.where(counts >= xp.maximum(threshold, xp.ones_like(threshold)), counts, 0 * counts)
    return weights / xp.sum(weights)


def cover_rows(objective: Objective, weights: Array, watch: Watch) -> Point:
    """Drop dust, then let in, one by one, the member that serves most rows without a vote.

    Such rows dwarf all others in the gradient, so its least entry names that member. A row that
    only dust serves would be without a vote once the paper's threshold has dropped the dust.
    """
    xp = objective.xp
    weights = xp.where(weights > COVER_WEIGHT / 10, weights, 0.0 * weights)
    point = Point.at(objective, weights / xp.sum(weights), watch)
    for _ in range(objective.n_members):
        member = xp.argmin(point.gradient)
        chosen = xp.arange(objective.n_members, device=objective.device) == member
        weights = (1.0 - COVER_WEIGHT) * point.weights + COVER_WEIGHT * xp.astype(
            chosen, xp.float64
        )
        covered = Point.at(objective, weights, watch)
        if covered.value >= point.value - objective.rounding:
            break
        point = covered
    return point


def welcome_newcomers(objective: Objective, point: Point, watch: Watch) -> Point:
    """Give members without weight an equal share, if that lowers the objective.

    A row that only newcomers serve has a likelihood near zero, from which Newton steps on a
    logarithm do no more than double it.
    """
    xp = objective.xp
    new = xp.astype(point.weights == 0, xp.float64)
    n_new = float(xp.sum(new))
    if n_new == 0.0:
        return point
    shared = (1.0 - NEWCOMERS_SHARE) * point.weights + NEWCOMERS_SHARE * new / n_new
    candidate = Point.at(objective, shared, watch)
    return candidate if candidate.value < point.value else point
