"""Whether rows were seen in training, told from few hashes: no training row is kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

KEPT_HASHES = 1024
"""The smallest hashes of all rows: 8 kB, and a share known to a few percent."""
ROWS_AT_A_TIME = 65_536
MIX = np.uint64(0x9E3779B97F4A7C15)


def seen_rows(X: Any) -> np.ndarray | None:
    """The smallest of the rows' hashes, by which rows can be known again.

    Parameters
    ----------
    X : array-like of shape (M, n_features)

    Returns
    -------
    uint64 ndarray of at most 1024, sorted; None where rows are no plain numbers

    Examples
    --------
    >>> X = np.arange(12.0).reshape(4, 3)
    >>> len(seen_rows(X))
    4
    """
    hashes = _hashes(X)
    return None if hashes is None else np.unique(hashes)[:KEPT_HASHES]


def share_seen(seen: np.ndarray | None, X: Any) -> float:
    """Share of rows that were among those hashed; rows hashed like the kept ones stand for all.

    Parameters
    ----------
    seen : ndarray or None
        From `seen_rows`.
    X : array-like of shape (rows, n_features)

    Returns
    -------
    float
        Zero where it cannot be told.

    Examples
    --------
    >>> X = np.arange(12.0).reshape(4, 3)
    >>> share_seen(seen_rows(X), np.concatenate([X[1:3], X[:2] + 0.5]))
    0.5
    """
    hashes = None if seen is None or not len(seen) else _hashes(X)
    if seen is None or hashes is None:
        return 0.0
    is_whole = len(seen) < KEPT_HASHES  # every training row is among them
    comparable = hashes if is_whole else hashes[hashes <= seen[-1]]
    return float(np.mean(np.isin(comparable, seen))) if len(comparable) else 0.0


def _hashes(X: Any) -> np.ndarray | None:
    """A hash a row, of its values in single precision, as trees read them."""
    if sp.issparse(X) or not hasattr(X, "shape") or len(X.shape) != 2:
        return None
    parts = []
    factors = np.random.default_rng(0).integers(1, 2**63, X.shape[1], dtype=np.uint64) | np.uint64(
        1
    )
    for start in range(0, X.shape[0], ROWS_AT_A_TIME):
        rows = slice(start, start + ROWS_AT_A_TIME)
        try:
            block = np.asarray(X.iloc[rows] if hasattr(X, "iloc") else X[rows], dtype=np.float32)
        except (TypeError, ValueError):
            return None
        bits = np.ascontiguousarray(block + np.float32(0.0)).view(np.uint32)  # -0 is 0
        mixed = (bits.astype(np.uint64) * factors).sum(axis=1, dtype=np.uint64) * MIX
        parts.append(mixed ^ (mixed >> np.uint64(31)))
    return np.concatenate(parts) if parts else None
