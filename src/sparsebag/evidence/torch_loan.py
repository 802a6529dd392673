"""CuPy arrays lent to PyTorch and back, without a copy: one set of CUDA code serves both."""

from __future__ import annotations

from typing import Any

from array_api_compat import is_cupy_array

Array = Any


def as_torch(values: Array) -> Any:
    """A tensor over the same device memory; PyTorch's own are returned as they are.

    Parameters
    ----------
    values : CuPy array or PyTorch tensor

    Returns
    -------
    torch.Tensor
    """
    if not is_cupy_array(values):
        return values
    import torch

    return torch.from_dlpack(values)


def bytes_as_torch(mask: Array) -> Any:
    """Booleans as a tensor of bytes over the same memory.

    Parameters
    ----------
    mask : CuPy array or PyTorch tensor
        Booleans or bytes.

    Returns
    -------
    torch.Tensor
    """
    import torch

    # Not every CuPy can lend booleans, so they go as bytes.
    return mask.view(torch.uint8) if not is_cupy_array(mask) else as_torch(mask.view("uint8"))


def returned(values: Any, like: Array) -> Array:
    """A tensor as an array of the library of ``like``, over the same memory.

    Parameters
    ----------
    values : torch.Tensor
    like : CuPy array or PyTorch tensor

    Returns
    -------
    array
    """
    if not is_cupy_array(like):
        return values
    import cupy

    return cupy.from_dlpack(values)
