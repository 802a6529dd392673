"""`LinearGate`: weights of the members that depend on the row. NumPy only."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

CLIP = 5.0
"""Standard deviations from the mean beyond which a feature has no more influence."""
BLOCK_ELEMENTS = 2**21
"""Numbers held at a time (16 MiB)."""


@dataclass(frozen=True, eq=False)
class LinearGate:
    """Softmax of a low-rank map of the standardised features.

    ::

        z = clip((x - mean) / scale, -5, 5)
        h = down @ z + offset
        w = softmax(base + up @ g),   g = h / sqrt(1 + h²)

    g is linear near the plane h = 0 and stays between -1 and 1, so a steep change at the plane
    does not leave distant rows to a single member. x is rounded to float32, as trees read it; NaN
    and infinities count as the mean.

    Attributes
    ----------
    mean, scale : float64 ndarrays of shape (n_features,)
        Scales are above zero.
    down : float64 ndarray of shape (rank, n_features)
    offset : float64 ndarray of shape (rank,)
    up : float64 ndarray of shape (n_members, rank)
        Zero: every row has the same weights.
    base : float64 ndarray of shape (n_members,)
        Logarithms of the weights at h = 0.

    Examples
    --------
    >>> gate = LinearGate([0], [1], [[1e9]], [0], np.log([[3], [1]]), np.log([0.5, 0.5]))
    >>> gate.weights(np.array([[0.0], [5.0], [np.nan]])).round(6).tolist()
    [[0.5, 0.5], [0.75, 0.25], [0.5, 0.5]]
    """

    mean: np.ndarray
    scale: np.ndarray
    down: np.ndarray
    offset: np.ndarray
    up: np.ndarray
    base: np.ndarray
    ARRAYS: ClassVar[tuple[str, ...]] = ("mean", "scale", "down", "offset", "up", "base")

    def __post_init__(self) -> None:
        for name in self.ARRAYS:
            array = np.ascontiguousarray(getattr(self, name), dtype=np.float64)
            if not np.all(np.isfinite(array)):
                raise ValueError(f"the gate's {name} is not finite.")
            object.__setattr__(self, name, array)
        d, rank, k = self.mean.size, self.offset.size, self.base.size
        shapes = (d,), (d,), (rank, d), (rank,), (k, rank), (k,)
        found = tuple(getattr(self, name).shape for name in self.ARRAYS)
        if min(k, rank, d) == 0 or found != shapes:
            raise ValueError("the arrays of the gate do not fit together.")
        if not np.all(self.scale >= np.finfo(np.float64).tiny):  # one over less is infinite
            raise ValueError("a scale of the gate is not above zero.")
        with np.errstate(over="ignore"):  # no row may overflow a logit
            h = CLIP * np.abs(self.down).sum(axis=1) + np.abs(self.offset)
            logits = np.abs(self.base) + np.abs(self.up).sum(axis=1)
        if not max(h.max(), logits.max()) <= 1e100:  # far from where float64 ends
            raise ValueError("the gate's coefficients are too large.")

    @property
    def n_members(self) -> int:
        """Members that share the weight."""
        return len(self.base)

    @property
    def n_features(self) -> int:
        """Columns of X."""
        return len(self.mean)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(array.nbytes for array in self.arrays().values())

    def weights(self, X: Any) -> np.ndarray:
        """Weights of the members for each row; a row's are the same bits whatever the others.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (rows, n_features)

        Returns
        -------
        ndarray of shape (rows, n_members)
            Rows are on the simplex.
        """
        X = X.tocsr() if hasattr(X, "toarray") else np.asarray(X)
        if X.ndim != 2 or X.shape[1] != self.n_features:
            raise ValueError(
                f"X has shape {X.shape}, but the gate reads {self.n_features} features."
            )
        out = np.empty((X.shape[0], self.n_members))
        step = max(1, BLOCK_ELEMENTS // max(self.down.size, self.n_members))
        for start in range(0, X.shape[0], step):
            rows = X[start : start + step]
            z = standardised(
                rows.toarray() if hasattr(rows, "toarray") else rows, self.mean, self.scale
            )
            # Not a matrix product, whose rounding depends on the number of rows.
            g = bounded((z[:, None, :] * self.down).sum(axis=2) + self.offset)
            logits = np.tile(self.base, (len(z), 1))
            for side, up in zip(g.T, self.up.T, strict=True):
                logits += side[:, None] * up
            out[start : start + step] = softmax(logits)
        return out

    def take(self, members: np.ndarray) -> Self:
        """The same gate with its members in another order.

        Parameters
        ----------
        members : int ndarray of shape (n_members,)
            A permutation.

        Returns
        -------
        LinearGate
        """
        return replace(self, up=self.up[members], base=self.base[members])

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays by name, as files hold them."""
        return {name: getattr(self, name) for name in self.ARRAYS}

    def __str__(self) -> str:
        return f"gate of rank {len(self.offset)}"


def standardised(X: np.ndarray, mean: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Features in standard deviations from the mean, clipped; 0 where X is not finite.

    Parameters
    ----------
    X : ndarray of shape (rows, d)
    mean, scale : ndarrays of shape (d,)

    Returns
    -------
    ndarray of shape (rows, d)

    Examples
    --------
    >>> standardised(np.array([[3.0, np.nan, 99.0]]), np.ones(3), np.ones(3)).tolist()
    [[2.0, 0.0, 5.0]]
    """
    with np.errstate(invalid="ignore", over="ignore"):
        X = X.astype(np.float32, copy=False).astype(np.float64, order="C")
        z = (X - mean) * (1.0 / scale)
        return np.where(np.isfinite(X), np.clip(z, -CLIP, CLIP), 0.0)


def bounded(h: np.ndarray) -> np.ndarray:
    """``h / sqrt(1 + h²)``: like h near zero, and between -1 and 1.

    Parameters
    ----------
    h : ndarray

    Returns
    -------
    ndarray

    Examples
    --------
    >>> bounded(np.array([0.0, -0.75, 1e9])).tolist()
    [0.0, -0.6, 1.0]
    """
    return np.asarray(h / np.sqrt(1.0 + h * h))


def softmax(logits: np.ndarray) -> np.ndarray:
    """Softmax of each row.

    Parameters
    ----------
    logits : ndarray of shape (rows, k)

    Returns
    -------
    ndarray of shape (rows, k)

    Examples
    --------
    >>> softmax(np.array([[1000.0, 1000.0]])).tolist()
    [[0.5, 0.5]]
    """
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(odds / odds.sum(axis=1, keepdims=True))
