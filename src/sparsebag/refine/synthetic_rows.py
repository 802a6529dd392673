"""Rows that look like the training rows: mixtures of neighbours, for trees to agree on.

Two rows are neighbours where a tree of the ensemble puts them in nearby leaves. Half of the
synthetic rows lie between two neighbours, in each column at a place of its own; half take each
column from one of the two. They carry no target: they only say where rows are to be expected.
"""

from __future__ import annotations

import numpy as np

from sparsebag.refine.routed_rows import RoutedRows

NEIGHBOURS = 10
"""How many places away, in the order of a tree's leaves, a partner is at most."""
ORDERED_TREES = 50
"""Trees whose order is used; more would be no more varied."""


def synthetic_rows(routed: RoutedRows, n_rows: int, seed: int = 0) -> np.ndarray:
    """Mix neighbouring training rows.

    Parameters
    ----------
    routed : RoutedRows
        With dense rows. NaN is kept or not, never interpolated.
    n_rows : int
    seed : int, default 0

    Returns
    -------
    float32 ndarray of shape (n_rows, n_features)
    """
    rng = np.random.default_rng(seed)
    n_members, n_train = len(routed.pool.members), routed.n_rows
    trees = rng.permutation(n_members)[:ORDERED_TREES]
    row = rng.integers(0, n_train, n_rows)
    tree = rng.integers(0, len(trees), n_rows)
    step = rng.integers(1, NEIGHBOURS + 1, n_rows) * rng.choice([-1, 1], n_rows)
    partner = np.empty(n_rows, dtype=np.intp)
    for t, j in enumerate(trees):
        mine = np.flatnonzero(tree == t)
        order = np.argsort(routed.nodes(int(j)).place[routed.leaf(int(j))], kind="stable")
        place = np.empty(n_train, dtype=np.intp)
        place[order] = np.arange(n_train)
        at = place[row[mine]]
        beside = at + step[mine]
        outside = (beside < 0) | (beside >= n_train)
        beside = np.where(outside, at - step[mine], beside)
        partner[mine] = order[np.clip(beside, 0, n_train - 1)]
    first = np.asarray(routed.X[row], dtype=np.float32)
    second = np.asarray(routed.X[partner], dtype=np.float32)
    how_far = rng.random(first.shape, dtype=np.float32)
    swapped = np.where(how_far < 0.5, second, first)
    between = rng.permutation(n_rows) < n_rows // 2
    with np.errstate(over="ignore", invalid="ignore"):
        mixed = first + how_far * (second - first)
    usable = between[:, None] & np.isfinite(mixed)
    return np.where(usable, mixed, swapped)
