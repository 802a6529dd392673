"""Mean and spread of features that may be of any unit, unknown, or far off in a few rows."""

from __future__ import annotations

import numpy as np

TAIL, FAR = 0.01, 3.0
"""Share of the values on either side that may lie far off, and how many ranges of the rest."""


def moments(features: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means and standard deviations of the finite values, single outlying ones drawn in.

    Parameters
    ----------
    features : ndarray of shape (R, d)
    weight : ndarray of shape (R,)

    Returns
    -------
    mean, spread : ndarray of shape (d,)
        In units of ``unit``.
    unit : ndarray of shape (d,)
        The largest value of each: squares of very small features would vanish.

    Examples
    --------
    >>> mean, spread, unit = moments(np.array([[2.0], [4.0], [np.nan]]), np.ones(3))
    >>> (mean * unit).tolist(), (spread * unit).tolist()
    ([3.0], [1.0])
    """
    known = np.isfinite(features)
    values = _without_outliers(np.where(known, features, 0.0), known & (weight > 0.0)[:, None])
    unit = np.maximum(np.abs(values).max(axis=0), np.finfo(float).tiny)
    values = values / unit
    counted = weight[:, None] * known
    total = np.maximum(counted.sum(axis=0), np.finfo(float).tiny)
    mean = (counted * values).sum(axis=0) / total
    return mean, np.sqrt((counted * (values - mean) ** 2).sum(axis=0) / total), unit


def _without_outliers(values: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """Values no further off than `FAR` times the range of nearly all of them.

    One value of 1e9 among thousands around zero, a code for missing or a bad sensor, would make
    all the others equal.
    """
    ends = [TAIL, 1.0 - TAIL]
    if counted.all():  # the same, in a hundredth of the time
        low, high = np.quantile(values, ends, axis=0)
    else:
        asked = counted | ~counted.any(axis=0)  # of a column without any, NumPy would warn
        low, high = np.nanquantile(np.where(asked, values, np.nan), ends, axis=0)
    most = np.where(high > low, FAR * (high - low), np.inf)
    most = np.where(np.isfinite(most), most, np.inf)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(counted, np.clip(values, low - most, high + most), values))
