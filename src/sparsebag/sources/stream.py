"""Rows that are read block by block: larger than memory, or made on the way.

A pass holds one block at a time. One number a row and channel, the whole ensemble's vote, is kept
from the first pass on, and a sample of the rows.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any
from zipfile import BadZipFile

import numpy as np

from sparsebag.evidence.arrays import on_host
from sparsebag.evidence.evidence import OOBEvidence, concatenate
from sparsebag.evidence.members import Task
from sparsebag.sources.base import MemoryRows, Source
from sparsebag.sources.sampling import Reservoir
from sparsebag.sources.whole_file import whole_file

DEFAULT_MEMORY, SMALLEST_MEMORY = 1 << 30, 1 << 20
COUNTED_SHARE = 0.6
"""Of the memory allowed, what is shared out: joins, checks and solvers hold copies besides."""
BLOCK_SHARE = 32
"""A block takes at most this part of it: checking one makes several copies."""
HELD_SHARE = 4
"""A sample of rows, or some members' columns, may take this part: a sample, columns of it, and the
copy while either is put together, leave as much again for blocks."""


class RowStream(ABC):
    """Evidence as row blocks, read one after another as often as needed.

    `sparsebag.stream_rows` makes them from arrays, files and generators.

    Attributes
    ----------
    n_members : int
        N, the same in every block.
    n_rows : int or None
        M; None where it is not known before the end.
    task : {"classification", "regression"}
    classes : ndarray or None
    has_mask : bool
        Whether blocks carry an out-of-bag mask; without one every row is held out.
    bytes_a_row : int
        What votes and mask of a row take in a block.
    reading_bytes : int
        Memory that reading takes besides the blocks it gives.

    Examples
    --------
    >>> from sparsebag.sources.readers import stream_rows
    >>> rows = stream_rows(np.eye(4), None, np.zeros(4), task="regression", block_rows=3)
    >>> [block.n_rows for block in rows.blocks()]
    [3, 1]
    """

    reading_bytes: int = 0
    bytes_a_row: int
    n_members: int
    n_rows: int | None
    task: Task
    classes: np.ndarray | None
    has_mask: bool

    @abstractmethod
    def blocks(self, block_bytes: int | None = None) -> Iterator[OOBEvidence]:
        """All rows in order, the same at every call.

        Parameters
        ----------
        block_bytes : int, optional
            Votes and mask of a block take no more, where rows can be cut so.

        Returns
        -------
        iterator of OOBEvidence
        """

    def __repr__(self) -> str:
        rows = "unknown" if self.n_rows is None else f"{self.n_rows:,}"
        classes = "" if self.classes is None else f" of {len(self.classes)} classes"
        mask = "out-of-bag mask" if self.has_mask else "no mask"
        return (
            f"{type(self).__name__}({rows} rows of {self.n_members:,} members; "
            f"{self.task}{classes}, {mask})"
        )


@dataclass
class _Reads:
    """What sources of one stream have read of it, all together."""

    n_passes: float = 0.0
    n_blocks: int | None = None
    reservoir: Reservoir | None = None
    found: dict[int, tuple[np.ndarray, np.ndarray | None]] = field(default_factory=dict)


class StreamRows(Source):
    """A stream's rows; every `sum` is a pass over them.

    Parameters
    ----------
    stream : RowStream
    memory_limit : int, default 1 GiB
        Bytes that may be held at a time.

    Examples
    --------
    >>> from sparsebag.sources.readers import stream_rows
    >>> rows = stream_rows(np.eye(4), None, np.ones(4), task="regression", block_rows=3)
    >>> source = StreamRows(rows)
    >>> source.sum(lambda block: block.n_rows), source.n_passes
    (4, 1.0)
    """

    is_streamed = True

    def __init__(self, stream: RowStream, memory_limit: int = DEFAULT_MEMORY) -> None:
        self.stream = stream
        left = max(memory_limit - stream.reading_bytes, memory_limit // 2)
        self.memory = max(SMALLEST_MEMORY, int(COUNTED_SHARE * left))
        self.n_members, self.task, self.classes = stream.n_members, stream.task, stream.classes
        self.has_mask = stream.has_mask
        self._functions: tuple[tuple[Callable[..., Any], tuple[Any, ...]], ...] = ()
        self._reads = _Reads()

    @property
    def n_passes(self) -> float:
        """How often the stream was read, parts of it included."""
        return self._reads.n_passes

    @property
    def held_bytes(self) -> int:
        """Bytes that a sample, or some members' columns, may take."""
        return max(1, self.memory // HELD_SHARE)

    @property
    def most_rows(self) -> int:
        """Rows of a sample that fit there."""
        return max(1, self.held_bytes // self.stream.bytes_a_row)

    def derived(self, function: Callable[..., Any], *args: Any) -> StreamRows:
        """The function is called at every read; a prior it finds is kept."""
        other = copy(self)
        other._functions = (*self._functions, (function, args))
        return other

    def sum(self, function: Callable[..., Any], *args: Any) -> Any:
        """The sum over all blocks, in one pass."""
        total = None
        for block in self._blocks():
            part = function(block, *args)
            if part is not None:
                total = part if total is None else total + part
        return total

    def in_memory(self) -> MemoryRows:
        """All rows of these blocks, in one pass."""
        return MemoryRows(concatenate(list(self._blocks())))

    def can_hold(self, nbytes: int, share: float) -> bool:
        """Whether a share of the columns fits the memory allowed."""
        return share * nbytes <= self.held_bytes

    def sample(self, n_rows: int, seed: int) -> OOBEvidence:
        """Rows drawn at random, of those that were kept from the first pass."""
        if self._reads.reservoir is None:
            self.sum(lambda block: None)
        assert self._reads.reservoir is not None
        drawn = MemoryRows(self._reads.reservoir.evidence()).sample(n_rows, seed)
        for function, args in self._functions:
            drawn = function(drawn, *args)
        return drawn

    def sample_columns(self, bytes_a_row: float, seed: int) -> OOBEvidence:
        """As many rows of these blocks as the memory allowed holds, drawn in one pass.

        Parameters
        ----------
        bytes_a_row : float
        seed : int

        Returns
        -------
        OOBEvidence
        """
        reservoir = Reservoir(max(1, int(self.held_bytes / bytes_a_row)), seed)
        for block in self._blocks():
            reservoir.add(block)
        return reservoir.evidence()

    def _blocks(self) -> Iterator[Any]:
        reads = self._reads
        first = reads.n_blocks is None
        reservoir = Reservoir(self.most_rows) if first else None
        number = 0
        for number, block in enumerate(self.stream.blocks(self.memory // BLOCK_SHARE), start=1):
            if reservoir is not None:
                reservoir.add(block)
            yield self._derive(block, number)
        if not first and number != reads.n_blocks:
            raise ValueError(
                f"the stream gave {number} blocks of rows and {reads.n_blocks} before; every pass "
                "must give the same rows."
            )
        reads.n_blocks = number
        reads.n_passes += 1.0
        reads.reservoir = reservoir or reads.reservoir

    def _derive(self, block: OOBEvidence, number: int) -> Any:
        known = self._reads.found.get(number)
        if known is not None:
            prior, weight = known
            if prior.shape[1] != block.n_rows:
                raise ValueError(
                    f"block {number - 1} of the stream has {block.n_rows} rows and had "
                    f"{prior.shape[1]} before; every pass must give the same rows."
                )
            weight = block.sample_weight if weight is None else weight
            block = replace(block, prior=prior, sample_weight=weight)
        found: Any = block
        for function, args in self._functions:
            found = function(found, *args)
            if known is None and isinstance(found, OOBEvidence) and found.prior is not None:
                same = found.sample_weight is block.sample_weight
                known = found.prior, None if same else found.sample_weight
                self._reads.found[number] = known
        return found


class Checkpoint:
    """The best weights of a solve so far, in a file that the same call goes on from.

    Parameters
    ----------
    path : path
    about : str
        What is solved; a file of anything else is refused.

    Attributes
    ----------
    weights : ndarray of shape (N,) or None
        Of the file; None where there is none yet.
    n_passes : int
        Passes made for them.

    Examples
    --------
    >>> import tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "solve.npz")
    >>> Checkpoint(path, "log_loss").save(np.array([0.25, 0.75]), 0.5)
    >>> again = Checkpoint(path, "log_loss")
    >>> again.weights.tolist(), again.n_passes
    ([0.25, 0.75], 1)
    """

    def __init__(self, path: str | os.PathLike[str], about: str) -> None:
        self.path, self.about = os.path.expanduser(os.fspath(path)), about
        self.weights: np.ndarray | None = None
        self.n_passes, self._best = 0, np.inf
        if os.path.isdir(self.path):
            raise ValueError(f"checkpoint {self.path} is a folder; pass the name of a file.")
        if not os.path.isdir(os.path.dirname(self.path) or "."):
            raise ValueError(f"checkpoint {self.path} is in a folder that does not exist.")
        if not os.path.exists(self.path):
            return
        try:
            with open(self.path, "rb") as file, np.load(file, allow_pickle=False) as found:
                written, self.n_passes = str(found["about"]), int(found["n_passes"])
                self.weights = found["weights"]  # what they are worth, the first pass says
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            raise ValueError(
                f"checkpoint {self.path} is damaged, or was not written by fit_weights; delete "
                f"it to start over."
            ) from error
        if written != about:
            raise ValueError(
                f"checkpoint {self.path} belongs to different evidence or settings; delete it to "
                f"start over."
            )

    def save(self, weights: Any, objective: float) -> None:
        """Count a pass, and write the weights where they are the best so far.

        Parameters
        ----------
        weights : array of shape (N,)
        objective : float
            Of these weights.
        """
        self.n_passes += 1
        if objective < self._best or self.weights is None:
            self.weights, self._best = on_host(weights), objective
        with whole_file(self.path) as file:
            np.savez(file, weights=self.weights, n_passes=self.n_passes, about=self.about)
