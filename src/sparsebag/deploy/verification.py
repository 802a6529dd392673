"""Proof that an export predicts what the model predicts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sparsebag.calibration.calibrator import Calibrator
from sparsebag.deploy.compiled import CompiledEnsemble
from sparsebag.deploy.trees import FlatTrees

TOLERANCE = 1e-9
"""Largest difference of an export that matches: sums in another order, other exp and log."""


class NotExportable(ValueError):
    """A model that a file or an export has no form for; the message is why, and what to do."""


def check_fixed_weights(gate: Any, engine: str) -> None:
    """One sentence for an engine whose ensembles cannot weigh members row by row.

    Parameters
    ----------
    gate : LinearGate or None
    engine : str

    Examples
    --------
    >>> check_fixed_weights(None, "treelite")
    """
    if gate is not None:
        raise NotExportable(
            f"{engine} supports fixed weights only, but this model's weights depend on the row; "
            f"use save, or compress with local=None."
        )


def name_of(calibrator: Calibrator) -> str:
    """What the user calls it: its kind, or the class of an object of the user's.

    Parameters
    ----------
    calibrator : Calibrator

    Returns
    -------
    str
    """
    models = getattr(calibrator, "models", ())
    return type(models[0]).__name__ if models else calibrator.kind


class ExportMismatch(ValueError):
    """An export that predicts something else than the model.

    Examples
    --------
    >>> import sparsebag as sb
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> forest = RandomForestClassifier(50, random_state=0).fit(X, y)
    >>> try:  # the forest is no export of the compressed one
    ...     sb.verify(sb.compress(forest, X, y), forest, X)
    ... except sb.ExportMismatch as error:
    ...     print(str(error)[:35])
    the export does not match the model
    """


@dataclass(frozen=True)
class Verification:
    """How an export compares with the model.

    Attributes
    ----------
    n_rows : int
    largest_difference : float
        In probability; in regression each row's is relative to its prediction (near zero, to a
        thousandth of a usual one).
    label_flips : int
        Rows that get another label.
    boundary_rows : int
        Near ties: rows whose two best classes differ by less than the tolerance.
    differing_rows : int
        Rows beyond the tolerance, or with another label where there is no near tie.

    Examples
    --------
    >>> print(Verification(150, 2e-16, 0, 1))
    150 rows: largest difference 2e-16, 0 labels changed, near ties: 1
    """

    n_rows: int
    largest_difference: float
    label_flips: int
    boundary_rows: int
    differing_rows: int = 0

    def __str__(self) -> str:
        differ = f"{self.differing_rows} differ, " if self.differing_rows else ""
        return (
            f"{self.n_rows} rows: {differ}largest difference {self.largest_difference:.1g}, "
            f"{self.label_flips} labels changed, near ties: {self.boundary_rows}"
        )


def verify(model: Any, export: Any, X: Any, tolerance: float | None = None) -> Verification:
    """Compare an export of any kind with the model it was made from; raise if they differ.

    Parameters
    ----------
    model : fitted SparseBagging*, Pipeline around one, or CompiledEnsemble
        What `sparsebag.compress` returns, or its ``compile()``, or a loaded file.
    export : OnnxExport, TreeliteExport, scikit-learn estimator, CompiledEnsemble or callable
        What ``to_onnx``, ``to_treelite``, ``to_sklearn`` and `sparsebag.load` return, or any
        function of X that gives probabilities (numbers, in regression).
    X : array-like, sparse matrix or DataFrame of shape (rows, n_features)
    tolerance : float, optional
        Largest accepted difference. Default: 1e-9; of the ONNX graph of a Pipeline, which computes
        in single precision, 0.001, and 2% of the rows may differ by more.

    Returns
    -------
    Verification
        Largest difference, changed labels and near ties.

    Examples
    --------
    >>> import sparsebag as sb
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> small = sb.compress(RandomForestClassifier(50, random_state=0).fit(X, y), X, y)
    >>> found = sb.verify(small, small.to_sklearn(), X)
    >>> found.n_rows, found.label_flips, found.largest_difference < 1e-12
    (150, 0, True)
    """
    model = model.compile() if hasattr(model, "compile") else model
    classes = getattr(model, "classes", getattr(model, "classes_", None))
    predict = _prediction(classes, export)
    kind = export if isinstance(export, Export) else Export
    tolerance = kind.tolerance if tolerance is None else tolerance
    X = dense(X)
    ours = model.predict(X) if classes is None else model.predict_proba(X)
    theirs = np.asarray(predict(X))
    if theirs.size != ours.size:
        raise ExportMismatch(
            f"the export does not match the model: it predicts an array of shape {theirs.shape}, "
            f"not {ours.shape}."
        )
    theirs = theirs.reshape(ours.shape)
    scale: Any = 1.0
    flipped = is_boundary = np.zeros(len(ours), dtype=bool)
    if classes is None:
        scale = _row_scale(ours)
    else:
        best = np.sort(ours, axis=1)
        is_boundary = best[:, -1] - best[:, -2] <= tolerance
        flipped = np.argmax(ours, axis=1) != np.argmax(theirs, axis=1)
    difference = np.atleast_2d((np.abs(ours - theirs) / scale).T).T
    is_near = np.all(difference <= tolerance, axis=1)  # NaN is wrong too
    n_differ = int(np.sum(~is_near | (flipped & ~is_boundary)))
    counts = (int(np.sum(flipped)), int(np.sum(is_boundary)), n_differ)
    found = Verification(len(ours), float(difference.max(initial=0.0)), *counts)
    if n_differ > kind.rows_excused * len(ours):
        raise ExportMismatch(f"the export does not match the model: {found}{kind.advice}.")
    return found


def _prediction(classes: Any, export: Any) -> Callable[[Any], Any]:
    """The function of an export that gives what the model's probabilities or numbers are."""
    if isinstance(export, Export):
        return export.predict
    found = getattr(export, "classes_", None)
    known = [] if classes is None else list(classes)
    if found is not None and list(found) != known:
        raise ExportMismatch(
            f"the export does not match the model: its classes are {list(found)[:5]}, those of "
            f"the model {known[:5]}."
        )
    name = "predict" if classes is None else "predict_proba"
    predict = getattr(export, name, export)
    if not callable(predict):
        raise TypeError(
            f"a {type(export).__name__} is not an export: pass what to_onnx, to_treelite, "
            "to_sklearn or sparsebag.load returned, or a function that predicts."
        )
    return predict  # type: ignore[no-any-return]


def _row_scale(ours: np.ndarray) -> Any:
    """What a row's difference is measured against in regression: its own prediction.

    Near zero, where the terms of a sum are much larger than the sum, a thousandth of a usual
    prediction: the median, which a few huge ones do not move.
    """
    size = np.abs(ours)
    usual = float(np.median(size[size > 0.0])) if np.any(size > 0.0) else 1.0
    return np.maximum(size, 1e-3 * usual)


class Export(ABC):
    """A model in another engine's form, and the ensemble it stands for.

    Attributes
    ----------
    model : CompiledEnsemble
    tolerance : float
        Largest accepted difference.
    rows_excused : float
        Share of rows that may differ by more.
    advice : str
        The usual cause of a mismatch and what to do; ends the sentence.
    """

    model: CompiledEnsemble
    tolerance: ClassVar[float] = TOLERANCE
    rows_excused: ClassVar[float] = 0.0
    advice: ClassVar[str] = ""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.model}>"

    @abstractmethod
    def predict(self, X: Any) -> np.ndarray:
        """Probabilities, or numbers (regression), by the other engine."""

    def verify(self, X: Any, tolerance: float | None = None) -> Verification:
        """Compare the other engine's predictions with the model's; raise where they differ.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (rows, n_features)
        tolerance : float, optional

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


def width_of_rows(model: CompiledEnsemble) -> int:
    """Columns of X; of a model that does not say, as many as its members read."""
    return model.n_features or max(group.n_features for group in model.groups)


def probe_rows(model: CompiledEnsemble, n_rows: int = 500, seed: int = 0) -> np.ndarray:
    """Rows that tell a wrong export: at thresholds and beside them, missing where allowed.

    Parameters
    ----------
    model : CompiledEnsemble
    n_rows, seed : int

    Returns
    -------
    float32 ndarray of shape (rows, n_features)
    """
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, width_of_rows(model))).astype(np.float32)
    for group in model.groups:
        if not isinstance(group, FlatTrees):
            continue
        finite = np.isfinite(group.threshold)
        order = np.argsort(group.feature[finite], kind="stable")
        cut, column = group.threshold[finite][order], group.feature[finite][order]
        columns, starts = np.unique(column, return_index=True)
        cuts_of = np.split(cut, starts[1:]) if len(columns) else []
        for feature, cuts in zip(columns, cuts_of, strict=True):
            chosen = rng.choice(cuts, n_rows)
            side = rng.choice(np.array([-np.inf, np.inf], dtype=np.float32), n_rows)
            beside = np.nextafter(chosen, side)
            X[:, feature] = np.where(rng.random(n_rows) < 0.5, chosen, beside)
    X[~np.isfinite(X)] = 0.0
    X[0] = 0.0  # scores without an intercept are equal there: who wins a draw?
    if model.allow_nan:
        X[1:][rng.random(X[1:].shape) < 0.1] = np.nan
    return X
