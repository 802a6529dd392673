"""Evidence of a user's own that is on a Dask cluster: Dask arrays, or blocks of rows on workers."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from sparsebag.evidence.arrays import on_host
from sparsebag.evidence.cluster_rows import ClusterBlocks
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.evidence.from_cluster import (
    checked,
    delayed_call,
    is_on_cluster,
    is_task,
    row_pieces,
)
from sparsebag.evidence.members import Task
from sparsebag.evidence.row_stream import evidence_block

Array = Any


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
    call = delayed_call(evidence_block)
    return ClusterBlocks(
        lambda: [
            call(*block, **how, where=f"block {i}")
            for i, block in enumerate(zip(*columns, strict=True))
        ],
        verbose,
    )


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
    call = delayed_call(_part)
    given = ClusterBlocks(lambda: [call(part, i) for i, part in enumerate(parts)], verbose)
    if task == "classification" and labels is None:
        labels = np.unique(np.concatenate(given.each(_labels)))
    made = given.derived(_evidence, task, labels, every_class)
    # Else votes that had to be copied would be held twice.
    given.let_go()
    return made


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
