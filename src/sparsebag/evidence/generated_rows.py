"""Row blocks as they come from a generator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from sparsebag.evidence.arrays import on_host
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.evidence.members import Task
from sparsebag.evidence.row_stream import evidence_block

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
        if task == "classification" and labels is None:
            raise ValueError(
                "labels= is needed to stream classification evidence: no block need hold every "
                "class; pass all of them, in the order of predict_proba."
            )
        self._source = blocks
        self._spent = False
        self._every_class = every_class
        self.n_members, self.n_rows, self.task = int(n_members), n_rows, task
        self.classes = None if labels is None else on_host(labels)
        self.has_mask = has_mask
        self.is_replayable = callable(blocks) or not isinstance(blocks, Iterator)

    def block(self, number: int, members: np.ndarray | None = None) -> OOBEvidence:
        """Not to be had: these blocks only come in order."""
        raise IndexError("a generator's blocks come in order only; iterate over blocks().")

    def blocks(self, members: np.ndarray | None = None) -> Iterator[OOBEvidence]:
        """All blocks, in order."""
        if self._spent and not self.is_replayable:
            raise ValueError(
                "this generator has been read and cannot start again; pass a function that makes "
                "one, or solver='mirror', which reads it once."
            )
        self._spent = True
        source = self._source() if callable(self._source) else self._source
        for given in source:
            predictions, mask, y, *rest = given
            block = evidence_block(
                predictions,
                mask,
                y,
                rest[0] if rest else None,
                task=self.task,
                labels=self.classes,
                every_class=self._every_class,
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
            yield block if members is None else block.take_members(members)
