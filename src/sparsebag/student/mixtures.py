"""Rows between training rows: what a teacher is asked beyond the rows it was trained on."""

from __future__ import annotations

import numpy as np

MOST_ORDERS = 50
"""Trees whose leaf order tells which rows are neighbours."""
FARTHEST = 10
"""Places between two rows that are mixed, in a tree's leaf order."""


def mixtures(
    X: np.ndarray, leaf: np.ndarray, n: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Mixtures of rows that a tree puts side by side.

    Half of them lie between the two rows, column by column; half take each column from one of
    the two, so that codes of categories stay codes.

    Parameters
    ----------
    X : float32 ndarray of shape (rows, n_features)
    leaf : int32 ndarray of shape (n_trees, rows)
    n : int
        How many to make.
    rng : numpy.random.Generator

    Returns
    -------
    mixed : float32 ndarray of shape (n, n_features)
    first : int ndarray of shape (n,)
        The first of the two rows of each.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = np.array([[0.0], [1.0]], dtype=np.float32)
    >>> mixed, first = mixtures(X, np.array([[0, 1]]), 100, rng)
    >>> bool(mixed.min() >= 0.0 and mixed.max() <= 1.0)
    True
    """
    n_rows = len(X)
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
    a, b = X[first], X[second]
    u = rng.random(a.shape, dtype=np.float32)
    between = (rng.random(n) < 0.5)[:, None]
    with np.errstate(invalid="ignore", over="ignore"):  # infinities are routed like NaN
        mixed = np.where(between, a + u * (b - a), np.where(u < 0.5, b, a))
    return mixed.astype(np.float32), first
