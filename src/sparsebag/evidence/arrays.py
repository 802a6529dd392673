"""Arrays as users hold them, of any library and device, and the row blocks they are read in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from array_api_compat import device, is_cupy_array, is_torch_array, size

Array = Any

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


def detached(values: Array) -> Array:
    """The same values without PyTorch's gradient history; anything else as it is.

    Weights are fitted in closed steps, never differentiated through, and a history would keep
    every block of the evidence alive.

    Parameters
    ----------
    values : object

    Returns
    -------
    object

    Examples
    --------
    >>> detached([1, 2])
    [1, 2]
    """
    return values.detach() if is_torch_array(values) else values


def on_host(values: Array) -> np.ndarray:
    """NumPy's view of an array that may live on a device; bfloat16, which NumPy lacks, as float32.

    Parameters
    ----------
    values : array-like

    Returns
    -------
    ndarray

    Examples
    --------
    >>> on_host([1, 2]).tolist()
    [1, 2]
    """
    if type(values) is np.ndarray:  # nearly all are, and blocks by the thousand
        return values
    values = detached(values)
    if is_torch_array(values):
        values = values.cpu()
        values = values.float() if str(values.dtype) == "torch.bfloat16" else values
    return np.asarray(values.get() if is_cupy_array(values) else values)


def tensors_on_host(values: Array) -> Array:
    """A tensor of PyTorch or CuPy as NumPy's array; anything else, lists and sparse too, as it is.

    Parameters
    ----------
    values : object

    Returns
    -------
    object

    Examples
    --------
    >>> tensors_on_host([1, 2])
    [1, 2]
    """
    return on_host(values) if is_torch_array(values) or is_cupy_array(values) else values


def vote_dtype(dtype: Any) -> np.dtype[Any]:
    """The precision in which votes of NumPy's dtype are held: float64 unless they are less exact.

    Parameters
    ----------
    dtype : dtype
        As stored; whole numbers, which float32 cannot count, are held as float64.

    Returns
    -------
    dtype

    Examples
    --------
    >>> [vote_dtype(kind).name for kind in (np.float16, np.float32, np.int64, bool)]
    ['float32', 'float32', 'float64', 'float64']
    """
    given = np.dtype(dtype)
    native = given.isnative and given.itemsize == 4
    half = given.itemsize == 2
    return np.dtype(np.float32 if given.kind == "f" and (native or half) else np.float64)


def row_blocks(matrix: Any, *, cpu_entries: int | None = None) -> Iterator[slice]:
    """Consecutive row slices of a matrix, sized for its device.

    The size depends on the shape and device alone, never on threads, so sums over blocks are
    the same on every run.

    Parameters
    ----------
    matrix : array of shape (rows, ...)
    cpu_entries : int, optional
        Entries of a block on the CPU, where the usual number does not suit.

    Yields
    ------
    slice

    Examples
    --------
    >>> [b.stop - b.start for b in row_blocks(np.zeros((600, 1024)))]
    [512, 88]
    """
    on_cpu = str(device(matrix)).startswith("cpu")
    entries = cpu_entries or CPU_BLOCK_ENTRIES if on_cpu else ACCELERATOR_BLOCK_ENTRIES
    n_rows = int(matrix.shape[0])
    width = max(1, (size(matrix) or 0) // max(1, n_rows))
    step = _whole_groups(max(1, entries // width))
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


def _whole_groups(n_rows: int) -> int:
    """So many rows or fewer: whole groups, or a power of two that divides one."""
    return n_rows - n_rows % ROW_GROUP if n_rows >= ROW_GROUP else 1 << n_rows.bit_length() - 1
