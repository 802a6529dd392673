"""What a compression changed: every score with a paired bootstrap interval, and which predictions.

Both models are scored on the same rows, so rows are drawn once for both: what is hard about a draw
is hard for both, and the interval is of the difference alone. Every score here is a function of
sums over rows, so a draw is one product of row counts with a few columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np

DRAWS = 1000
LISTED_ROWS = 20
CONFUSED_CLASSES = 10
"""Classes of the confusion matrix; more do not fit a page."""
CLASSIFICATION = {
    **{"log-loss": True, "accuracy": False},
    **{"AUC": False, "F1": False, "Brier": True, "ECE": True},
}
REGRESSION = {"MSE": True, "R²": False, "MAE": True}
"""Names of the scores, and whether lower is better; AUC and F1 are means over classes."""
MAIN = ("log-loss", "accuracy", "MSE", "R²")
"""What a summary tells: one score of the probabilities and one of the decisions."""
UNCLEAR = "no clear change"


@dataclass(frozen=True)
class ScoreChange:
    """One score before and after.

    Attributes
    ----------
    name : str
    before, after : float
    low, high : float
        Where ``after - before`` is with 95% confidence: paired bootstrap over the test rows.
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
            return UNCLEAR
        return "better" if (self.high < 0.0) == self.lower_is_better else "worse"

    @property
    def is_main(self) -> bool:
        """Whether a summary tells it."""
        return self.name in MAIN

    @property
    def is_judged(self) -> bool:
        """Whether sizes are judged by it."""
        return self.name in ("Brier", "MSE")

    @property
    def in_words(self) -> str:
        """Before and after: ``0.351 → 0.347``."""
        return f"{shown(self.name, self.before)} → {shown(self.name, self.after)}"

    @property
    def interval(self) -> str:
        """The 95% interval of the difference, in percentage points where the score is a share."""
        unit, scale = (" points", 100.0) if self.name == "accuracy" else ("", 1.0)
        low, high = (f"{Decimal(f'{scale * end:.2g}'):+,f}" for end in (self.low, self.high))
        return f"{low} to {high}{unit}" if self.low or self.high else "none"

    def as_dict(self) -> dict[str, float | str]:
        """The figures by name.

        Returns
        -------
        dict
        """
        figures = {name: value for name, value in vars(self).items() if isinstance(value, float)}
        return {**figures, "difference": self.difference, "verdict": self.verdict}


def shown(name: str, score: float) -> str:
    """A score as text: three digits, accuracy in percent; of what ends at 1, three decimals.

    Examples
    --------
    >>> shown("log-loss", 0.34), shown("accuracy", 0.8458), shown("MSE", 3556.2)
    ('0.340', '84.6%', '3,556')
    """
    if name == "accuracy":
        return f"{score:.1%}"
    if name in ("AUC", "F1", "R²"):
        return f"{score:.3f}"
    return f"{score:#.3g}".rstrip(".") if abs(score) < 100.0 else f"{score:,.0f}"


def scores(
    target: np.ndarray, said: np.ndarray, weight: np.ndarray | None = None
) -> dict[str, float]:
    """Every score of a model: log-loss, accuracy, AUC, F1, Brier, ECE; or MSE, R², MAE.

    AUC and F1 are means over the classes there are; of a single class there is no AUC.

    Parameters
    ----------
    target : ndarray of shape (n,)
        Class positions, or numbers (regression).
    said : ndarray of shape (n, C), or (n,) for regression
    weight : ndarray of shape (n,), optional
        Of the rows, with mean one.

    Returns
    -------
    dict of str to float

    Examples
    --------
    >>> scores(np.array([0.0, 2.0]), np.array([0.0, 1.0]))
    {'MSE': 0.5, 'R²': 0.5, 'MAE': 0.5}
    """
    weight = np.ones(len(target)) if weight is None else weight
    means = weight[None] @ _row_figures(target, said, weight) / len(target)
    found = dict(zip(_names(said), _from_means(means, said.ndim)[0].tolist(), strict=True))
    return {name: value for name, value in found.items() if not np.isnan(value)}


def score_changes(
    target: np.ndarray,
    before: np.ndarray,
    after: np.ndarray,
    weight: np.ndarray | None = None,
    *,
    seed: int = 0,
) -> tuple[ScoreChange, ...]:
    """Every score before and after, with a paired bootstrap interval of the difference.

    Parameters
    ----------
    target : ndarray of shape (n,)
    before, after : ndarray of shape (n, C), or (n,) for regression
        What each model says of the same rows.
    weight : ndarray of shape (n,), optional
        Of the rows, with mean one.
    seed : int

    Returns
    -------
    tuple of ScoreChange

    Examples
    --------
    >>> y = np.array([0.0, 1.0, 2.0, 3.0] * 20)
    >>> mse, r2, mae = score_changes(y, y + 1.0, y)
    >>> mse.verdict, mse.low, mse.high
    ('better', -1.0, -1.0)
    """
    n, rng = len(target), np.random.default_rng(seed)
    weight = np.ones(n) if weight is None else weight
    figures = [_row_figures(target, said, weight) for said in (before, after)]
    differences = []
    # Of very many rows the interval is narrow, and fewer draws tell its ends well enough.
    for _ in range((DRAWS if n <= 100_000 else DRAWS // 5) // 20):
        times = [np.bincount(rng.integers(n, size=n), minlength=n) for _ in range(20)]
        drawn = np.stack(times) * weight
        total = drawn.sum(axis=1, keepdims=True)
        old, new = (_from_means(drawn @ columns / total, before.ndim) for columns in figures)
        differences.append(new - old)
    # 95% of the draws lie between.
    low, high = np.quantile(np.concatenate(differences), [0.025, 0.975], axis=0).tolist()
    old_scores, new_scores = (scores(target, said, weight) for said in (before, after))
    return tuple(
        ScoreChange(name, old_scores[name], new_scores[name], low[i], high[i], lower)
        for i, (name, lower) in enumerate(_names(before).items())
        if name in old_scores
    )


def _names(said: np.ndarray) -> dict[str, bool]:
    return REGRESSION if said.ndim == 1 else CLASSIFICATION


def _row_figures(
    target: np.ndarray, said: np.ndarray, weight: np.ndarray, n_bins: int = 15
) -> np.ndarray:
    """Columns whose means over rows make the scores; of classes, the gap of each bin at the end.

    Bins are as `metrics.expected_calibration_error` has them by default.
    """
    if said.ndim == 1:
        error, centred = said - target, target - target.mean()
        return np.column_stack([error**2, np.abs(error), centred, centred**2])
    rows, predicted = np.arange(len(target)), said.argmax(axis=1)
    residual = said.copy()
    residual[rows, target] -= 1.0
    correct, confidence = predicted == target, said.max(axis=1)
    gaps = np.zeros((len(target), n_bins))
    inner = np.linspace(0.0, 1.0, n_bins + 1)[1:-1]
    gaps[rows, np.searchsorted(inner, confidence, side="left")] = correct - confidence
    log_loss = -np.log(np.maximum(said[rows, target], 1e-15))  # as metrics.log_loss clips
    present = np.unique(target)
    auc = np.mean([_auc_figures(target == c, said[:, c], weight) for c in present], axis=0)
    f1 = np.mean([_f1_figures(target == c, predicted == c, weight) for c in present], axis=0)
    brier = np.square(residual).sum(axis=1)
    return np.column_stack([log_loss, correct, auc, f1, brier, gaps])


def _auc_figures(is_c: np.ndarray, score: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """A figure a row: their mean is the AUC of one class against the others.

    A row's placement is the share of the rows of the other kind that it is ranked right against
    (DeLong et al. 1988). The mean of a draw is the AUC of the draw to first order.
    """
    of, others = np.where(is_c, weight, 0.0), np.where(is_c, 0.0, weight)
    if not others.any() or not of.any():
        return np.full(len(score), np.nan)
    _, at = np.unique(score, return_inverse=True)
    placement = np.where(is_c, _below(at, others), 1.0 - _below(at, of))
    auc = float(placement @ of / of.sum())
    share = np.where(is_c, of.sum(), others.sum()) / weight.sum()
    return np.asarray(auc + (placement - auc) / share)


def _below(at: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The share of the weight at lower positions than each row's, ties by half."""
    tied = np.bincount(at, weight)
    return np.asarray(((np.cumsum(tied) - tied / 2.0) / weight.sum())[at])


def _f1_figures(is_c: np.ndarray, predicted: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """A figure a row: their mean is the F1 of one class, that of a draw its F1 to first order."""
    either, both = is_c.astype(float) + predicted, 2.0 * (is_c & predicted)
    f1 = float(both @ weight / (either @ weight))
    return np.asarray(f1 + (both - f1 * either) / np.average(either, weights=weight))


def _from_means(means: np.ndarray, ndim: int) -> np.ndarray:
    """The scores of each line of means."""
    if ndim > 1:
        return np.column_stack([means[:, :5], np.abs(means[:, 5:]).sum(axis=1)])
    mse, mae, centre, square = means.T
    spread = np.maximum(square - centre**2, 0.0)
    # Of targets that do not vary: 1 for a perfect prediction and 0 else, as scikit-learn.
    ratio = np.divide(mse, spread, out=(mse > 0.0).astype(float), where=spread > 0.0)
    return np.column_stack([mse, 1.0 - ratio, mae])


class ClassChanges(NamedTuple):
    """One class: its rows, and its scores before and after (NaN: never predicted)."""

    label: str
    n_rows: int
    recall: tuple[float, float]
    precision: tuple[float, float]
    f1: tuple[float, float]


class ChangedRow(NamedTuple):
    """One row whose prediction moved; its position is among the test rows, from 0."""

    row: int
    truth: str
    before: str
    after: str


@dataclass(frozen=True, eq=False)
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
        In order; of many, those whose rows changed most first; empty for regression.
    confusion : ndarray of shape (2, K, K)
        Rows of each true class (a line) by predicted class, before and after, in the order of
        ``classes``; of many classes, the last is all others together.
    quantiles : tuple of str and str
        Regression: names and values of quantiles of the absolute change.
    """

    n_rows: int
    n_changed: int
    mended: int
    broken: int
    rows: tuple[ChangedRow, ...]
    classes: tuple[ClassChanges, ...] = ()
    confusion: np.ndarray | None = None
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
    >>> found.confusion[0]
    array([[1, 1],
           [0, 0]])
    """
    if classes is None:
        return _of_numbers(target, before, after)
    labels = [str(label) for label in np.asarray(classes).tolist()]
    old, new, n = before.argmax(axis=1), after.argmax(axis=1), len(labels)
    was, is_now, moved = old == target, new == target, np.flatnonzero(old != new)
    # The rows that matter most: those where the old label lost most of its probability.
    lost = before[moved, old[moved]] - after[moved, old[moved]]
    n_true, *counts = (
        np.bincount(v, minlength=n) for v in (target, old, new, target[was], target[is_now])
    )
    said, right = np.array(counts[:2], dtype=float), np.array(counts[2:], dtype=float)
    with np.errstate(invalid="ignore", divide="ignore"):
        recall, precision, f1 = right / n_true, right / said, 2.0 * right / (said + n_true)
    n_moved = np.bincount(target[moved], minlength=n) * (n > CONFUSED_CLASSES)
    order = np.argsort(-n_moved, kind="stable")
    place = np.minimum(np.argsort(order), CONFUSED_CLASSES)
    k = min(n, CONFUSED_CLASSES + 1)
    cells = (place[target] * k + place[v] for v in (old, new))
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
            ClassChanges(
                labels[c],
                int(n_true[c]),
                *((*pair[:, c].tolist(),) for pair in (recall, precision, f1)),
            )
            for c in order
        ),
        confusion=np.stack([np.bincount(v, minlength=k * k).reshape(k, k) for v in cells]),
    )


def _of_numbers(target: np.ndarray, before: np.ndarray, after: np.ndarray) -> PredictionChanges:
    moved = np.abs(after - before)
    is_large = moved > 0.1 * float(np.std(target))
    closer = np.abs(after - target) < np.abs(before - target)
    shares = {"median": 0.5, "90%": 0.9, "99%": 0.99, "largest": 1.0}
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
