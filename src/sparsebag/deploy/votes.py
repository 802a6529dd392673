"""What linear and neural members share: X as finite numbers, links, the weighted sum of votes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

BLOCK_ELEMENTS = 2**21
"""Scores or activations held at a time."""


def finite_numbers(X: Any) -> Any:
    """X as float64, dense or sparse; NaN and infinity raise, as in scikit-learn.

    Parameters
    ----------
    X : ndarray or sparse matrix

    Returns
    -------
    ndarray or sparse matrix

    Examples
    --------
    >>> finite_numbers(np.array([[1, 2]])).tolist()
    [[1.0, 2.0]]
    """
    X = X.astype(np.float64, copy=False)
    values = X.data if hasattr(X, "toarray") else X
    with np.errstate(invalid="ignore", over="ignore"):
        suspicious = not np.isfinite(values.sum())  # one pass, no array of booleans
    if suspicious and not np.all(np.isfinite(values)):
        what = "NaN" if np.any(np.isnan(values)) else "infinity"
        raise ValueError(f"Input X contains {what}.")
    return X


def scores_in_blocks(
    X: Any, n_outputs: int, width: int, of_block: Callable[[Any, slice], np.ndarray]
) -> np.ndarray:
    """Scores of a few rows at a time, so that memory does not grow with the rows.

    Parameters
    ----------
    X : ndarray or sparse matrix of shape (rows, n_features)
        Checked by `finite_numbers` here.
    n_outputs : int
    width : int
        Numbers a row takes on the way.
    of_block : callable
        Some rows of X, and which they are, to scores of shape (rows, n_outputs).

    Returns
    -------
    ndarray of shape (rows, n_outputs)

    Examples
    --------
    >>> scores_in_blocks(np.ones((3, 2)), 1, 2, lambda X, rows: X[:, :1]).shape
    (3, 1)
    """
    X = finite_numbers(X)
    out = np.empty((X.shape[0], n_outputs))
    step = max(1, BLOCK_ELEMENTS // width)
    for start in range(0, X.shape[0], step):
        rows = slice(start, start + step)
        out[rows] = of_block(X[rows], rows)
    return out


def sigmoid(z: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-z)), without overflow and to full relative precision.

    Parameters
    ----------
    z : ndarray

    Returns
    -------
    ndarray

    Examples
    --------
    >>> sigmoid(np.array([0.0, 1000.0])).tolist()
    [0.5, 1.0]
    """
    e = np.exp(-np.abs(z))
    return np.asarray(np.where(z >= 0.0, 1.0, e) / (1.0 + e))


def softmax(z: np.ndarray) -> np.ndarray:
    """exp(z), normalised over the last axis.

    Parameters
    ----------
    z : ndarray

    Returns
    -------
    ndarray

    Examples
    --------
    >>> softmax(np.array([0.0, 0.0])).tolist()
    [0.5, 0.5]
    """
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return np.asarray(e / e.sum(axis=-1, keepdims=True))


def weighted_votes(
    votes: np.ndarray, weights: np.ndarray, class_columns: np.ndarray, n_outputs: int
) -> np.ndarray:
    """Sum of the members' votes, each in the classes it knows.

    Parameters
    ----------
    votes : ndarray of shape (members, rows, classes a member)
    weights : ndarray of shape (members,) or (rows, members)
    class_columns : int ndarray of shape (members, classes a member)
    n_outputs : int

    Returns
    -------
    ndarray of shape (rows, n_outputs)

    Examples
    --------
    >>> votes = np.array([[[1.0]], [[0.5]]])
    >>> weighted_votes(votes, np.array([0.5, 0.5]), np.array([[0], [2]]), 3).tolist()
    [[0.5, 0.0, 0.25]]
    """
    plain = class_columns.shape[1] == n_outputs and np.all(class_columns == np.arange(n_outputs))
    if plain and weights.ndim == 1:
        return np.asarray(np.tensordot(weights, votes, axes=1))
    if plain and n_outputs == 1:  # rows first, as they came: one pass over both
        return np.asarray(np.einsum("nm,nm->n", weights, votes[:, :, 0].T)[:, None])
    if plain:
        return np.asarray(np.einsum("nm,mnc->nc", weights, votes))
    out = np.zeros((votes.shape[1], n_outputs))
    of_member = weights if weights.ndim == 1 else weights.T[:, :, None]
    for weight, vote, columns in zip(of_member, votes, class_columns, strict=True):
        out[:, columns] += weight * vote
    return out


def check_class_columns(class_columns: np.ndarray, n_outputs: int) -> None:
    """Each member's classes are distinct and exist.

    Parameters
    ----------
    class_columns : int ndarray of shape (members, classes a member)
    n_outputs : int
    """
    if class_columns.size == 0 or class_columns.min() < 0 or class_columns.max() >= n_outputs:
        raise ValueError("a member votes for a class that does not exist.")
    if np.any(np.diff(np.sort(class_columns, axis=1), axis=1) == 0):
        raise ValueError("a member votes twice for one class.")
