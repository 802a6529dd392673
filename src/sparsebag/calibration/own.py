"""A calibrator the user brings: any object with scikit-learn's calibrator interface."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sparsebag.calibration.calibrator import Calibrator, Params


@dataclass(frozen=True, eq=False)
class OwnCalibrator:
    """Fitted objects of the user's, applied to the finished vote.

    Attributes
    ----------
    models : tuple of object
        One that maps all classes by ``predict_proba``, or one of ``predict`` or ``transform``
        for the second of two classes, or one a class.
    n_classes : int
    """

    models: tuple[Any, ...]
    n_classes: int
    kind: ClassVar[str] = "own"

    @property
    def params(self) -> Params:
        """None that files could hold: they lie in objects of the user's."""
        return {}

    def transform(self, proba: np.ndarray) -> np.ndarray:
        """What the objects say, normalised; uniform where they give nothing to any class."""
        if len(self.models) == 1 and hasattr(self.models[0], "predict_proba"):
            mapped = np.asarray(self.models[0].predict_proba(proba), dtype=np.float64)
        elif len(self.models) == 1:
            second = np.clip(_mapped(self.models[0], proba[:, 1]), 0.0, 1.0)
            mapped = np.stack([1.0 - second, second], axis=1)
        else:
            each = zip(self.models, proba.T, strict=True)
            mapped = np.stack([_mapped(model, p) for model, p in each], axis=1)
        if mapped.shape != proba.shape or not np.all(np.isfinite(mapped)):
            name = type(self.models[0]).__name__
            raise ValueError(
                f"the calibrator {name} returned shape {mapped.shape} for votes of shape "
                f"{proba.shape}, or numbers that are not finite."
            )
        mapped = np.maximum(mapped, 0.0)
        total = mapped.sum(axis=1, keepdims=True)
        uniform = np.full_like(mapped, 1.0 / self.n_classes)
        return np.asarray(np.divide(mapped, total, out=uniform, where=total > 0.0))


def is_calibrator(candidate: Any) -> bool:
    """Whether an object has scikit-learn's calibrator interface.

    Parameters
    ----------
    candidate : object

    Returns
    -------
    bool

    Examples
    --------
    >>> from sklearn.isotonic import IsotonicRegression
    >>> is_calibrator(IsotonicRegression()), is_calibrator("isotonic")
    (True, False)
    """
    applies = any(hasattr(candidate, name) for name in ("predict_proba", "predict", "transform"))
    return hasattr(candidate, "fit") and applies and not isinstance(candidate, type)


def fit_own(
    calibrator: Any, proba: np.ndarray, target: np.ndarray, weight: np.ndarray
) -> Calibrator:
    """Fit copies of the user's object to finished votes.

    Parameters
    ----------
    calibrator : object
        Not changed. With ``predict_proba`` it is fitted on all columns; else, as in scikit-learn,
        on the second class's probabilities, or with more than two classes once a class.
    proba : ndarray of shape (rows, C)
    target : int ndarray of shape (rows,)
    weight : ndarray of shape (rows,)
        Passed on as ``sample_weight`` unless all rows weigh the same.

    Returns
    -------
    Calibrator

    Examples
    --------
    >>> from sklearn.isotonic import IsotonicRegression
    >>> votes = np.array([[0.9, 0.1]] * 8 + [[0.1, 0.9]] * 8)
    >>> fit_own(IsotonicRegression(), votes, np.repeat([0, 1], 8), np.ones(16)).kind
    'own'
    """
    from sklearn.base import clone

    extra = {} if np.all(weight == weight[0]) else {"sample_weight": weight}
    n_classes = proba.shape[1]

    def fitted(X: np.ndarray, y: np.ndarray) -> Any:
        mine = clone(calibrator, safe=False)
        if getattr(mine, "out_of_bounds", None) == "nan":  # isotonic: votes beyond those seen
            mine.set_params(out_of_bounds="clip")
        return mine.fit(X, y, **extra)

    models: tuple[Any, ...]
    if hasattr(calibrator, "predict_proba"):
        models = (fitted(proba, target),)
    elif n_classes == 2:
        models = (fitted(proba[:, 1], target),)
    else:
        models = tuple(fitted(proba[:, c], (target == c).astype(int)) for c in range(n_classes))
    return OwnCalibrator(models, n_classes)


def _mapped(model: Any, scores: np.ndarray) -> np.ndarray:
    apply = model.predict if hasattr(model, "predict") else model.transform
    return np.asarray(apply(scores), dtype=np.float64).reshape(len(scores))
