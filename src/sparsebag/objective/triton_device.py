"""Whether Triton's kernels can be had for some arrays, and where they run."""

from __future__ import annotations

from functools import cache
from typing import Any

from array_api_compat import is_torch_array

from sparsebag.evidence.arrays import is_on_cuda

Array = Any


def can_fuse(votes: tuple[Array, ...], mask: Array | None) -> bool:
    """Whether the kernels can read these arrays, and Triton is there to run them.

    Parameters
    ----------
    votes : tuple of matrices
    mask : array or None

    Returns
    -------
    bool

    Examples
    --------
    >>> import numpy as np
    >>> can_fuse((np.ones((2, 2)),), None)
    False
    """
    if not all(is_on_cuda(v) and _is_readable(v, 2, 4) for v in votes):
        return False
    return (mask is None or _is_readable(mask, 1, 1)) and _triton_is_there()


def kernels() -> Any:
    """The module of kernels; importing it imports Triton.

    Returns
    -------
    module
    """
    from sparsebag.objective import triton_kernels

    return triton_kernels


def on_device_of(tensor: Any) -> Any:
    """A context in which kernels start on the tensor's device, which need not be the current one.

    Parameters
    ----------
    tensor : torch.Tensor

    Returns
    -------
    context manager
    """
    import torch

    return torch.cuda.device(tensor.device if tensor.device.type == "cuda" else -1)


def _is_readable(matrix: Array, least_bytes: int, most_bytes: int) -> bool:
    """Whether rows are contiguous and entries of a size the kernels read."""
    if len(matrix.shape) != 2 or not least_bytes <= int(matrix.dtype.itemsize) <= most_bytes:
        return False
    step = matrix.stride(1) if is_torch_array(matrix) else matrix.strides[1] // matrix.itemsize
    return bool(step == 1 or matrix.shape[1] == 1)


@cache
def _triton_is_there() -> bool:
    try:
        import torch
        import triton  # noqa: F401
    except ImportError:
        return False
    return bool(torch.cuda.is_available())
