"""The probability simplex: projection, stationarity gap, quadratic programmes, valid starts."""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace, device
from scipy.linalg import cho_factor, cho_solve

from sparsebag.evidence.arrays import on_host
from sparsebag.evidence.readable import check_readable, what_are_no_numbers

Array = Any

SUM_TOLERANCE = 1e-6
"""How far from one a given start may sum before it is refused rather than rescaled."""


def project_to_simplex(point: Array) -> Array:
    """Euclidean projection onto the probability simplex, exact zeros included.

    Sort, find the largest k with ``u_k > (Σ_{l≤k} u_l - 1)/k``, subtract that threshold
    (Held, Wolfe and Crowder 1974).

    Parameters
    ----------
    point : array of shape (N,)

    Returns
    -------
    array of shape (N,)

    Examples
    --------
    >>> project_to_simplex(np.array([0.5, 2.0, -1.0])).tolist()
    [0.0, 1.0, 0.0]
    """
    xp = array_namespace(point)
    point = point - xp.max(point)  # the projection does not see constants; rounding does
    descending = xp.flip(xp.sort(point))
    ranks = xp.arange(1, point.shape[0] + 1, dtype=point.dtype, device=device(point))
    thresholds = (xp.cumulative_sum(descending) - 1.0) / ranks
    n_positive = int(xp.sum(xp.astype(descending > thresholds, xp.int64)))
    projected = xp.clip(point - thresholds[max(n_positive, 1) - 1], min=0.0)
    return projected / xp.sum(projected)


def stationarity_gap(weights: Array, gradient: Array) -> float:
    """``max_v ∇f(w)·(w - v)`` over the simplex: zero exactly at a stationary point.

    Parameters
    ----------
    weights, gradient : arrays of shape (N,)

    Returns
    -------
    float

    Examples
    --------
    >>> stationarity_gap(np.array([1.0, 0.0]), np.array([0.0, 3.0]))
    0.0
    """
    xp = array_namespace(weights)
    # Σ w (g - min g), not w·g - min g: no cancellation, never negative.
    return float(xp.sum(weights * (gradient - xp.min(gradient))))


def check_start(start: Array, n_members: int) -> Array:
    """A start on the simplex, or one sentence that says why it is none.

    Parameters
    ----------
    start : array of shape (N,)
    n_members : int
        N.

    Returns
    -------
    array of shape (N,)

    Examples
    --------
    >>> check_start(np.array([0.25, 0.75]), 2).tolist()
    [0.25, 0.75]
    """
    xp = array_namespace(start)
    if tuple(start.shape) != (n_members,):
        raise ValueError(f"start has shape {tuple(start.shape)} but there are {n_members} members.")
    total = float(xp.sum(start))
    if not bool(xp.all(xp.isfinite(start))) or bool(xp.any(start < 0)):
        raise ValueError("start must hold finite, non-negative weights.")
    if total == 0.0:
        raise ValueError("start is zero everywhere; weights must sum to one.")
    if abs(total - 1.0) > SUM_TOLERANCE:
        raise ValueError(f"start sums to {total:.6g}; weights must sum to one.")
    return start / total


def given_start(start: Array, n_members: int) -> np.ndarray:
    """A user's start as an array on the simplex, or one sentence that says why it is none.

    Parameters
    ----------
    start : array-like of shape (N,)
    n_members : int
        N.

    Returns
    -------
    ndarray of shape (N,)

    Examples
    --------
    >>> given_start([0.5, 0.5], 2).tolist()
    [0.5, 0.5]
    """
    check_readable(start, "start")
    given = on_host(start)
    try:
        if wrong := what_are_no_numbers(given):
            raise ValueError(f"got {wrong}")
        weights = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"start must hold one number per member ({error}).") from error
    return np.asarray(check_start(weights, n_members))


def simplex_qp(
    hessian: np.ndarray, linear: np.ndarray, start: np.ndarray, least_ask: float = 0.0
) -> np.ndarray:
    """Minimise ``linear·x + ½ xᵀ hessian x`` over the probability simplex.

    Members leave the free set when a step hits zero and enter by the most negative multiplier.
    Stopping early is safe: every iterate is feasible and no worse than the one before.

    Parameters
    ----------
    hessian : ndarray of shape (n, n)
        Positive definite.
    linear : ndarray of shape (n,)
    start : ndarray of shape (n,)
        A point on the simplex.
    least_ask : float, default 0
        How far below the average a slope must be for a member to enter.

    Returns
    -------
    ndarray of shape (n,)

    Examples
    --------
    >>> simplex_qp(np.eye(2), np.array([-0.5, 0.0]), np.array([0.5, 0.5])).round(6).tolist()
    [0.75, 0.25]
    """
    x = start.copy()
    free = x > 0
    tolerance = max(least_ask, 1e-12 * float(np.max(np.abs(linear))))
    for _ in range(4 * len(x)):  # far fewer happen
        slope = linear + hessian @ x
        members = np.flatnonzero(free)
        step = _equality_step(hessian[np.ix_(members, members)], slope[members])
        shrinking = step < 0
        room = np.full(len(members), np.inf)
        room[shrinking] = -x[members][shrinking] / step[shrinking]
        length = min(1.0, float(room.min()))
        x[members] = np.maximum(x[members] + length * step, 0.0)
        if length < 1.0:
            blocking = members[int(np.argmin(room))]
            x[blocking], free[blocking] = 0.0, False
            continue
        slope = linear + hessian @ x
        level = float(slope[members] @ x[members]) / float(x[members].sum())
        outside = np.where(free, np.inf, slope)
        entering = int(np.argmin(outside))
        if outside[entering] >= level - tolerance:
            break
        free[entering] = True
    return np.asarray(x / x.sum())


def _equality_step(hessian: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """Newton step with Σ step = 0: -H⁻¹(slope + ν1), ν chosen so that it sums to zero."""
    factor = cho_factor(hessian, check_finite=False)
    solved = cho_solve(factor, np.column_stack([slope, np.ones_like(slope)]), check_finite=False)
    multiplier = -solved[:, 0].sum() / solved[:, 1].sum()
    step: np.ndarray = -(solved[:, 0] + multiplier * solved[:, 1])
    return np.asarray(step - step.mean())
