"""Evidence made where a Dask cluster keeps the rows: from prediction matrices, or by the members.

The members are sent to every worker once. Which rows were in whose bag is drawn on the workers,
some members at a time, and handed to the row blocks as bits.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from sparsebag.evidence.arrays import on_host
from sparsebag.evidence.blocks import ROW_GROUP
from sparsebag.evidence.cluster_rows import ClusterBlocks, MissingDask, on_every_worker
from sparsebag.evidence.collect import collect_evidence
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.evidence.from_predictions import check_sample_weight
from sparsebag.evidence.members import MemberPool, Task
from sparsebag.evidence.row_stream import evidence_block, with_row_weight

Array = Any
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


def are_row_blocks(values: Any) -> bool:
    """Whether this is a list of row blocks on a cluster: tasks, futures or Dask arrays.

    Parameters
    ----------
    values : object

    Returns
    -------
    bool

    Examples
    --------
    >>> are_row_blocks([np.ones(2)]), are_row_blocks([])
    (False, False)
    """
    if not isinstance(values, (list, tuple)) or not values:
        return False
    return all(is_task(value) or _is_array(value) for value in values)


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
    module = type(value).__module__
    return module == "dask.delayed" or module.split(".")[0] == "distributed"


def blocks_of_parts(
    parts: Sequence[Any],
    *,
    task: Task,
    labels: Array | None = None,
    every_class: bool = False,
    verbose: int = 0,
) -> ClusterBlocks:
    """A user's own row blocks, as they are on the workers, checked there.

    Parameters
    ----------
    parts : sequence of dask.delayed or distributed.Future
        Each of ``(predictions, oob_mask, y)`` or ``(predictions, oob_mask, y, sample_weight)``.
    task, labels, every_class
        As in `from_predictions`.
    verbose : int, default 0

    Returns
    -------
    ClusterBlocks
        Of `OOBEvidence`.

    Examples
    --------
    >>> import pytest
    >>> dask = pytest.importorskip("dask")
    >>> part = dask.delayed((np.eye(2), None, np.ones(2)))
    >>> len(blocks_of_parts([part, part], task="regression"))
    2
    """
    call = _delayed(_part)
    given = ClusterBlocks(lambda: [call(part, i) for i, part in enumerate(parts)], verbose)
    if task == "classification" and labels is None:
        labels = np.unique(np.concatenate(given.each(_labels)))
    made = given.derived(_evidence, task, labels, every_class)
    # Else votes that had to be copied would be held twice.
    given.let_go()
    return made


def blocks_of_matrices(
    predictions: Any,
    oob_mask: Any,
    y: Any,
    *,
    task: Task,
    sample_weight: Any = None,
    labels: Array | None = None,
    every_class: bool = False,
    verbose: int = 0,
) -> ClusterBlocks:
    """Row blocks of a user's Dask matrices, checked on the workers.

    Parameters
    ----------
    predictions : dask.array of shape (M, N) or (M, N, C)
        This and the others: or a list of them, one a block of rows.
    oob_mask : dask.array or array of shape (M, N), or None
    y : dask.array, Dask Series or array of shape (M,)
    task, sample_weight, labels, every_class
        As in `from_predictions`.
    verbose : int, default 0

    Returns
    -------
    ClusterBlocks
        Of `OOBEvidence`.
    """
    predictions = checked(_joined(predictions), "predictions")
    n_rows = int(predictions.shape[0])
    oob_mask = _as_array(_joined(oob_mask), "oob_mask")
    y = _as_array(_joined(y), "y")
    sample_weight = _as_array(_joined(sample_weight), "sample_weight")
    if task == "classification" and labels is None:
        labels = np.unique(on_host(_here(y)))
    columns = [
        row_pieces(predictions, predictions.chunks[0], n_rows, "predictions"),
        row_pieces(oob_mask, predictions.chunks[0], n_rows, "oob_mask"),
        row_pieces(y, predictions.chunks[0], n_rows, "y"),
        row_pieces(sample_weight, predictions.chunks[0], n_rows, "sample_weight"),
    ]
    how = {"task": task, "labels": labels, "every_class": every_class}
    call = _delayed(evidence_block)
    return ClusterBlocks(
        lambda: [
            call(*block, **how, where=f"block {i}")
            for i, block in enumerate(zip(*columns, strict=True))
        ],
        verbose,
    )


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
    predict = _delayed(_predicted)

    def recipe() -> list[Any]:
        members = on_every_worker(pool)
        bags = [None] * len(sizes) if source == "holdout" else _bags(members, pool, sizes)
        return [
            predict(members, bits, *block, **how)
            for bits, *block in zip(bags, *columns, strict=True)
        ]

    return ClusterBlocks(recipe, verbose)


def leaves_of(pool: MemberPool, X: Any, trees: list[int]) -> dict[int, np.ndarray]:
    """The leaf of every row in some trees, found on the workers and brought here.

    Parameters
    ----------
    pool : MemberPool
    X : dask.array of shape (M, n_features)
    trees : list of int
        Which members.

    Returns
    -------
    dict of int to ndarray of shape (M,)
    """
    some = replace(pool.keep(np.asarray(trees)), in_bag=None)
    pieces = row_pieces(X, X.chunks[0], int(X.shape[0]), "X")
    call = _delayed(_routed)

    def recipe() -> list[Any]:
        members = on_every_worker(some)
        return [call(members, piece) for piece in pieces]

    found = np.concatenate(ClusterBlocks(recipe).each(np.asarray), axis=1)
    return dict(zip(trees, found, strict=True))


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


def _is_array(value: Any) -> bool:
    return type(value).__module__.startswith("dask.array")


def _joined(values: Any) -> Any:
    """Dask arrays of row blocks, one below the other; anything else as it is."""
    if not are_row_blocks(values) or not all(_is_array(value) for value in values):
        return values
    import dask.array as da

    return da.concatenate(values, axis=0)


def _as_array(values: Any, name: str) -> Any:
    """A Dask Series or DataFrame as a Dask array, its partitions counted; arrays as they are."""
    if is_task(values) or are_row_blocks(values):
        raise TypeError(f"{name} is made of tasks; pass a Dask array or an array.")
    convert = getattr(values, "to_dask_array", None)
    if convert is None:
        return values
    with warnings.catch_warnings():
        # Labels that are strings become objects, as they are in NumPy's arrays of them.
        warnings.filterwarnings("ignore", "Dask currently has limited support", UserWarning)
        return convert(lengths=True)


def _here(values: Any) -> Any:
    return values.compute() if is_on_cluster(values) else values


def _named(X: Any, y: Any, sample_weight: Any) -> list[tuple[Any, str]]:
    return [(X, "X"), (y, "y"), (sample_weight, "sample_weight")]


def _delayed(function: Callable[..., Any]) -> Any:
    try:
        import dask
    except ImportError as error:
        raise MissingDask from error
    return dask.delayed(function, pure=False)


def _bags(members: Any, pool: MemberPool, sizes: tuple[int, ...]) -> list[list[Any]]:
    """For each row block, tasks of bits: who has which of its rows in the bag."""
    draw, pick = _delayed(_drawn), _delayed(_item)
    groups = []
    for first in range(0, len(pool.members), MEMBERS_AT_ONCE):
        last = min(first + MEMBERS_AT_ONCE, len(pool.members))
        groups.append(draw(members, first, last, sizes))
    return [[pick(group, number) for group in groups] for number in range(len(sizes))]


# -- what workers do -------------------------------------------------------------------------


def _part(part: Any, number: int) -> tuple[int, tuple[Any, ...]]:
    """A user's block and its number, for whom it may concern if something is wrong with it."""
    if not isinstance(part, (tuple, list)) or len(part) not in (3, 4):
        raise ValueError(
            f"block {number}: a row block must be (predictions, oob_mask, y) or (predictions, "
            f"oob_mask, y, sample_weight), got a {type(part).__name__}"
            + (f" of {len(part)}." if isinstance(part, (tuple, list)) else ".")
        )
    return number, tuple(part)


def _labels(numbered: tuple[int, tuple[Any, ...]]) -> np.ndarray:
    return np.unique(on_host(numbered[1][2]))


def _evidence(
    numbered: tuple[int, tuple[Any, ...]], task: Task, labels: Array | None, every_class: bool
) -> OOBEvidence:
    number, part = numbered
    return evidence_block(
        *part, task=task, labels=labels, every_class=every_class, where=f"block {number}"
    )


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
    return with_row_weight(evidence, sample_weight)


def _routed(pool: MemberPool, X: Any) -> np.ndarray:
    rows = pool.prepare(X)
    return np.stack([member.apply(rows) for member in pool.members]).astype(np.int32)


def _at(block: Any, rows: np.ndarray) -> np.ndarray:
    return np.asarray(np.asarray(block)[rows])
