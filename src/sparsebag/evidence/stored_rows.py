"""Evidence on disk: written block by block, opened without being read.

A folder holds ``evidence.json`` (what it is) and the rows in one of three formats:

- ``npy``: ``votes.npy``, ``oob_mask.npy``, ``y.npy``, ``sample_weight.npy``, memory-mapped;
- ``zarr``: arrays of the same names in a Zarr group, compressed chunk by chunk;
- ``parquet``: ``rows.parquet``, a row group a block, whose columns hold a row's votes as a list.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from sparsebag.evidence.array_rows import ArrayRows
from sparsebag.evidence.arrays import on_host
from sparsebag.evidence.evidence import OOBEvidence, zero_in_bag
from sparsebag.evidence.members import Task
from sparsebag.evidence.npy_window import NpyWindow
from sparsebag.evidence.row_stream import RowStream, evidence_block
from sparsebag.evidence.zarr_window import ZarrWindow

Format = Literal["npy", "zarr", "parquet"]

DESCRIPTION = "evidence.json"
FORMAT = 1


def store_evidence(
    stream: RowStream, folder: str | os.PathLike[str], *, format: Format = "npy"
) -> RowStream:
    """Write a stream's rows to a folder, a block at a time.

    Parameters
    ----------
    stream : RowStream
        Of one vote a row and member: predictions, or the true class's probabilities.
    folder : path
        Made if it is not there; must not hold evidence already.
    format : {"npy", "zarr", "parquet"}, default "npy"
        Plain arrays to be memory-mapped, or compressed blocks (extras ``zarr``, ``parquet``).

    Returns
    -------
    RowStream
        The folder, opened.

    Examples
    --------
    >>> import tempfile
    >>> rows = ArrayRows(np.eye(4), None, np.ones(4), task="regression")
    >>> stored = store_evidence(rows, tempfile.mkdtemp())
    >>> stored.n_rows, stored.block(0).votes.dtype.name
    (4, 'float64')
    """
    path = Path(folder)
    if (path / DESCRIPTION).exists():
        raise ValueError(f"{path} holds evidence already; name another folder, or delete it.")
    if format not in WRITERS:
        raise ValueError(f"format={format!r} is not known; use one of {sorted(WRITERS)}.")
    path.mkdir(parents=True, exist_ok=True)
    writer = WRITERS[format](path)
    n_rows = 0
    for block in stream.blocks():
        writer.write(block)
        n_rows += block.n_rows
    writer.close()
    if n_rows == 0:
        raise ValueError("the stream gave no rows; there is nothing to store.")
    classes = None if stream.classes is None else stream.classes.tolist()
    about = {
        "format": FORMAT,
        "kind": format,
        "task": stream.task,
        "classes": classes,
        "n_rows": n_rows,
        "n_members": stream.n_members,
    }
    draft = path / (DESCRIPTION + ".part")
    draft.write_text(json.dumps(about))
    os.replace(draft, path / DESCRIPTION)  # last: a folder without it was never finished
    return open_evidence(path)


def open_evidence(
    folder: str | os.PathLike[str], *, block_rows: int | None = None
) -> ArrayRows | ParquetRows:
    """Open stored evidence; rows are read when they are asked for.

    Parameters
    ----------
    folder : path
        What `store_evidence` wrote.
    block_rows : int, optional
        Rows a block; default: some 32 MiB of them. Parquet files are read by their row groups.

    Returns
    -------
    RowStream

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> _ = store_evidence(ArrayRows(np.eye(4), None, np.ones(4), task="regression"), folder)
    >>> open_evidence(folder, block_rows=3).n_blocks
    2
    """
    path = Path(folder)
    try:
        about = json.loads((path / DESCRIPTION).read_text())
        if about["format"] != FORMAT:
            raise KeyError("format")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} holds no evidence that was stored to the end ({error}); write it with "
            "store_evidence."
        ) from error
    classes = None if about["classes"] is None else np.asarray(about["classes"])
    if about["kind"] == "parquet":
        return ParquetRows(path / "rows.parquet", about["n_members"], about["task"], classes)
    read = _open_npy if about["kind"] == "npy" else _open_zarr
    arrays = read(path)
    return ArrayRows(
        arrays["votes"],
        arrays.get("oob_mask"),
        _whole(arrays["y"]),
        task=about["task"],
        sample_weight=_whole(arrays.get("sample_weight")),
        labels=classes,
        block_rows=block_rows,
    )


class ParquetRows:
    """Rows of a Parquet file, a row group a block.

    Columns: ``votes`` (a list of N floats a row), ``oob_mask`` (a list of N booleans, optional),
    ``y``, and ``sample_weight`` (optional).

    Parameters
    ----------
    path : path
    n_members : int
        N, the length of the lists.
    task : {"classification", "regression"}
    classes : ndarray or None
        All classes.
    """

    is_replayable = True

    def __init__(
        self, path: str | os.PathLike[str], n_members: int, task: Task, classes: np.ndarray | None
    ) -> None:
        self._file = _pyarrow().ParquetFile(path)
        names = set(self._file.schema_arrow.names)
        self.n_members, self.task, self.classes = n_members, task, classes
        self.n_rows: int | None = self._file.metadata.num_rows
        self.n_blocks: int | None = self._file.metadata.num_row_groups
        self.has_mask = "oob_mask" in names
        self._is_weighted = "sample_weight" in names

    def block(self, number: int, members: np.ndarray | None = None) -> OOBEvidence:
        """One row group; only some members' columns where they are named."""
        assert self.n_blocks is not None
        if not 0 <= number < self.n_blocks:
            raise IndexError(f"there is no block {number}; the stream has {self.n_blocks}.")
        table = self._file.read_row_group(number)

        def matrix(name: str) -> np.ndarray:
            flat = table.column(name).combine_chunks().flatten()
            values = np.asarray(flat.to_numpy(zero_copy_only=False))
            return values.reshape(table.num_rows, self.n_members)

        whole = evidence_block(
            matrix("votes"),
            matrix("oob_mask") if self.has_mask else None,
            table.column("y").to_numpy(),
            table.column("sample_weight").to_numpy() if self._is_weighted else None,
            task=self.task,
            labels=self.classes,
        )
        return whole if members is None else whole.take_members(members)

    def blocks(self, members: np.ndarray | None = None) -> Iterator[OOBEvidence]:
        """All blocks, in order."""
        assert self.n_blocks is not None
        return (self.block(number, members) for number in range(self.n_blocks))


class _Writer(Protocol):
    def write(self, block: OOBEvidence) -> None: ...

    def close(self) -> None: ...


def _columns(block: OOBEvidence) -> dict[str, np.ndarray]:
    """A block's arrays under their names on disk, zero where in the bag, labels as given."""
    votes = on_host(block.votes)
    mask = None if block.oob_mask is None else on_host(block.oob_mask)
    target = on_host(block.target)
    arrays = {
        "votes": votes if block.is_zeroed else zero_in_bag(votes, mask),
        "y": target if block.classes is None else block.classes[target],
    }
    if mask is not None:
        arrays["oob_mask"] = mask.astype(np.bool_)
    if block.sample_weight is not None:
        arrays["sample_weight"] = on_host(block.sample_weight)
    return arrays


class _NpyWriter:
    """Arrays whose first axis grows: data first, the header's row count once it is known."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, tuple[Any, np.dtype[Any], tuple[int, ...]]] = {}
        self._n_rows = 0

    def write(self, block: OOBEvidence) -> None:
        for name, values in _columns(block).items():
            if name not in self._files:
                file = open(self._folder / f"{name}.npy", "wb")  # noqa: SIM115
                file.write(_npy_header(values.dtype, (0, *values.shape[1:])))
                self._files[name] = file, values.dtype, values.shape[1:]
            file, dtype, _ = self._files[name]
            file.write(np.ascontiguousarray(values, dtype=dtype).data)
        self._n_rows += block.n_rows

    def close(self) -> None:
        for file, dtype, rest in self._files.values():
            file.seek(0)
            file.write(_npy_header(dtype, (self._n_rows, *rest)))
            file.close()


def _npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """A version 1 header of fixed length, so that the shape can be filled in at the end."""
    described = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False}
    text = repr({**described, "shape": shape}).encode("latin1")
    length = 256 - 10
    return b"\x93NUMPY\x01\x00" + length.to_bytes(2, "little") + text.ljust(length - 1) + b"\n"


class _ZarrWriter:
    def __init__(self, folder: Path) -> None:
        self._group = _zarr().open_group(str(folder / "rows.zarr"), mode="w")
        self._n_rows = 0

    def write(self, block: OOBEvidence) -> None:
        for name, values in _columns(block).items():
            if name not in self._group:
                shape = (0, *values.shape[1:])
                chunks = values.shape if values.ndim > 1 else (max(len(values), 1 << 16),)
                self._group.create_array(name, shape=shape, dtype=values.dtype, chunks=chunks)
            self._group[name].append(values)

    def close(self) -> None:
        pass


class _ParquetWriter:
    def __init__(self, folder: Path) -> None:
        self._path = folder / "rows.parquet"
        self._writer: Any = None

    def write(self, block: OOBEvidence) -> None:
        import pyarrow as pa

        parquet = _pyarrow()
        columns = {}
        for name, values in _columns(block).items():
            if values.ndim == 1:
                columns[name] = pa.array(values)
            else:
                flat = pa.array(np.ascontiguousarray(values).reshape(-1))
                columns[name] = pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
        table = pa.table(columns)
        if self._writer is None:
            self._writer = parquet.ParquetWriter(self._path, table.schema)
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


WRITERS: dict[str, Callable[[Path], _Writer]] = {
    "npy": _NpyWriter,
    "zarr": _ZarrWriter,
    "parquet": _ParquetWriter,
}


def _open_npy(folder: Path) -> dict[str, Any]:
    names = ("votes", "oob_mask", "y", "sample_weight")
    found = {name: folder / f"{name}.npy" for name in names}
    there = {name: path for name, path in found.items() if path.exists()}
    wide: dict[str, Any] = {
        name: NpyWindow(there[name]) for name in ("votes", "oob_mask") if name in there
    }
    return {**{name: np.load(path) for name, path in there.items() if name not in wide}, **wide}


def _open_zarr(folder: Path) -> dict[str, Any]:
    group = _zarr().open_group(str(folder / "rows.zarr"), mode="r")
    return {name: ZarrWindow(group[name]) for name in group.array_keys()}


def _whole(array: Any) -> np.ndarray | None:
    return None if array is None else np.asarray(array[:])


def _zarr() -> Any:
    try:
        import zarr
    except ImportError as error:
        raise ImportError(
            "Zarr stores need the zarr package; install sparsebag[zarr], or use format='npy'."
        ) from error
    return zarr


def _pyarrow() -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(
            "Parquet files need pyarrow; install sparsebag[parquet], or use format='npy'."
        ) from error
    return pyarrow.parquet
