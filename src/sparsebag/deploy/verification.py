"""Proof that an export predicts what the model predicts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsebag.deploy.compiled import CompiledEnsemble
from sparsebag.deploy.trees import FlatTrees

PROBE_ROWS = 500
"""Rows every export is tried on before it is handed out."""
MISSING_SHARE = 0.1


TOLERANCE = 1e-9
"""Largest difference of an export that matches: sums in another order, other exp and log."""


class ExportMismatch(RuntimeError):
    """An export that predicts something else than the model."""


@dataclass(frozen=True)
class Verification:
    """How an export compares with the model.

    Attributes
    ----------
    n_rows : int
    largest_difference : float
        In probability, or in the prediction relative to its largest magnitude (regression).
    label_flips : int
        Rows that get another label.
    boundary_rows : int
        Rows whose two best classes are closer than the tolerance: their label hangs on rounding.
    """

    n_rows: int
    largest_difference: float
    label_flips: int
    boundary_rows: int

    def __str__(self) -> str:
        return (
            f"{self.n_rows} rows: largest difference {self.largest_difference:.1e}, "
            f"{self.label_flips} label flips, {self.boundary_rows} boundary rows"
        )


def verify(
    model: CompiledEnsemble, predict: Callable[[Any], np.ndarray], X: Any, tolerance: float
) -> Verification:
    """Compare an export with the model; raise where they differ.

    Parameters
    ----------
    model : CompiledEnsemble
    predict : callable
        The export's probabilities, or numbers (regression).
    X : array-like
    tolerance : float

    Returns
    -------
    Verification

    Examples
    --------
    >>> import sparsebag as sb
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> small = sb.compress(RandomForestClassifier(50, random_state=0).fit(X, y), X, y)
    >>> print(verify(small.compile(), small.predict_proba, X, 1e-9))
    150 rows: largest difference 0.0e+00, 0 label flips, 0 boundary rows
    """
    X = dense(X)
    theirs = np.asarray(predict(X))
    if model.classes is None:
        ours = model.predict(X)
        theirs = theirs.reshape(ours.shape)
        scale = float(np.abs(ours).max(initial=0.0)) or 1.0
        flips = boundary = 0
    else:
        ours, scale = model.predict_proba(X), 1.0
        best = np.sort(ours, axis=1)
        is_boundary = best[:, -1] - best[:, -2] <= tolerance
        flipped = np.argmax(ours, axis=1) != np.argmax(theirs, axis=1)
        flips, boundary = int(np.sum(flipped)), int(np.sum(is_boundary))
        flips_elsewhere = int(np.sum(flipped & ~is_boundary))
    difference = np.abs(ours - theirs).max(initial=0.0) / scale
    found = Verification(len(ours), float(difference), flips, boundary)
    wrong = not difference <= tolerance  # NaN is wrong too
    if wrong or (model.classes is not None and flips_elsewhere):
        raise ExportMismatch(f"the export does not match the model: {found}.")
    return found


class Export(ABC):
    """A model in another engine's form, and the ensemble it stands for."""

    model: CompiledEnsemble

    @abstractmethod
    def predict(self, X: Any) -> np.ndarray:
        """Probabilities, or numbers (regression), by the other engine."""

    def verify(self, X: Any, tolerance: float = TOLERANCE) -> Verification:
        """Compare the other engine's predictions with the model's; raise where they differ.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (rows, n_features)
        tolerance : float

        Returns
        -------
        Verification
        """
        return verify(self.model, self.predict, X, tolerance)


def dense(X: Any) -> Any:
    """X as other engines read it: not sparse.

    Parameters
    ----------
    X : array-like or sparse matrix

    Returns
    -------
    array-like
    """
    return X.toarray() if hasattr(X, "toarray") else X


def probe_rows(model: CompiledEnsemble, seed: int = 0) -> np.ndarray:
    """Rows that tell a wrong export: at thresholds and beside them, missing where allowed.

    Parameters
    ----------
    model : CompiledEnsemble
    seed : int

    Returns
    -------
    float32 ndarray of shape (rows, n_features)
    """
    rng = np.random.default_rng(seed)
    width = model.n_features or max(g.n_features for g in model.groups)
    X = rng.normal(size=(PROBE_ROWS, width)).astype(np.float32)
    for group in model.groups:
        if not isinstance(group, FlatTrees):
            continue
        finite = np.isfinite(group.threshold)
        order = np.argsort(group.feature[finite], kind="stable")
        cut, column = group.threshold[finite][order], group.feature[finite][order]
        columns, starts = np.unique(column, return_index=True)
        cuts_of = np.split(cut, starts[1:]) if len(columns) else []
        for feature, cuts in zip(columns, cuts_of, strict=True):
            chosen = rng.choice(cuts, PROBE_ROWS)
            side = rng.choice(np.array([-np.inf, np.inf], dtype=np.float32), PROBE_ROWS)
            beside = np.nextafter(chosen, side)
            X[:, feature] = np.where(rng.random(PROBE_ROWS) < 0.5, chosen, beside)
    X[~np.isfinite(X)] = 0.0
    X[0] = 0.0  # scores without an intercept are equal there: who wins a draw?
    if model.allow_nan:
        X[1:][rng.random(X[1:].shape) < MISSING_SHARE] = np.nan
    return X
