"""Row blocks as they come from a generator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from numbers import Integral
from typing import Any

import numpy as np

from sparsebag.evidence.arrays import on_host, tensors_on_host
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.evidence.labels import check_labels
from sparsebag.evidence.members import Task
from sparsebag.evidence.row_stream import block_rows_for, evidence_block, in_words

Array = Any
Blocks = Iterable[tuple[Any, ...]] | Callable[[], Iterable[tuple[Any, ...]]]


class GeneratedRows:
    """Row blocks as they come from a generator: once, or again from a function that starts it.

    Parameters
    ----------
    blocks : iterable of tuples, or function without arguments that returns one
        Each tuple is ``(predictions, oob_mask, y)`` or ``(predictions, oob_mask, y,
        sample_weight)``, as `sparsebag.fit_weights` takes them. A function (or a list) can be read
        again, a generator only once.
    n_members : int
        N.
    task : {"classification", "regression"}
    labels : array of shape (C,), optional
        All classes; needed in classification, since no block need show all of them.
    n_rows : int, optional
        M, where it is known.
    has_mask : bool, default True
        Whether the blocks carry a mask.
    every_class : bool, default False
        Keep every class's votes.

    Examples
    --------
    >>> def draw():
    ...     for seed in range(3):
    ...         rng = np.random.default_rng(seed)
    ...         yield rng.random((10, 4)), rng.random((10, 4)) < 0.4, rng.random(10)
    >>> stream = GeneratedRows(draw, 4, task="regression")
    >>> stream.is_replayable, sum(block.n_rows for block in stream.blocks())
    (True, 30)
    """

    n_blocks: int | None = None

    def __init__(
        self,
        blocks: Blocks,
        n_members: int,
        *,
        task: Task,
        labels: Array | None = None,
        n_rows: int | None = None,
        has_mask: bool = True,
        every_class: bool = False,
    ) -> None:
        n: Any = n_members
        if isinstance(n, bool) or not isinstance(n, Integral) or n < 1:
            raise ValueError(f"n_members={n!r} was given; pass N, the columns of a block.")
        if task == "classification" and labels is None:
            raise ValueError(
                "labels= is needed to stream classification evidence: no block need hold every "
                "class; pass all of them, in the order of predict_proba."
            )
        check_labels(labels)
        self._source = blocks
        self._spent = [False]  # shared with the same rows in other blocks
        self._every_class = every_class
        self._block_bytes: int | None = None
        self.n_members, self.n_rows, self.task = int(n_members), n_rows, task
        self.classes = None if labels is None else on_host(labels)
        self.has_mask = has_mask
        self.is_replayable = callable(blocks) or not isinstance(blocks, Iterator)

    def __repr__(self) -> str:
        """What it is and how much of it there is."""
        return in_words(self)

    def block(self, number: int, members: np.ndarray | None = None) -> OOBEvidence:
        """Not to be had: these blocks only come in order."""
        raise IndexError("a generator's blocks come in order only; iterate over blocks().")

    def blocks(self, members: np.ndarray | None = None) -> Iterator[OOBEvidence]:
        """All blocks, in order."""
        if self._spent[0] and not self.is_replayable:
            raise ValueError(
                "this generator has been read and cannot start again; pass a new one, which "
                "solver='mirror' reads once, or a function that makes one."
            )
        self._spent[0] = True
        source = self._source() if callable(self._source) else self._source
        if not (hasattr(source, "__iter__") or hasattr(source, "__getitem__")):
            raise TypeError(
                f"the function gave a {type(source).__name__}, not blocks of rows; pass one that "
                "yields them, or returns a generator or list of them."
            )
        for number, given in enumerate(source):
            first = 0
            for part in self._cut(_checked(given)):
                where = f"block {number}" + (f" counted from its row {first}" if first else "")
                yield self._block(part, members, where)
                first += _shape(part[0])[0]

    def with_block_bytes(self, block_bytes: int) -> GeneratedRows:
        """The same rows; blocks that come larger than so many bytes are cut.

        Parameters
        ----------
        block_bytes : int

        Returns
        -------
        GeneratedRows
        """
        other = object.__new__(GeneratedRows)
        other.__dict__.update(self.__dict__, _block_bytes=block_bytes)
        return other

    def _cut(self, given: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        """A block as it came, or in pieces; nothing where it has no rows."""
        shape = _shape(given[0])
        lengths = {_shape(values)[:1] for values in given if values is not None}
        if lengths == {(0,)}:
            return  # a filter or a queue may well give nothing for a while
        if self._block_bytes is None or len(lengths) != 1 or len(shape) < 2:
            yield given
            return
        itemsize = int(getattr(getattr(given[0], "dtype", None), "itemsize", 8))
        rows = block_rows_for(int(np.prod(shape[1:])), itemsize, self._block_bytes)
        for first in range(0, shape[0], rows):
            yield tuple(_some_rows(values, slice(first, first + rows)) for values in given)

    def _block(self, given: tuple[Any, ...], members: np.ndarray | None, where: str) -> OOBEvidence:
        predictions, mask, y, *rest = map(tensors_on_host, given)
        block = evidence_block(
            predictions,
            mask,
            y,
            rest[0] if rest else None,
            task=self.task,
            labels=self.classes,
            every_class=self._every_class,
            where=where,
            says_task=True,
        )
        if block.n_members != self.n_members:
            raise ValueError(
                f"a block has {block.n_members} members but the stream has {self.n_members}; "
                "every block needs one column a member."
            )
        if (block.oob_mask is not None) != self.has_mask:
            raise ValueError(
                "either every block carries an oob_mask or none does; say which with has_mask=."
            )
        return block if members is None else block.take_members(members)


def _shape(values: Any) -> tuple[int, ...]:
    return tuple(values.shape) if hasattr(values, "shape") else np.shape(values)


def _some_rows(values: Any, rows: slice) -> Any:
    if values is None:
        return None
    return values.iloc[rows] if hasattr(values, "iloc") else values[rows]


def _checked(given: Any) -> tuple[Any, ...]:
    n_given = len(given) if isinstance(given, (tuple, list)) else 0
    if n_given not in (3, 4):
        raise ValueError(
            "each block must be a tuple (predictions, oob_mask, y) or (predictions, oob_mask, y, "
            f"sample_weight), got {f'{n_given} entries' if n_given else type(given).__name__}; "
            "pass None for a mask that there is not."
        )
    return tuple(given)
