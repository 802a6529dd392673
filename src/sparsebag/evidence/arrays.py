"""Arrays as users hold them: with a gradient's history, on a device, in a data frame."""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_cupy_array, is_torch_array

Array = Any


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


def is_on_cuda(values: Array) -> bool:
    """Whether an array lives on an NVIDIA device.

    Parameters
    ----------
    values : object

    Returns
    -------
    bool

    Examples
    --------
    >>> is_on_cuda(np.ones(2))
    False
    """
    return bool(is_cupy_array(values) or (is_torch_array(values) and values.is_cuda))


def working_dtype(values: Array) -> Any:
    """The precision products are taken in: the array's own, or float32 where that is half.

    Half precision is a way to store votes, not to add them up.

    Parameters
    ----------
    values : array of floats

    Returns
    -------
    dtype

    Examples
    --------
    >>> working_dtype(np.ones(2, dtype=np.float16)) == np.float32
    True
    """
    xp = array_namespace(values)
    return xp.float32 if xp.finfo(values.dtype).bits == 16 else values.dtype


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
