"""One way in for everything that can be streamed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from sparsebag.evidence.array_rows import ArrayRows
from sparsebag.evidence.generated_rows import GeneratedRows
from sparsebag.evidence.members import Task
from sparsebag.evidence.npy_window import NpyWindow
from sparsebag.evidence.readable import check_given

Array = Any


def stream_rows(
    predictions: Any,
    oob_mask: Any = None,
    y: Any = None,
    *,
    task: Task = "classification",
    labels: Array | None = None,
    sample_weight: Array | None = None,
    n_members: int | None = None,
    n_rows: int | None = None,
    has_mask: bool = True,
    every_class: bool = False,
    block_rows: int | None = None,
) -> ArrayRows | GeneratedRows:
    """Evidence as a stream of row blocks, for `sparsebag.fit_weights`.

    Parameters
    ----------
    predictions : array, path, generator, function that starts one, or list of blocks
        Arrays may be memory maps, Zarr arrays or anything else that is sliced by rows and not
        read before; a path names an ``.npy`` file. A generator gives tuples ``(predictions,
        oob_mask, y)`` or ``(predictions, oob_mask, y, sample_weight)`` of some rows each; from a
        function that starts it, or a list, it can be read more than once, which is more exact.
    oob_mask : array or path, optional
        Arrays and paths only. None: no member has seen the rows.
    y : array or path
        Arrays and paths only.
    task : {"classification", "regression"}
    labels : array of shape (C,), optional
        All classes; default: those in ``y``. Generators of classification evidence need it.
    sample_weight : array of shape (M,), optional
        Arrays and paths only.
    n_members : int
        Generators only: N.
    n_rows : int, optional
        Generators only: M, if it is known.
    has_mask : bool, default True
        Generators only: whether their masks are arrays, not None.
    every_class : bool, default False
        Keep every class's votes, as the Brier score of more than two classes needs.
    block_rows : int, optional
        Arrays and paths only: rows a block; default: some 32 MiB of them.

    Returns
    -------
    RowStream

    Examples
    --------
    >>> import sparsebag as sb
    >>> def days():
    ...     for seed in range(10):
    ...         rng = np.random.default_rng(seed)
    ...         truth = rng.normal(size=100)
    ...         votes = truth[:, None] + rng.normal(size=(100, 30)) * np.linspace(0.2, 3.0, 30)
    ...         yield votes, rng.random((100, 30)) < 0.37, truth
    >>> stream = stream_rows(days, task="regression", n_members=30)
    >>> sb.fit_weights(stream, loss="squared_error").solver
    'mirror'
    """
    if task not in ("classification", "regression"):
        raise ValueError(f"task={task!r} is not known; use 'classification' or 'regression'.")
    if callable(predictions) or isinstance(predictions, Iterator) or _is_blocks(predictions):
        if n_members is None:
            raise ValueError(
                "n_members= is needed to stream from a generator, a function or a list of blocks; "
                "pass N."
            )
        if block_rows is not None:
            raise ValueError(
                "block_rows is for arrays and paths; a generator's blocks have the rows it gives "
                "them: leave it out."
            )
        if not (oob_mask is None and y is None and sample_weight is None):
            raise ValueError(
                "a generator gives mask, targets and sample weights with every block; pass none "
                "of them beside it."
            )
        return GeneratedRows(
            predictions,
            n_members,
            task=task,
            labels=labels,
            n_rows=n_rows,
            has_mask=has_mask,
            every_class=every_class,
        )
    check_given(predictions)
    if y is None:
        raise ValueError("y is missing; pass one target a row.")
    if not (n_members is None and n_rows is None):
        raise ValueError("n_members and n_rows are for generators; arrays say so themselves.")
    return ArrayRows(
        _opened(predictions),
        _opened(oob_mask),
        _vector(y),
        task=task,
        sample_weight=_vector(sample_weight),
        labels=labels,
        every_class=every_class,
        block_rows=block_rows,
    )


def _is_blocks(given: Any) -> bool:
    """Whether this is a list of blocks; rows are lists or arrays, not tuples."""
    return isinstance(given, list) and len(given) > 0 and isinstance(given[0], tuple)


def _is_path(given: Any) -> bool:
    return isinstance(given, (str, os.PathLike))


def _vector(given: Any) -> Any:
    return _window(given) if _is_path(given) else given


def _window(path: str | os.PathLike[str]) -> NpyWindow:
    if os.path.isdir(path):
        raise ValueError(
            f"{os.fspath(path)} is a folder, and a path names an .npy file; pass zarr.open(path) "
            "of a Zarr array, or call sparsebag.open_evidence(path) of stored evidence."
        )
    if not os.path.exists(path):
        raise FileNotFoundError(
            f"{os.fspath(path)} does not exist; pass the path of a file that numpy.save wrote."
        )
    return NpyWindow(path)


def _opened(given: Any) -> Any:
    if _is_path(given):
        return _window(given)
    return given if given is None or hasattr(given, "shape") else np.asarray(given)
