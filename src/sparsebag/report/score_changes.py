"""What a compression changed in each score, with a paired bootstrap interval.

Both models are scored on the same rows, so rows are drawn once for both: what is hard about a draw
is hard for both, and the interval is of the difference alone. Every score here is a function of
sums over rows, so a draw is one product of row counts with a few columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

DRAWS = 1000
FEW_DRAWS = 200
MANY_ROWS = 100_000
"""Beyond this many rows the interval is narrow, and fewer draws tell its ends well enough."""
LEVEL = 0.95
DRAWS_AT_A_TIME = 32
ECE_BINS = 15
"""As `metrics.expected_calibration_error` has by default."""
LEAST_PROBABILITY = 1e-15
"""As `metrics.log_loss` clips."""

Sums = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class ScoreChange:
    """One score before and after.

    Attributes
    ----------
    name : str
    before, after : float
    low, high : float
        Where ``after - before`` is with 95 % confidence: paired bootstrap over the test rows.
    lower_is_better : bool

    Examples
    --------
    >>> ScoreChange("log-loss", 0.32, 0.08, -0.26, -0.22, True).verdict
    'better'
    """

    name: str
    before: float
    after: float
    low: float
    high: float
    lower_is_better: bool

    @property
    def difference(self) -> float:
        """After minus before."""
        return self.after - self.before

    @property
    def verdict(self) -> str:
        """Better, worse, or no clear difference: zero is inside the interval."""
        if self.low <= 0.0 <= self.high:
            return "no clear difference"
        return "better" if (self.high < 0.0) == self.lower_is_better else "worse"

    def as_dict(self) -> dict[str, float | str]:
        """The figures by name.

        Returns
        -------
        dict
        """
        return {
            "before": self.before,
            "after": self.after,
            "difference": self.difference,
            "low": self.low,
            "high": self.high,
            "verdict": self.verdict,
        }


def score_changes(
    target: np.ndarray, before: np.ndarray, after: np.ndarray, *, seed: int = 0
) -> tuple[ScoreChange, ...]:
    """Every score before and after, with a paired bootstrap interval of the difference.

    Parameters
    ----------
    target : ndarray of shape (n,)
        Class positions, or numbers (regression).
    before, after : ndarray of shape (n, C), or (n,) for regression
        What each model says of the same rows.
    seed : int

    Returns
    -------
    tuple of ScoreChange

    Examples
    --------
    >>> y = np.array([0.0, 1.0, 2.0, 3.0] * 20)
    >>> mse, r2 = score_changes(y, y + 1.0, y)
    >>> mse.verdict, mse.low, mse.high
    ('better', -1.0, -1.0)
    """
    if before.ndim == 1:
        return _regression(target, before, after, seed)
    return _classification(target, before, after, seed)


def _regression(
    target: np.ndarray, before: np.ndarray, after: np.ndarray, seed: int
) -> tuple[ScoreChange, ...]:
    centred = target - target.mean()
    columns = [(before - target) ** 2, (after - target) ** 2, centred, centred**2]

    def scores(sums: np.ndarray) -> np.ndarray:
        n = len(target)
        mse = sums[:, :2] / n
        spread = sums[:, 3] / n - (sums[:, 2] / n) ** 2
        r2 = explained(mse, np.maximum(spread, 0.0)[:, None])
        return np.stack([mse, r2], axis=1)

    return _intervals(("MSE", "R²"), (True, False), np.column_stack(columns), scores, seed)


def explained(mse: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """R²; where the targets do not vary, 1 for a perfect prediction and 0 else, as scikit-learn.

    Parameters
    ----------
    mse, spread : ndarray
        Mean squared error, and the targets' variance.

    Returns
    -------
    ndarray

    Examples
    --------
    >>> explained(np.array([0.25, 0.25]), np.array([1.0, 0.0])).tolist()
    [0.75, 0.0]
    """
    varies = spread > 0.0
    ratio = mse / np.where(varies, spread, 1.0)
    return np.where(varies, 1.0 - ratio, np.where(mse > 0.0, 0.0, 1.0))


def _classification(
    target: np.ndarray, before: np.ndarray, after: np.ndarray, seed: int
) -> tuple[ScoreChange, ...]:
    blocks = [_row_figures(target, proba) for proba in (before, after)]
    width = blocks[0].shape[1]

    def scores(sums: np.ndarray) -> np.ndarray:
        n = len(target)
        out = []
        for part in (sums[:, :width], sums[:, width:]):
            ece = np.abs(part[:, 3:]).sum(axis=1) / n
            out.append(np.column_stack([part[:, 0] / n, ece, part[:, 1] / n, part[:, 2] / n]))
        return np.stack(out, axis=2)

    names, lower = ("log-loss", "ECE", "Brier", "accuracy"), (True, True, True, False)
    return _intervals(names, lower, np.hstack(blocks), scores, seed)


def _row_figures(target: np.ndarray, proba: np.ndarray) -> np.ndarray:
    """Columns whose sums over rows make the scores: three scores, then a bin's gap a column."""
    rows = np.arange(len(target))
    residual = proba.copy()
    residual[rows, target] -= 1.0
    correct = proba.argmax(axis=1) == target
    confidence = proba.max(axis=1)
    figures = np.zeros((len(target), 3 + ECE_BINS))
    figures[:, 0] = -np.log(np.maximum(proba[rows, target], LEAST_PROBABILITY))
    figures[:, 1] = np.square(residual).sum(axis=1)
    figures[:, 2] = correct
    inner = np.linspace(0.0, 1.0, ECE_BINS + 1)[1:-1]
    figures[rows, 3 + np.searchsorted(inner, confidence, side="left")] = correct - confidence
    return figures


def _intervals(
    names: tuple[str, ...],
    lower: tuple[bool, ...],
    figures: np.ndarray,
    scores: Sums,
    seed: int,
) -> tuple[ScoreChange, ...]:
    n = len(figures)
    rng = np.random.default_rng(seed)
    found = scores(figures.sum(axis=0)[None])[0]
    draws = []
    n_draws = DRAWS if n <= MANY_ROWS else FEW_DRAWS
    for start in range(0, n_draws, DRAWS_AT_A_TIME):
        size = min(DRAWS_AT_A_TIME, n_draws - start)
        counts = np.stack([np.bincount(rng.integers(n, size=n), minlength=n) for _ in range(size)])
        drawn = scores(counts.astype(np.float64) @ figures)
        draws.append(drawn[:, :, 1] - drawn[:, :, 0])
    tail = (1.0 - LEVEL) / 2.0
    low, high = np.quantile(np.concatenate(draws), [tail, 1.0 - tail], axis=0)
    return tuple(
        ScoreChange(name, float(a), float(b), float(lo), float(hi), better)
        for name, (a, b), lo, hi, better in zip(names, found, low, high, lower, strict=True)
    )
