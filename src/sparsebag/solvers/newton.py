"""Newton steps on a face of the simplex, and the end they make of a descent.

A gap that meets the tolerance says that little can be gained, not that the weights are known: where
the objective is flat, a gap of 1e-5 leaves their fifth digit open, and it then depends on the order
of the rows, or on how a cluster cuts them. A Newton step or two on a few dozen members settle it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_factor

from sparsebag.evidence.arrays import on_host
from sparsebag.objective.objective import Objective
from sparsebag.solvers.base import Point, SolveLog
from sparsebag.solvers.simplex import simplex_qp

Array = Any

LARGEST_FACE = 300
"""Members a dense Hessian may span; above it spectral steps go on emptying members."""
CHEAP_FACE = 100
"""Members whose Hessian is little beside a descent's passes, whatever the number of members."""
SUFFICIENT_DECREASE = 1e-4
"""Armijo's constant, the usual value."""
SMALLEST_BACKTRACK = 1e-10
"""A line search that shrinks below this cannot lower the objective in this precision."""


def newton_end(
    objective: Objective, point: Point, log: SolveLog, goal: float, most_steps: int = 4
) -> Point:
    """Newton steps by one Hessian, on the members with weight and those that ask for some.

    Members that cannot be told apart make the Hessian singular and leave a gap that is all
    rounding: only a point of a smaller gap is taken.

    Parameters
    ----------
    objective : Objective
        Of all members.
    point : Point
        Whose gap meets the goal.
    log : SolveLog
    goal : float
        Gap over all members that the end has to meet as well.
    most_steps : int, default 4
        By one Hessian: near the minimum it hardly changes.

    Returns
    -------
    Point
        The same, where no step makes it better or a Hessian would cost too much.
    """
    face = point.next_face()
    largest = min(LARGEST_FACE, max(CHEAP_FACE, 4 * int(objective.n_members**0.5)))
    is_smooth = "hessian" in objective.provides and objective.is_well_posed
    is_done = point.gap <= 1e-10 * objective.scale  # what is left may be all rounding
    if is_done or not is_smooth or not 1 < face.shape[0] <= largest:
        return point
    is_whole = face.shape[0] == objective.n_members
    part, inner = objective if is_whole else objective.restrict(face), point.on(face)
    hessian = positive_definite(part, inner, log)
    if hessian is None:
        return point
    begin = best = inner
    highest = point.value + objective.rounding
    for _ in range(most_steps):
        weights, gradient = on_host(inner.weights), on_host(inner.gradient)
        linear = gradient - hessian @ weights
        target = simplex_qp(hessian, linear, weights, objective.goal(0.0))
        if not np.abs(target - weights).max() > 1e-7:  # the sixth digit is known, or it is NaN
            break
        try:
            moved = Point.at(part, objective.asarray(target), log)
        except FloatingPointError:  # it was finite where the step began
            break
        if moved.value > highest:
            break
        inner = moved  # a long step may leave a gap that the next one closes
        best = min(best, moved, key=lambda p: p.gap)
    if best is begin:
        return point
    ended = best if is_whole else point.moved_on(face, best, objective, log)
    return ended if ended.gap <= goal else point


def newton_step(objective: Objective, point: Point, log: SolveLog) -> Point | None:
    """One quadratic programme and a monotone search along its step; None if nothing is lower."""
    xp = objective.xp
    weights, gradient = on_host(point.weights), on_host(point.gradient)
    hessian = positive_definite(objective, point, log)
    if hessian is None:
        return None
    target = simplex_qp(hessian, gradient - hessian @ weights, weights)
    if not np.isfinite(target).all():
        return None
    direction = objective.asarray(target - weights)
    slope = float(xp.sum(point.gradient * direction))
    length = 1.0
    while slope < 0 and length >= SMALLEST_BACKTRACK:
        trial = xp.clip(point.weights + length * direction, min=0.0)
        moved = Point.at(objective, trial, log)
        enough = point.value + SUFFICIENT_DECREASE * length * slope
        flat = moved.value <= point.value + objective.rounding
        if moved.value <= enough or (flat and moved.gap < 0.5 * point.gap):
            return moved
        length *= 0.3
    return None


def positive_definite(objective: Objective, point: Point, log: SolveLog) -> np.ndarray | None:
    """The Hessian, shifted just enough that Cholesky succeeds; None where it is not finite.

    Steps on the simplex sum to zero, so a multiple of the all-ones matrix costs nothing there
    and removes the curvature across the simplex, which is never positive.

    Parameters
    ----------
    objective : Objective
    point : Point
        The gradient's size is the unit of a shift where there is no curvature at all: members that
        are copies of one another have none.
    log : SolveLog
        Counts the Hessian, which is a pass like any other.

    Returns
    -------
    ndarray of shape (N, N) or None
    """
    hessian, gradient = on_host(objective.hessian(point.weights)), on_host(point.gradient)
    log.count(objective)
    with np.errstate(over="ignore", invalid="ignore"):
        hessian = hessian + float(np.abs(hessian).max())
        mean_curvature = float(np.abs(np.diag(hessian)).mean())
    if not np.isfinite(hessian).all() or not np.isfinite(mean_curvature):
        return None
    limits = np.finfo(float)
    shift = max(1e-10 * mean_curvature, limits.eps * float(np.abs(gradient).max()))
    shift = max(shift, limits.tiny / limits.eps)
    while np.isfinite(shift):
        shifted = hessian + shift * np.eye(len(hessian))
        try:
            cho_factor(shifted, check_finite=False)
            return shifted
        except LinAlgError:
            shift *= 10.0
    return None
