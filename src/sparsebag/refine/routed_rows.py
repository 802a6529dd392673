"""The training rows in the leaves of every tree, and what each row weighs there."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsebag.evidence.in_bag import InBagRows
from sparsebag.evidence.members import MemberPool
from sparsebag.refine.tree_nodes import TreeNodes

KEPT_BYTES = 1 << 30
"""Leaves and draws are kept up to this much memory, and found again beyond."""


class RoutedRows:
    """Where every row ends in every tree; found once, kept while memory lasts.

    Parameters
    ----------
    pool : MemberPool
        Of trees, with in-bag rows.
    X : ndarray or sparse matrix
        The training rows, prepared by ``pool.prepare``.
    sample_weight : ndarray of shape (M,) or None
    """

    def __init__(self, pool: MemberPool, X: Any, sample_weight: np.ndarray | None = None) -> None:
        assert pool.in_bag is not None
        self.pool = pool
        self.X = X
        self.n_rows = int(X.shape[0])
        self._in_bag: InBagRows = pool.in_bag
        self._sample_weight = sample_weight
        # Recent scikit-learn draws rows by their weight: a draw has it in already.
        self._drawn_by_weight = getattr(pool.source, "_sample_weight", None) is not None
        self._kept: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self._nodes: dict[int, TreeNodes] = {}

    def nodes(self, j: int) -> TreeNodes:
        """The nodes of tree j."""
        if j not in self._nodes:
            self._nodes[j] = TreeNodes.of(self.pool.members[j].estimator.tree_)
        return self._nodes[j]

    def leaf(self, j: int) -> np.ndarray:
        """The leaf of every row in tree j."""
        return self._found(j)[0]

    def draws(self, j: int) -> np.ndarray:
        """How often every row is in the bag of tree j."""
        return self._found(j)[1]

    def weight(self, j: int) -> np.ndarray:
        """What every row weighs in tree j: its draws, or one where it is out of bag."""
        draws = self.draws(j)
        if self._sample_weight is None:
            return np.asarray(np.maximum(draws, 1), dtype=np.float64)
        if self._drawn_by_weight:
            relative = self._sample_weight / self._sample_weight.mean()
            return np.asarray(np.where(draws > 0, draws, relative))
        return np.asarray(np.maximum(draws, 1) * self._sample_weight)

    def _found(self, j: int) -> tuple[np.ndarray, np.ndarray]:
        if j in self._kept:
            return self._kept[j]
        leaf = self.pool.members[j].apply(self.X).astype(np.int32)
        draws = np.bincount(self._in_bag[j], minlength=self.n_rows)
        draws = np.minimum(draws, np.iinfo(np.uint16).max).astype(np.uint16)
        if (len(self._kept) + 1) * (leaf.nbytes + draws.nbytes) <= KEPT_BYTES:
            self._kept[j] = leaf, draws
        return leaf, draws
