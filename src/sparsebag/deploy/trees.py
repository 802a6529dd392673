"""Decision trees as flat arrays, their weights folded into the leaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self

import numpy as np

from sparsebag.deploy._forest import Forest, Gate

SPARSE_BLOCK_BYTES = 2**25
"""Sparse rows are made dense this much at a time."""


@dataclass(frozen=True, eq=False)
class FlatTrees:
    """The trees of an ensemble, in arrays over their inner nodes.

    Attributes
    ----------
    threshold : float32 ndarray of shape (n_nodes,)
        A row goes left where its value is at most this: the largest float32 not above
        scikit-learn's float64 threshold, which sends every float32 value the same way.
    feature : int32 ndarray of shape (n_nodes,)
        Column a node reads.
    missing_left : uint8 ndarray of shape (n_nodes,)
        Whether NaN goes left.
    children : int32 ndarray of shape (n_nodes, 2)
        Left and right: a later node, or ``~row`` of ``values`` for a leaf.
    roots : int32 ndarray of shape (n_trees,)
        First node of each tree, or ``~row`` for a tree of one leaf.
    values : float64 ndarray of shape (n_values, n_outputs)
        What leaves add to the vote, times the tree's weight (one, where a gate weighs the
        trees); equal leaves share a row.
    n_features : int
        Columns of X.
    complement : bool
        For two classes: ``values`` holds the second one's share only, and the first one's is
        what remains of ``total``.
    total : float
        Sum of the trees' weights.
    """

    threshold: np.ndarray
    feature: np.ndarray
    missing_left: np.ndarray
    children: np.ndarray
    roots: np.ndarray
    values: np.ndarray
    n_features: int
    complement: bool
    total: float
    kernel: Forest = field(init=False, repr=False)
    kind: ClassVar[str] = "trees"
    DTYPES: ClassVar[dict[str, str]] = {
        "threshold": "<f4",
        "feature": "<i4",
        "missing_left": "|u1",
        "children": "<i4",
        "roots": "<i4",
        "values": "<f8",
    }

    def __post_init__(self) -> None:
        kernel = Forest(
            self.threshold,
            self.feature,
            self.missing_left,
            self.children,
            self.roots,
            self.values,
            self.n_features,
            self.complement,
            self.total,
        )
        object.__setattr__(self, "kernel", kernel)

    @property
    def n_members(self) -> int:
        """How many trees there are."""
        return len(self.roots)

    @property
    def n_outputs(self) -> int:
        """Classes, or one for regression."""
        return 2 if self.complement else int(self.values.shape[1])

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays and of the kernel's own copy."""
        return self.kernel.nbytes + sum(a.nbytes for a in self.arrays().values())

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays by name, as files hold them."""
        return {name: getattr(self, name) for name in self.DTYPES}

    def settings(self) -> dict[str, Any]:
        """The rest, as files hold it."""
        return {
            "n_features": self.n_features,
            "complement": self.complement,
            "total": self.total,
        }

    @classmethod
    def rebuild(cls, arrays: Mapping[str, np.ndarray], settings: Mapping[str, Any]) -> Self:
        """From what a file holds; raises ValueError where it cannot be."""
        return cls(
            **{name: arrays[name] for name in cls.DTYPES},
            n_features=int(settings["n_features"]),
            complement=bool(settings["complement"]),
            total=float(settings["total"]),
        )

    def scores(
        self,
        X: Any,
        *,
        n_threads: int = 1,
        allow_nan: bool = True,
        allow_inf: bool = False,
        vote: bool = False,
        floor: float = 0.0,
        inverse_temperature: float = 1.0,
        share: float = 0.0,
        gate: Gate | None = None,
        first: int = 0,
    ) -> np.ndarray:
        """Weighted sums of the leaves' values, or with ``vote`` the finished probabilities.

        Parameters
        ----------
        X : ndarray or sparse matrix of shape (rows, n_features)
        n_threads : int
        allow_nan, allow_inf : bool
            Whether NaN and infinities are routed; else they raise.
        vote : bool
            Whether to clip, mix in the floor, normalise, apply the temperature, and mix in the
            calibrator's share of the uniform distribution.
        floor, inverse_temperature, share : float
        gate : kernel of a gate, optional
            Which weighs the trees row by row; its temperature takes the place of the one given.
        first : int
            The gate's member that is the first tree.

        Returns
        -------
        ndarray of shape (rows, n_outputs)
        """
        out = np.empty((X.shape[0], self.n_outputs))
        how = (n_threads, allow_nan, allow_inf, vote, floor, inverse_temperature, share)
        if hasattr(X, "toarray"):
            step = max(1, SPARSE_BLOCK_BYTES // (4 * self.n_features))
            for start in range(0, X.shape[0], step):
                rows = slice(start, start + step)
                dense = readable(X[rows].toarray())
                if gate is None:
                    self.kernel.predict(dense, out[rows], *how)
                else:
                    self.kernel.predict_gated(gate, first, dense, out[rows], *how)
        elif gate is None:
            self.kernel.predict(readable(X), out, *how)
        else:
            self.kernel.predict_gated(gate, first, readable(X), out, *how)
        return out

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self) if f.init}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            object.__setattr__(self, name, value)
        self.__post_init__()


def readable(X: np.ndarray) -> np.ndarray:
    """X in a form the kernel reads: float32 or float64, native, aligned.

    Other numbers become float32 at once, as scikit-learn's trees read them.

    Parameters
    ----------
    X : ndarray

    Returns
    -------
    ndarray

    Examples
    --------
    >>> readable(np.array([[1, 2]])).dtype
    dtype('float32')
    """
    if X.dtype in (np.float64, np.float32) and X.dtype.isnative and X.flags.aligned:
        return X
    dtype = np.float64 if X.dtype.kind == "f" and X.dtype.itemsize == 8 else np.float32
    with np.errstate(over="ignore"):  # the kernel tells infinities
        return np.require(X, dtype=dtype, requirements="A")


def round_down(threshold: np.ndarray) -> np.ndarray:
    """The largest float32 not above each float64.

    ``x <= t`` and ``x <= round_down(t)`` are the same for every float32 ``x``; rounding to the
    nearest float32 would let rows between the two take the other branch.

    Parameters
    ----------
    threshold : float64 ndarray

    Returns
    -------
    float32 ndarray

    Examples
    --------
    >>> float(round_down(np.array([0.1]))[0]) <= 0.1 < float(np.float32(0.1))
    True
    """
    with np.errstate(over="ignore"):
        near = np.asarray(threshold, dtype=np.float32)
    down = np.nextafter(near, np.float32(-np.inf))
    return np.where(near.astype(np.float64) > threshold, down, near)
