"""Evidence of a user's own that is on a Dask cluster: Dask arrays, or blocks of rows on workers."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from sparsebag.evidence.arrays import on_host, tensors_on_host
from sparsebag.evidence.cluster_rows import ClusterBlocks, ask_one_scheduler, current_client
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.evidence.from_cluster import (
    checked,
    delayed_call,
    is_future,
    is_on_cluster,
    is_task,
    places,
    row_pieces,
)
from sparsebag.evidence.members import Task
from sparsebag.evidence.readable import check_no_path, check_readable
from sparsebag.evidence.row_stream import evidence_block

Array = Any

NO_ROWS = "the row blocks have no rows; pass what the members predict."


def are_row_blocks(values: Any) -> bool:
    """Whether this is a list of row blocks on a cluster: tasks, futures, Dask arrays, or tuples.

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
    return all(is_task(value) or is_dask_array(value) or _is_tuple(value) for value in values)


def is_dask_array(value: Any) -> bool:
    """Whether this is a Dask array, not a task, Series or DataFrame.

    Parameters
    ----------
    value : object

    Returns
    -------
    bool

    Examples
    --------
    >>> is_dask_array(np.ones(2))
    False
    """
    return type(value).__module__.startswith("dask.array")


def given_rows(X: Any, y: Any, sample_weight: Any = None) -> tuple[Any, Any]:
    """Rows and targets for an ensemble: lists of Dask arrays joined, targets on workers here.

    Parameters
    ----------
    X, y : object
    sample_weight : object, optional
        Looked at alone: masked arrays are refused, as of the others.

    Returns
    -------
    tuple
        What is not on a cluster as it is.

    Examples
    --------
    >>> given_rows([[1.0]], [0])
    ([[1.0]], [0])
    """
    check_no_path(X, "X")
    check_no_path(y, "y")
    X, y = _joined(X), _joined(y)
    check_readable(X, "X")
    check_readable(y, "y")
    check_readable(sample_weight, "sample_weight")
    if are_row_blocks(X):
        raise TypeError(
            "X is made of tasks; pass a Dask array, such as dask.array.concatenate of "
            "dask.array.from_delayed(...)."
        )
    _refuse_tasks(y, "y")
    if is_on_cluster(y) or (is_on_cluster(X) and y is not None):
        y = np.asarray(_here(y))
    return X, y


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
    oob_mask = as_column(oob_mask, "oob_mask")
    y = as_column(y, "y")
    sample_weight = as_column(sample_weight, "sample_weight")
    if task == "classification" and labels is None:
        labels = np.unique(on_host(_here(y)))
    sizes = predictions.chunks[0]
    columns = [
        row_pieces(predictions, sizes, n_rows, "predictions"),
        row_pieces(oob_mask, sizes, n_rows, "oob_mask"),
        row_pieces(y, sizes, n_rows, "y"),
        row_pieces(sample_weight, sizes, n_rows, "sample_weight"),
    ]
    how = {"task": task, "labels": labels, "every_class": every_class}
    call = delayed_call(_block)
    return ClusterBlocks(
        lambda: [
            call(*block, **how, where=where, first_row=first)
            for (where, first), *block in zip(places(sizes), *columns, strict=True)
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
    parts : sequence of dask.delayed or distributed.Future, or of tuples of them
        Each of ``(predictions, oob_mask, y)`` or ``(predictions, oob_mask, y, sample_weight)``.
        Blocks without rows are left out.
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
    _refuse_others_futures(parts)
    call = delayed_call(_part)
    given = ClusterBlocks(lambda: [call(part, i) for i, part in enumerate(parts)], verbose)
    if task == "classification" and labels is None:
        # An empty block's dtype, a float's where nobody says, must not become that of all.
        found = [labels for labels in given.each(_labels) if len(labels)]
        if not found:
            raise ValueError(NO_ROWS)
        labels = np.unique(np.concatenate(found))
    made = given.derived(_evidence, task, labels, every_class)
    # Else votes that had to be copied would be held twice.
    given.let_go()
    return made


def _joined(values: Any) -> Any:
    """Dask arrays of row blocks, one below the other; anything else as it is."""
    if not are_row_blocks(values) or not all(is_dask_array(value) for value in values):
        return values
    import dask.array as da

    return da.concatenate(values, axis=0)


def as_column(values: Any, name: str) -> Any:
    """What goes beside predictions or X, as an array; one sentence where it is made of tasks.

    Parameters
    ----------
    values : dask.array, Dask Series or DataFrame, list of Dask arrays, array-like or None
    name : str

    Returns
    -------
    dask.array, array-like or None
        Of a Series or DataFrame the partitions are counted.
    """
    values = _joined(values)
    _refuse_tasks(values, name)
    check_readable(values, name)
    convert = getattr(values, "to_dask_array", None)
    if convert is None:
        return values
    with warnings.catch_warnings():
        # Labels that are strings become objects, as they are in NumPy's arrays of them.
        warnings.filterwarnings("ignore", "Dask currently has limited support", UserWarning)
        return convert(lengths=True)


def _is_tuple(value: Any) -> bool:
    """Whether this is a row block of which the parts are on workers, each by itself."""
    if not isinstance(value, (tuple, list)) or len(value) not in (3, 4):
        return False
    return any(is_task(part) or is_dask_array(part) for part in value)


def _refuse_tasks(values: Any, name: str) -> None:
    if is_task(values) or are_row_blocks(values):
        raise TypeError(f"{name} is made of tasks; pass a Dask array or an array.")


def _refuse_others_futures(parts: Sequence[Any]) -> None:
    """One sentence where a scheduler would be handed futures that it does not know."""
    asked = current_client()
    owners: dict[Any, bool] = {None: True, asked: True}  # a scheduler is asked once who it is
    for number, part in enumerate(parts):
        for value in part if isinstance(part, (tuple, list)) else [part]:
            owner = value.client if is_future(value) else None
            if owner not in owners:
                owners[owner] = ask_one_scheduler(owner, asked)
            if not owners[owner]:
                raise ValueError(
                    f"block {number} is a future of a client that is not asked now; call within "
                    "'with client.as_current():'."
                )


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
    return _block(*part, task=task, labels=labels, every_class=every_class, where=f"block {number}")


def _block(*columns: Any, **how: Any) -> OOBEvidence:
    """Evidence of some rows; tensors become arrays, in which workers add up."""
    return evidence_block(*(tensors_on_host(column) for column in columns), **how)
