"""A gate of regions: a shallow tree over the features, one vector of weights a leaf."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from sparsebag.refine.directions import Directions
from sparsebag.refine.gate import finite_array, in_dense_blocks
from sparsebag.refine.temperature import SHARPEST, SOFTEST

LEAF = -1
"""Child of a leaf; region of an inner node."""
SIMPLEX_TOLERANCE = 1e-9
"""Weights of a region sum to one up to this."""
MOST_NODES = 2**15
"""A gate is shallow; a larger one comes from no fit."""


@dataclass(frozen=True, eq=False)
class RegionGate:
    """One vector of weights, and one temperature, a region of a shallow tree.

    Routing is that of scikit-learn's trees: a row goes left where ``float32(x) <= threshold``, or
    where the value is missing and ``missing_left``. Infinities are larger, or smaller, than any
    threshold. With ``directions`` a node may read a sum of features instead: those come after the
    features, as columns ``n_features`` and on, and a sum is never missing.

    Attributes
    ----------
    feature : int32 ndarray of shape (n_nodes,)
        Column, or direction, an inner node reads; any that exists for a leaf.
    threshold : float64 ndarray of shape (n_nodes,)
        Infinite where a split parts missing values from all others.
    left, right : int32 ndarrays of shape (n_nodes,)
        Later nodes; -1 for a leaf. The first node is the root.
    missing_left : uint8 ndarray of shape (n_nodes,)
    region : int32 ndarray of shape (n_nodes,)
        Of a leaf; -1 for an inner node.
    region_weights : float64 ndarray of shape (n_regions, n_members)
        Rows on the simplex.
    n_features : int
        Columns of X.
    temperature : float64 ndarray of shape (n_regions,), optional
    directions : Directions, optional

    Examples
    --------
    >>> gate = RegionGate(
    ...     feature=[0, 0, 0], threshold=[0.5, 0, 0], left=[1, -1, -1], right=[2, -1, -1],
    ...     missing_left=[1, 0, 0], region=[-1, 0, 1], region_weights=[[0.9, 0.1], [0.2, 0.8]],
    ...     n_features=1)
    >>> gate.weights(np.array([[0.5], [0.6], [np.nan]])).tolist()
    [[0.9, 0.1], [0.2, 0.8], [0.9, 0.1]]
    """

    feature: np.ndarray
    threshold: np.ndarray
    left: np.ndarray
    right: np.ndarray
    missing_left: np.ndarray
    region: np.ndarray
    region_weights: np.ndarray
    n_features: int
    temperature: np.ndarray | None = None
    directions: Directions | None = None
    kind: ClassVar[str] = "regions"
    WHOLE: ClassVar[dict[str, str]] = {
        "feature": "<i4",
        "left": "<i4",
        "right": "<i4",
        "missing_left": "|u1",
        "region": "<i4",
    }

    def __post_init__(self) -> None:
        for name, dtype in self.WHOLE.items():
            array = np.ascontiguousarray(getattr(self, name), dtype=dtype)
            object.__setattr__(self, name, array)
        for name in ["region_weights"] + ["temperature"] * self.has_temperature:
            object.__setattr__(self, name, finite_array(name, getattr(self, name)))
        threshold = np.ascontiguousarray(self.threshold, dtype=np.float64)
        if np.any(np.isnan(threshold)):
            raise ValueError("a threshold of the gate is no number.")
        object.__setattr__(self, "threshold", threshold)
        n = len(self.feature) if self.feature.ndim == 1 else 0
        per_node = (*self.WHOLE, "threshold")
        if n == 0 or any(getattr(self, name).shape != (n,) for name in per_node):
            raise ValueError("the arrays of the gate do not fit together.")
        if n > MOST_NODES:
            raise ValueError(f"the gate has {n} nodes, more than {MOST_NODES}.")
        self._check_tree()
        self._check_regions()

    def _check_tree(self) -> None:
        along = self.directions
        if along is not None and along.n_features != self.n_features:
            raise ValueError("the gate's directions are of another number of features.")
        readable = self.n_features + (0 if along is None else len(along.down))
        if self.n_features < 1 or self.feature.min() < 0 or self.feature.max() >= readable:
            raise ValueError("the gate reads a feature that does not exist.")
        inner = self.left != LEAF
        if not np.array_equal(inner, self.right != LEAF):
            raise ValueError("a node of the gate has one child.")
        if not np.array_equal(inner, self.region == LEAF):
            raise ValueError("a leaf of the gate has no region, or an inner node has one.")
        children = np.concatenate([self.left[inner], self.right[inner]])
        # Each node but the root has one parent, and it comes before: walks end.
        if not np.array_equal(np.sort(children), np.arange(1, len(self.feature))):
            raise ValueError("a node of the gate has no parent, or two.")
        if np.any(children <= np.tile(np.flatnonzero(inner), 2)):
            raise ValueError("a child in the gate comes before its parent.")

    def _check_regions(self) -> None:
        w = self.region_weights
        if w.ndim != 2 or w.size == 0 or self.region.max() >= len(w) or self.region.min() < LEAF:
            raise ValueError("the gate has a region without weights.")
        if w.min() < 0.0 or np.abs(w.sum(axis=1) - 1.0).max() > SIMPLEX_TOLERANCE:
            raise ValueError("the weights of a region are not on the simplex.")
        t = self.temperature
        if t is None:
            return
        if t.shape != (len(w),) or t.min() < SHARPEST or t.max() > SOFTEST:
            raise ValueError(
                f"the gate's temperatures are not one a region, from {SHARPEST:g} to {SOFTEST:g}."
            )

    @property
    def has_temperature(self) -> bool:
        """Whether there is a temperature that depends on the row."""
        return self.temperature is not None

    @property
    def n_members(self) -> int:
        """How many members share the weight."""
        return int(self.region_weights.shape[1])

    @property
    def n_regions(self) -> int:
        """How many vectors of weights there are."""
        return len(self.region_weights)

    def regions(self, X: Any) -> np.ndarray:
        """The region of each row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (rows, n_features)

        Returns
        -------
        int ndarray of shape (rows,)
        """
        return in_dense_blocks(X, self.n_features, self._regions)

    def _regions(self, X: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):  # too large for float32 is above every threshold
            X = X.astype(np.float32, copy=False)
        if self.directions is not None:
            X = np.hstack([X, self.directions.of(X)])
        node = np.zeros(len(X), dtype=np.intp)
        rows = np.flatnonzero(self.left[node] != LEAF)
        while len(rows):  # one level a round
            at = node[rows]
            x = X[rows, self.feature[at]]
            goes_left = np.where(np.isnan(x), self.missing_left[at] != 0, x <= self.threshold[at])
            node[rows] = np.where(goes_left, self.left[at], self.right[at])
            rows = rows[self.left[node[rows]] != LEAF]
        return np.asarray(self.region[node])

    def weights(self, X: Any) -> np.ndarray:
        """Weights of the members.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (rows, n_features)

        Returns
        -------
        ndarray of shape (rows, n_members)
        """
        return np.asarray(self.region_weights[self.regions(X)])

    def temperatures(self, X: Any) -> np.ndarray | None:
        """Temperatures of the vote, or None where the gate has none.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (rows, n_features)

        Returns
        -------
        ndarray of shape (rows,) or None
        """
        return None if self.temperature is None else self.temperature[self.regions(X)]

    def take(self, members: np.ndarray) -> Self:
        """The same gate with its members in another order.

        Parameters
        ----------
        members : int ndarray of shape (n_members,)
            A permutation.

        Returns
        -------
        RegionGate
        """
        return replace(self, region_weights=self.region_weights[:, members])

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays by name, as files hold them."""
        named = {name: getattr(self, name) for name in (*self.WHOLE, "threshold", "region_weights")}
        if self.temperature is not None:
            named["temperature"] = self.temperature
        along = self.directions
        if along is not None:
            named |= {"mean": along.mean, "scale": along.scale, "down": along.down}
        return named

    def settings(self) -> dict[str, Any]:
        """The rest, as files hold it; ``clip`` of gates with directions alone."""
        along = self.directions
        return {"n_features": self.n_features} | ({} if along is None else {"clip": along.clip})

    @classmethod
    def rebuild(cls, arrays: Mapping[str, np.ndarray], settings: Mapping[str, Any]) -> Self:
        """From what a file holds; raises ValueError or KeyError where it cannot be."""
        directions = None
        if "clip" in settings:
            directions = Directions(
                **{name: arrays[name] for name in ("mean", "scale", "down")}, clip=settings["clip"]
            )
        return cls(
            **{name: arrays[name] for name in (*cls.WHOLE, "threshold", "region_weights")},
            n_features=settings["n_features"],
            temperature=arrays.get("temperature"),
            directions=directions,
        )
