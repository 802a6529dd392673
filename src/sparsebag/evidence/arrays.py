"""Arrays as users hold them: with a gradient's history, on a device, in a data frame."""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import is_cupy_array, is_torch_array

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
    """NumPy's view of an array that may live on a device.

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
    values = detached(values)
    if is_torch_array(values):
        values = values.cpu()
    return np.asarray(values.get() if is_cupy_array(values) else values)
