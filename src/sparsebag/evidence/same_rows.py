"""Rows that have to be the same on every pass: each block is known again by a digest.

A solve reads a stream several times and adds up what it found, over a kill and in another process
too. A generator that draws anew, a file that was replaced, or blocks cut elsewhere would mix sums
of different rows without a word; so the first read of a block leaves a digest, and every later one
is compared with it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from functools import lru_cache
from math import gcd
from typing import Any

import numpy as np
import scipy.sparse as sp

from sparsebag.evidence.arrays import on_host
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.evidence.members import Task
from sparsebag.evidence.row_stream import RowStream

Array = Any

VOTES_A_SAMPLE = 2048
FEWEST_SAMPLED, MOST_SAMPLED = 32, 256
"""Votes and mask entries in one digest: one in so many of the block's, within bounds; of targets
and row weights all count, by their sum. More would cost more than it is worth: every entry is a
line of memory that no cache holds. Each is of another row and another member."""
WHOLE_ROWS = 3
"""Rows that count besides with all their votes: of thousands of members the entries
above meet few, and one whose votes change on all rows must be seen, too. Three show a member out of
bag three times in four; another read looks at others."""
TURNS = 8
"""Digests of the votes, each of other entries. The first read takes them all, a later one compares
the next in turn: what a first look misses, a change of few rows of few members, may be seen later.
"""
GOLDEN = 0.6180339887
"""Successive multiples of it, modulo 1, are spread evenly: no two blocks are sampled alike."""


class ChangedRowsError(ValueError):
    """A stream gave other rows than it, or the solve that left a checkpoint, had before."""


class BlockDigests:
    """What blocks were when they were first read.

    Parameters
    ----------
    known : ndarray of shape (n_blocks, 2 + TURNS), optional
        Rows, digest of targets and weights, digests of votes and mask, of blocks that another
        process read.
    is_complete : bool, default False
        Whether those are all blocks of the stream.
    origin : str, default ""
        Where they come from, for the message: they are that file's until they are met here.

    Attributes
    ----------
    if_shorter : str
        What to do where a block has fewer rows than that file says; "" where nobody knows.

    Examples
    --------
    >>> block = OOBEvidence(np.eye(2), None, np.ones(2), "regression")
    >>> digests = BlockDigests()
    >>> digests.meet(0, block)
    >>> digests.meet(0, block)
    >>> digests.meet(0, block.take([0]))
    Traceback (most recent call last):
    ...
    sparsebag.evidence.same_rows.ChangedRowsError: block 0 has 1 rows now and had 2 when it was ...
    """

    def __init__(
        self, known: np.ndarray | None = None, is_complete: bool = False, origin: str = ""
    ) -> None:
        self._known = [] if known is None else [np.array(line) for line in known]
        self._times_met = [0] * len(self._known)
        self.is_complete, self._origin = is_complete, origin
        self.if_shorter = ""

    def __len__(self) -> int:
        return len(self._known)

    @property
    def table(self) -> np.ndarray:
        """Ndarray of shape (n_blocks, 2 + TURNS): what another process needs to know."""
        return np.array(self._known, dtype=np.int64).reshape(-1, 2 + TURNS)

    @property
    def n_rows(self) -> int:
        """Rows of the blocks known."""
        return sum(int(line[0]) for line in self._known)

    @property
    def unmet(self) -> list[int]:
        """Blocks that are known from elsewhere only."""
        return [number for number, times in enumerate(self._times_met) if not times]

    def meet(self, number: int, block: OOBEvidence, *, has_all_members: bool = True) -> None:
        """Take down a block that is new, compare one that is not.

        Parameters
        ----------
        number : int
        block : OOBEvidence
        has_all_members : bool, default True
            False: only some columns were read; targets and weights are compared.
        """
        if number > len(self._known) or (number == len(self._known) and not has_all_members):
            return  # read out of turn, before the first pass came here
        if number == len(self._known):
            if self.is_complete:
                raise self._changed(number, f"the stream had {number} blocks, and has more now")
            votes = [_digest_of_votes(block, number, turn) for turn in range(TURNS)]
            self._known.append(np.array([block.n_rows, _digest_of_rows(block), *votes]))
            self._times_met.append(1)
            return
        before, times = self._known[number], self._times_met[number]
        if block.n_rows != before[0]:
            words = f"block {number} has {block.n_rows} rows now and had {before[0]} when it was"
            instead = self.if_shorter if block.n_rows < before[0] else ""
            raise self._changed(number, f"{words} first read", instead)
        # One that this process has not met is compared in full; targets, which the first pass has
        # made into weights, are looked at again at the second read and once a round after it.
        turns = range(0)
        if has_all_members:
            turns = range(TURNS) if not times else range(times % TURNS, times % TURNS + 1)
            self._times_met[number] += 1
        same = all(_digest_of_votes(block, number, turn) == before[2 + turn] for turn in turns)
        if not has_all_members or times % TURNS <= 1:
            same = same and _digest_of_rows(block) == before[1]
        if not same:
            self._times_met[number] = times
            raise self._changed(number, f"block {number} holds other rows than when first read")

    def end(self, n_blocks: int) -> None:
        """The stream has ended.

        Parameters
        ----------
        n_blocks : int
            After so many blocks.
        """
        if n_blocks < len(self._known):
            words = f"the stream ended after {n_blocks} blocks and had {len(self._known)} or more"
            raise self._changed(n_blocks, words)
        self.is_complete = True

    def _changed(self, number: int, words: str, instead: str = "") -> ChangedRowsError:
        foreign = self._origin and not all(self._times_met[number : number + 1])
        if foreign or (self._origin and not any(self._times_met)):
            if instead:
                return ChangedRowsError(
                    f"{self._origin} has its sums by larger blocks ({words}); {instead}; if these "
                    "are other rows, delete it to start afresh, or name another file."
                )
            return ChangedRowsError(
                f"{self._origin} belongs to other rows than these ({words}); delete it to start "
                "afresh, or name another file."
            )
        return ChangedRowsError(
            f"{words}; a stream must give the same rows, in the same blocks, on every pass: store "
            "them with store_evidence, or pass a generator, which is read once."
        )


class SameRows:
    """A stream whose blocks are compared with what they were, as they are read.

    Parameters
    ----------
    stream : RowStream
        Everything not named here is its own.
    digests : BlockDigests, optional
        What is known of its blocks already.

    Examples
    --------
    >>> from sparsebag.evidence.generated_rows import GeneratedRows
    >>> lengths = iter([3, 2])
    >>> def draw():
    ...     n = next(lengths)
    ...     yield np.ones((n, 2)), None, np.ones(n)
    >>> stream = SameRows(GeneratedRows(draw, 2, task="regression", has_mask=False))
    >>> [block.n_rows for block in stream.blocks()]
    [3]
    >>> [block.n_rows for block in stream.blocks()]
    Traceback (most recent call last):
    ...
    sparsebag.evidence.same_rows.ChangedRowsError: block 0 has 2 rows now and had 3 when it was ...
    """

    n_members: int
    n_rows: int | None
    n_blocks: int | None
    task: Task
    classes: np.ndarray | None
    has_mask: bool
    is_replayable: bool

    def __init__(self, stream: RowStream, digests: BlockDigests | None = None) -> None:
        self.stream = stream
        self.digests = BlockDigests() if digests is None else digests

    def __getattr__(self, name: str) -> Any:
        if name == "stream":  # not there yet: a copy is being made
            raise AttributeError(name)
        return getattr(self.stream, name)

    def block(self, number: int, members: np.ndarray | None = None) -> OOBEvidence:
        """One block, by its number."""
        block = self.stream.block(number, members)
        self.digests.meet(number, block, has_all_members=members is None)
        if not self.digests.is_complete and len(self.digests) == self.stream.n_blocks:
            self._end(len(self.digests))
        return block

    def blocks(self, members: np.ndarray | None = None) -> Iterator[OOBEvidence]:
        """All blocks, in order."""
        n_blocks = 0
        for number, block in enumerate(self.stream.blocks(members)):
            self.digests.meet(number, block, has_all_members=members is None)
            n_blocks += 1
            yield block
        self._end(n_blocks)

    def meet_the_rest(self) -> None:
        """Read the blocks that are known from a checkpoint alone, lest its rows be others."""
        if not self.digests.unmet:
            return
        if self.stream.n_blocks is None:
            for _ in self.blocks():
                pass
            return
        for number in self.digests.unmet:
            self.block(number)

    def _end(self, n_blocks: int) -> None:
        self.digests.end(n_blocks)
        told, found = self.stream.n_rows, self.digests.n_rows
        if told is not None and told != found:
            raise ValueError(
                f"n_rows={told} was given but the stream has {found} rows; pass the number it has, "
                "or leave it out."
            )


def _digest_of_rows(block: OOBEvidence) -> int:
    """Of all targets and row weights: their sum, as whole numbers, and some of them in order."""
    digest = 0
    for values in (block.target, block.sample_weight):
        if values is not None:
            words = np.ascontiguousarray(on_host(values))
            words = words if words.itemsize == 8 else words.astype(np.float64)
            digest = zlib.crc32(words.view(np.int64).sum().tobytes(), digest)
            digest = zlib.crc32(words[:: 1 + len(words) // 1024].tobytes(), digest)
    return digest


def _digest_of_votes(block: OOBEvidence, number: int, turn: int) -> int:
    """Of some votes and their mask, as they count: zero in the bag."""
    place = (TURNS * number + turn) * GOLDEN % 1.0
    stride = _stride(block.n_rows, block.n_members)
    entries = slice(int(place * stride), None, stride)
    mask = None if block.oob_mask is None else _entries(block.oob_mask, entries)
    digest = 0 if mask is None else zlib.crc32((mask != 0).tobytes())
    for votes in (block.votes, *(block.class_votes or ())):
        if sp.issparse(votes):
            step = max(1, votes.nnz // _n_sampled(votes.nnz))
            some = slice(int(place * min(step, 8)), None, step)
            digest = zlib.crc32(votes.indices[some].tobytes(), digest)
            values = votes.data[some]
        else:
            values = _entries(votes, entries)
            values = values if mask is None or block.is_zeroed else np.where(mask, values, 0)
            digest = _digest_of_whole_rows(block, votes, place, digest)
        digest = zlib.crc32(values.astype(np.float32).tobytes(), digest)
    return digest


def _digest_of_whole_rows(block: OOBEvidence, votes: Array, place: float, digest: int) -> int:
    """Of a few rows, all votes out of bag, each in its place.

    A sum of them would not do: signs of two that change, or two that change places, cancel in it.
    """
    for r in range(WHOLE_ROWS):
        row = int((place + r / WHOLE_ROWS) % 1.0 * block.n_rows)
        values = np.ascontiguousarray(on_host(votes[row]), dtype=np.float32)
        if block.oob_mask is not None and not block.is_zeroed:
            values = np.where(on_host(block.oob_mask[row]) != 0, values, np.float32(0.0))
        digest = zlib.crc32(values.data, digest)
    return digest


@lru_cache(maxsize=64)
def _stride(n_rows: int, n_members: int) -> int:
    """From one sampled entry to the next, row by row: some rows down, a golden part of N across.

    Without a divisor in common with N, so that it comes to every member.
    """
    stride = max(1, n_rows * n_members // _n_sampled(n_rows * n_members))
    if stride > n_members:
        stride += int(GOLDEN * n_members) - stride % n_members
    while gcd(stride, n_members) > 1:
        stride += 1
    return stride


def _n_sampled(n_votes: int) -> int:
    return min(max(FEWEST_SAMPLED, n_votes // VOTES_A_SAMPLE), MOST_SAMPLED)


def _entries(matrix: Array, entries: slice) -> np.ndarray:
    """Entries of a matrix, counted row by row; only those are read."""
    if _is_row_by_row(matrix):
        return on_host(matrix.reshape(-1)[entries])
    n_rows, n_members = matrix.shape
    places = np.arange(entries.start, n_rows * n_members, entries.step)
    return on_host(matrix[places // n_members, places % n_members])


def _is_row_by_row(matrix: Array) -> bool:
    """Whether entries lie in memory as they are counted, so that a flat view is no copy."""
    flags = getattr(matrix, "flags", None)
    if flags is not None:
        return bool(flags.c_contiguous)
    return bool(matrix.is_contiguous()) if hasattr(matrix, "is_contiguous") else False
