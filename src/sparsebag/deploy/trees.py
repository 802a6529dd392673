"""Decision trees as flat arrays, their weights folded into the leaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self

import numpy as np

from sparsebag.deploy._forest import Forest

Finish = tuple[bool, float, float, float, float]
"""Whether sums become probabilities; then the floor, the inverse temperature, the calibrator's
share of the uniform distribution, and its scale."""
RAW: Finish = (False, 0.0, 1.0, 0.0, 0.0)
SPARSE_BLOCK_BYTES = 2**25
"""Sparse rows are made dense this much at a time."""
UNSIGNED = ("|u1", "<u2", "<i4")
SIGNED = ("|i1", "<i2", "<i4")


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
    STORED: ClassVar[dict[str, tuple[str, ...]]] = {
        "inner": ("|u1",),
        "feature": UNSIGNED,
        "rank": UNSIGNED,
        "cuts": ("<f4",),
        "missing_left": ("|u1",),
        "leaf": UNSIGNED,
        "values": ("<f8", *SIGNED),
    }

    SETTINGS: ClassVar[dict[str, dict[str, type]]] = {
        "trees": {"n_features": int, "complement": bool, "total": float, "step": float}
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
        arrays: list[np.ndarray] = [getattr(self, name) for name in self.DTYPES]
        return self.kernel.nbytes + sum(array.nbytes for array in arrays)

    @property
    def may_be_negative(self) -> bool:
        """Whether refined leaves may give a class less than nothing in the vote."""
        if not (self.complement or np.any(self.values < 0.0)):
            return False
        visited = _preorder(self.children, self.roots)
        opened = np.where(visited >= 0, 1, -1)  # a tree closes one subtree more than it opens
        tree, leaf = -np.minimum.accumulate(np.cumsum(opened) - opened), visited < 0
        says, shape = self.values[~visited[leaf]], (self.n_members, self.values.shape[1])
        least, most = np.full(shape, np.inf), np.full(shape, -np.inf)
        np.minimum.at(least, tree[leaf], says)
        np.maximum.at(most, tree[leaf], says)
        slack = 1e-12 * self.total
        # Two classes stored as one: the other is what the largest leaves leave of the total.
        too_much = self.complement and most.sum() > self.total + slack
        return bool(too_much or np.any(least.sum(axis=0) < -slack))

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays by name, as files hold them: nodes and leaves in preorder, tree by tree."""
        visited = _preorder(self.children, self.roots)
        inner = visited >= 0
        nodes, rows = visited[inner], ~visited[~inner]
        feature = self.feature[nodes].astype(np.int64)
        # Trees share most of their thresholds: each is stored once a feature, and ranked in it.
        bits = np.ascontiguousarray(self.threshold[nodes], dtype="<f4").view("<u4")
        cuts, which = np.unique(feature << 32 | bits, return_inverse=True)
        rank = which - np.searchsorted(cuts >> 32, feature)
        table, row = distinct_rows(self.values)
        codes, _ = _codes(table, self._weights)
        codes = _smallest(codes, SIGNED) if codes.dtype.kind == "i" else codes
        return {
            "inner": np.packbits(inner),
            "feature": _smallest(feature, UNSIGNED),
            "rank": _smallest(rank[np.argsort(feature, kind="stable")], UNSIGNED),
            "cuts": (cuts & 0xFFFFFFFF).astype("<u4").view("<f4"),
            "missing_left": np.packbits(self.missing_left[nodes] != 0),
            "leaf": _smallest(row[rows], UNSIGNED),
            "values": np.ascontiguousarray(codes.T),
        }

    def settings(self) -> dict[str, Any]:
        """The rest, as files hold it."""
        return {
            "n_features": self.n_features,
            "complement": self.complement,
            "total": self.total,
            "step": _codes(self.values, self._weights)[1],
        }

    @property
    def _weights(self) -> tuple[float, ...]:
        """What the weight of every tree may be, if they are equal; `total` has rounding errors."""
        n = len(self.roots)
        return 1.0 / n, self.total / n

    @classmethod
    def rebuild(cls, arrays: Mapping[str, np.ndarray], settings: Mapping[str, Any]) -> Self:
        """From what a file holds; raises ValueError where it cannot be."""
        for name in cls.STORED:
            if arrays[name].ndim != (2 if name == "values" else 1):
                raise ValueError(f"the trees' {name!r} has the wrong shape.")
            if name in ("feature", "rank", "leaf") and arrays[name].min(initial=0) < 0:
                raise ValueError(f"the trees' {name!r} is negative.")
        feature, leaf = arrays["feature"], arrays["leaf"]
        inner = _flags(arrays["inner"], len(feature) + len(leaf))
        children, roots = _linked(inner, leaf, len(feature))
        with np.errstate(over="ignore", invalid="ignore"):  # refused later, if it is used
            values = np.ascontiguousarray(arrays["values"].T) * float(settings["step"])
        return cls(
            threshold=_thresholds(feature, arrays["rank"], arrays["cuts"]),
            feature=feature.astype(np.int32),
            missing_left=_flags(arrays["missing_left"], len(feature)),
            children=children,
            roots=roots,
            values=values,
            n_features=int(settings["n_features"]),
            complement=bool(settings["complement"]),
            total=float(settings["total"]),
        )

    def scores(
        self,
        X: Any,
        weights: np.ndarray | None = None,
        *,
        n_threads: int = 1,
        allow_nan: bool = True,
        finish: Finish = RAW,
    ) -> np.ndarray:
        """Weighted sums of the leaves' values, raw or as probabilities.

        Parameters
        ----------
        X : ndarray or sparse matrix of shape (rows, n_features)
        weights : ndarray of shape (rows, n_trees), optional
            A gate's, which multiply what the leaves say.
        n_threads : int
        allow_nan : bool
            Whether NaN is routed; else it raises, as infinity always does.
        finish : tuple
            What is done to the sums: clip, mix in the floor, normalise, apply the temperature, and
            mix in the calibrator's share of the uniform distribution.

        Returns
        -------
        ndarray of shape (rows, n_outputs)
        """
        out = np.empty((X.shape[0], self.n_outputs))
        if not hasattr(X, "toarray"):
            self.kernel.predict(readable(X), weights, out, n_threads, allow_nan, *finish)
            return out
        step = max(1, SPARSE_BLOCK_BYTES // (4 * self.n_features))
        for start in range(0, X.shape[0], step):
            rows = slice(start, start + step)
            own = None if weights is None else weights[rows]
            dense = readable(X[rows].toarray())
            self.kernel.predict(dense, own, out[rows], n_threads, allow_nan, *finish)
        return out

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, f.name) for f in fields(self) if f.init)


def distinct_rows(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows that differ in a bit, sorted, and the position of each row among them.

    Parameters
    ----------
    values : float64 ndarray of shape (rows, columns)

    Returns
    -------
    ndarray, int ndarray of shape (rows,)

    Examples
    --------
    >>> distinct_rows(np.array([[2.0], [1.0], [2.0]]))[1].tolist()
    [1, 0, 1]
    """
    # The bytes of big-endian numbers sort as the numbers do, and faster than rows of numbers.
    whole = np.ascontiguousarray(values, dtype=">f8").view(f"V{8 * values.shape[1]}").reshape(-1)
    _, first, row = np.unique(whole, return_index=True, return_inverse=True)
    return values[first], row.reshape(-1)


# -- as files hold them ----------------------------------------------------------------------


def _preorder(children: np.ndarray, roots: np.ndarray) -> np.ndarray:
    """Nodes and ``~row`` of leaves in the order of a walk, left before right."""
    pairs = children.tolist()
    pending = roots[::-1].tolist()
    visited = []
    while pending:
        at = pending.pop()
        visited.append(at)
        if at >= 0:
            left, right = pairs[at]
            pending += (right, left)
    return np.array(visited, dtype=np.int64)


def _linked(inner: np.ndarray, leaf: np.ndarray, n_inner: int) -> tuple[np.ndarray, np.ndarray]:
    """Children and roots of trees in preorder, from which of their nodes are inner ones."""
    # An inner node opens one subtree more than it closes, a leaf closes one. The left child is the
    # next node; the right one is the next with as many open subtrees before it as its parent.
    at, leaf_at = np.flatnonzero(inner != 0), np.flatnonzero(inner == 0)
    opened = 2 * inner.astype(np.int32) - 1
    after = np.cumsum(opened, dtype=np.int32)
    before = after - opened
    if not len(inner) or len(at) != n_inner or before.min() <= after[-1]:
        raise ValueError("the nodes do not form trees.")
    number = np.empty(len(inner), dtype=np.int32)
    number[at], number[leaf_at] = np.arange(n_inner), ~leaf.astype(np.int32)
    order = np.argsort(_smallest(before, SIGNED), kind="stable")
    following = np.empty_like(number)
    following[order[:-1]] = number[order[1:]]
    is_root = np.diff(np.minimum.accumulate(before), prepend=1) < 0
    return np.stack([number[at + 1], following[at]], axis=1), number[is_root]


def _thresholds(feature: np.ndarray, rank: np.ndarray, cuts: np.ndarray) -> np.ndarray:
    """Each node's threshold: of its feature's distinct ones, the one of its rank."""
    by_feature = np.argsort(feature, kind="stable")
    starts = np.flatnonzero(np.diff(feature[by_feature], prepend=-1))
    if len(rank) != len(feature):
        raise ValueError("the trees' 'rank' is not one per node.")
    counts = np.maximum.reduceat(rank, starts).astype(np.int64) + 1
    if counts.sum() != len(cuts):
        raise ValueError("the ranks do not match the thresholds.")
    first = np.repeat(np.cumsum(counts) - counts, np.diff(starts, append=len(feature)))
    threshold = np.empty(len(feature), dtype=np.float32)
    threshold[by_feature] = cuts[first + rank]
    return threshold


def _flags(packed: np.ndarray, count: int) -> np.ndarray:
    if len(packed) != -(-count // 8):
        raise ValueError("the trees' flags are not one per node.")
    return np.unpackbits(packed, count=count)


def _codes(values: np.ndarray, weights: tuple[float, ...]) -> tuple[np.ndarray, float]:
    """Integers and the step with ``integers * step == values``, bit for bit; else values and 1.

    They exist where leaves are multiples of a power of two and all trees have one of these
    weights: the step is the weight times the power, and powers of two round nothing.
    """
    largest = float(np.abs(values).max(initial=0.0))
    for weight in weights:
        if weight <= 0.0 or not 0.0 < largest / weight < np.inf:
            continue
        step = np.ldexp(weight, np.frexp(largest / weight)[1] - 30)  # fits int32 with its sign
        codes = np.rint(values / step).astype(np.int64)
        if np.array_equal(
            (codes * step).view(np.int64), np.ascontiguousarray(values).view(np.int64)
        ):
            common = int(np.bitwise_or.reduce(codes, axis=None))
            power = common & -common
            return codes // power, float(step * power)
    return values, 1.0


def _smallest(numbers: np.ndarray, dtypes: tuple[str, ...]) -> np.ndarray:
    """The same integers in the first type that holds them."""
    least, most = int(numbers.min(initial=0)), int(numbers.max(initial=0))
    fits = (d for d in dtypes if np.iinfo(d).min <= least and most <= np.iinfo(d).max)
    return numbers.astype(next(fits))


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
