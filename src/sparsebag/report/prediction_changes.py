"""Which rows and classes are predicted otherwise after a compression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

MOST_ROWS = 20
"""Rows listed one by one: those that changed most."""


@dataclass(frozen=True)
class ChangedRow:
    """One row whose prediction moved.

    Attributes
    ----------
    row : int
        Its position among the test rows, from 0.
    truth, before, after : str
    sure_before, sure_after : float or None
        Probability of the predicted class; None for regression.
    """

    row: int
    truth: str
    before: str
    after: str
    sure_before: float | None = None
    sure_after: float | None = None


@dataclass(frozen=True)
class PredictionChanges:
    """How predictions moved, over all test rows.

    Attributes
    ----------
    n_rows, n_changed : int
        For regression, rows whose prediction moved by more than a tenth of the targets' spread.
    mended, broken : int
        Wrong before and right after, and the reverse (regression: closer to the target, farther).
    classes : tuple of ClassChanges
        A class a line; empty for regression.
    quantiles : dict of str to float
        Regression: quantiles of the absolute change.
    rows : tuple of ChangedRow
    """

    n_rows: int
    n_changed: int
    mended: int
    broken: int
    classes: tuple[ClassChanges, ...]
    quantiles: dict[str, float]
    rows: tuple[ChangedRow, ...]


@dataclass(frozen=True)
class ClassChanges:
    """What became of the rows of one class.

    Attributes
    ----------
    label : str
    n_rows : int
    right_before, right_after, changed : int
    """

    label: str
    n_rows: int
    right_before: int
    right_after: int
    changed: int


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
    changed = np.flatnonzero(old != new)
    # The rows that matter most: those where the old label lost most of its probability.
    lost = before[changed, old[changed]] - after[changed, old[changed]]
    listed = changed[np.argsort(-lost, kind="stable")][:MOST_ROWS]
    return PredictionChanges(
        n_rows=len(target),
        n_changed=len(changed),
        mended=int(np.sum((old != target) & (new == target))),
        broken=int(np.sum((old == target) & (new != target))),
        classes=tuple(
            ClassChanges(
                label,
                int(np.sum(target == c)),
                int(np.sum((target == c) & (old == c))),
                int(np.sum((target == c) & (new == c))),
                int(np.sum((target == c) & (old != new))),
            )
            for c, label in enumerate(labels)
        ),
        quantiles={},
        rows=tuple(
            ChangedRow(
                int(i),
                labels[target[i]],
                labels[old[i]],
                labels[new[i]],
                float(before[i, old[i]]),
                float(after[i, new[i]]),
            )
            for i in listed
        ),
    )


def _of_numbers(target: np.ndarray, before: np.ndarray, after: np.ndarray) -> PredictionChanges:
    moved = np.abs(after - before)
    large = 0.1 * float(np.std(target))
    closer = np.abs(after - target) < np.abs(before - target)
    is_large = moved > large
    listed = np.argsort(-moved, kind="stable")[:MOST_ROWS]
    shares = {"median": 0.5, "90 %": 0.9, "99 %": 0.99, "largest": 1.0}
    return PredictionChanges(
        n_rows=len(target),
        n_changed=int(is_large.sum()),
        mended=int(np.sum(is_large & closer)),
        broken=int(np.sum(is_large & ~closer)),
        classes=(),
        quantiles={name: float(np.quantile(moved, share)) for name, share in shares.items()},
        rows=tuple(
            ChangedRow(int(i), f"{target[i]:.4g}", f"{before[i]:.4g}", f"{after[i]:.4g}")
            for i in listed
        ),
    )
