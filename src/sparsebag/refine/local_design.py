"""What a gate may look at: the standardised features, or the regions of a shallow tree.

Both turn rows into columns that a linear map reads; the map is what is fitted (`local_weights`,
`local_temperature`). Columns have mean zero, so a map moves weights *between* places and cannot
move them everywhere: the global weights were judged with all votes, and out-of-bag rows, which see
37 % of them, would always ask for more equal ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from sklearn.tree import DecisionTreeRegressor

from sparsebag.refine.directions import Directions
from sparsebag.refine.gate import CLIP, bounded, standardised
from sparsebag.refine.moments import moments
from sparsebag.refine.screened_features import screened

FEWEST_OF_REGION = 20
"""Rows a region has at least; its weights would be noise with fewer."""
LARGEST = 1e30
"""Trees read single precision, no infinities, and add up columns."""


@dataclass(frozen=True)
class LinearDesign:
    """Standardised features, as `sparsebag.refine.gate.LinearGate` reads them.

    Attributes
    ----------
    mean, scale : ndarray of shape (d,)
        Of the finite values.

    Examples
    --------
    >>> design = LinearDesign.of(np.array([[0.0, 7.0], [2.0, 7.0], [np.nan, 7.0]]), np.ones(3))
    >>> design.columns(np.array([[3.0, 7.0], [np.nan, 7.0]])).tolist()
    [[2.0, 0.0], [0.0, 0.0]]
    """

    mean: np.ndarray
    scale: np.ndarray
    kind: ClassVar[str] = "linear"

    @classmethod
    def of(cls, features: np.ndarray, weight: np.ndarray) -> LinearDesign:
        """From rows and their weights.

        Parameters
        ----------
        features : ndarray of shape (R, d)
        weight : ndarray of shape (R,)

        Returns
        -------
        LinearDesign
        """
        mean, spread, unit = moments(as_read(features), weight)
        # Rounding leaves a constant column a spread of 1e-16 of its size; it is none.
        scale = np.where(spread > 1e-9 * np.maximum(np.abs(mean), 1e-300), spread * unit, 0.0)
        usable = np.isfinite(1.0 / np.where(scale > 0.0, scale, 1.0)) & (scale > 0.0)
        return cls(mean * unit, np.where(usable, scale, 1.0))

    @property
    def n_columns(self) -> int:
        """Columns a map reads."""
        return len(self.mean)

    @property
    def unit(self) -> np.ndarray:
        """The power of two next to each feature's scale."""
        return np.asarray(np.exp2(np.round(np.log2(self.scale))))

    @property
    def pull(self) -> float:
        """Of a coefficient to zero, in units of that of a whole logit: d of them add up."""
        return float(self.n_columns)

    def columns(self, features: np.ndarray) -> np.ndarray:
        """Rows as a map reads them: in standard deviations, clipped, zero where unknown.

        Parameters
        ----------
        features : ndarray of shape (n, d)

        Returns
        -------
        ndarray of shape (n, d)
        """
        return standardised(features, self.mean, self.scale, CLIP)


@dataclass(frozen=True)
class RegionDesign:
    """Regions of a shallow tree, as `sparsebag.refine.region_gate.RegionGate` routes to them.

    Attributes
    ----------
    tree : DecisionTreeRegressor
    share : ndarray of shape (n_regions,)
        Of the rows' weight in each region.
    unit : ndarray of shape (d,)
        Powers of two the features are divided by first, without rounding: scikit-learn takes
        values that are closer than 1e-7 for equal.
    read : int ndarray
        The features that the tree reads, in its order.
    directions : Directions or None
        Sums of features that the tree reads after the features themselves.
    """

    tree: DecisionTreeRegressor
    share: np.ndarray
    unit: np.ndarray
    read: np.ndarray
    directions: Directions | None = None
    kind: ClassVar[str] = "regions"
    pull: ClassVar[float] = 1.0

    @classmethod
    def grow(
        cls,
        features: np.ndarray,
        signal: np.ndarray,
        weight: np.ndarray,
        most: int,
        directions: Directions | None = None,
        unit: np.ndarray | None = None,
    ) -> RegionDesign:
        """A tree whose regions differ most in the direction the loss falls in.

        The variance a split takes off the gradients is, to first order, what the loss can fall by
        if the two sides move apart: the criterion of gradient boosting, for a vector of logits.

        Parameters
        ----------
        features : ndarray of shape (R, d)
        signal : ndarray of shape (R, outputs)
            Minus the gradient of each row's loss.
        weight : ndarray of shape (R,)
        most : int
            Regions.
        directions : Directions, optional
            Sums of features that may be split on besides.
        unit : ndarray of shape (d,), optional
            Where it is known; it is that of a `LinearDesign` of the rows.

        Returns
        -------
        RegionDesign

        Examples
        --------
        >>> x = np.linspace(-1, 1, 100)[:, None]
        >>> design = RegionDesign.grow(x, np.sign(x), np.full(100, 0.01), 2)
        >>> design.columns(np.array([[-0.5], [0.5]])).tolist()
        [[0.5, -0.5], [-0.5, 0.5]]
        """
        tree = DecisionTreeRegressor(
            max_leaf_nodes=max(most, 2), min_samples_leaf=FEWEST_OF_REGION, random_state=0
        )
        counted = weight > 0.0
        unit = LinearDesign.of(features, weight).unit if unit is None else unit
        signal = signal / (np.abs(signal).max() or 1.0)
        read = screened(features[counted], signal[counted], weight[counted])
        tree.fit(
            _read_by_tree(features[counted], unit, read, directions),
            signal[counted],
            sample_weight=weight[counted] / weight[counted].mean(),
        )
        design = cls(tree, np.zeros(tree.tree_.n_leaves), unit, read, directions)
        share = np.bincount(design.regions(features), weight, minlength=tree.tree_.n_leaves)
        return replace(design, share=share / share.sum())

    @property
    def n_columns(self) -> int:
        """Columns a map reads, one a region."""
        return len(self.share)

    @property
    def n_directions(self) -> int:
        """Sums that the tree reads besides the features."""
        return 0 if self.directions is None else len(self.directions.down)

    @cached_property
    def region(self) -> np.ndarray:
        """The region of each node; -1 for inner ones."""
        leaf = self.tree.tree_.children_left == -1
        return np.where(leaf, np.cumsum(leaf) - 1, -1).astype(np.int32)

    def regions(self, features: np.ndarray) -> np.ndarray:
        """The region of each row.

        Parameters
        ----------
        features : ndarray of shape (n, d)

        Returns
        -------
        int ndarray of shape (n,)
        """
        read = _read_by_tree(features, self.unit, self.read, self.directions)
        return np.asarray(self.region[self.tree.apply(read)])

    @property
    def feature(self) -> np.ndarray:
        """Of each node, among all features and then the directions; zero for leaves."""
        nodes = self.tree.tree_
        own = np.append(self.read, len(self.unit) + np.arange(self.n_directions))
        inner = nodes.children_left != -1
        return np.where(inner, own[np.where(inner, nodes.feature, 0)], 0)

    @property
    def threshold(self) -> np.ndarray:
        """Of each node, in the features' own units; zero for leaves."""
        nodes = self.tree.tree_
        unit = np.append(self.unit, np.ones(self.n_directions))
        inner = nodes.children_left != -1
        return np.where(inner, nodes.threshold * unit[self.feature], 0.0)

    def columns(self, features: np.ndarray) -> np.ndarray:
        """One for a row's region less the share of all rows in it.

        Parameters
        ----------
        features : ndarray of shape (n, d)

        Returns
        -------
        ndarray of shape (n, n_regions)
        """
        return np.asarray(np.eye(self.n_columns)[self.regions(features)] - self.share)

    def of_regions(self) -> np.ndarray:
        """The columns of one row of each region.

        Returns
        -------
        ndarray of shape (n_regions, n_regions)
        """
        return np.asarray(np.eye(self.n_columns) - self.share)


Design = LinearDesign | RegionDesign


@dataclass(frozen=True)
class Deviation:
    """A fitted map: what is added to logits, or to a temperature's logarithm, at a row.

    Attributes
    ----------
    design : Design
    coefficients : ndarray of shape (columns, outputs)
    """

    design: Design
    coefficients: np.ndarray

    def at(self, features: np.ndarray) -> np.ndarray:
        """The deviation of rows.

        Parameters
        ----------
        features : ndarray of shape (n, d)

        Returns
        -------
        ndarray of shape (n, outputs)
        """
        return np.asarray(self.design.columns(features) @ self.coefficients)


@dataclass(frozen=True)
class BoundedDeviation:
    """A fitted change from one side of a plane to the other, of a few planes together.

    Attributes
    ----------
    design : LinearDesign
    down : ndarray of shape (d, rank)
        The planes' normals, in standardised features.
    offset : ndarray of shape (rank,)
        Where the planes are.
    up : ndarray of shape (rank, outputs)
        What is added at most on one side, and taken on the other.
    centre : ndarray of shape (rank,)
        Mean side of the rows it was fitted to: on average nothing is added.
    """

    design: LinearDesign
    down: np.ndarray
    offset: np.ndarray
    up: np.ndarray
    centre: np.ndarray

    def at(self, features: np.ndarray) -> np.ndarray:
        """The deviation of rows.

        Parameters
        ----------
        features : ndarray of shape (n, d)

        Returns
        -------
        ndarray of shape (n, outputs)
        """
        side = bounded(self.design.columns(features) @ self.down + self.offset)
        return np.asarray((side - self.centre) @ self.up)


FittedMap = Deviation | BoundedDeviation
"""What is added at a row, of either form."""


def as_read(features: np.ndarray) -> np.ndarray:
    """Features in the single precision that gates and trees read; too large ones are infinite.

    Parameters
    ----------
    features : ndarray of shape (n, d)

    Returns
    -------
    float64 ndarray of shape (n, d)

    Examples
    --------
    >>> as_read(np.array([[0.5, 1e300]])).tolist()
    [[0.5, inf]]
    """
    with np.errstate(over="ignore"):
        return np.asarray(features, dtype=np.float32).astype(np.float64)


def for_tree(features: np.ndarray) -> np.ndarray:
    """Features in the single precision a tree reads; NaN stays, infinities become very large.

    Parameters
    ----------
    features : ndarray of shape (n, d)

    Returns
    -------
    float32 ndarray of shape (n, d)

    Examples
    --------
    >>> bool(np.isfinite(for_tree(np.array([[np.inf, 1e300]]))).all())
    True
    """
    return np.asarray(np.clip(features, -LARGEST, LARGEST), dtype=np.float32)


def _read_by_tree(
    features: np.ndarray, unit: np.ndarray, read: np.ndarray, directions: Directions | None
) -> np.ndarray:
    own = for_tree(as_read(features[:, read]) / unit[read])
    return own if directions is None else np.hstack([own, directions.of(features)])
