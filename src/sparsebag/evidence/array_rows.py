"""Row blocks of arrays that can be sliced: in memory, memory-mapped, or in a Zarr store."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import Any

import numpy as np

from sparsebag.evidence.arrays import on_host, vote_dtype
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.evidence.from_predictions import check_sample_weight
from sparsebag.evidence.labels import check_labels, class_positions
from sparsebag.evidence.members import Task
from sparsebag.evidence.npy_window import NpyWindow
from sparsebag.evidence.readable import check_readable
from sparsebag.evidence.row_stream import block_rows_for, evidence_block, in_words
from sparsebag.evidence.store_seal import SealedStore
from sparsebag.evidence.zarr_window import ZarrWindow

Array = Any

PART_ROWS = 1 << 18
"""Targets of a file read at a time to find their classes."""


class ArrayRows:
    """Row blocks of arrays that can be sliced: in memory, memory-mapped, or a Zarr array.

    Only the slice of a block is ever read, so ``votes`` and ``oob_mask`` may be far larger than
    memory; so may ``y`` and ``sample_weight`` of a file (`NpyWindow`, `ZarrWindow`). A block is
    checked the first time it is read.

    Parameters
    ----------
    votes : array of shape (M, N) or (M, N, C)
        As `sparsebag.fit_weights` takes ``predictions``.
    oob_mask : array of shape (M, N) or None
    y : array of shape (M,)
    task : {"classification", "regression"}
    sample_weight : array of shape (M,), optional
    labels : array of shape (C,), optional
        Classes, in the order of a third axis; default: sorted distinct values of ``y``.
    every_class : bool, default False
        Keep every class's votes of a block (needs three axes unless there are two classes).
    block_rows : int, optional
        Rows a block; default: some 32 MiB of them.

    Examples
    --------
    >>> votes = np.array([[0.9, 0.2], [0.6, 0.7], [0.5, 0.5]])
    >>> stream = ArrayRows(votes, None, [0, 1, 1], task="classification", block_rows=2)
    >>> stream.n_blocks, stream.block(1).votes.tolist()
    (2, [[0.5, 0.5]])
    """

    is_replayable = True
    store: SealedStore | None = None

    def __init__(
        self,
        votes: Array,
        oob_mask: Array | None,
        y: Array,
        *,
        task: Task,
        sample_weight: Array | None = None,
        labels: Array | None = None,
        every_class: bool = False,
        block_rows: int | None = None,
    ) -> None:
        check_readable(votes, "predictions")
        check_readable(oob_mask, "oob_mask")
        check_readable(y, "y")
        check_readable(sample_weight, "sample_weight")
        check_readable(labels, "labels")
        check_labels(labels)
        shape = tuple(int(n) for n in votes.shape)
        if len(shape) not in (2, 3) or 0 in shape:
            raise ValueError(
                f"votes must have shape (rows, members) or (rows, members, classes), got {shape}."
            )
        if oob_mask is not None and tuple(oob_mask.shape) != shape[:2]:
            raise ValueError(
                f"oob_mask has shape {tuple(oob_mask.shape)} but votes have {shape[:2]} (rows, "
                "members); pass one mask entry a vote, or None if no member saw these rows."
            )
        self._votes, self._mask = votes, oob_mask
        self._target = _one_a_row(y)
        if tuple(self._target.shape) != shape[:1]:
            raise ValueError(
                f"y has shape {tuple(self._target.shape)} for {shape[0]} rows; pass one target a "
                "row."
            )
        self._sample_weight: Array | None = None
        if sample_weight is not None:
            weight = _one_a_row(sample_weight)
            # What stands in a file is checked block by block.
            is_file = _is_window(weight) and weight.shape == shape[:1]
            like = np.broadcast_to(0.0, shape[:1])
            self._sample_weight = weight if is_file else check_sample_weight(weight[:], like)
        self._every_class = every_class
        self.task = task
        self.classes = None
        if task == "classification":
            self.classes = _distinct(self._target) if labels is None else on_host(labels)
        self.n_rows: int | None = shape[0]
        self.n_members = shape[1]
        self.has_mask = oob_mask is not None
        width = int(np.prod(shape[1:]))
        self.block_rows = block_rows or block_rows_for(width, _vote_bytes(votes))
        self.n_blocks: int | None = -(-shape[0] // self.block_rows)
        self._zeroed_as_stored: dict[int, bool] = {}
        self._positions = self._room_for_positions(None)

    def __repr__(self) -> str:
        """What it is and how much of it there is."""
        return in_words(self)

    def block(self, number: int, members: np.ndarray | None = None) -> OOBEvidence:
        """One block, by its number; only some members' columns where they are named."""
        whole = self._block(number)
        return whole if members is None else whole.take_members(members)

    def blocks(self, members: np.ndarray | None = None) -> Iterator[OOBEvidence]:
        """All blocks, in order."""
        assert self.n_blocks is not None
        return (self.block(number, members) for number in range(self.n_blocks))

    def _block(self, number: int) -> OOBEvidence:
        assert self.n_blocks is not None
        if not 0 <= number < self.n_blocks:
            raise IndexError(f"there is no block {number}; the stream has {self.n_blocks}.")
        rows = slice(number * self.block_rows, (number + 1) * self.block_rows)
        if number in self._zeroed_as_stored:
            return self._known(rows, self._zeroed_as_stored[number])
        votes = self._read(self._votes, rows, "predictions")
        mask = None if self._mask is None else self._read(self._mask, rows, "oob_mask")
        checked = self._checked(votes, rows, mask)
        if votes.ndim == 2 and not self._every_class:
            # A large block is not copied, and holds anything where rows were in the bag.
            self._zeroed_as_stored[number] = checked.votes is votes and checked.is_zeroed
            if self._positions is not None:
                self._positions[rows] = checked.target
        return checked

    def _read(self, array: Array, rows: slice, name: str) -> np.ndarray:
        """Some rows; what is read on demand may turn out to be masked only now."""
        some = array[rows]
        check_readable(some, name)
        return on_host(some)

    def with_block_bytes(self, block_bytes: int) -> ArrayRows:
        """The same rows in blocks of at most so many bytes.

        Parameters
        ----------
        block_bytes : int

        Returns
        -------
        ArrayRows
        """
        shape = self._votes.shape
        width = int(np.prod(shape[1:]))
        rows = block_rows_for(width, _vote_bytes(self._votes), block_bytes)
        rows = min(rows, self.block_rows)
        other = object.__new__(ArrayRows)
        other.__dict__.update(self.__dict__, block_rows=rows, n_blocks=-(-shape[0] // rows))
        other._zeroed_as_stored = {}
        other._positions = other._room_for_positions(block_bytes)
        other._target = _held(self._target, block_bytes)
        other._sample_weight = _held(self._sample_weight, block_bytes)
        return other

    @property
    def row_weight(self) -> Array | None:
        """All rows' weights, where they have any: an array, or a file of which slices are read."""
        return self._sample_weight

    def _room_for_positions(self, most_bytes: int | None) -> np.ndarray | None:
        """Where classes are written down as blocks are read: every pass would look them up again.

        None where there are none, or they would take more than a block.
        """
        if self.classes is None:
            return None
        dtype = np.min_scalar_type(max(len(self.classes), 1))
        n_rows = int(self._target.shape[0])
        if most_bytes is not None and n_rows * dtype.itemsize > most_bytes:
            return None
        return np.zeros(n_rows, dtype=dtype)

    def take(self, rows: np.ndarray) -> OOBEvidence:
        """Some rows, wherever they stand; of a memory map no others are read.

        Parameters
        ----------
        rows : ndarray of ascending indices

        Returns
        -------
        OOBEvidence
        """
        mask = None if self._mask is None else self._gather(self._mask, rows)
        return self._checked(self._gather(self._votes, rows), rows, mask)

    def _gather(self, array: Array, rows: np.ndarray) -> np.ndarray:
        """Rows of an array that may only be sliced, a block at a time."""
        if isinstance(array, np.ndarray):
            return on_host(array[rows])
        numbers, firsts = np.unique(rows // self.block_rows, return_index=True)
        parts = []
        for number, some in zip(numbers, np.split(rows, firsts[1:]), strict=True):
            first = int(number) * self.block_rows
            parts.append(on_host(array[first : first + self.block_rows])[some - first])
        return np.concatenate(parts)

    def _checked(self, votes: np.ndarray, rows: Any, mask: np.ndarray | None) -> OOBEvidence:
        return evidence_block(
            votes,
            mask,
            self._of_rows(self._target, rows),
            None if self._sample_weight is None else self._of_rows(self._sample_weight, rows),
            task=self.task,
            labels=self.classes,
            every_class=self._every_class,
            where=self._rows_in_words(rows),
            first_row=rows.start if isinstance(rows, slice) else 0,
            says_task=True,
        )

    def _rows_in_words(self, rows: Any) -> str:
        """Which rows a block has, where it has not all, and their numbers are in one piece."""
        if not isinstance(rows, slice) or self.n_blocks == 1:
            return ""
        assert self.n_rows is not None
        return f"rows {rows.start} to {min(rows.stop, self.n_rows) - 1}"

    def _known(self, rows: slice, is_zeroed: bool) -> OOBEvidence:
        """A block that was checked before."""
        votes = on_host(self._votes[rows])
        mask = None if self._mask is None else on_host(self._mask[rows])
        return OOBEvidence(
            votes=votes.astype(vote_dtype(votes.dtype), copy=False),
            oob_mask=mask if mask is None or mask.dtype == np.bool_ else mask != 0,
            target=self._known_target(rows),
            task=self.task,
            sample_weight=None if self._sample_weight is None else self._sample_weight[rows],
            classes=self.classes,
            is_zeroed=is_zeroed,
        )

    def _known_target(self, rows: slice) -> np.ndarray:
        if self.classes is None:
            return np.asarray(self._target[rows], dtype=np.float64)
        if self._positions is not None:
            return self._positions[rows].astype(np.intp)
        return class_positions(self._target[rows], self.classes)

    def _of_rows(self, values: Array, rows: Any) -> np.ndarray:
        return on_host(values[rows]) if isinstance(rows, slice) else self._gather(values, rows)


def _is_window(values: Array) -> bool:
    """Whether these stand in a file and are read by slices."""
    return isinstance(values, (NpyWindow, ZarrWindow))


def _one_a_row(values: Array) -> Array:
    """A vector: a file's as it is, one of a single column without its second axis."""
    if _is_window(values) and len(values.shape) == 1:
        return values
    values = on_host(values[:] if _is_window(values) else values)
    return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values


def _held(values: Array | None, most_bytes: int) -> Array | None:
    """A file's values in memory, where they take no more than so many bytes."""
    if values is None or not _is_window(values):
        return values
    nbytes = int(values.shape[0]) * int(values.dtype.itemsize)
    return np.array(values[:]) if nbytes <= most_bytes else values


def _distinct(values: Array) -> np.ndarray:
    """Sorted distinct values, a part at a time."""
    starts = range(0, max(1, int(values.shape[0])), PART_ROWS)
    parts = (np.unique(values[start : start + PART_ROWS]) for start in starts)
    return reduce(lambda one, other: np.unique(np.concatenate([one, other])), parts)


def _vote_bytes(votes: Array) -> int:
    """Bytes a vote takes in a block, whatever it takes where it is stored."""
    try:
        return vote_dtype(votes.dtype).itemsize
    except TypeError:  # another library's
        return max(4, int(getattr(votes.dtype, "itemsize", 4)))
