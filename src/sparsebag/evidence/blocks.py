"""Row blocks: how many rows of an evidence matrix one step touches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from array_api_compat import device, size

CPU_BLOCK_ENTRIES = 1 << 19
"""2 MiB of float32: a block's second use (the gradient) finds it in the cache."""
CPU_CHECKED_ENTRIES = 1 << 16
"""Of a block that is only looked at: what is made of it, a byte an entry, is too small for the
system to take back and hand out page by page again, as it does with more in Dask's workers."""
ACCELERATOR_BLOCK_ENTRIES = 1 << 28
"""1 GiB of float32: large enough that kernel launches do not count."""
ROW_GROUP = 256
"""Rows that are added up in the votes' own precision; longer sums are doubles. Blocks hold whole
groups, or a group whole blocks, so that sums do not depend on how rows are cut into blocks."""


def row_blocks(
    matrix: Any,
    n_rows: int | None = None,
    *,
    entries: int | None = None,
    cpu_entries: int | None = None,
) -> Iterator[slice]:
    """Consecutive row slices of a matrix, sized for its device.

    The size depends on the shape and device alone, never on threads, so sums over blocks are
    the same on every run.

    Parameters
    ----------
    matrix : array of shape (rows, ...)
    n_rows : int, optional
        How many rows to cut, where it is a selection of the matrix's; default: all of them.
    entries : int, optional
        Entries of a block, where its device's usual number does not suit.
    cpu_entries : int, optional
        The usual number on the CPU.

    Yields
    ------
    slice

    Examples
    --------
    >>> import numpy as np
    >>> [b.stop - b.start for b in row_blocks(np.zeros((600, 1024)))]
    [512, 88]
    """
    on_cpu = str(device(matrix)).startswith("cpu")
    entries = entries or (cpu_entries or CPU_BLOCK_ENTRIES if on_cpu else ACCELERATOR_BLOCK_ENTRIES)
    all_rows = int(matrix.shape[0])
    width = max(1, (size(matrix) or 0) // max(1, all_rows))
    step = _whole_groups(max(1, entries // width))
    n_rows = all_rows if n_rows is None else n_rows
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


def _whole_groups(n_rows: int) -> int:
    """So many rows or fewer: whole groups, or a power of two that divides one."""
    return n_rows - n_rows % ROW_GROUP if n_rows >= ROW_GROUP else 1 << n_rows.bit_length() - 1
