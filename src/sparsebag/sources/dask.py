"""Rows on the workers of a Dask cluster: made where they are, and never moved.

What is asked of all blocks is added up as a tree on the way back. Any Dask scheduler will do; it
makes the blocks of a lost worker again.
"""

from __future__ import annotations

import operator
import sys
import warnings
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import partial, reduce
from typing import Any, Literal

import numpy as np

from sparsebag.evidence.arrays import ROW_GROUP, on_host
from sparsebag.evidence.collect import collect_evidence
from sparsebag.evidence.evidence import OOBEvidence, concatenate
from sparsebag.evidence.from_predictions import check_sample_weight
from sparsebag.evidence.members import MemberPool, Task
from sparsebag.evidence.readable import check_readable, is_dask
from sparsebag.sources.base import Source
from sparsebag.sources.readers import BlockReader
from sparsebag.sources.sampling import draw_rows

Array = Any

AT_ONCE = 32
"""Results that one task adds up, and members whose bags one task draws: a tree of a thousand blocks
is two levels deep, and a few bits a row and member are held at a time."""


class DaskRows(Source):
    """Blocks of rows on the workers.

    Parameters
    ----------
    tasks : sequence of dask.delayed
        One a block, in the rows' order.
    n_members : int
    task : {"classification", "regression"}
    classes : ndarray or None
    has_mask : bool

    Examples
    --------
    >>> import pytest
    >>> dask = pytest.importorskip("dask")
    >>> half = dask.delayed(OOBEvidence(np.eye(2), None, np.ones(2), "regression"))
    >>> rows = DaskRows([half, half], 2, "regression", None, has_mask=False)
    >>> rows.sum(lambda block: block.n_rows)
    4
    """

    def __init__(
        self,
        tasks: Sequence[Any],
        n_members: int,
        task: Task,
        classes: np.ndarray | None,
        *,
        has_mask: bool,
    ) -> None:
        self.n_members, self.task, self.classes = n_members, task, classes
        self.has_mask = has_mask
        self._blocks = _persisted(tasks)

    def derived(self, function: Callable[..., Any], *args: Any) -> DaskRows:
        """``function(block, *args)`` of every block, kept on the workers beside it."""
        other = copy(self)
        other._blocks = _persisted(_tasks(function, self._blocks, args))
        return other

    def sum(self, function: Callable[..., Any], *args: Any) -> Any:
        """The sum over all blocks, added up on the workers."""
        level = _tasks(function, self._blocks, args)
        while len(level) > 1:
            groups = [level[i : i + AT_ONCE] for i in range(0, len(level), AT_ONCE)]
            level = _tasks(_added, groups, ())
        return _dask().compute(*level, optimize_graph=False)[0]

    def sample(self, n_rows: int, seed: int) -> OOBEvidence:
        """Rows drawn at random by their weight; one number a row comes here to draw them."""
        found = _dask().compute(*_tasks(_weights, self._blocks, ()), optimize_graph=False)
        sizes = [size for size, _ in found]
        weight = None
        if any(weights is not None for _, weights in found):
            weight = np.concatenate([np.ones(n) if w is None else w for n, w in found])
        rows, counts = draw_rows(sum(sizes), weight, n_rows, np.random.default_rng(seed))
        picked = rows_by_block(sizes, rows)
        some = _dask().delayed(OOBEvidence.take, pure=False)
        tasks = [some(b, r) for b, r in zip(self._blocks, picked, strict=True) if len(r)]
        drawn = concatenate(_dask().compute(*tasks, optimize_graph=False))
        return drawn if counts is None else replace(drawn, sample_weight=counts)


def rows_of_matrices(
    predictions: Any,
    oob_mask: Any,
    y: Any,
    *,
    task: Task,
    sample_weight: Any = None,
    labels: Array | None = None,
    every_class: bool = False,
) -> DaskRows:
    """A user's Dask matrices, checked on the workers.

    Parameters
    ----------
    predictions : dask.array of shape (M, N) or (M, N, C)
    oob_mask : dask.array or array of shape (M, N), or None
    y : dask.array, Dask Series or array of shape (M,)
    task, sample_weight, labels, every_class
        As in `sparsebag.evidence.from_predictions.from_predictions`.

    Returns
    -------
    DaskRows
    """
    predictions = checked(predictions, "predictions")
    names = ("oob_mask", "y", "sample_weight")
    beside = [
        as_column(values, name)
        for values, name in zip((oob_mask, y, sample_weight), names, strict=True)
    ]
    if task == "classification":
        labels = np.unique(on_host(computed(beside[1]))) if labels is None else on_host(labels)
    sizes, n_rows = predictions.chunks[0], int(predictions.shape[0])
    columns = [
        _pieces(values, sizes, n_rows, name)
        for values, name in zip((predictions, *beside), ("predictions", *names), strict=True)
    ]
    check = _dask().delayed(BlockReader(task, labels, every_class).block, pure=False)
    starts = np.cumsum([0, *sizes[:-1]]).tolist()
    tasks = [check(block, "", first) for first, *block in zip(starts, *columns, strict=True)]
    n_members, classes = int(predictions.shape[1]), None if task == "regression" else labels
    return DaskRows(tasks, n_members, task, classes, has_mask=oob_mask is not None)


def rows_of_members(
    pool: MemberPool,
    X: Any,
    y: Any,
    *,
    source: Literal["oob", "holdout"] = "oob",
    sample_weight: Any = None,
    class_votes: bool = False,
    dtype: Any = np.float32,
) -> DaskRows:
    """What members say of the rows they have not seen, predicted on the workers.

    The members are sent once. Which rows were in whose bag is drawn on the workers, some members
    at a time, and handed to the row blocks as bits.

    Parameters
    ----------
    pool : MemberPool
    X : dask.array of shape (M, n_features)
        Cut by rows alone (`checked`).
    y : array of shape (M,)
    source, sample_weight, class_votes, dtype
        As in `sparsebag.evidence.collect.collect_evidence`.

    Returns
    -------
    DaskRows
    """
    delayed = _dask().delayed
    sizes, n_rows = X.chunks[0], int(X.shape[0])
    members = delayed(replace(pool, source=None), pure=False, traverse=False)
    named = ((X, "X"), (y, "y"), (sample_weight, "sample_weight"))
    columns = [_pieces(values, sizes, n_rows, name) for values, name in named]
    bags: list[Any] = [None] * len(sizes)
    if source == "oob":
        draw, pick = delayed(_drawn_bags, pure=False), delayed(operator.getitem, pure=False)
        starts = range(0, len(pool.members), AT_ONCE)
        groups = [draw(members, first, sizes) for first in starts]
        bags = [[pick(group, number) for group in groups] for number in range(len(sizes))]
    call = delayed(_predicted, pure=False)
    collect = partial(
        collect_evidence,
        source=source,
        class_votes=class_votes,
        dtype=dtype,
        n_jobs=1,
        verify=False,
    )
    tasks = [
        call(collect, members, bits, *block) for bits, *block in zip(bags, *columns, strict=True)
    ]
    return DaskRows(tasks, len(pool.members), pool.task, pool.classes, has_mask=source == "oob")


def checked(matrix: Any, name: str) -> Any:
    """A Dask matrix cut by whole groups of rows alone, or one sentence on what is wrong with it.

    Sums do not depend on the cuts then.

    Parameters
    ----------
    matrix : dask collection
    name : str

    Returns
    -------
    dask.array
    """
    if not hasattr(type(matrix), "chunks"):
        raise TypeError(
            f"{name} is a {type(matrix).__name__}; pass a Dask array, such as "
            f"{name}.to_dask_array(lengths=True) or dask.array.from_delayed(...)."
        )
    if any(np.isnan(size) for size in matrix.chunks[0]):
        raise ValueError(
            f"the row blocks of {name} have unknown sizes; call {name}.compute_chunk_sizes() first."
        )
    if not matrix.shape[0]:
        raise ValueError(f"{name} has no rows to judge the members by.")
    ends = np.cumsum(matrix.chunks[0])
    cuts = np.unique((ends[:-1] + ROW_GROUP // 2) // ROW_GROUP * ROW_GROUP)
    cuts = cuts[(cuts > 0) & (cuts < ends[-1])]
    sizes = tuple(np.diff([0, *cuts, ends[-1]]).tolist())
    return matrix.rechunk({0: sizes, **{axis: -1 for axis in range(1, matrix.ndim)}})


def as_column(values: Any, name: str) -> Any:
    """What goes beside predictions or X, as an array.

    Parameters
    ----------
    values : dask.array, Dask Series or DataFrame, array-like or None
    name : str

    Returns
    -------
    dask.array, array-like or None
    """
    if type(values).__module__ == "dask.delayed":
        raise TypeError(f"{name} is a task; pass a Dask array or an array.")
    check_readable(values, name)
    convert = getattr(values, "to_dask_array", None)
    if convert is None:
        return values
    with warnings.catch_warnings():
        # Labels that are strings become objects, as they are in NumPy's arrays of them.
        warnings.filterwarnings("ignore", "Dask currently has limited support", UserWarning)
        return convert(lengths=True)


def computed(values: Any) -> Any:
    """A Dask collection's values, here; anything else as it is.

    Parameters
    ----------
    values : object

    Returns
    -------
    object
    """
    return values.compute() if is_dask(values) else values


def rows_by_block(sizes: Sequence[int], rows: np.ndarray) -> list[np.ndarray]:
    """Rows of all blocks, numbered through, as positions within each.

    Parameters
    ----------
    sizes : sequence of int
        Rows of each block.
    rows : ndarray of ascending indices

    Returns
    -------
    list of ndarray

    Examples
    --------
    >>> [some.tolist() for some in rows_by_block((2, 3), np.array([1, 2, 4]))]
    [[1], [0, 2]]
    """
    ends = np.cumsum(sizes)
    cuts = np.searchsorted(rows, ends[:-1])
    return [some - first for some, first in zip(np.split(rows, cuts), ends - sizes, strict=True)]


def _pieces(values: Any, sizes: tuple[int, ...], n_rows: int, name: str) -> list[Any]:
    """One task or array a row block; None for each where there are no values."""
    if values is None:
        return [None] * len(sizes)
    if not is_dask(values):
        values = on_host(values)
        if name == "sample_weight":  # a worker sees its own rows' alone
            check_sample_weight(values, np.empty(n_rows))
    if np.isnan(values.shape[0]):
        raise ValueError(
            f"the row blocks of {name} have unknown sizes; call {name}.compute_chunk_sizes() first."
        )
    if values.shape[0] != n_rows:
        raise ValueError(f"{name} has {values.shape[0]} rows and the others {n_rows}.")
    if is_dask(values):
        values = values.rechunk({0: sizes, **{axis: -1 for axis in range(1, values.ndim)}})
        return list(values.to_delayed().ravel())
    return np.split(values, np.cumsum(sizes)[:-1])


def _dask() -> Any:
    import dask.delayed

    return dask


def _tasks(function: Callable[..., Any], blocks: Sequence[Any], args: tuple[Any, ...]) -> list[Any]:
    delayed = _dask().delayed
    call = delayed(function, pure=False)
    # One task holds each argument, so a vector of weights travels once, not once a block.
    shared = [delayed(arg, pure=False, traverse=False) for arg in args]
    return [call(block, *shared) for block in blocks]


def _persisted(tasks: Sequence[Any]) -> list[Any]:
    dask = _dask()
    # Dask warns of large arguments, which had better be loaded by the workers; members cannot be.
    how = {"distributed.admin.large-graph-warning-threshold": "1TiB"}
    with dask.config.set(how if "distributed" in sys.modules else {}):
        return list(dask.persist(*tasks, optimize_graph=False))


# -- what workers do -------------------------------------------------------------------------


def _added(parts: list[Any]) -> Any:
    found = [part for part in parts if part is not None]
    return reduce(operator.add, found) if found else None


def _weights(block: OOBEvidence) -> tuple[int, np.ndarray | None]:
    return block.n_rows, block.sample_weight


def _drawn_bags(pool: MemberPool, first: int, sizes: tuple[int, ...]) -> list[np.ndarray]:
    """In-bag rows of some members, packed eight members a byte, one matrix a row block."""
    assert pool.in_bag is not None
    last = min(first + AT_ONCE, len(pool.members))
    in_bag = np.zeros((sum(sizes), last - first), dtype=np.bool_)
    for j in range(first, last):
        in_bag[pool.in_bag[j], j - first] = True
    return np.split(np.packbits(in_bag, axis=1), np.cumsum(sizes)[:-1])


def _predicted(
    collect: Callable[..., OOBEvidence], pool: MemberPool, bits: Any, X: Any, y: Any, weight: Any
) -> OOBEvidence:
    """Evidence of one row block, as `collect_evidence` gives it for all rows."""
    bags: list[np.ndarray] | None = None
    if bits is not None:
        n = len(pool.members)
        starts = range(0, n, AT_ONCE)
        parts = [
            np.unpackbits(part, axis=1, count=min(AT_ONCE, n - start))
            for part, start in zip(bits, starts, strict=True)
        ]
        bags = [np.flatnonzero(column) for column in np.concatenate(parts, axis=1).T]
    block = replace(pool, in_bag=bags, n_rows=None)
    evidence = collect(block, X, y)
    return replace(evidence, sample_weight=check_sample_weight(weight, X, is_part=True))
