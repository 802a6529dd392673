"""Rows as the caller has them, as numbers: tables, missing values, columns of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

Categories = Mapping[str, tuple[str, ...]]
"""Column name to its texts, in the order of their codes."""


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
            return ValueError(f"column {column} holds {told[:40]}, which is not a number.")
    return ValueError("X does not hold numbers.")


def by_name(X: Any, names: Sequence[str] | None) -> Any:
    """A table's columns that have these names, in their order; X as it is where some are missing.

    Parameters
    ----------
    X : array-like or DataFrame
    names : sequence of str or None

    Returns
    -------
    Same kind as X

    Examples
    --------
    >>> by_name(np.eye(2), ["a", "b"]).shape
    (2, 2)
    """
    found = None if names is None else getattr(X, "columns", None)
    if names is None or found is None or list(found) == list(names) or set(names) - set(found):
        return X
    return X[list(names)]


def text_codes(values: Any, texts: Sequence[str]) -> np.ndarray:
    """The code of each text: its position; NaN for what is missing, empty or not in the list.

    Parameters
    ----------
    values : array-like of shape (rows,)
    texts : sequence of str

    Returns
    -------
    float64 ndarray of shape (rows,)

    Examples
    --------
    >>> text_codes(["red", None, "blue", "pink"], ("blue", "red")).tolist()
    [1.0, nan, 0.0, nan]
    """
    position: dict[Any, float] = {text: float(i) for i, text in enumerate(texts)}
    column = np.asarray(values, dtype=object)
    return np.array([position.get(v, np.nan) if isinstance(v, str) else np.nan for v in column])


def encoded(X: Any, categories: Categories | None, names: Sequence[str] | None) -> Any:
    """A table with codes in place of text; columns of numbers hold codes already, and stay.

    Parameters
    ----------
    X : array-like or DataFrame of shape (rows, n_features)
    categories : mapping of str to tuple of str, or None
    names : sequence of str or None
        Of the columns, in the order of X.

    Returns
    -------
    Same as X where nothing is text, else DataFrame or object ndarray

    Examples
    --------
    >>> rows = np.array([["red", 1.0], ["blue", 2.0]], dtype=object)
    >>> encoded(rows, {"colour": ("blue", "red")}, ["colour", "size"]).tolist()
    [[1.0, 1.0], [0.0, 2.0]]
    """
    if not categories or names is None or hasattr(X, "toarray"):
        return X
    is_frame = hasattr(X, "iloc") and len(X.shape) == 2
    if not is_frame and np.asarray(X).dtype.kind not in "OUS":
        return X
    out: Any = X.copy() if is_frame else np.array(X, dtype=object)
    for name, texts in categories.items():
        at = list(names).index(name)
        own = out.iloc[:, at] if is_frame else out[..., at]
        if own.dtype.kind in "fiub":
            continue
        column = np.asarray(own, dtype=object)
        codes = text_codes(column.reshape(-1), texts).reshape(column.shape)
        for value in column[np.isnan(codes)]:
            if isinstance(value, Real) and value == value:  # NaN is missing
                raise ValueError(f"column {name!r} holds {value}, which is not text.")
        if is_frame:
            out = out.assign(**{out.columns[at]: codes})
        else:
            out[..., at] = codes
    return out
