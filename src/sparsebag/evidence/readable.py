"""Arrays that cannot be read as they are, each refused in one sentence by the name it goes by."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import scipy.sparse as sp
from array_api_compat import is_torch_array

Array = Any

INSTEAD_OF_MASKED = {
    "predictions": "pass predictions.filled(0), and oob_mask=~numpy.ma.getmaskarray(predictions) "
    "if what it masks is in the bag",
    "oob_mask": "pass oob_mask.filled(0)",
    "X": "pass X.filled(...) with a value for what it masks, such as NaN",
}
"""What to do about a masked array; of others the rows are left out."""
NO_NUMBERS = {
    **dict.fromkeys("UST", "strings"),
    **dict.fromkeys("mM", "times"),
    "c": "complex numbers",
}
"""Kinds of NumPy's dtypes that become floats, or compare with zero, all the same."""


def is_dask(values: Any) -> bool:
    """Whether this is a Dask collection.

    Parameters
    ----------
    values : object

    Returns
    -------
    bool

    Examples
    --------
    >>> is_dask(np.ones(2))
    False
    """
    return type(values).__module__.split(".")[0] in ("dask", "dask_expr")


def check_readable(values: Array, name: str) -> None:
    """One sentence for an array that has no value for every entry to be read.

    These are masked arrays of NumPy, whose arithmetic leaves entries out and whose conversion
    brings back what is under the mask, and tensors of PyTorch that are sparse or on no device.

    Parameters
    ----------
    values : object
        Anything else passes.
    name : str
        What the caller knows it by.

    Examples
    --------
    >>> check_readable([1, 2], "y")
    >>> check_readable(np.ma.masked_array([1, 2], [False, True]), "y")
    Traceback (most recent call last):
    ...
    ValueError: y is a masked array of NumPy; leave out the rows it masks, and pass y.data of ...
    """
    if isinstance(values, np.ma.MaskedArray):
        rows = f"leave out the rows it masks, and pass {name}.data of the others"
        raise ValueError(f"{name} is a masked array of NumPy; {INSTEAD_OF_MASKED.get(name, rows)}.")
    if is_torch_array(values) and str(values.layout) != "torch.strided":
        raise ValueError(f"{name} is a sparse tensor of PyTorch; pass {name}.to_dense().")


def check_dense(values: Array, name: str) -> None:
    """One sentence for a sparse matrix of SciPy.

    Parameters
    ----------
    values : object
    name : str

    Examples
    --------
    >>> check_dense(np.eye(2), "predictions")
    """
    if sp.issparse(values):
        raise ValueError(f"{name} is a SciPy sparse matrix; pass {name}.toarray().")


def check_no_path(values: Any, name: str) -> None:
    """One sentence for a path where rows or targets are wanted.

    Parameters
    ----------
    values : object
    name : str

    Examples
    --------
    >>> check_no_path("X.npy", "X")
    Traceback (most recent call last):
    ...
    ValueError: X is a path; pass numpy.load(path, mmap_mode='r') of an .npy file.
    """
    if isinstance(values, (str, os.PathLike)):
        raise ValueError(f"{name} is a path; pass numpy.load(path, mmap_mode='r') of an .npy file.")


def check_given(predictions: Any) -> None:
    """One sentence where predictions were left out, or who makes them was given in their place.

    Parameters
    ----------
    predictions : object

    Examples
    --------
    >>> check_given(np.eye(2))
    """
    if predictions is None:
        raise ValueError("predictions are missing; pass what the members predict.")
    # An ensemble of scikit-learn has a length, and NumPy would make an array of its members.
    one = predictions[0] if isinstance(predictions, list) and predictions else predictions
    if hasattr(type(one), "predict"):  # of the type: Dask's delayed objects have every attribute
        what = "a list of models" if one is not predictions else f"a {type(one).__name__}"
        raise TypeError(
            f"predictions is {what}, not what members predict; call "
            "sparsebag.compress(ensemble, X, y)."
        )


def what_are_no_numbers(values: Array) -> str:
    """What an array holds that would become real numbers without a word; "" where nothing.

    Parameters
    ----------
    values : array or array-like

    Returns
    -------
    str

    Examples
    --------
    >>> what_are_no_numbers(np.array(["0.5"])), what_are_no_numbers(np.eye(2))
    ('strings', '')
    """
    if is_torch_array(values):
        return "complex numbers" if values.is_complex() else ""
    values = values if hasattr(values, "dtype") else np.asarray(values)
    kind = getattr(values.dtype, "kind", "")
    if kind == "O" and any(isinstance(value, (str, bytes)) for value in np.asarray(values).flat):
        return "strings"
    return NO_NUMBERS.get(kind, "")
