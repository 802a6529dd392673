"""Gram matrices of row blocks: plain products, or half-precision tensor cores on a CUDA device.

A Gram entry is a mean over thousands of rows, and each operand's rounding to half precision (11
bits, to nearest) is independent from row to row, so it averages out: what is left in the mean is
the rounding divided by the root of the number of rows, below the last digit of a float32 that the
plain product would give. Products are exact there, sums of one block are kept in float32, sums of
blocks in float64. Evidence in float64 is multiplied in float64.
"""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace

from sparsebag.evidence.arrays import is_on_cuda
from sparsebag.evidence.torch_loan import as_torch

Array = Any


def add_gram(total: Array, rows: Array, row_weight: Array, scale: float = 1.0) -> None:
    """Add ``scale · rowsᵀ diag(row_weight) rows`` to a matrix, in place.

    Parameters
    ----------
    total : array of shape (N, N)
        float64.
    rows : array of shape (B, N)
    row_weight : array of shape (B,)
        Of any sign.
    scale : float, default 1

    Examples
    --------
    >>> import numpy as np
    >>> total = np.zeros((2, 2))
    >>> add_gram(total, np.array([[1.0, 2.0], [0.0, 1.0]]), np.array([1.0, 3.0]))
    >>> total.tolist()
    [[1.0, 2.0], [2.0, 7.0]]
    """
    xp = array_namespace(rows)
    if (
        is_on_cuda(rows)
        and rows.dtype == xp.float32
        and _add_on_tensor_cores(as_torch(total), as_torch(rows), as_torch(row_weight), scale)
    ):
        return
    total += scale * xp.astype((row_weight[:, None] * rows).T @ rows, xp.float64)


def _add_on_tensor_cores(total: Any, rows: Any, row_weight: Any, scale: float) -> bool:
    """The same with half-precision operands and float32 sums; False where PyTorch is too old."""
    import torch

    if not hasattr(torch.ops.aten.mm, "dtype"):
        return False
    largest = float(row_weight.abs().max())
    if largest == 0.0:
        return True
    right = rows.to(torch.float16)
    left = right
    # Row weights sum to one over all rows: too small for half precision unless scaled.
    if not bool((row_weight == largest).all()):
        left = right * (row_weight / largest).to(torch.float16)[:, None]
    product = torch.mm(left.T, right, out_dtype=torch.float32)
    total.add_(product, alpha=scale * largest)
    return True
