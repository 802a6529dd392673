"""Evidence as row blocks that come from somewhere: memory, a file, a generator, the members.

A block is an `OOBEvidence` of some rows and all members, so whatever reads evidence reads a block.
What is larger than memory, lives on other machines, or does not exist until it is predicted, is a
`RowStream`: it hands out blocks, and nothing of size M×N need ever exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import scipy.sparse as sp
from array_api_compat import array_namespace

from sparsebag.evidence.arrays import on_host
from sparsebag.evidence.evidence import OOBEvidence, zero_in_bag
from sparsebag.evidence.from_predictions import (
    FOR_REGRESSION,
    FOR_REGRESSION_STREAM,
    from_predictions,
)
from sparsebag.evidence.members import Task
from sparsebag.evidence.readable import check_readable, what_are_no_numbers

Array = Any

BLOCK_BYTES = 32 << 20
"""Votes and mask a block holds unless told otherwise: large beside what a read costs to start."""
MASK_BYTES = 1


@runtime_checkable
class RowStream(Protocol):
    """Blocks of rows of evidence, all of the same members.

    A stream that can be asked for any block has ``n_blocks`` and `block`; one that only comes in
    order has ``n_blocks = None``. One that can be read a single time is not ``is_replayable``.

    Attributes
    ----------
    n_members : int
        N, the same in every block.
    n_rows : int or None
        M; None where it is not known before the end.
    n_blocks : int or None
        How many blocks there are to ask for; None where they only come in order.
    task : {"classification", "regression"}
    classes : ndarray or None
        Class labels, the same in every block.
    has_mask : bool
        Whether blocks carry an out-of-bag mask; without one every row is held out.
    is_replayable : bool
        Whether the rows can be read more than once.

    Examples
    --------
    >>> from sparsebag.evidence.array_rows import ArrayRows
    >>> stream = ArrayRows(np.eye(4), None, np.zeros(4), task="regression", block_rows=3)
    >>> isinstance(stream, RowStream), [block.n_rows for block in stream.blocks()]
    (True, [3, 1])
    """

    n_members: int
    n_rows: int | None
    n_blocks: int | None
    task: Task
    classes: np.ndarray | None
    has_mask: bool
    is_replayable: bool

    def block(self, number: int, members: np.ndarray | None = None) -> OOBEvidence:
        """One block, by its number.

        Parameters
        ----------
        number : int
        members : ndarray of indices, optional
            Only their columns; a stream that predicts asks no others.

        Returns
        -------
        OOBEvidence
        """
        ...

    def blocks(self, members: np.ndarray | None = None) -> Iterator[OOBEvidence]:
        """All blocks, in order.

        Parameters
        ----------
        members : ndarray of indices, optional
            Only their columns.

        Returns
        -------
        iterator of OOBEvidence
        """
        ...


def block_rows_for(n_members: int, itemsize: int = 4, block_bytes: int = BLOCK_BYTES) -> int:
    """Rows whose votes and mask take at most ``block_bytes``, a multiple of 8 where possible.

    Parameters
    ----------
    n_members : int
    itemsize : int, default 4
        Bytes a vote.
    block_bytes : int

    Returns
    -------
    int

    Examples
    --------
    >>> block_rows_for(1000, block_bytes=1 << 20)
    208
    """
    rows = max(1, block_bytes // (max(1, n_members) * (itemsize + MASK_BYTES)))
    return rows if rows < 8 else rows - rows % 8


def evidence_block(
    predictions: Array,
    oob_mask: Array | None,
    y: Array,
    sample_weight: Array | None = None,
    *,
    task: Task,
    labels: Array | None = None,
    every_class: bool = False,
    where: str = "",
    first_row: int = 0,
    says_task: bool = False,
) -> OOBEvidence:
    """Some rows' matrices, checked; as `from_predictions`, but the rows are part of more.

    Parameters
    ----------
    predictions, oob_mask, y, sample_weight, task, labels, every_class
        As in `from_predictions`.
    where : str, default ""
        Which rows these are, to be named where they are refused.
    first_row : int, default 0
        The number of the first of them, for messages.
    says_task : bool, default False
        Whether the task was said of a stream, not by the choice of a loss.

    Returns
    -------
    OOBEvidence

    Examples
    --------
    >>> evidence_block(np.zeros((1, 2)), None, [1], task="classification", labels=[0, 1]).n_rows
    1
    """
    try:
        block = from_predictions(
            predictions,
            oob_mask,
            y,
            task=task,
            labels=labels,
            every_class=every_class,
            is_part=True,
            first_row=first_row,
        )
        return with_row_weight(block, sample_weight)
    except ValueError as error:
        if not (where or says_task):
            raise
        told = f"{where}: {error}" if where else str(error)
        if says_task:
            told = told.replace(FOR_REGRESSION, FOR_REGRESSION_STREAM)
        raise ValueError(told) from error


def with_row_weight(block: OOBEvidence, sample_weight: Array | None) -> OOBEvidence:
    """Some rows with their weights, of which all may be zero; one sentence if they are unusable.

    Parameters
    ----------
    block : OOBEvidence
    sample_weight : array of shape (B,) or None

    Returns
    -------
    OOBEvidence

    Examples
    --------
    >>> block = OOBEvidence(np.eye(2), None, np.ones(2), "regression")
    >>> with_row_weight(block, [0, 3]).sample_weight.tolist()
    [0.0, 3.0]
    """
    if sample_weight is None:
        return block
    check_readable(sample_weight, "sample_weight")
    if wrong := what_are_no_numbers(sample_weight):
        raise ValueError(f"sample_weight must hold one number a row (got {wrong}).")
    weight = np.asarray(on_host(sample_weight), dtype=np.float64)
    if weight.shape != (block.n_rows,) or not np.all(np.isfinite(weight)) or np.any(weight < 0):
        raise ValueError(
            f"sample_weight must hold {block.n_rows} finite numbers that are not negative."
        )
    return replace(block, sample_weight=weight)


def concatenate(parts: Sequence[OOBEvidence]) -> OOBEvidence:
    """Blocks of the same members as one evidence, in memory.

    Rows without a mask beside rows with one are out of bag for every member; rows without a weight
    beside rows with one weigh 1.

    Parameters
    ----------
    parts : sequence of OOBEvidence
        Without `OnDemandVotes`.

    Returns
    -------
    OOBEvidence

    Examples
    --------
    >>> one = OOBEvidence(np.eye(2), None, np.zeros(2), "regression")
    >>> concatenate([one, one]).n_rows
    4
    """
    first = parts[0]
    if len(parts) == 1:
        return first
    xp = array_namespace(first.votes)
    masks = weights = planes = None
    if any(part.oob_mask is not None for part in parts):
        masks = [_or_ones(part.oob_mask, part.votes, xp.bool) for part in parts]
    if any(part.sample_weight is not None for part in parts):
        weights = [_or_ones(part.sample_weight, part.target, xp.float64) for part in parts]
    if first.class_votes is not None:
        by_class = zip(*(tuple(part.class_votes or ()) for part in parts), strict=True)
        planes = tuple(
            sp.vstack(c, format="csr") if sp.issparse(c[0]) else xp.concat(c, axis=0)
            for c in by_class
        )
    return replace(
        first,
        votes=xp.concat([_zeroed(part) for part in parts], axis=0),
        oob_mask=None if masks is None else xp.concat(masks, axis=0),
        target=xp.concat([part.target for part in parts], axis=0),
        sample_weight=None if weights is None else xp.concat(weights, axis=0),
        class_votes=planes,
        is_zeroed=True,
    )


def _or_ones(values: Array | None, like: Array, dtype: Any) -> Array:
    xp = array_namespace(like)
    return values if values is not None else xp.ones_like(like, dtype=dtype)


def _zeroed(part: OOBEvidence) -> Array:
    return part.votes if part.is_zeroed else zero_in_bag(part.votes, part.oob_mask)


def shape_of(stream: RowStream) -> str:
    """What a stream says of itself; a checkpoint of another shape is refused before a row is read.

    However it is cut into blocks. That the rows are the same is for `sparsebag.evidence.same_rows`
    to see.

    Parameters
    ----------
    stream : RowStream

    Returns
    -------
    str

    Examples
    --------
    >>> from sparsebag.evidence.array_rows import ArrayRows
    >>> a, b = (ArrayRows(np.eye(n), None, np.ones(n), task="regression") for n in (3, 4))
    >>> shape_of(a) == shape_of(a), shape_of(a) == shape_of(b)
    (True, False)
    """
    classes = None if stream.classes is None else stream.classes.tolist()
    size = (stream.n_rows, stream.n_members)
    return repr((size, stream.task, classes, stream.has_mask))


def in_words(stream: RowStream) -> str:
    """A stream as Python shows it: what it is and how much of it there is.

    Parameters
    ----------
    stream : RowStream

    Returns
    -------
    str

    Examples
    --------
    >>> from sparsebag.evidence.array_rows import ArrayRows
    >>> ArrayRows(np.eye(3), None, np.ones(3), task="regression")
    ArrayRows(3 rows of 3 members; regression, no mask)
    """
    rows = "unknown" if stream.n_rows is None else f"{stream.n_rows:,}"
    classes = "" if stream.classes is None else f" of {len(stream.classes)} classes"
    mask = "out-of-bag mask" if stream.has_mask else "no mask"
    return (
        f"{type(stream).__name__}({rows} rows of {stream.n_members:,} members; "
        f"{stream.task}{classes}, {mask})"
    )
