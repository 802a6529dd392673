"""Newton steps on the members that have weight: to where only rounding is left.

A gap that meets the tolerance says that little can be gained, not that the weights are known: where
the objective is flat, a gap of 1e-5 leaves their fifth digit open, and it then depends on the order
of the rows, or on how a cluster cuts them. A Newton step or two on a few dozen members settle it.

Members that cannot be told apart make the Hessian singular and leave a gap that is all rounding. A
step there means nothing, so no step is taken that lets members in for the sake of rounding, and
none that ends anywhere but lower or level.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_factor

from sparsebag.evidence.arrays import on_host
from sparsebag.objective.objective import Objective
from sparsebag.solvers.base import Watch
from sparsebag.solvers.faces import at_face, next_face, on_face
from sparsebag.solvers.point import SMALLEST_BACKTRACK, SUFFICIENT_DECREASE, Point
from sparsebag.solvers.simplex_qp import simplex_qp

Array = Any

LARGEST_FACE = 300
"""Members a dense Hessian may span; above it spectral steps go on emptying members."""
FIRST_SHIFT = 1e-10
"""First multiple of the mean curvature added to an indefinite Hessian; then tenfold."""
END_STEPS = 4
"""Steps a descent may end with, all by one Hessian: near the minimum it hardly changes."""
END_MOVE = 1e-8
STREAMED_END_MOVE = 2e-7
"""A step that moves no weight by more is not taken: the sixth digit of all of them is known. Where
rows are streamed it would cost a pass, and the seventh digit is not worth one."""
END_GAP = 1e-10
"""A gap, relative to the loss's scale, that no step need lower."""
LEAST_ASK = 4
"""A member enters at the end if its slope asks for weight by more than this many roundings."""
MOST_FOR_NOTHING = 1e-3
"""Weight that members may be let in with where all is gained that rounding is. One that differs
from the rest needs less to meet what it asks for; copies of one another take a share each."""
CHEAP_PRODUCTS = 2e8
PRODUCTS_A_VOTE = 15
"""What that Hessian may cost, M k² products for k members: little in itself, or beside a descent's
passes over all N members, of M N votes each."""


def may_end_with_newton(objective: Objective, n_members: int) -> bool:
    """Whether a Hessian on so many members is there to be had, at little cost.

    Parameters
    ----------
    objective : Objective
        Of all members.
    n_members : int

    Returns
    -------
    bool
    """
    smooth = "hessian" in objective.provides and objective.is_well_posed
    products = objective.n_rows * n_members**2
    allowed = max(CHEAP_PRODUCTS, PRODUCTS_A_VOTE * objective.n_rows * objective.n_members)
    return smooth and 1 < n_members <= LARGEST_FACE and products <= allowed


def end_by_newton(
    objective: Objective, point: Point, watch: Watch, goal: float, most_steps: int = END_STEPS
) -> Point:
    """Newton steps on the members with weight and those that ask for some.

    Their columns are copied where that is allowed. Where it is not, the Hessian takes one pass over
    the rows, wherever they are, and so does each point it leads to: two or three passes in all.

    Parameters
    ----------
    objective : Objective
        Of all members.
    point : Point
        Whose gap meets the goal.
    watch : Watch
    goal : float
        Gap over all members that the end has to meet as well.
    most_steps : int, default 4

    Returns
    -------
    Point
        The same, where no step makes it better or a Hessian would cost too much.
    """
    face = next_face(point, objective.xp)
    n_members = int(face.shape[0])
    if not may_end_with_newton(objective, n_members):
        return point
    if n_members < objective.n_members and objective.can_hold(n_members):
        inner = on_face(point, face)
        ended = newton_end(objective.restrict(face), inner, watch, most_steps=most_steps)
        moved = point if ended is inner else at_face(objective, face, ended.weights, watch)
    else:
        moved = newton_end(objective, point, watch, face, most_steps)
    return moved if moved.gap <= goal else point


def newton_end(
    objective: Objective,
    point: Point,
    watch: Watch,
    face: Array | None = None,
    most_steps: int = END_STEPS,
) -> Point:
    """Newton steps from a point near the minimum, by the Hessian there.

    Parameters
    ----------
    objective : Objective
    point : Point
    watch : Watch
    face : array of indices, optional
        Members that take part, all those with weight among them; default: all of the objective's.
    most_steps : int, default 4

    Returns
    -------
    Point
        The same, where no step makes the gap smaller: never higher by more than rounding, and never
        with members let in that rounding alone asks for.
    """
    if point.gap <= END_GAP * objective.scale:
        return point
    if face is None:
        face = objective.xp.arange(objective.n_members, device=objective.device)
    highest = point.value + objective.rounding
    least_move = STREAMED_END_MOVE if objective.is_streamed else END_MOVE
    hessian = _hessian(objective, face, point, watch)
    if hessian is None:
        return point
    for _ in range(most_steps):
        inside = on_face(point, face)
        weights = on_host(inside.weights)
        target = _target(hessian, on_host(inside.gradient), weights, objective.rounding)
        step = float(np.abs(target - weights).max())
        if not np.isfinite(target).all() or step <= least_move:
            break
        try:
            moved = at_face(objective, face, objective.asarray(target), watch)
        except FloatingPointError:  # it was finite where the step began
            break
        if moved.gap >= point.gap or moved.value > highest:
            break
        point = moved
    return point


def newton_step(objective: Objective, point: Point, watch: Watch) -> Point | None:
    """One quadratic programme and a monotone search along its step; None if nothing is lower."""
    xp = objective.xp
    weights, gradient = on_host(point.weights), on_host(point.gradient)
    hessian = positive_definite(on_host(watch.hessian(objective, point.weights)), gradient)
    if hessian is None:
        return None
    target = simplex_qp(hessian, gradient - hessian @ weights, weights)
    if not np.isfinite(target).all():
        return None
    direction = objective.asarray(target - weights)
    slope = float(xp.sum(point.gradient * direction))
    length = 1.0
    while slope < 0 and length >= SMALLEST_BACKTRACK:
        trial = point.weights + length * direction
        trial = xp.where(trial > 0, trial, 0.0 * trial)
        moved = Point.at(objective, trial, watch)
        enough = point.value + SUFFICIENT_DECREASE * length * slope
        flat = moved.value <= point.value + objective.rounding
        if moved.value <= enough or (flat and moved.gap < 0.5 * point.gap):
            return moved
        length *= 0.3
    return None


def positive_definite(hessian: np.ndarray, gradient: np.ndarray) -> np.ndarray | None:
    """The Hessian, shifted just enough that Cholesky succeeds; None where it is not finite.

    Steps on the simplex sum to zero, so a multiple of the all-ones matrix costs nothing there
    and removes the curvature across the simplex, which is never positive.

    Parameters
    ----------
    hessian : ndarray of shape (n, n)
    gradient : ndarray of shape (n,)
        Its size is the unit of a shift where there is no curvature at all: members that are copies
        of one another have none.

    Returns
    -------
    ndarray of shape (n, n) or None

    Examples
    --------
    >>> float(positive_definite(np.zeros((2, 2)), np.array([1.0, 3.0]))[0, 0]) > 0
    True
    """
    size = len(hessian)
    with np.errstate(over="ignore", invalid="ignore"):
        hessian = hessian + float(np.abs(hessian).max())
        mean_curvature = float(np.abs(np.diag(hessian)).mean())
    if not np.isfinite(hessian).all() or not np.isfinite(mean_curvature):
        return None
    limits = np.finfo(float)
    shift = max(FIRST_SHIFT * mean_curvature, limits.eps * float(np.abs(gradient).max()))
    shift = max(shift, limits.tiny / limits.eps)
    while np.isfinite(shift):
        shifted = hessian + shift * np.eye(size)
        try:
            cho_factor(shifted, check_finite=False)
            return shifted
        except LinAlgError:
            shift *= 10.0
    return None


def _target(
    hessian: np.ndarray, gradient: np.ndarray, weights: np.ndarray, rounding: float
) -> np.ndarray:
    """Where the quadratic model is least, without members that would come in for nothing."""
    linear = gradient - hessian @ weights
    target = simplex_qp(hessian, linear, weights, LEAST_ASK * rounding)
    step = target - weights
    gain = -float(step @ gradient + 0.5 * step @ hessian @ step)
    if gain > rounding or float(target[weights == 0].sum()) <= MOST_FOR_NOTHING:
        return target
    return simplex_qp(hessian, linear, weights, np.inf)


def _hessian(objective: Objective, face: Array, point: Point, watch: Watch) -> np.ndarray | None:
    """On a face, made positive definite; in one pass over its members' columns."""
    part = objective if face.shape[0] == objective.n_members else objective.restrict(face)
    inside = on_face(point, face)
    return positive_definite(on_host(watch.hessian(part, inside.weights)), on_host(inside.gradient))
