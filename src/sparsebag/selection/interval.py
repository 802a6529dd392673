"""The interval around an expected risk: risks are positive, and rows' risks are skewed."""

from __future__ import annotations

import math

import numpy as np
from scipy.stats import t as student

COVERAGE = 0.95
FEWEST_DEGREES = 3.0
"""Below it Student's distribution has no variance to speak of."""


def degrees_of_freedom(row_risk: np.ndarray, weight: np.ndarray) -> float:
    """How many normal rows would tell the rows' variance as well as these do.

    A variance estimated from m rows of kurtosis κ is as uncertain as one from 2m/(κ − 1) normal
    rows; m is the effective number of weighted rows.

    Parameters
    ----------
    row_risk, weight : ndarray of shape (rows,)

    Returns
    -------
    float

    Examples
    --------
    >>> rows = np.random.default_rng(0).normal(size=1000)
    >>> 800 < degrees_of_freedom(rows, np.ones(1000)) < 1200
    True
    >>> degrees_of_freedom(rows**4, np.ones(1000)) < 100
    True
    """
    share = weight / weight.sum()
    away = row_risk - share @ row_risk
    variance = float(share @ away**2)
    n_rows = 1.0 / float(share @ share)
    if not variance > 0:
        return max(n_rows - 1.0, FEWEST_DEGREES)
    kurtosis = float(share @ away**4) / variance**2
    return max(2.0 * n_rows / max(kurtosis - 1.0, 1e-9) - 1.0, FEWEST_DEGREES)


def risk_interval(
    expected: float, standard_error: float, degrees: float, coverage: float = COVERAGE
) -> tuple[float, float]:
    """Interval for the risk on new rows, even on the logarithmic scale.

    A few rows with large errors make most of a risk. A sample that misses them has too low a mean
    and too small a spread, so the risk is more often above ``expected ± 2 errors`` than below.
    The logarithm's interval, with Student's quantile, is as often missed on either side.

    Parameters
    ----------
    expected, standard_error : float
    degrees : float
        See `degrees_of_freedom`.
    coverage : float, default 0.95

    Returns
    -------
    tuple of float

    Examples
    --------
    >>> low, high = risk_interval(0.2, 0.02, 300.0)
    >>> round(low, 3), round(high, 3)
    (0.164, 0.243)
    """
    reach = float(student.ppf(0.5 + coverage / 2.0, degrees)) * standard_error
    if not expected > reach / 10.0:  # nothing but zeros: no logarithm
        return (max(expected - reach, 0.0), expected + reach)
    return expected * math.exp(-reach / expected), expected * math.exp(reach / expected)
