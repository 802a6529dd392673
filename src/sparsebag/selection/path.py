"""Paths of ensembles: by number of members (`budget_path`), by penalty (`penalty_path`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsebag.objective.penalties import ConcaveQuadratic
from sparsebag.objective.simplex_objective import SimplexObjective
from sparsebag.solvers.base import (
    Solution,
    Solver,
    drop_small_weights,
    one_blas_thread,
    tolerance_of,
)
from sparsebag.solvers.simplex_qp import simplex_qp

RIDGE = 1e-6
"""Of the mean diagonal: keeps the search well defined when members repeat each other."""
EVENNESS = 1.0
"""Ridge of the search, in units of what averaging two members saves: members differ less than
they seem to, so weights are kept near equal."""
MOST_RIDGE = 1e6
"""At which all weights are equal and every member is in."""
GROWTH = 1.15
"""Steps between ensembles larger than those with fitted weights."""
REFILLS = 5
"""Members the corrected weights push out are replaced at most this many times a step."""


@dataclass(frozen=True)
class PathPoint:
    """One ensemble of a path.

    Attributes
    ----------
    members : ndarray of shape (k,)
        Indices, ascending.
    weights : ndarray of shape (k,)
        Positive, summing to one.
    """

    members: np.ndarray
    weights: np.ndarray

    def spread(self, n_members: int) -> np.ndarray:
        """The weights as a vector over all members."""
        w = np.zeros(n_members)
        w[self.members] = self.weights
        return w


def budget_path(
    risk: np.ndarray,
    limit: int,
    price: np.ndarray | None = None,
    *,
    evenness: float = EVENNESS,
) -> list[PathPoint]:
    """For k = 1, 2, …: k members and their best weights under a quadratic risk.

    Forward: the member whose best step from the present weights gains most (per unit of its
    price) enters. Then all weights are solved for anew, warm-started; members that end at zero
    leave and others take their place (the backward moves). A ridge keeps the weights even; where
    no further member would get weight it grows until one does: what tells members apart is
    uncertain, their number is not.

    Parameters
    ----------
    risk : ndarray of shape (N, N)
        Symmetric; the risk of weights w is ``wᵀ risk w``.
    limit : int
        Most members.
    price : ndarray of shape (N,), optional
        What each member costs; default: all the same. Infinite: never enters.
    evenness : float
        Ridge on the weights, as a multiple of what averaging two members saves. 0: the weights
        are those of least risk.

    Returns
    -------
    list of PathPoint
        Point k-1 has k members.

    Examples
    --------
    >>> path = budget_path(np.diag([1.0, 2.0, 4.0]), limit=2, evenness=0.0)
    >>> path[1].members.tolist(), path[1].weights.round(3).tolist()
    ([0, 1], [0.667, 0.333])
    """
    n = len(risk)
    cost = np.ones(n) if price is None else _relative(price)
    curved, spread = _positive_definite(risk), _spread(risk)
    first = int(np.argmin(np.diag(curved) * cost))
    members, weights = [first], np.ones(1)
    path = [PathPoint(np.array(members), weights)]
    ridge = evenness
    while len(path) < min(limit, n) and ridge <= MOST_RIDGE:
        grown = _grow(curved, ridge * spread, cost, members, weights, len(path) + 1)
        if grown is None:
            ridge = max(2.0 * ridge, EVENNESS)
            continue
        members, weights = grown
        order = np.argsort(members)
        path.append(PathPoint(np.array(members)[order], weights[order]))
    return path


def larger_points(
    risk: np.ndarray, members: np.ndarray, limit: int, price: np.ndarray | None = None
) -> list[PathPoint]:
    """Larger ensembles with equal weights: to some members, the others in order of their worth.

    Among hundreds of members weights gain next to nothing, and fitting them costs most.

    Parameters
    ----------
    risk : ndarray of shape (N, N)
    members : ndarray of indices
        Those of the largest ensemble with fitted weights.
    limit : int
        Most members.
    price : ndarray of shape (N,), optional
        Members with an infinite price are left out.

    Returns
    -------
    list of PathPoint
        In steps of `GROWTH`, the last of ``limit`` members.

    Examples
    --------
    >>> [len(point.members) for point in larger_points(np.eye(60), np.arange(40), 59)]
    [46, 53, 59]
    """
    worth = risk.mean(axis=1)
    others = np.setdiff1d(np.argsort(worth, kind="stable"), members, assume_unique=True)
    others = others[np.argsort(worth[others], kind="stable")]
    if price is not None:
        others = others[np.isfinite(price[others])]
    order = np.concatenate([members, others])
    points, size, limit = [], len(members), min(limit, len(order))
    while size < limit:
        size = min(int(np.ceil(GROWTH * size)), limit)
        points.append(PathPoint(np.sort(order[:size]), np.full(size, 1.0 / size)))
    return points


def _grow(
    curved: np.ndarray,
    ridge: float,
    cost: np.ndarray,
    members: list[int],
    weights: np.ndarray,
    k: int,
) -> tuple[list[int], np.ndarray] | None:
    """Make it k members with their weights, from k-1; None if no further member gets weight."""
    for _ in range(REFILLS):
        entering = _best_entry(curved, ridge, cost, members, weights)
        if entering is None:
            return None
        members = [*members, entering]
        start = np.append(weights * (1.0 - 1.0 / k), 1.0 / k)
        face = 2.0 * (curved[np.ix_(members, members)] + ridge * np.eye(len(members)))
        corrected = simplex_qp(face, np.zeros(len(members)), start)
        kept = corrected > 0
        members = [m for m, keep in zip(members, kept, strict=True) if keep]
        weights = corrected[kept]
        if len(members) == k:
            return members, weights
    return None


def penalty_path(
    objective: SimplexObjective,
    lams: Sequence[float],
    solver: Solver,
    *,
    relative: bool = False,
    drop_threshold: float = 0.0,
) -> list[tuple[float, Solution]]:
    """The paper's penalty at several strengths, each solve started from the one before.

    Parameters
    ----------
    objective : SimplexObjective
        Its own penalty is replaced.
    lams : sequence of float
        Strengths λ, solved in ascending order.
    solver : Solver
    relative : bool, default False
        Strengths are multiples of the uniform ensemble's out-of-bag loss, so that one value means
        the same whatever the loss's unit is.
    drop_threshold : float, default 0
        Weights up to this are set to zero, where the solution has then still converged.

    Returns
    -------
    list of (float, Solution)
        Absolute λ, and the solution there.
    """
    points: list[tuple[float, Solution]] = []
    start: Any = None
    with one_blas_thread():
        unit = objective.loss_value(objective.uniform_weights()) if relative else 1.0
        for lam in sorted(lams):
            at = objective.with_penalty(ConcaveQuadratic(lam * unit))
            solution = solver.solve(at, start)
            # Warm, but off the face: a member at exact zero could not come back under some solvers.
            centre = objective.uniform_weights()
            start = 0.99 * solution.weights + 0.01 * centre
            kept = drop_small_weights(solution, at, drop_threshold, tol=tolerance_of(solver))
            points.append((lam * unit, kept))
    return points


def _best_entry(
    curved: np.ndarray, ridge: float, cost: np.ndarray, members: list[int], weights: np.ndarray
) -> int | None:
    """The member whose best step from the weights towards it gains most for its price."""
    slope = curved[:, members] @ weights
    level = float(weights @ slope[members]) + ridge * float(weights @ weights)
    descent = np.maximum(level - slope, 0.0)
    bend = np.diag(curved) + ridge - 2.0 * slope + level
    gain = descent**2 / np.maximum(bend, 1e-300) / cost
    gain[members] = 0.0
    best = int(np.argmax(gain))
    return best if gain[best] > 0 else None


def _relative(price: np.ndarray) -> np.ndarray:
    """Prices in units of their mean; a free member is nearly free."""
    return np.asarray(np.maximum(price, 1e-12) / np.mean(price[np.isfinite(price)]))


def _spread(risk: np.ndarray) -> float:
    """Mean diagonal less mean off-diagonal: what averaging two members saves."""
    n = len(risk)
    own = float(np.trace(risk)) / n
    pair = (float(np.sum(risk)) - n * own) / max(n * (n - 1), 1)
    return max(own - pair, RIDGE * abs(own))


def _positive_definite(risk: np.ndarray) -> np.ndarray:
    """The matrix, with as much added to its diagonal as makes it safely positive definite.

    A matrix of entries that rest on different rows need not be. What is added favours spreading
    the weights, as shrinkage does.
    """
    floor = RIDGE * float(np.mean(np.diag(risk)))
    try:
        np.linalg.cholesky(risk)  # of thousands of members, far cheaper than eigenvalues
        lowest = 0.0
    except np.linalg.LinAlgError:
        lowest = float(np.linalg.eigvalsh(risk)[0])
    return np.asarray(risk + (max(0.0, -lowest) + floor) * np.eye(len(risk)))
