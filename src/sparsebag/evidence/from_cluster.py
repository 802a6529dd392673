"""Evidence made by the members, where a Dask cluster keeps the rows.

The members are sent to every worker once. Which rows were in whose bag is drawn on the workers,
some members at a time, and handed to the row blocks as bits.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from sparsebag.evidence.arrays import on_host
from sparsebag.evidence.blocks import ROW_GROUP
from sparsebag.evidence.cluster_rows import ClusterBlocks, MissingDask, on_every_worker
from sparsebag.evidence.collect import collect_evidence
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.evidence.from_predictions import check_sample_weight
from sparsebag.evidence.members import MemberPool
from sparsebag.evidence.row_stream import with_row_weight

MEMBERS_AT_ONCE = 32
"""Members whose bags one task draws: a few bits a row and member are held at a time."""


def is_on_cluster(values: Any) -> bool:
    """Whether this is a Dask array.

    Parameters
    ----------
    values : object

    Returns
    -------
    bool

    Examples
    --------
    >>> is_on_cluster(np.ones(2))
    False
    """
    return type(values).__module__.split(".")[0] in ("dask", "dask_expr")


def is_task(value: Any) -> bool:
    """Whether this is a ``dask.delayed`` object or a future.

    By its class: a delayed object has every attribute that it is asked for.

    Parameters
    ----------
    value : object

    Returns
    -------
    bool

    Examples
    --------
    >>> is_task(np.ones(2))
    False
    """
    return type(value).__module__ == "dask.delayed" or is_future(value)


def is_future(value: Any) -> bool:
    """Whether this is a future of a distributed scheduler: of a task, not of an actor's method.

    Parameters
    ----------
    value : object

    Returns
    -------
    bool

    Examples
    --------
    >>> is_future(np.ones(2))
    False
    """
    if "distributed" not in sys.modules:
        return False
    from distributed import Future

    return isinstance(value, Future)


def blocks_of_members(
    pool: MemberPool,
    X: Any,
    y: Any,
    *,
    source: Literal["oob", "holdout"] = "oob",
    sample_weight: Any = None,
    class_votes: bool = False,
    dtype: Any = np.float32,
    verbose: int = 0,
) -> ClusterBlocks:
    """Row blocks of what members say of the rows they have not seen, predicted on the workers.

    Parameters
    ----------
    pool : MemberPool
    X : dask.array of shape (M, n_features)
    y : array of shape (M,)
    source, sample_weight, class_votes, dtype
        As in `sparsebag.evidence.collect.collect_evidence`.
    verbose : int, default 0

    Returns
    -------
    ClusterBlocks
        Of `OOBEvidence`.
    """
    sizes = X.chunks[0]
    columns = [row_pieces(a, sizes, int(X.shape[0]), n) for a, n in _named(X, y, sample_weight)]
    how = {"source": source, "class_votes": class_votes, "dtype": dtype}
    predict = delayed_call(_predicted)

    def recipe() -> list[Any]:
        members = on_every_worker(pool)
        bags = [None] * len(sizes) if source == "holdout" else _bags(members, pool, sizes)
        return [
            predict(members, bits, *block, **how, where=where)
            for (where, _), bits, *block in zip(places(sizes), bags, *columns, strict=True)
        ]

    return ClusterBlocks(recipe, verbose)


def rows_at(X: Any, picked: list[np.ndarray]) -> np.ndarray:
    """Some rows of a Dask matrix, brought here.

    Parameters
    ----------
    X : dask.array of shape (M, n_features)
    picked : list of ndarray
        Positions within each of its row blocks.

    Returns
    -------
    ndarray
    """
    pieces = row_pieces(X, X.chunks[0], int(X.shape[0]), "X")
    return np.concatenate(ClusterBlocks(lambda: list(pieces)).each(_at, own=picked))


def checked(matrix: Any, name: str) -> Any:
    """A Dask matrix cut by rows alone, or one sentence on what is wrong with it.

    Parameters
    ----------
    matrix : dask collection
    name : str

    Returns
    -------
    dask.array
    """
    if is_task(matrix):
        raise TypeError(
            f"{name} is one task ({type(matrix).__name__}); pass a Dask array, such as "
            "dask.array.from_delayed(...)."
        )
    if not hasattr(matrix, "chunks"):
        raise TypeError(
            f"{name} is a {type(matrix).__name__}; pass a Dask array, such as "
            f"{name}.to_dask_array(lengths=True)."
        )
    if any(np.isnan(size) for size in matrix.chunks[0]):
        raise ValueError(
            f"the row blocks of {name} have unknown sizes; call {name}.compute_chunk_sizes() first."
        )
    return matrix.rechunk({0: whole_groups(matrix.chunks[0]), **_undivided(matrix)})


def whole_groups(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Row blocks cut at the nearest whole group of rows, so that sums do not depend on the cuts.

    Parameters
    ----------
    sizes : tuple of int
        Rows of each block.

    Returns
    -------
    tuple of int

    Examples
    --------
    >>> whole_groups((100, 500, 200))
    (512, 288)
    """
    ends = np.cumsum(sizes)
    cuts = np.unique((ends[:-1] + ROW_GROUP // 2) // ROW_GROUP * ROW_GROUP)
    cuts = cuts[(cuts > 0) & (cuts < ends[-1])]
    return tuple(np.diff([0, *cuts, ends[-1]]).tolist())


def places(sizes: tuple[int, ...]) -> list[tuple[str, int]]:
    """Which rows of all each block has, in words, and the number of its first.

    Blocks are cut anew (`whole_groups`), so that a block's number would tell a user nothing.

    Parameters
    ----------
    sizes : tuple of int
        Rows of each block.

    Returns
    -------
    list of (str, int)

    Examples
    --------
    >>> places((512, 288))
    [('rows 0 to 511', 0), ('rows 512 to 799', 512)]
    """
    ends = np.cumsum(sizes).tolist()
    return [
        (f"rows {end - size} to {end - 1}", end - size)
        for end, size in zip(ends, sizes, strict=True)
    ]


def _undivided(matrix: Any) -> dict[int, int]:
    return {axis: -1 for axis in range(1, matrix.ndim)}


def row_pieces(values: Any, sizes: tuple[int, ...], n_rows: int, name: str) -> list[Any]:
    """One task or array a row block; None for each where there are no values.

    Parameters
    ----------
    values : dask.array, array-like or None
    sizes : tuple of int
        Rows of each block.
    n_rows : int
        Their sum.
    name : str

    Returns
    -------
    list
    """
    if values is None:
        return [None] * len(sizes)
    if not is_on_cluster(values):
        values = on_host(values)
        if name == "sample_weight":  # a worker sees its own rows' alone
            check_sample_weight(values, np.empty(n_rows))
    elif np.isnan(values.shape[0]):
        raise ValueError(
            f"the row blocks of {name} have unknown sizes; call {name}.compute_chunk_sizes() first."
        )
    if values.shape[0] != n_rows:
        raise ValueError(f"{name} has {values.shape[0]} rows and the others {n_rows}.")
    if is_on_cluster(values):
        values = values.rechunk({0: sizes, **_undivided(values)})
        return list(values.to_delayed().ravel())
    ends = np.cumsum(sizes)
    return [values[end - size : end] for end, size in zip(ends, sizes, strict=True)]


def _named(X: Any, y: Any, sample_weight: Any) -> list[tuple[Any, str]]:
    return [(X, "X"), (y, "y"), (sample_weight, "sample_weight")]


def delayed_call(function: Callable[..., Any]) -> Any:
    """A function whose calls are tasks, or one sentence where Dask is missing.

    Parameters
    ----------
    function : function

    Returns
    -------
    dask.delayed
    """
    try:
        import dask
    except ImportError as error:
        raise MissingDask from error
    return dask.delayed(function, pure=False)


def _bags(members: Any, pool: MemberPool, sizes: tuple[int, ...]) -> list[list[Any]]:
    """For each row block, tasks of bits: who has which of its rows in the bag."""
    draw, pick = delayed_call(_drawn), delayed_call(_item)
    groups = []
    for first in range(0, len(pool.members), MEMBERS_AT_ONCE):
        last = min(first + MEMBERS_AT_ONCE, len(pool.members))
        groups.append(draw(members, first, last, sizes))
    return [[pick(group, number) for group in groups] for number in range(len(sizes))]


# -- what workers do -------------------------------------------------------------------------


def _drawn(pool: MemberPool, first: int, last: int, sizes: tuple[int, ...]) -> list[np.ndarray]:
    """In-bag rows of some members, packed eight members a byte, one matrix a row block."""
    assert pool.in_bag is not None
    in_bag = np.zeros((sum(sizes), last - first), dtype=np.bool_)
    for j in range(first, last):
        in_bag[pool.in_bag[j], j - first] = True
    return np.split(np.packbits(in_bag, axis=1), np.cumsum(sizes)[:-1])


def _item(parts: list[np.ndarray], number: int) -> np.ndarray:
    return parts[number]


def _predicted(
    pool: MemberPool,
    bits: list[np.ndarray] | None,
    X: Any,
    y: Any,
    sample_weight: Any,
    *,
    source: Literal["oob", "holdout"],
    class_votes: bool,
    dtype: Any,
    where: str,
) -> OOBEvidence:
    """Evidence of one row block, as `collect_evidence` gives it for all rows."""
    n = len(pool.members)
    bags: list[np.ndarray] | None = None
    if bits is not None:
        starts = range(0, n, MEMBERS_AT_ONCE)
        parts = [
            np.unpackbits(part, axis=1, count=min(MEMBERS_AT_ONCE, n - start))
            for part, start in zip(bits, starts, strict=True)
        ]
        in_bag = np.concatenate(parts, axis=1)
        bags = [np.flatnonzero(in_bag[:, j]) for j in range(n)]
    block_pool = replace(pool, in_bag=bags, n_rows=None, source=None)
    evidence = collect_evidence(
        block_pool,
        X,
        y,
        source=source,
        class_votes=class_votes,
        dtype=dtype,
        n_jobs=1,
        verify=False,
    )
    try:
        return with_row_weight(evidence, sample_weight)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def _at(block: Any, rows: np.ndarray) -> np.ndarray:
    return np.asarray(np.asarray(block)[rows])
