"""Columns of text as trees read them: the position of a text in a list the model carries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Categories = Mapping[str, tuple[str, ...]]
"""Column name to its texts, in the order of their codes."""


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
    """A table with codes in place of text; columns that hold numbers already stay.

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
        column = np.asarray(out.iloc[:, at] if is_frame else out[..., at], dtype=object)
        if not any(isinstance(value, str) for value in column.reshape(-1)):
            continue  # numbers, or nothing but gaps
        codes = text_codes(column.reshape(-1), texts).reshape(column.shape)
        if is_frame:
            out = out.assign(**{out.columns[at]: codes})
        else:
            out[..., at] = codes
    return out
