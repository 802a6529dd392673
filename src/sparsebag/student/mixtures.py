"""Rows between training rows, which the teacher votes on too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

MOST_ORDERS = 50
"""Trees whose leaf order tells which rows are neighbours."""
FARTHEST = 10
"""Places between two rows that are mixed, in a tree's leaf order."""
BLOCK_VALUES = 2**22
"""Values mixed at a time, 16 MB: wide rows would fill the memory."""


def neighbours(leaf: np.ndarray, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of rows that a tree puts side by side.

    Parameters
    ----------
    leaf : int32 ndarray of shape (n_trees, rows)
    n : int
        How many pairs to draw.
    rng : numpy.random.Generator

    Returns
    -------
    first, second : int ndarray of shape (n,)

    Examples
    --------
    >>> first, second = neighbours(np.array([np.arange(99)]), 50, np.random.default_rng(0))
    >>> int(abs(first - second).max())  # the tree's order is that of the rows
    10
    """
    n_rows = leaf.shape[1]
    orders = rng.permutation(len(leaf))[:MOST_ORDERS]
    first, order_of = rng.integers(0, n_rows, n), rng.integers(0, len(orders), n)
    step = rng.integers(1, FARTHEST + 1, n) * rng.choice([-1, 1], n)
    second = np.empty(n, dtype=np.intp)
    for j, tree in enumerate(orders):
        mine = np.flatnonzero(order_of == j)
        order = np.argsort(leaf[tree], kind="stable")
        place = np.empty(n_rows, dtype=np.intp)
        place[order] = np.arange(n_rows)
        here = place[first[mine]]
        there = here + step[mine]
        outside = (there < 0) | (there >= n_rows)
        there = np.where(outside, here - step[mine], there)
        second[mine] = order[np.clip(there, 0, n_rows - 1)]
    return first, second


def mixtures(
    X: Any, first: np.ndarray, second: np.ndarray, rng: np.random.Generator
) -> Iterator[Any]:
    """Mixtures of pairs of rows, a block at a time.

    Half of them lie between the two rows, column by column; half take each column from one of
    the two, so that codes of categories stay codes.

    Parameters
    ----------
    X : float32 ndarray or CSR matrix of shape (rows, n_features)
    first, second : int ndarray of shape (n,)
        The two rows of each.
    rng : numpy.random.Generator

    Yields
    ------
    float32 ndarray or CSR matrix of shape (at most n, n_features)

    Examples
    --------
    >>> X, rng = np.array([[0.0], [1.0]], dtype=np.float32), np.random.default_rng(0)
    >>> (block,) = mixtures(X, np.zeros(100, int), np.ones(100, int), rng)
    >>> bool(block.min() >= 0.0 and block.max() <= 1.0)
    True
    """
    is_sparse = sp.issparse(X)
    width = 2 * X.nnz // X.shape[0] + 1 if is_sparse else X.shape[1]
    size = max(1, BLOCK_VALUES // width)
    for start in range(0, len(first), size):
        rows = slice(start, start + size)
        a, b = X[first[rows]], X[second[rows]]
        between = rng.random(a.shape[0]) < 0.5
        if is_sparse:  # a column in which both are zero stays zero
            step = (b - a).tocsr()
            u = rng.random(step.nnz, dtype=np.float32)
            step.data *= np.where(np.repeat(between, np.diff(step.indptr)), u, u < 0.5)
            yield a + step
            continue
        u = rng.random(a.shape, dtype=np.float32)
        with np.errstate(invalid="ignore", over="ignore"):  # infinities are routed like NaN
            mixed = np.where(between[:, None], a + u * (b - a), np.where(u < 0.5, b, a))
        yield np.asarray(mixed, dtype=np.float32)
