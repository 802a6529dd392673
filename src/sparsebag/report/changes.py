"""What a compression changed: every score with a paired bootstrap interval, and which predictions.

Both models are scored on the same rows, so rows are drawn once for both: what is hard about a draw
is hard for both, and the interval is of the difference alone. Every score here is a function of
sums over rows, so a draw is one product of row counts with a few columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

DRAWS = 1000
LISTED_ROWS = 20
CLASSIFICATION = {"log-loss": True, "ECE": True, "Brier": True, "accuracy": False}
REGRESSION = {"MSE": True, "R²": False}
"""Names of the scores, and whether lower is better."""


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
        """Better, worse, or no clear change: zero is inside the interval."""
        if self.low <= 0.0 <= self.high:
            return "no clear change"
        return "better" if (self.high < 0.0) == self.lower_is_better else "worse"

    @property
    def is_main(self) -> bool:
        """Whether a summary tells it: one score of the probabilities and one of the decisions."""
        return self.name in ("log-loss", "accuracy", "MSE", "R²")

    @property
    def in_words(self) -> str:
        """The score before and after."""
        return f"{self.name} {shown(self.name, self.before)} → {shown(self.name, self.after)}"

    def as_dict(self) -> dict[str, float | str]:
        """The figures by name.

        Returns
        -------
        dict
        """
        figures = {name: value for name, value in vars(self).items() if isinstance(value, float)}
        return {**figures, "difference": self.difference, "verdict": self.verdict}


def shown(name: str, score: float) -> str:
    """A score as text: three digits, accuracy in percent.

    Examples
    --------
    >>> shown("log-loss", 0.35141), shown("accuracy", 0.8458), shown("MSE", 3556.2)
    ('0.351', '84.6%', '3,556')
    """
    if name == "accuracy":
        return f"{score:.1%}"
    return f"{score:.3g}" if abs(score) < 100.0 else f"{score:,.0f}"


def scores(target: np.ndarray, said: np.ndarray) -> dict[str, float]:
    """Every score of a model: log-loss, ECE, Brier, accuracy; or MSE and R².

    Parameters
    ----------
    target : ndarray of shape (n,)
        Class positions, or numbers (regression).
    said : ndarray of shape (n, C), or (n,) for regression

    Returns
    -------
    dict of str to float

    Examples
    --------
    >>> scores(np.array([0.0, 2.0]), np.array([0.0, 1.0]))
    {'MSE': 0.5, 'R²': 0.5}
    """
    means = _row_figures(target, said).mean(axis=0)[None]
    return dict(zip(_names(said), _from_means(means, said.ndim)[0].tolist(), strict=True))


def score_changes(
    target: np.ndarray, before: np.ndarray, after: np.ndarray, *, seed: int = 0
) -> tuple[ScoreChange, ...]:
    """Every score before and after, with a paired bootstrap interval of the difference.

    Parameters
    ----------
    target : ndarray of shape (n,)
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
    n, rng = len(target), np.random.default_rng(seed)
    figures = [_row_figures(target, said) for said in (before, after)]
    differences = []
    # Of very many rows the interval is narrow, and fewer draws tell its ends well enough.
    for _ in range((DRAWS if n <= 100_000 else DRAWS // 5) // 20):
        drawn = np.stack([np.bincount(rng.integers(n, size=n), minlength=n) for _ in range(20)])
        old, new = (_from_means(drawn @ columns / n, before.ndim) for columns in figures)
        differences.append(new - old)
    # 95 % of the draws lie between.
    low, high = np.quantile(np.concatenate(differences), [0.025, 0.975], axis=0).tolist()
    old_scores, new_scores = scores(target, before), scores(target, after)
    return tuple(
        ScoreChange(name, old_scores[name], new_scores[name], low[i], high[i], lower)
        for i, (name, lower) in enumerate(_names(before).items())
    )


def _names(said: np.ndarray) -> dict[str, bool]:
    return REGRESSION if said.ndim == 1 else CLASSIFICATION


def _row_figures(target: np.ndarray, said: np.ndarray, n_bins: int = 15) -> np.ndarray:
    """Columns whose means over rows make the scores; of classes, the gap of each bin at the end.

    Bins are as `metrics.expected_calibration_error` has them by default.
    """
    if said.ndim == 1:
        centred = target - target.mean()
        return np.column_stack([(said - target) ** 2, centred, centred**2])
    rows = np.arange(len(target))
    residual = said.copy()
    residual[rows, target] -= 1.0
    correct, confidence = said.argmax(axis=1) == target, said.max(axis=1)
    gaps = np.zeros((len(target), n_bins))
    inner = np.linspace(0.0, 1.0, n_bins + 1)[1:-1]
    gaps[rows, np.searchsorted(inner, confidence, side="left")] = correct - confidence
    log_loss = -np.log(np.maximum(said[rows, target], 1e-15))  # as metrics.log_loss clips
    return np.column_stack([log_loss, np.square(residual).sum(axis=1), correct, gaps])


def _from_means(means: np.ndarray, ndim: int) -> np.ndarray:
    """The scores of each line of means."""
    if ndim > 1:
        ece = np.abs(means[:, 3:]).sum(axis=1)
        return np.column_stack([means[:, 0], ece, means[:, 1], means[:, 2]])
    mse, spread = means[:, 0], np.maximum(means[:, 2] - means[:, 1] ** 2, 0.0)
    # Of targets that do not vary: 1 for a perfect prediction and 0 else, as scikit-learn.
    ratio = np.divide(mse, spread, out=(mse > 0.0).astype(float), where=spread > 0.0)
    return np.column_stack([mse, 1.0 - ratio])


class ClassChanges(NamedTuple):
    """What became of the rows of one class."""

    label: str
    n_rows: int
    right_before: int
    right_after: int
    changed: int


class ChangedRow(NamedTuple):
    """One row whose prediction moved; its position is among the test rows, from 0."""

    row: int
    truth: str
    before: str
    after: str


@dataclass(frozen=True)
class PredictionChanges:
    """How predictions moved, over all test rows.

    Attributes
    ----------
    n_rows, n_changed : int
        For regression, rows whose prediction moved by more than a tenth of the targets' spread.
    mended, broken : int
        Wrong before and right after, and the reverse (regression: closer to the target, farther).
    rows : tuple of ChangedRow
        Those that moved most.
    classes : tuple of ClassChanges
        Those that changed most first; empty for regression.
    quantiles : tuple of str and str
        Regression: names and values of quantiles of the absolute change.
    """

    n_rows: int
    n_changed: int
    mended: int
    broken: int
    rows: tuple[ChangedRow, ...]
    classes: tuple[ClassChanges, ...] = ()
    quantiles: tuple[tuple[str, str], ...] = ()


def prediction_changes(
    target: np.ndarray, before: np.ndarray, after: np.ndarray, classes: Any = None
) -> PredictionChanges:
    """Compare two models' predictions row by row.

    Parameters
    ----------
    target : ndarray of shape (n,)
        Class positions, or numbers (regression).
    before, after : ndarray of shape (n, C), or (n,) for regression
    classes : ndarray of shape (C,), optional
        Labels; None for regression.

    Returns
    -------
    PredictionChanges

    Examples
    --------
    >>> sure = np.array([[0.9, 0.1], [0.4, 0.6]])
    >>> found = prediction_changes(np.array([0, 0]), sure, sure[:, ::-1], np.array(["a", "b"]))
    >>> found.n_changed, found.mended, found.broken
    (2, 1, 1)
    """
    if classes is None:
        return _of_numbers(target, before, after)
    labels = [str(label) for label in np.asarray(classes).tolist()]
    old, new = before.argmax(axis=1), after.argmax(axis=1)
    changed, was, is_now = old != new, old == target, new == target
    moved = np.flatnonzero(changed)
    # The rows that matter most: those where the old label lost most of its probability.
    lost = before[moved, old[moved]] - after[moved, old[moved]]
    counts = zip(
        labels,
        *(
            np.bincount(target[kind], minlength=len(labels)).tolist()
            for kind in (slice(None), was, is_now, changed)
        ),
        strict=True,
    )
    found = [ClassChanges(*count) for count in counts]
    return PredictionChanges(
        n_rows=len(target),
        n_changed=len(moved),
        mended=int(np.sum(~was & is_now)),
        broken=int(np.sum(was & ~is_now)),
        rows=tuple(
            ChangedRow(
                int(i),
                labels[target[i]],
                f"{labels[old[i]]} ({before[i, old[i]]:.0%})",
                f"{labels[new[i]]} ({after[i, new[i]]:.0%})",
            )
            for i in moved[np.argsort(-lost, kind="stable")][:LISTED_ROWS]
        ),
        classes=tuple(
            sorted(found, key=lambda c: (-c.changed, -abs(c.right_after - c.right_before)))
        ),
    )


def _of_numbers(target: np.ndarray, before: np.ndarray, after: np.ndarray) -> PredictionChanges:
    moved = np.abs(after - before)
    is_large = moved > 0.1 * float(np.std(target))
    closer = np.abs(after - target) < np.abs(before - target)
    shares = {"median": 0.5, "90 %": 0.9, "99 %": 0.99, "largest": 1.0}
    return PredictionChanges(
        n_rows=len(target),
        n_changed=int(is_large.sum()),
        mended=int(np.sum(is_large & closer)),
        broken=int(np.sum(is_large & ~closer)),
        rows=tuple(
            ChangedRow(int(i), *(f"{values[i]:.4g}" for values in (target, before, after)))
            for i in np.argsort(-moved, kind="stable")[:LISTED_ROWS]
        ),
        quantiles=tuple((name, f"{np.quantile(moved, at):.4g}") for name, at in shares.items()),
    )
