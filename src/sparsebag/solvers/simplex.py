"""The probability simplex: projection, stationarity, valid starts."""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace, device

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
    >>> import numpy as np
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
    >>> import numpy as np
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
    >>> import numpy as np
    >>> check_start(np.array([0.25, 0.75]), 2).tolist()
    [0.25, 0.75]
    """
    xp = array_namespace(start)
    if tuple(start.shape) != (n_members,):
        raise ValueError(f"start has shape {tuple(start.shape)} but there are {n_members} members.")
    total = float(xp.sum(start))
    if not bool(xp.all(xp.isfinite(start))) or bool(xp.any(start < 0)):
        raise ValueError("start must hold finite weights that are not negative.")
    if total == 0.0:
        raise ValueError("start is zero everywhere; weights must sum to one.")
    if abs(total - 1.0) > SUM_TOLERANCE:
        raise ValueError(f"start sums to {total:.6g}; weights must sum to one.")
    return start / total
