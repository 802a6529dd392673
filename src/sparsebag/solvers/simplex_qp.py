"""A small convex quadratic programme over the simplex, solved by a primal active set."""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve

MAX_CHANGES_PER_MEMBER = 4
"""Active-set changes allowed, as a multiple of the size; in practice far fewer happen."""


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
    for _ in range(MAX_CHANGES_PER_MEMBER * len(x)):
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
