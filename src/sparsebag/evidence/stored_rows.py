"""Evidence on disk: written block by block, opened without being read.

A folder holds ``evidence.json`` (what it is) and the rows in one of three formats:

- ``npy``: ``votes.npy``, ``oob_mask.npy``, ``y.npy``, ``sample_weight.npy``, memory-mapped;
- ``zarr``: arrays of the same names in a Zarr group, compressed chunk by chunk;
- ``parquet``: ``rows.parquet``, a row group a block, whose columns hold a row's votes as a list.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from sparsebag.evidence.array_rows import ArrayRows
from sparsebag.evidence.arrays import on_host
from sparsebag.evidence.evidence import OOBEvidence, zero_in_bag
from sparsebag.evidence.npy_window import NpyWindow
from sparsebag.evidence.parquet_rows import ParquetRows, pyarrow_parquet
from sparsebag.evidence.pass_report import PassReport
from sparsebag.evidence.row_stream import RowStream
from sparsebag.evidence.store_seal import SealedStore, StoreSeal, stamp_of, unfinished_files
from sparsebag.evidence.zarr_window import ZarrWindow

Format = Literal["npy", "zarr", "parquet"]

DESCRIPTION = "evidence.json"

CHUNK_BYTES = 4 << 20
"""Of a Zarr chunk: one is decompressed whole, however little memory is allowed."""
FORMAT = 2


def store_evidence(
    stream: RowStream,
    folder: str | os.PathLike[str],
    *,
    format: Format = "npy",
    verbose: int = 0,
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
    verbose : int, default 0
        Progress on standard error.

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
    if not hasattr(stream, "blocks") or not hasattr(stream, "n_members"):
        raise TypeError(
            f"store_evidence takes a stream of rows, not a {type(stream).__name__}; make one with "
            "stream_rows(votes, oob_mask, y) or stream_members(ensemble, X, y)."
        )
    path = Path(folder)
    if (path / DESCRIPTION).exists():
        raise ValueError(f"{path} holds evidence already; name another folder, or delete it.")
    if path.exists() and not path.is_dir():
        raise ValueError(f"{path} is a file; name a folder to store the evidence in.")
    if format not in WRITERS:
        raise ValueError(f"format={format!r} is not known; use one of {sorted(WRITERS)}.")
    path.mkdir(parents=True, exist_ok=True)
    writer = WRITERS[format](path)
    n_rows, names, sealed = 0, set[str](), StoreSeal()
    report = PassReport(stream.n_blocks, 0, verbose, what="store")
    try:
        for number, block in enumerate(stream.blocks(), start=1):
            if not names and format == "npy":
                _refuse_unfinished(path, _same_names(block, names))
            names = _same_names(block, names)
            writer.write(block)
            sealed.add(block)
            n_rows += block.n_rows
            report.block(number)
    finally:
        writer.close()
    if n_rows == 0:
        raise ValueError("the stream gave no rows; there is nothing to store.")
    classes = None if stream.classes is None else stream.classes.tolist()
    about: dict[str, Any] = {
        "format": FORMAT,
        "kind": format,
        "task": stream.task,
        "classes": classes,
        "n_rows": n_rows,
        "n_members": stream.n_members,
        "arrays": sorted(names),
    }
    about["sealed"] = {"stamp": stamp_of(path), "digest": sealed.digest}
    _write_description(path, about)  # last: a folder without it was never finished
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
    if not path.is_dir():
        raise ValueError(f"{path} is no folder; write one with store_evidence.")
    try:
        about = json.loads((path / DESCRIPTION).read_text())
        if about["format"] != FORMAT:
            raise KeyError("format")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} holds no evidence that was stored to the end by this version of sparsebag; "
            "write it with store_evidence."
        ) from error
    sealed = about.get("sealed", {"stamp": stamp_of(path), "digest": None})
    store = SealedStore(path, sealed["stamp"], sealed["digest"], partial(_open, path, about))
    if store.check():  # copied, or touched: looked at once
        about["sealed"] = {"stamp": store.stamp, "digest": store.digest}
        with contextlib.suppress(OSError):  # where nothing can be written it is looked at again
            _write_description(path, about)
    rows = _open(path, about, block_rows)
    rows.store = store
    return rows


def _write_description(path: Path, about: dict[str, Any]) -> None:
    draft = path / f"{DESCRIPTION}.{os.getpid()}.part"
    draft.write_text(json.dumps(about))
    os.replace(draft, path / DESCRIPTION)


def _refuse_unfinished(path: Path, names: set[str]) -> None:
    left = unfinished_files(path, names)
    if left:
        raise ValueError(
            f"{path} holds {', '.join(left)} of a store that was never finished, and these rows "
            "have no such array; delete it, or name another folder."
        )


def _open(
    path: Path, about: dict[str, Any], block_rows: int | None = None
) -> ArrayRows | ParquetRows:
    classes = None if about["classes"] is None else np.asarray(about["classes"])
    if about["kind"] == "parquet":
        rows = ParquetRows(path / "rows.parquet", about["n_members"], about["task"], classes)
        _check_stored(path, about, {name: (rows.n_rows or 0,) for name in rows.names})
        return rows
    arrays = (_open_npy if about["kind"] == "npy" else _open_zarr)(path)
    _check_stored(path, about, {name: tuple(a.shape) for name, a in arrays.items()})
    return ArrayRows(
        arrays["votes"],
        arrays.get("oob_mask"),
        arrays["y"],
        task=about["task"],
        sample_weight=arrays.get("sample_weight"),
        labels=classes,
        block_rows=block_rows,
    )


def _same_names(block: OOBEvidence, before: set[str]) -> set[str]:
    """What a block holds, which must be what those before it held."""
    if block.class_votes is not None:
        raise ValueError(
            "store_evidence keeps the true class's votes alone, and this stream has every class's; "
            "stream without every_class=True (log-loss needs no more), or from arrays of your own."
        )
    optional = {"oob_mask": block.oob_mask, "sample_weight": block.sample_weight}
    names = {"votes", "y"} | {name for name, values in optional.items() if values is not None}
    if before and names != before:
        differs = ", ".join(sorted(names ^ before))
        raise ValueError(f"either every block carries {differs} or none does; give all of them it.")
    return names


def _check_stored(path: Path, about: dict[str, Any], found: dict[str, tuple[int, ...]]) -> None:
    """Refuse a folder that lost a file, or has one of another shape, since it was written."""
    lost = sorted(set(about["arrays"]) - set(found))
    if lost:
        raise ValueError(f"{path} has lost {', '.join(lost)} since it was stored; store it again.")
    strange = sorted(set(found) - set(about["arrays"]))
    if strange:
        raise ValueError(f"{path} has got {', '.join(strange)} since it was stored; remove it.")
    stored = about["n_rows"], about["n_members"]
    for name, shape in found.items():
        if shape != stored[: len(shape)]:
            raise ValueError(
                f"{name} in {path} has shape {shape}, and {stored[: len(shape)]} was stored; store "
                "it again."
            )


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
        self._arrays: dict[str, Any] = {}

    def write(self, block: OOBEvidence) -> None:
        for name, values in _columns(block).items():
            if name not in self._arrays:
                shape = (0, *values.shape[1:])
                rows = len(values) if values.ndim > 1 else max(len(values), 1 << 16)
                most = max(1, CHUNK_BYTES // max(1, values[:1].nbytes))
                chunks = (min(rows, most), *values.shape[1:])
                self._arrays[name] = self._group.create_array(
                    name,
                    shape=shape,
                    dtype=values.dtype,
                    chunks=chunks,
                    config={"write_empty_chunks": True},  # so that one that is not there was lost
                )
            self._arrays[name].append(values)

    def close(self) -> None:
        pass


class _ParquetWriter:
    def __init__(self, folder: Path) -> None:
        self._path = folder / "rows.parquet"
        self._writer: Any = None

    def write(self, block: OOBEvidence) -> None:
        parquet = pyarrow_parquet()  # first: it says which extra is missing
        import pyarrow as pa

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
    return {name: NpyWindow(path) for name, path in found.items() if path.exists()}


def _open_zarr(folder: Path) -> dict[str, Any]:
    try:
        group = _zarr().open_group(str(folder / "rows.zarr"), mode="r")
    except (FileNotFoundError, ValueError) as error:
        raise ValueError(f"{folder} has lost rows.zarr, or part of it; store it again.") from error
    for name in group.array_keys():
        n_lost = group[name].nchunks - group[name].nchunks_initialized
        if n_lost:  # Zarr would read them as zeros
            raise ValueError(f"{name} in {folder} has lost {n_lost} chunks; store it again.")
    return {name: ZarrWindow(group[name]) for name in group.array_keys()}


def _zarr() -> Any:
    try:
        import zarr
    except ImportError as error:
        raise ImportError(
            "Zarr stores need the zarr package; pip install 'sparsebag[zarr]', or store with "
            "format='npy'."
        ) from error
    return zarr
