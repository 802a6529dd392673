"""Columns that single precision, which gates read, makes others of.

All paths of a deployed gate round a row to float32 first, as trees do: rows that come as float32
then have the weights of the same rows in float64. What differs in the eighth digit only is lost.
"""

from __future__ import annotations

import numpy as np

from sparsebag.refine.local_design import as_read
from sparsebag.refine.moments import moments

CHANGED = 0.01
"""Share of a column's spread that rounding may add or take: steps of half a spread do."""
NO_SPREAD = 1e-13
"""Of a column's size: what sums of equal numbers differ by in double precision."""


def lost_spread(features: np.ndarray) -> np.ndarray:
    """Columns whose spread is another one in single precision.

    Parameters
    ----------
    features : float64 ndarray of shape (R, d)

    Returns
    -------
    int ndarray
        Their positions.

    Examples
    --------
    >>> x = np.linspace(-1.0, 1.0, 100)
    >>> lost_spread(np.stack([x, x + 1e5, x + 1e8, x * 1e300], axis=1)).tolist()
    [2, 3]
    """
    read, weight = as_read(features), np.ones(len(features))
    # A few values beyond the range are codes for missing, and unknown to a gate.
    known = np.isfinite(read)
    few = 2 * known.sum(axis=0) >= np.isfinite(features).sum(axis=0)
    with np.errstate(over="ignore", invalid="ignore"):  # near the end of double precision
        mean, spread, unit = moments(np.where(known | ~few, features, np.nan), weight)
        _, after, unit_after = moments(read, weight)
        changed = np.abs(after * (unit_after / unit) - spread) > CHANGED * spread
    return np.flatnonzero(changed & (spread > NO_SPREAD * np.abs(mean)))
