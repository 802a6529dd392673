"""A tree as arrays over its nodes: sums over the rows below each, and smoothed values from them.

With W the weight of a row and z its target, a node's value is its rows' mean, drawn towards its
parent's by λ pseudo-rows::

    v(root) = Σ W z / Σ W         v(node) = (Σ W z + λ v(parent)) / (Σ W + λ)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

NEGLIGIBLE = 1e-3
"""Share of a value that is no longer looked for further up the tree."""
NO_WEIGHT = 1e-9
"""Below it a node is empty, but for rounding."""


@dataclass(frozen=True)
class TreeNodes:
    """How the nodes of a tree hang together.

    Attributes
    ----------
    parent : ndarray of shape (K,)
        -1 for the root.
    levels : list of ndarray
        Nodes by depth, the root first.
    place : ndarray of shape (K,)
        Position in depth-first order: what is below a node is contiguous in it.
    size : ndarray of shape (K,)
        Nodes at and below each.
    """

    parent: np.ndarray
    levels: list[np.ndarray]
    place: np.ndarray
    size: np.ndarray

    @classmethod
    def of(cls, tree: Any) -> TreeNodes:
        """From scikit-learn's ``tree_``, whatever order it numbers its nodes in."""
        left, right = tree.children_left, tree.children_right
        n_nodes = len(left)
        parent = np.full(n_nodes, -1)
        inner = np.flatnonzero(left >= 0)
        parent[left[inner]] = inner
        parent[right[inner]] = inner
        levels, split = [np.zeros(1, dtype=np.intp)], []
        while True:
            above = levels[-1][left[levels[-1]] >= 0]
            if not len(above):
                break
            split.append((above, left[above], right[above]))
            levels.append(np.concatenate(split[-1][1:]))
        size = np.ones(n_nodes, dtype=np.intp)
        for above, on_left, on_right in reversed(split):
            size[above] += size[on_left] + size[on_right]
        place = np.zeros(n_nodes, dtype=np.intp)
        for above, on_left, on_right in split:
            first = place[above] + 1
            place[on_left], place[on_right] = first, first + size[on_left]
        return cls(parent, levels, place, size)

    @property
    def n_nodes(self) -> int:
        """K."""
        return len(self.parent)

    def totals(self, leaf: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Sums over the rows at or below each node.

        Parameters
        ----------
        leaf : ndarray of shape (rows,)
            The node each row ends in.
        values : ndarray of shape (rows,) or (rows, D)

        Returns
        -------
        ndarray of shape (K,) or (K, D)
        """
        columns = values[:, None] if values.ndim == 1 else values
        at = self.place[leaf]
        counts = [np.bincount(at, column, minlength=self.n_nodes) for column in columns.T]
        total = self._below(np.stack(counts, axis=1))
        return np.asarray(total[:, 0] if values.ndim == 1 else total)

    def totals_of_classes(
        self, leaf: np.ndarray, weight: np.ndarray, position: np.ndarray, n_classes: int
    ) -> np.ndarray:
        """`totals` of weights, each in the column of its row's class: one pass for all columns.

        Parameters
        ----------
        leaf, weight : ndarray of shape (rows,)
        position : int ndarray of shape (rows,)
        n_classes : int

        Returns
        -------
        ndarray of shape (K, n_classes)
        """
        cell = self.place[leaf] * n_classes + position
        counts = np.bincount(cell, weight, minlength=self.n_nodes * n_classes)
        return self._below(counts.reshape(self.n_nodes, n_classes))

    def _below(self, in_place: np.ndarray) -> np.ndarray:
        """Sums over what is at or below each node, of values in depth-first order."""
        before = np.zeros((len(in_place) + 1, in_place.shape[1]))
        np.cumsum(in_place, axis=0, out=before[1:])
        return np.asarray(before[self.place + self.size] - before[self.place])

    def smoothed(self, weight: np.ndarray, sums: np.ndarray, lam: float) -> np.ndarray:
        """The value of every node, from its rows' weights and weighted sums.

        Parameters
        ----------
        weight : ndarray of shape (K,)
        sums : ndarray of shape (K, D)
        lam : float

        Returns
        -------
        ndarray of shape (K, D)
        """
        value = sums / np.where(weight > NO_WEIGHT, weight, 1.0)[:, None]
        for level in self.levels[1:]:
            above = value[self.parent[level]]
            mass = weight[level] + lam
            own = (sums[level] + lam * above) / np.where(mass > NO_WEIGHT, mass, 1.0)[:, None]
            empty = weight[level] <= NO_WEIGHT
            value[level] = np.where(empty[:, None], above, own)
        return np.asarray(value)

    def smoothed_without(
        self,
        leaf: np.ndarray,
        weight: np.ndarray,
        own_weight: np.ndarray,
        sums_without: Callable[[np.ndarray, np.ndarray], np.ndarray],
        lams: np.ndarray,
        negligible: float = NEGLIGIBLE,
    ) -> np.ndarray:
        """The value each row would find in its leaf had it not been there itself.

        The recursion is followed from the leaf upwards, all rows and λ at once, as long as what
        is left to find is not negligible.

        Parameters
        ----------
        leaf : ndarray of shape (rows,)
        weight : ndarray of shape (K,)
            Of all rows at or below each node.
        own_weight : ndarray of shape (rows,)
            To be taken off.
        sums_without : function of (rows, nodes) to ndarray of shape (rows, D)
            Weighted sums at the nodes, with each row's own part taken off.
        lams : ndarray of shape (L,)
        negligible : float

        Returns
        -------
        ndarray of shape (rows, D, L)
        """
        at, active = leaf.copy(), np.arange(len(leaf))
        left = np.ones((len(leaf), len(lams)))  # share of the value still to be found
        value: Any = 0.0
        while len(active):
            node = at[active]
            mass = (weight[node] - own_weight[active])[:, None]
            some, root = mass > NO_WEIGHT, (self.parent[node] < 0)[:, None]
            mass, share = np.where(some, mass, 1.0), left[active]
            last = root | (share * lams <= negligible * (mass + lams))
            found = np.where(some, share / np.where(last, mass, mass + lams), 0.0)
            part = found[:, None, :] * sums_without(active, node)[:, :, None]
            if len(active) == len(leaf):
                value = value + part
            else:
                value[active] += part
            share = np.where(some, np.where(last, 0.0, found * lams), share)
            left[active] = share
            active = active[~root[:, 0] & (share.max(axis=1) > 0.0)]
            at[active] = self.parent[at[active]]
        return np.asarray(value)
