"""Streams of rows from arrays and files that are read by slices, Parquet files, and generators."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from sparsebag.evidence.arrays import on_host, tensors_on_host, vote_dtype
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.evidence.from_predictions import (
    check_length,
    check_mask_shape,
    check_sample_weight,
    check_shape,
    from_predictions,
)
from sparsebag.evidence.members import Task, check_labels, take_rows
from sparsebag.evidence.readable import check_given, check_readable, is_dask
from sparsebag.evidence.readers import optional_import
from sparsebag.sources.stream import RowStream

Array = Any

BLOCK_BYTES = 32 << 20
"""Votes and mask a block holds unless told otherwise: large beside what a read costs to start."""


def stream_rows(
    predictions: Any,
    oob_mask: Any = None,
    y: Any = None,
    *,
    task: Task = "classification",
    labels: Array | None = None,
    sample_weight: Array | None = None,
    every_class: bool = False,
    block_rows: int | None = None,
) -> RowStream:
    """Evidence as a stream of row blocks, for `sparsebag.fit_weights`.

    Parameters
    ----------
    predictions : array, path, function that starts a generator, or list of blocks
        Arrays may be memory maps, Zarr arrays or anything else that can be sliced by rows. A path
        names an ``.npy`` file, or a ``.parquet`` file with the columns
        ``votes`` and ``oob_mask`` (lists of N values per row), ``y`` and ``sample_weight``; mask
        and weight are optional. A generator gives tuples ``(predictions, oob_mask, y)`` or
        ``(predictions, oob_mask, y, sample_weight)`` of some rows each, the same in every pass.
    oob_mask : array or path, optional
        For arrays and ``.npy`` files. None: no member has seen the rows.
    y : array or path
        Of arrays and ``.npy`` files.
    task : {"classification", "regression"}
    labels : array of shape (C,), optional
        All classes; default: those in ``y``. Generators of classification evidence need it.
    sample_weight : array or path, optional
        Of arrays and ``.npy`` files.
    every_class : bool, default False
        Keep every class's votes, as the Brier score of more than two classes needs.
    block_rows : int, optional
        For arrays and ``.npy`` files: maximum rows per block; default: about 32 MiB.

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
    >>> sb.fit_weights(stream_rows(days, task="regression")).solver
    'mirror'
    """
    if task not in ("classification", "regression"):
        raise ValueError(f"task={task!r} is not known; use 'classification' or 'regression'.")
    check_readable(labels, "labels")
    check_labels(labels)
    reader = BlockReader(task, labels, every_class)
    is_parquet = _is_path(predictions) and os.fspath(predictions).endswith(".parquet")
    if is_parquet or callable(predictions) or _is_blocks(predictions):
        if not (oob_mask is None and y is None and sample_weight is None and block_rows is None):
            raise ValueError(
                "a generator or Parquet file gives mask, targets and sample weights with every "
                "block; do not pass them separately, nor block_rows."
            )
        if is_parquet:
            return ParquetRows(predictions, reader)
        return GeneratedRows(predictions, reader)
    if is_dask(predictions):
        raise ValueError("predictions is a Dask array; pass it to sparsebag.fit_weights directly.")
    if isinstance(predictions, Iterator):
        raise ValueError(
            "predictions is a generator, which can be read only once; pass the function that "
            "creates it."
        )
    check_given(predictions)
    if y is None:
        raise ValueError("y is missing; pass one target per row.")
    votes, mask = _sliceable(predictions), None if oob_mask is None else _sliceable(oob_mask)
    return ArrayRows(votes, mask, _vector(y), reader, _vector(sample_weight), block_rows)


class BlockReader:
    """Checks blocks of a user's rows.

    Parameters
    ----------
    task : {"classification", "regression"}
    labels : array of shape (C,) or None
    every_class : bool

    Examples
    --------
    >>> reader = BlockReader("classification", [0, 1], False)
    >>> reader.block((np.eye(2), None, [0, 1]), "block 0").n_members
    2
    """

    def __init__(self, task: Task, labels: Array | None, every_class: bool) -> None:
        self.task, self.every_class = task, every_class
        self.labels = None if labels is None or task == "regression" else on_host(labels)

    def block(self, given: tuple[Any, ...], where: str, first_row: int = 0) -> OOBEvidence:
        """Evidence of some rows.

        Parameters
        ----------
        given : tuple
            Predictions, mask, targets and perhaps weights.
        where : str
            What errors begin with.
        first_row : int

        Returns
        -------
        OOBEvidence
        """
        predictions, mask, y, *weight = map(tensors_on_host, given)
        try:
            return from_predictions(
                predictions,
                mask,
                y,
                task=self.task,
                sample_weight=weight[0] if weight else None,
                labels=self.labels,
                every_class=self.every_class,
                first_row=first_row,
            )
        except ValueError as error:
            raise ValueError(f"{where}: {error}" if where else str(error)) from error


class ArrayRows(RowStream):
    """Rows of arrays that can be sliced, of which only a block at a time is read.

    Parameters
    ----------
    votes : array of shape (M, N) or (M, N, C)
    mask : array of shape (M, N) or None
    y : array of shape (M,)
    reader : BlockReader
    sample_weight : array of shape (M,), optional
    block_rows : int, optional
        Most rows a block.
    """

    def __init__(
        self,
        votes: Array,
        mask: Array | None,
        y: Array,
        reader: BlockReader,
        sample_weight: Array | None = None,
        block_rows: int | None = None,
    ) -> None:
        for values, name in ((votes, "predictions"), (mask, "oob_mask"), (y, "y")):
            check_readable(values, name)
        shape = tuple(int(n) for n in votes.shape)
        check_shape(shape)
        if mask is not None:
            check_mask_shape(tuple(mask.shape), shape[:2])
        target = on_host(y)
        target = target[:, 0] if target.ndim == 2 and target.shape[1] == 1 else target
        check_length(target.shape, votes, "y")
        self._votes, self._mask, self._target, self._reader = votes, mask, target, reader
        self.bytes_a_row = _bytes_a_row((votes, mask))
        check_readable(sample_weight, "sample_weight")
        weight = tensors_on_host(sample_weight)
        self._weight = check_sample_weight(weight, np.broadcast_to(0.0, shape[:1]))
        self._block_rows = block_rows
        self.reading_bytes = sum(getattr(values, "reading_bytes", 0) for values in (votes, mask))
        if reader.task == "classification" and reader.labels is None:
            reader.labels = np.unique(target)
        self.task, self.classes, self.has_mask = reader.task, reader.labels, mask is not None
        self.n_rows, self.n_members = shape[0], shape[1]
        # Blocks are checked when they are first read; what is kept are their targets.
        self._known: dict[tuple[int, int], OOBEvidence] = {}

    def blocks(self, block_bytes: int | None = None) -> Iterator[OOBEvidence]:
        """All rows in order."""
        rows = _rows_of(self.bytes_a_row, block_bytes or BLOCK_BYTES)
        rows = min(rows, self._block_rows or rows)
        assert self.n_rows is not None
        for first in range(0, self.n_rows, rows):
            yield self._block(first, min(first + rows, self.n_rows))

    def _block(self, first: int, last: int) -> OOBEvidence:
        rows = slice(first, last)
        votes = self._read(self._votes, rows, "predictions")
        mask = None if self._mask is None else self._read(self._mask, rows, "oob_mask")
        weight = None if self._weight is None else self._weight[rows]
        known = self._known.get((first, last))
        if known is not None:
            votes = votes.astype(vote_dtype(votes.dtype), copy=False)
            mask = mask if mask is None or mask.dtype == np.bool_ else mask != 0
            return replace(known, votes=votes, oob_mask=mask)
        where = "" if (first, last) == (0, self.n_rows) else f"rows {first} to {last - 1}"
        block = self._reader.block((votes, mask, self._target[rows], weight), where, first)
        if votes.ndim == 2 and not self._reader.every_class:
            # A large block is not copied, and holds anything where rows were in the bag.
            is_zeroed = block.votes is votes and block.is_zeroed
            self._known[first, last] = replace(
                block, votes=None, oob_mask=None, is_zeroed=is_zeroed
            )
        return block

    def _read(self, array: Array, rows: slice, name: str) -> np.ndarray:
        """Some rows; what is read on demand may turn out to be masked only now."""
        some = array[rows]
        check_readable(some, name)
        return on_host(some)


class ParquetRows(RowStream):
    """Rows of a Parquet file whose columns hold a row's votes as a list.

    Parameters
    ----------
    path : path
    reader : BlockReader
    """

    def __init__(self, path: str | os.PathLike[str], reader: BlockReader) -> None:
        self._path, self._reader = os.fspath(path), reader
        with self._open() as file:
            names = set(file.schema_arrow.names)
            for name in ("votes", "y"):
                if name not in names:
                    raise ValueError(f"{self._path} has no column {name!r}.")
            self._names = [n for n in ("votes", "oob_mask", "y", "sample_weight") if n in names]
            kind = getattr(file.schema_arrow.field("votes").type, "value_type", None)
            if kind is None:
                raise ValueError(f"{self._path} must hold a list of numbers per row in 'votes'.")
            stored = file.metadata
            self.n_rows = stored.num_rows
            groups = map(stored.row_group, range(stored.num_row_groups))
            # Pages as stored, decompressed, and as Arrow holds a group's columns.
            self.reading_bytes = 4 * max((group.total_byte_size for group in groups), default=0)
            first = next(file.iter_batches(1, columns=["votes"]), None)
            if first is None:
                raise ValueError(f"{self._path} has no rows.")
            self.n_members = len(first.column("votes")[0])
            self.bytes_a_row = self.n_members * (kind.bit_width // 8 + ("oob_mask" in names))
            if reader.task == "classification" and reader.labels is None:
                reader.labels = np.unique(file.read(columns=["y"]).column("y").to_numpy())
        self.task, self.classes, self.has_mask = reader.task, reader.labels, "oob_mask" in names

    def blocks(self, block_bytes: int | None = None) -> Iterator[OOBEvidence]:
        """All rows in order."""
        n_rows = _rows_of(self.bytes_a_row, block_bytes or BLOCK_BYTES)
        first = 0
        with self._open() as file:
            groups = range(file.metadata.num_row_groups)  # one at a time: Arrow reads ahead
            for batch in chain.from_iterable(
                file.iter_batches(n_rows, row_groups=[group], columns=self._names)
                for group in groups
            ):
                given = {name: self._values(batch.column(name), name) for name in self._names}
                columns = given["votes"], given.get("oob_mask"), given["y"]
                rows = (*columns, given["sample_weight"]) if "sample_weight" in given else columns
                yield self._reader.block(rows, f"{self._path}, rows from {first}", first)
                first += batch.num_rows

    def _open(self) -> Any:
        parquet = optional_import("pyarrow.parquet", "parquet", "reading Parquet files")
        try:
            return parquet.ParquetFile(self._path)
        except (ValueError, OSError) as error:
            raise ValueError(f"{self._path} is missing, truncated or not Parquet.") from error

    def _values(self, column: Any, name: str) -> np.ndarray:
        is_matrix = name in ("votes", "oob_mask")
        flat = column.flatten() if is_matrix else column
        if column.null_count or flat.null_count:
            raise ValueError(f"{self._path} holds nulls in {name}; fill them, or drop those rows.")
        values = np.asarray(flat.to_numpy(zero_copy_only=False))
        if not is_matrix:
            return values
        lengths = np.asarray(column.value_lengths().to_numpy(zero_copy_only=False))
        if (lengths != self.n_members).any():
            raise ValueError(
                f"{self._path} holds {name} of {lengths.min()} to {lengths.max()} members; every "
                f"row needs {self.n_members}."
            )
        return values.reshape(len(column), self.n_members)


class GeneratedRows(RowStream):
    """Row blocks from a function that starts a generator, or from a list.

    Parameters
    ----------
    source : function without arguments, or list of tuples
        The first block is read at once, to know the members.
    reader : BlockReader
    """

    n_rows = None

    def __init__(
        self, source: Callable[[], Any] | list[tuple[Any, ...]], reader: BlockReader
    ) -> None:
        if reader.task == "classification" and reader.labels is None:
            raise ValueError(
                "labels= is needed to stream classification evidence: a block may lack some of "
                "them; pass all, in the order of predict_proba."
            )
        self._source, self._reader = source, reader
        self.task, self.classes = reader.task, reader.labels
        first = next(self._given(), None)
        if first is None:
            raise ValueError("the stream gave no rows to judge the members by.")
        if len(np.shape(first[0])) < 2:
            reader.block(first, "block 0")  # which says what is wrong with it
        self.n_members, self.has_mask = np.shape(first[0])[1], first[1] is not None
        self.bytes_a_row = _bytes_a_row(first)

    def blocks(self, block_bytes: int | None = None) -> Iterator[OOBEvidence]:
        """All rows in order; blocks that come larger than so many bytes are cut."""
        for number, given in enumerate(self._given()):
            first = 0
            for part in _cut(given, block_bytes):
                where = f"block {number}" + (f" counted from its row {first}" if first else "")
                yield self._block(part, where)
                first += np.shape(part[0])[0]

    def _given(self) -> Iterator[tuple[Any, ...]]:
        """Blocks as they come, those without rows left out."""
        source: Any = self._source() if callable(self._source) else self._source
        if not (hasattr(source, "__iter__") or hasattr(source, "__getitem__")):
            raise TypeError(
                f"the function gave a {type(source).__name__}, not blocks of rows; pass one that "
                "yields them, or returns a generator or list of them."
            )
        for given in source:
            n_given = len(given) if isinstance(given, (tuple, list)) else 0
            if n_given not in (3, 4):
                raise ValueError(
                    "each block must be a tuple (predictions, oob_mask, y) or (predictions, "
                    "oob_mask, y, sample_weight), got "
                    f"{f'{n_given} entries' if n_given else type(given).__name__}; pass None if "
                    f"there is no mask."
                )
            if any(np.shape(values)[:1] != (0,) for values in given if values is not None):
                yield tuple(given)

    def _block(self, given: tuple[Any, ...], where: str) -> OOBEvidence:
        block = self._reader.block(given, where)
        if block.n_members != self.n_members:
            raise ValueError(
                f"{where} has {block.n_members} members but the first had {self.n_members}; "
                f"every block needs one column per member."
            )
        if (block.oob_mask is not None) != self.has_mask:
            raise ValueError("either every block carries an oob_mask or none does.")
        return block


class NpyFile:
    """Rows of an ``.npy`` file, read a slice at a time; a map would count as memory in use.

    Parameters
    ----------
    path : path
        Of an array in C order.

    Examples
    --------
    >>> import tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "votes.npy")
    >>> np.save(path, np.arange(6.0).reshape(3, 2))
    >>> NpyFile(path)[1:3].tolist()
    [[2.0, 3.0], [4.0, 5.0]]
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        if os.path.isdir(path):
            raise ValueError(
                f"{self._path} is a folder, not a file; for a Zarr array pass zarr.open(path)."
            )
        if not os.path.exists(path):
            raise FileNotFoundError(
                f"{self._path} does not exist; pass the path of a file that numpy.save wrote."
            )
        try:
            mapped = np.load(self._path, mmap_mode="r", allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise ValueError(
                f"{self._path} is truncated or not an .npy file of numbers; write it with "
                f"numpy.save."
            ) from error
        if mapped.ndim > 1 and not mapped.flags.c_contiguous:
            raise ValueError(f"{self._path} is in Fortran order; store it in C order.")
        self.shape, self.dtype, self._offset = mapped.shape, mapped.dtype, mapped.offset

    def __getitem__(self, rows: slice) -> np.ndarray:
        start, stop, _ = rows.indices(self.shape[0])
        width = int(np.prod(self.shape[1:], dtype=np.int64))
        found = np.fromfile(
            self._path,
            dtype=self.dtype,
            count=max(0, stop - start) * width,
            offset=self._offset + start * width * self.dtype.itemsize,
        )
        return found.reshape(-1, *self.shape[1:])


class ZarrChunks:
    """Rows of a Zarr array; the chunks read last are held, however short the slices asked for.

    Parameters
    ----------
    array : zarr.Array
        Anything with ``shape``, ``dtype``, ``chunks`` and slices.
    """

    def __init__(self, array: Any) -> None:
        self._array, self._rows_each = array, max(1, int(array.chunks[0]))
        self.shape, self.dtype = tuple(int(n) for n in array.shape), array.dtype
        self._number, self._held = -1, np.empty(0)
        # A chunk as stored, decompressed, on the way, and as it is held.
        chunk = self._rows_each * int(np.prod(self.shape[1:])) * self.dtype.itemsize
        self.reading_bytes = 4 * chunk

    def __getitem__(self, rows: slice) -> np.ndarray:
        start, stop, _ = rows.indices(self.shape[0])
        found = np.empty((max(0, stop - start), *self.shape[1:]), self.dtype)
        for number in range(start // self._rows_each, -(-stop // self._rows_each)):
            first = number * self._rows_each
            if number != self._number:
                self._held = np.empty(0)  # before the next are read: two would be held
                self._held = np.asarray(self._array[first : first + self._rows_each])
                self._number = number
            some = self._held[max(start - first, 0) : stop - first]
            at = max(first - start, 0)
            found[at : at + len(some)] = some
        return found


def _sliceable(given: Any) -> Any:
    if _is_path(given):
        return NpyFile(given)
    if getattr(given, "chunks", None) and not isinstance(given, np.ndarray):
        return ZarrChunks(given)
    return given if hasattr(given, "shape") else np.asarray(given)


def _vector(given: Any) -> Any:
    """One number a row, in memory."""
    given = None if given is None else _sliceable(given)
    return given[:] if isinstance(given, (NpyFile, ZarrChunks)) else given


def _cut(given: tuple[Any, ...], block_bytes: int | None) -> Iterator[tuple[Any, ...]]:
    """A block as it came, or in pieces."""
    shape = np.shape(given[0])
    lengths = {np.shape(values)[:1] for values in given if values is not None}
    if block_bytes is None or len(lengths) != 1 or len(shape) < 2:
        yield given
        return
    rows = _rows_of(_bytes_a_row(given), block_bytes)
    for first in range(0, shape[0], rows):
        yield tuple(None if v is None else take_rows(v, slice(first, first + rows)) for v in given)


def _rows_of(bytes_a_row: int, block_bytes: int) -> int:
    """Rows whose votes and mask take at most so many bytes, a multiple of 8 where possible."""
    rows = max(1, block_bytes // max(1, bytes_a_row))
    return rows if rows < 8 else rows - rows % 8


def _bytes_a_row(given: tuple[Any, ...]) -> int:
    """What votes and mask of a row take."""
    dtype = getattr(given[0], "dtype", float)
    try:  # whatever a vote takes where it is stored
        each = vote_dtype(dtype).itemsize
    except TypeError:  # another library's
        each = max(4, int(getattr(dtype, "itemsize", 4)))
    return max(1, int(np.prod(np.shape(given[0])[1:])) * (each + (given[1] is not None)))


def _is_blocks(given: Any) -> bool:
    """Whether this is a list of blocks; rows are lists or arrays, not tuples."""
    return isinstance(given, list) and len(given) > 0 and isinstance(given[0], tuple)


def _is_path(given: Any) -> bool:
    return isinstance(given, (str, os.PathLike))
