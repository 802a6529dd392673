"""What a calibrator is: a map of class probabilities that files and exports know by its kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

Params = Mapping[str, np.ndarray]

LEAST_FLOOR = 1e-6
"""Share of the uniform vote in votes whose logarithm is read: none is zero then."""


class Calibrator(Protocol):
    """A map from class probabilities to better ones, with its parameters as arrays."""

    @property
    def kind(self) -> str:
        """Name under which files and exports know it."""

    @property
    def params(self) -> Params:
        """Everything it has learned."""

    def transform(self, proba: np.ndarray) -> np.ndarray:
        """Calibrated probabilities, rows on the simplex."""


def softmax_rows(logits: np.ndarray) -> np.ndarray:
    """exp(logits), normalised a row; the largest logit of a row must be finite.

    Parameters
    ----------
    logits : ndarray of shape (rows, C)

    Returns
    -------
    ndarray of shape (rows, C)

    Examples
    --------
    >>> softmax_rows(np.array([[0.0, -np.inf]])).tolist()
    [[1.0, 0.0]]
    """
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(odds / odds.sum(axis=1, keepdims=True))


def logarithm(proba: np.ndarray) -> np.ndarray:
    """log(proba), minus infinity at zero without a warning.

    Parameters
    ----------
    proba : ndarray

    Returns
    -------
    ndarray

    Examples
    --------
    >>> logarithm(np.array([1.0, 0.0])).tolist()
    [0.0, -inf]
    """
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(proba))


def finished_votes(votes: np.ndarray, floor: float = 0.0) -> np.ndarray:
    """Votes as they are deployed before calibration: clipped at zero, normalised, floored.

    Refitted leaves may say less than nothing of a class.

    Parameters
    ----------
    votes : ndarray of shape (rows, C)
    floor : float, default 0
        Share of the uniform class distribution mixed in.

    Returns
    -------
    ndarray of shape (rows, C)

    Examples
    --------
    >>> finished_votes(np.array([[1.5, -0.5]]), 0.5).tolist()
    [[0.75, 0.25]]
    """
    kept = np.maximum(np.asarray(votes, dtype=np.float64), 0.0)
    total = kept.sum(axis=1, keepdims=True)
    uniform = np.full_like(kept, 1.0 / kept.shape[1])
    kept = np.divide(kept, total, out=uniform, where=total > 0.0)
    return np.asarray((1.0 - floor) * kept + floor / kept.shape[1])
