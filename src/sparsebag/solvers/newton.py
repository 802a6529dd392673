"""Newton steps on the members that have weight: to where only rounding is left.

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
from sparsebag.solvers.base import Watch
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
"""A step that moves no weight by more is the last: the sixth digit of all of them is known."""
END_GAP = 1e-10
"""A gap, relative to the loss's scale, that no step need lower: where members cannot be told apart
it is all rounding, and so would the step be."""
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


def newton_end(objective: Objective, point: Point, watch: Watch) -> Point:
    """Newton steps from a point near the minimum, by the Hessian there.

    Parameters
    ----------
    objective : Objective
        Restricted to the members in question.
    point : Point
    watch : Watch

    Returns
    -------
    Point
        The same, where no step makes the gap smaller.
    """
    xp = objective.xp
    if point.gap <= END_GAP * objective.scale:
        return point
    hessian = positive_definite(on_host(objective.hessian(point.weights)))
    watch.nbytes_read += objective.nbytes_per_pass
    for _ in range(END_STEPS):
        weights = on_host(point.weights)
        target = simplex_qp(hessian, on_host(point.gradient) - hessian @ weights, weights)
        moved = Point.at(objective, objective.asarray(target), watch)
        if moved.gap >= point.gap or moved.value > point.value + objective.rounding:
            break
        largest = float(xp.max(xp.abs(moved.weights - point.weights)))
        point = moved
        if largest <= END_MOVE:
            break
    return point


def newton_step(objective: Objective, point: Point, watch: Watch) -> Point | None:
    """One quadratic programme and a monotone search along its step; None if nothing is lower."""
    xp = objective.xp
    weights, gradient = on_host(point.weights), on_host(point.gradient)
    hessian = positive_definite(on_host(objective.hessian(point.weights)))
    target = simplex_qp(hessian, gradient - hessian @ weights, weights)
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


def positive_definite(hessian: np.ndarray) -> np.ndarray:
    """The Hessian, shifted just enough that Cholesky succeeds.

    Steps on the simplex sum to zero, so a multiple of the all-ones matrix costs nothing there
    and removes the curvature across the simplex, which is never positive.
    """
    size = len(hessian)
    hessian = hessian + float(np.abs(hessian).max())
    mean_curvature = max(float(np.abs(np.diag(hessian)).mean()), np.finfo(float).tiny)
    shift = FIRST_SHIFT * mean_curvature
    while True:
        shifted = hessian + shift * np.eye(size)
        try:
            cho_factor(shifted, check_finite=True)
            return shifted
        except LinAlgError:
            shift *= 10.0
