"""Row blocks of a Parquet file, whose columns hold a row's votes as a list."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.evidence.members import Task
from sparsebag.evidence.row_stream import block_rows_for, evidence_block, in_words
from sparsebag.evidence.same_rows import ChangedRowsError
from sparsebag.evidence.store_seal import SealedStore

COLUMNS = ("votes", "oob_mask", "y", "sample_weight")


class ParquetRows:
    """Rows of a Parquet file, a row group a block, or less.

    Columns: ``votes`` (a list of N floats a row), ``oob_mask`` (a list of N booleans, optional),
    ``y``, and ``sample_weight`` (optional). Nulls, and lists of any other length, are refused.

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
    store: SealedStore | None = None

    def __init__(
        self, path: str | os.PathLike[str], n_members: int, task: Task, classes: np.ndarray | None
    ) -> None:
        self._path = os.fspath(path)
        try:
            self._file = pyarrow_parquet().ParquetFile(path)
        except (ValueError, OSError) as error:
            raise ValueError(
                f"{self._path} is missing, cut short or no Parquet file; write it again."
            ) from error
        names = set(self._file.schema_arrow.names)
        for name in ("votes", "y"):
            if name not in names:
                raise ValueError(f"{self._path} has no column {name!r}; write it again.")
        self.n_members, self.task, self.classes = n_members, task, classes
        self.n_rows: int | None = self._file.metadata.num_rows
        self.has_mask = "oob_mask" in names
        self.names = [name for name in COLUMNS if name in names]
        self._itemsize = self._file.schema_arrow.field("votes").type.value_type.bit_width // 8
        sizes = self._file.metadata
        self._group_rows = [sizes.row_group(k).num_rows for k in range(sizes.num_row_groups)]
        self._cut(max(self._group_rows, default=1))

    def with_block_bytes(self, block_bytes: int) -> ParquetRows:
        """The same rows in blocks of at most so many bytes.

        Parameters
        ----------
        block_bytes : int

        Returns
        -------
        ParquetRows
        """
        other = object.__new__(ParquetRows)
        other.__dict__.update(self.__dict__)
        other._cut(block_rows_for(self.n_members, self._itemsize, block_bytes))
        return other

    def __repr__(self) -> str:
        """What it is and how much of it there is."""
        return in_words(self)

    def block(self, number: int, members: np.ndarray | None = None) -> OOBEvidence:
        """One block, by its number; only some members' columns where they are named."""
        if not 0 <= number < len(self._blocks):
            raise IndexError(f"there is no block {number}; the stream has {self.n_blocks}.")
        try:
            table = self._read(number)
        except (OSError, StopIteration) as error:
            raise ChangedRowsError(
                f"{self._path} can no longer be read: it was overwritten or cut short since it was "
                "opened; store its rows again, in another folder."
            ) from error
        whole = evidence_block(
            self._matrix(table, "votes"),
            self._matrix(table, "oob_mask") if self.has_mask else None,
            self._vector(table, "y"),
            self._vector(table, "sample_weight") if "sample_weight" in self.names else None,
            task=self.task,
            labels=self.classes,
        )
        return whole if members is None else whole.take_members(members)

    def blocks(self, members: np.ndarray | None = None) -> Iterator[OOBEvidence]:
        """All blocks, in order."""
        return (self.block(number, members) for number in range(len(self._blocks)))

    def _cut(self, most_rows: int) -> None:
        """Row groups cut into blocks: the group of each, and its place in the group."""
        self._most_rows = most_rows
        self._blocks = [
            (group, part)
            for group, n_rows in enumerate(self._group_rows)
            for part in range(-(-n_rows // most_rows))
        ]
        self.n_blocks: int | None = len(self._blocks)
        self._next = -1
        self._batches: Iterator[Any] = iter(())

    def _read(self, number: int) -> Any:
        """A block's rows; blocks asked for in order are decoded once."""
        group, part = self._blocks[number]
        if number != self._next or part == 0:
            self._batches = self._file.iter_batches(
                self._most_rows, row_groups=[group], columns=self.names
            )
            for _ in range(part):
                next(self._batches)
        self._next = number + 1
        return next(self._batches)

    def _vector(self, table: Any, name: str) -> np.ndarray:
        column = table.column(name)
        if column.null_count:
            raise ValueError(f"{self._path} holds nulls in {name}; fill them, or drop those rows.")
        return np.asarray(column.to_numpy(zero_copy_only=False))

    def _matrix(self, table: Any, name: str) -> np.ndarray:
        column = table.column(name)
        flat = column.flatten()
        if column.null_count or flat.null_count:
            raise ValueError(f"{self._path} holds nulls in {name}; fill them, or drop those rows.")
        import pyarrow.compute

        lengths = pyarrow.compute.list_value_length(column).to_numpy(zero_copy_only=False)
        if (lengths != self.n_members).any():
            raise ValueError(
                f"{self._path} holds {name} of {lengths.min()} to {lengths.max()} members; every "
                f"row needs {self.n_members}."
            )
        return np.asarray(flat.to_numpy(zero_copy_only=False)).reshape(len(column), self.n_members)


def pyarrow_parquet() -> Any:
    """PyArrow's Parquet module, or one sentence on how to get it.

    Returns
    -------
    module
    """
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(
            "Parquet files need pyarrow; pip install 'sparsebag[parquet]', or store with "
            "format='npy'."
        ) from error
    return pyarrow.parquet
