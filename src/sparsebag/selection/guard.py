"""No regret: the smallest ensemble that is surely no worse than the user's tolerance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

from sparsebag.selection.judged_path import CrossFittedPath

CONFIDENCE = 0.95
"""One-sided: of the bound that must meet the tolerance."""
RESAMPLES = 200
MOST_RESAMPLED_ROWS = 5000
"""Means over more rows are normal, and drawn as such."""
SMALLEST_RISK = 1e-300
"""An ensemble without any error is no reason to divide by zero."""


@dataclass(frozen=True)
class Choice:
    """A point of the path, and how it was arrived at.

    Attributes
    ----------
    position : int or None
        Of the point; None: the whole ensemble as it is.
    meets_tolerance : bool
        Whether the bound on its relative increase is within the tolerance.
    optimism : float
        How much picking the smallest size that passes flatters its risk, by bootstrap.
    """

    position: int | None
    meets_tolerance: bool
    optimism: float


def choose(
    path: CrossFittedPath,
    tolerance: float,
    allowed: np.ndarray,
    *,
    full_allowed: bool,
    seed: int = 0,
) -> Choice:
    """The smallest allowed point whose bound meets the tolerance; else the whole; else the best.

    Picking the first size that passes picks, among near equals, the one that luck favours. The
    rows are resampled and the choice is repeated; what the chosen size seems better by than it is
    on the rows as they are is the optimism, and it is added to every size before choosing.

    Parameters
    ----------
    path : CrossFittedPath
    tolerance : float
        Relative increase of the risk over the whole ensemble's that is accepted.
    allowed : ndarray of bool, one a point
        Points within the budget.
    full_allowed : bool
        Whether the whole ensemble is within the budget.
    seed : int, default 0
        Of the bootstrap.

    Returns
    -------
    Choice
    """
    excess = path.expected() - (1.0 + tolerance) * path.full_risk
    margin = _margin(path, tolerance)
    resampled = _resampled_excess(path, tolerance, seed)
    optimism = _optimism(resampled, excess, allowed, margin)
    passes = allowed & (excess + margin + optimism <= 0.0)
    if passes.any():
        position = int(np.argmax(passes))
    elif full_allowed:
        return Choice(None, True, 0.0)
    else:
        position = int(np.argmin(np.where(allowed, excess, np.inf)))
        optimism = _optimism(resampled, excess, allowed, None)
        # Taken for being the best, it is flattered by that alone, and may pass after all.
        passes = allowed & (excess + margin + optimism <= 0.0)
    return Choice(position, bool(passes[position]), optimism)


def best_within(
    path: CrossFittedPath, allowed: np.ndarray, *, full_allowed: bool, seed: int = 0
) -> Choice:
    """The point of least expected risk within the budget, or the whole ensemble if that is less.

    Parameters
    ----------
    path : CrossFittedPath
    allowed : ndarray of bool, one a point
    full_allowed : bool
    seed : int, default 0
        Of the bootstrap.

    Returns
    -------
    Choice
        That promises no tolerance.
    """
    excess = np.where(allowed, path.expected() - path.full_risk, np.inf)
    if full_allowed and not np.any(excess < 0.0):
        return Choice(None, False, 0.0)
    resampled = _resampled_excess(path, 0.0, seed)
    optimism = _optimism(resampled, path.expected() - path.full_risk, allowed, None)
    return Choice(int(np.argmin(excess)), False, optimism)


def upper_bound(path: CrossFittedPath, tolerance: float) -> np.ndarray:
    """Upper confidence bound on each point's risk, relative to the whole ensemble's, less one.

    Parameters
    ----------
    path : CrossFittedPath
    tolerance : float
        The bound is exact where it matters, at the tolerance.

    Returns
    -------
    ndarray of shape (points,)
    """
    full = max(path.full_risk, SMALLEST_RISK)
    margin = _margin(path, tolerance)
    return np.asarray((path.expected() + margin - path.full_risk) / full)


def _margin(path: CrossFittedPath, tolerance: float) -> np.ndarray:
    """What the bound adds. Where a few rows make most of the risk, their spread is a guess."""
    quantile = float(student.ppf(CONFIDENCE, path.degrees_of_freedom()))
    return quantile * path.error_of(1.0 + tolerance)


def _optimism(
    resampled: np.ndarray, excess: np.ndarray, allowed: np.ndarray, margin: np.ndarray | None
) -> float:
    """Mean flattery of the first point that passes, or of the best one (no margin, none passes).

    Samples in which none passes count too: a mean over lucky ones alone would be their luck.
    """
    flattery = []
    for drawn in resampled:
        if margin is None:
            at = int(np.argmin(np.where(allowed, drawn, np.inf)))
        else:
            passes = allowed & (drawn + margin <= 0.0)
            at = int(np.argmax(passes if passes.any() else np.where(allowed, -drawn, -np.inf)))
        flattery.append(excess[at] - drawn[at])
    return max(0.0, float(np.mean(flattery)))


def _resampled_excess(path: CrossFittedPath, tolerance: float, seed: int) -> np.ndarray:
    """The excess over the accepted risk on bootstrap samples, shape (resamples, points).

    The rows enter through three means only, and the gain through its own error.
    """
    rng = np.random.default_rng(seed)
    rows = path.rows
    n_rows = len(rows.weight)
    whole = rows.full
    if whole is None:
        whole = rows.own / path.n_members + rows.pair * (1.0 - 1.0 / path.n_members)
    terms = np.stack([rows.own, rows.pair, whole], axis=1)
    away = terms - rows.weight @ terms
    if n_rows > MOST_RESAMPLED_ROWS:
        deviation = away * rows.weight[:, None]
        spread = deviation.T @ deviation
        means = rng.multivariate_normal(np.zeros(3), spread, RESAMPLES, check_valid="ignore")
    else:
        counts = rng.poisson(1.0, (RESAMPLES, n_rows)) * rows.weight
        means = counts @ away / np.maximum(counts.sum(axis=1, keepdims=True), 1e-300)
    own, pair, full = (means - means.mean(axis=0)).T  # no flattery where nothing is picked
    at = path.concentration
    of_rows = own[:, None] * at + pair[:, None] * (1.0 - at) - (1.0 + tolerance) * full[:, None]
    luck = rng.normal(size=(RESAMPLES, 1))
    luck = (luck - luck.mean()) * path.gain_error
    excess = path.expected() - (1.0 + tolerance) * path.full_risk
    return np.asarray(of_rows + luck + excess)
