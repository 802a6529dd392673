"""Rows as the caller has them, as real numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def as_numbers(X: Any, names: Sequence[str] | None = None) -> np.ndarray:
    """X as an array of real numbers; whatever pandas calls missing becomes NaN.

    Parameters
    ----------
    X : array-like or DataFrame
    names : sequence of str, optional
        Of the columns, for the error.

    Returns
    -------
    ndarray

    Examples
    --------
    >>> as_numbers([["1", "2.5"]]).tolist()
    [[1.0, 2.5]]
    """
    array = np.asarray(X)
    if array.dtype.kind in "fiub":
        return array
    if array.dtype.kind == "c":
        raise ValueError("X holds complex numbers; pass real ones.")
    if hasattr(X, "isna"):  # pandas' NA is no float
        array = np.where(X.isna(), np.nan, array)
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError):
        raise _not_a_number(array, names) from None


def _not_a_number(array: np.ndarray, names: Sequence[str] | None) -> ValueError:
    """A sentence on the first value that is none, and the column it is in."""
    for index, value in np.ndenumerate(array):
        try:
            float(value)
        except (TypeError, ValueError):
            column: Any = index[-1] if index else 0
            if names is not None and column < len(names):
                column = repr(names[column])
            told = repr(value if not isinstance(value, np.generic) else value.item())
            return ValueError(f"column {column} holds {told[:40]}, which is no number.")
    return ValueError("X holds something else than numbers.")
