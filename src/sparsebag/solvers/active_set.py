"""Second order: sequential quadratic programming on the members that have weight.

Spectral steps first empty most members; then each iteration builds the exact Hessian on those that
are left and the newcomers that ask loudest, makes it positive definite, solves the quadratic
programme over the simplex and searches along its step, so the objective never rises.

With prior mass τ = 0 (the paper's problem) the loss jumps where a row loses its last
out-of-bag member. The solver then follows the minimiser as τ shrinks, and gives a small weight to
the members that serve the rows left without a vote, for as long as that lowers the objective.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sparsebag.objective.objective import Objective
from sparsebag.solvers.base import Point, Solution, SolveLog, Status, one_blas_thread
from sparsebag.solvers.newton import LARGEST_FACE, newton_end, newton_step
from sparsebag.solvers.projected_gradient import WARM_UP_ITERATIONS, SpectralDescent

Array = Any

PRIOR_MASS_PATH = (1e-2, 1e-6, 1e-10)
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
    newton_end : bool, default True
        End with Newton steps by one Hessian on the members that are left, as `ProjectedGradient`
        does and for the same reason: the weights are then known to their sixth digit.
    """

    tol: float = 1e-6
    max_iter: int = 500
    newton_end: bool = True
    name: str = "active_set"
    requires: frozenset[str] = frozenset({"gradient", "hessian"})

    def solve(self, objective: Objective, start: Array | None = None) -> Solution:
        """Minimise the objective from ``start`` (default: the simplex's centre)."""
        log = SolveLog(self.name)
        with one_blas_thread():
            if start is None and objective.is_convex:
                start = champions(objective)
            point = Point.start(objective, start, log, self.tol)
            if not objective.is_well_posed:
                point, status = self._follow_prior_mass(objective, point, log)
                return log.solution(point, status)
            point, status = self._descend(objective, point, log)
            if self.newton_end and status is Status.CONVERGED and not log.interrupted:
                with log.catch_interrupt():
                    point = newton_end(objective, point, log, objective.goal(self.tol))
        return log.solution(point, status)

    def _follow_prior_mass(
        self, objective: Objective, best: Point, log: SolveLog
    ) -> tuple[Point, Status]:
        weights = best.weights
        with log.catch_interrupt():
            for prior_mass in PRIOR_MASS_PATH:
                softened = objective.with_prior_mass(prior_mass)
                point, status = self._descend(softened, Point.at(softened, weights, log), log)
                weights = point.weights
                covered = cover_rows(objective, weights, log)
                best = covered if covered.value < best.value else best
                if log.interrupted or status is Status.MAX_ITERATIONS:
                    return best, status
        return best, Status.OWN_TEST

    def _descend(self, objective: Objective, point: Point, log: SolveLog) -> tuple[Point, Status]:
        goal = objective.goal(self.tol)
        spectral = SpectralDescent(log)
        needs_spectral = not objective.is_convex
        with log.catch_interrupt():
            while point.gap > goal and log.n_iterations < self.max_iter and not log.interrupted:
                before, face = point, point.next_face()
                takes_newton = face.shape[0] <= LARGEST_FACE and not needs_spectral
                if takes_newton:
                    inner = _newton_steps(objective.restrict(face), point.on(face), log, goal / 2)
                    point = point.moved_on(face, inner, objective, log)
                needs_spectral = False
                if point.value < before.value - objective.rounding or point.gap <= goal:
                    continue
                allowed = min(WARM_UP_ITERATIONS, self.max_iter - log.n_iterations)
                point = spectral.run(objective, point, goal, allowed)
                is_lower = point.value < before.value - objective.rounding
                if not is_lower and point.gap > goal and (takes_newton or spectral.stalled):
                    return point, Status.STALLED
        return point, Status.CONVERGED if point.gap <= goal else Status.MAX_ITERATIONS


def _newton_steps(objective: Objective, point: Point, log: SolveLog, goal: float) -> Point:
    """Three steps on a face: more are better spent on one that all members have been asked for."""
    with log.catch_interrupt():
        for _ in range(3):
            log.iteration(point)
            moved = newton_step(objective, point, log) if point.gap > goal else None
            if moved is None:
                break
            point = moved
    return point


def why_active_set(objective: Objective) -> str:
    """Why first-order steps would take thousands of iterations where Newton steps take dozens.

    Mixtures of held-out votes are ill-conditioned; so is squared error, mask or not, whose members'
    errors differ in size by far more than probabilities can, while a Hessian of all of them is
    still small. Without prior mass nothing else of ours gets anywhere.

    Parameters
    ----------
    objective : Objective

    Returns
    -------
    str
        Empty where they would not, or Newton steps cannot be taken.
    """
    if "hessian" not in objective.provides:
        return ""
    if not objective.is_well_posed:
        return "without prior mass a row can lose its last member"
    if not objective.has_mask:
        return "held-out votes make an ill-conditioned mixture problem"
    is_stiff = objective.loss.channel == "prediction" and objective.n_members <= LARGEST_FACE
    return "regression errors make an ill-conditioned problem" if is_stiff else ""


def champions(objective: Objective, most: int = 30) -> Array:
    """Weights on the members that are best on most rows, by how many rows those are.

    A convex problem starts from these ``most``: where any start leads to the same minimum, growing
    a small face to the answer beats shrinking a large one.
    """
    xp = objective.xp
    counts = objective.rows_won()
    threshold = xp.sort(counts)[max(0, counts.shape[0] - most)]
    weights = xp.where(counts >= xp.maximum(threshold, xp.ones_like(threshold)), counts, 0 * counts)
    return weights / xp.sum(weights)


def cover_rows(objective: Objective, weights: Array, log: SolveLog) -> Point:
    """Drop dust, then let in, one by one, the member that serves most rows without a vote.

    Such rows dwarf all others in the gradient, so its least entry names that member. A row that
    only dust serves would be without a vote once the paper's threshold has dropped the dust.
    """
    xp = objective.xp
    weights = xp.where(weights > COVER_WEIGHT / 10, weights, 0.0 * weights)
    point = Point.at(objective, weights / xp.sum(weights), log)
    for _ in range(objective.n_members):
        member = int(xp.argmin(point.gradient))
        covered = point.with_weight(objective, member, COVER_WEIGHT, log)
        if covered.value >= point.value - objective.rounding:
            break
        point = covered
    return point
