"""The products an evaluation is made of: votes and mask of a row block with vectors.

`ArrayPasses` is written once for every array library; `NativePasses` is the compiled shortcut for
the common case, one NumPy matrix with a byte mask.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device, is_numpy_array
from joblib import cpu_count

from sparsebag.evidence.arrays import ROW_GROUP
from sparsebag.evidence.evidence import Channels, OOBEvidence, zero_in_bag
from sparsebag.objective import _passes

Array = Any

SUMMED_ROWS = 16
"""Rows that `ArrayPasses` adds up in single precision; it divides `ROW_GROUP`. Libraries add them
one after another, where the compiled products keep several sums: as many as there would cost the
weights' sixth digit."""


class ArrayPasses:
    """Products in any array namespace, channels and sparse votes included.

    Parameters
    ----------
    votes : tuple of K matrices of shape (B, N)
    mask : array of shape (B, N) or None
        None: every member votes on every row.
    xp : array namespace
    dtype : dtype
        Precision the products are taken in.
    """

    def __init__(self, votes: tuple[Array, ...], mask: Array | None, xp: Any, dtype: Any) -> None:
        self._votes = votes
        self._mask = mask
        self._xp = xp
        self._dtype = dtype
        self._numbers: Array | None = None

    def forward(self, weights: Array) -> tuple[Array, Array]:
        """Weighted votes (K, B) and weighted mask (B,), in float64."""
        xp = self._xp
        cast = xp.astype(weights, self._dtype)
        n = xp.astype(xp.stack([votes @ cast for votes in self._votes]), xp.float64)
        if self._mask is None:
            return n, xp.zeros_like(n[0, :]) + xp.sum(weights)
        # As numbers for the transposed product too: a GPU takes as long for them as for a product.
        self._numbers = xp.astype(self._mask, self._dtype)
        return n, xp.astype(self._numbers @ cast, xp.float64)

    def transposed(self, on_votes: Array, on_mask: Array) -> Array:
        """``Σ_k V_kᵀ on_votes_k + Iᵀ on_mask``, shape (N,), in float64."""
        xp = self._xp
        left, right = xp.astype(on_votes, self._dtype), xp.astype(on_mask, self._dtype)
        planes = [
            # A sparse product takes float64 as fast, and has no groups of rows to be cut into.
            (votes, on_votes[k, :] if hasattr(votes, "toarray") else left[k, :])
            for k, votes in enumerate(self._votes)
        ]
        if self._mask is not None:
            mask, self._numbers = self._numbers, None
            planes.append((xp.astype(self._mask, self._dtype) if mask is None else mask, right))
        total = sum(self._columns_sum(matrix, rows) for matrix, rows in planes)
        return total + xp.sum(on_mask) if self._mask is None else total

    def _columns_sum(self, matrix: Array, rows: Array) -> Array:
        """``matrixᵀ rows`` in float64, long sums of float32 by a few rows at a time.

        Devices add up in a tree of their own, which loses less and would suffer from the cut.
        """
        xp, n_rows = self._xp, int(rows.shape[0])
        n_grouped = n_rows - n_rows % SUMMED_ROWS
        plain = not hasattr(matrix, "toarray") and str(device(rows)).startswith("cpu")
        if not plain or self._dtype == xp.float64 or n_grouped <= SUMMED_ROWS:
            return xp.astype(matrix.T @ rows, xp.float64)
        groups = xp.reshape(matrix[:n_grouped, :], (-1, SUMMED_ROWS, matrix.shape[1]))
        sums = xp.reshape(rows[:n_grouped], (-1, 1, SUMMED_ROWS)) @ groups
        total = xp.sum(sums, axis=(0, 1), dtype=xp.float64)
        return total + xp.astype(matrix[n_grouped:, :].T @ rows[n_grouped:], xp.float64)


class NativePasses:
    """Compiled products of one C-contiguous NumPy matrix with a byte mask.

    Parameters
    ----------
    votes : ndarray of shape (B, N), float32 or float64
    mask : ndarray of shape (B, N), bool or uint8
    """

    def __init__(self, votes: np.ndarray, mask: np.ndarray) -> None:
        self._votes = votes
        self._mask = mask.view(np.uint8)
        if self._mask.max(initial=0) > 1:  # true in other libraries' booleans may be any byte
            self._mask = (self._mask != 0).view(np.uint8)
        self._dtype = votes.dtype

    def forward(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Weighted votes (1, B) and weighted mask (B,), in float64."""
        n, d = np.empty((2, len(self._votes)))
        cast = weights.astype(self._dtype)
        _passes.forward(self._votes, self._mask, cast, n, d)
        return n[None, :], d

    def transposed(self, on_votes: np.ndarray, on_mask: np.ndarray) -> np.ndarray:
        """``Vᵀ on_votes + Iᵀ on_mask``, shape (N,), in float64."""
        left, right = on_votes[0].astype(self._dtype), on_mask.astype(self._dtype)
        # Over thousands of rows float32 would lose three digits, and with them the weights' sixth.
        group = ROW_GROUP if self._dtype == np.float32 else max(len(left), 1)
        total = np.zeros(self._votes.shape[1])
        for start in range(0, len(left), group):
            rows = slice(start, start + group)
            sums = np.zeros(len(total), dtype=self._dtype)
            _passes.transposed(self._votes[rows], self._mask[rows], left[rows], right[rows], sums)
            total += sums
        return total


Passes = ArrayPasses | NativePasses
"""Products of one block of B rows, N members and K channels."""


def passes_of(
    evidence: OOBEvidence, channels: Channels, rows: slice
) -> tuple[tuple[Array, ...], Array | None, Passes]:
    """A row block of every channel, zero where the rows were in the bag, and its products.

    Compiled ones where they apply.

    Parameters
    ----------
    evidence : OOBEvidence
    channels : Channels
        The votes the loss reads.
    rows : slice

    Returns
    -------
    votes : tuple of K matrices
    mask : array or None
    passes : Passes
    """
    votes = tuple(v[rows, :] for v in channels.votes)
    mask = evidence.oob_mask
    mask = None if mask is None else mask[rows, :]
    if not evidence.is_zeroed:
        votes = tuple(zero_in_bag(v, mask) for v in votes)
    one, dtype = votes[0], evidence.votes.dtype
    plain = (
        mask is not None
        and len(votes) == 1
        and is_numpy_array(one)
        and one.dtype in (np.float32, np.float64)
        and mask.dtype in (np.bool_, np.uint8)
        and one.flags.c_contiguous
        and mask.flags.c_contiguous
    )
    if plain and mask is not None:
        return votes, mask, NativePasses(one, mask)
    return votes, mask, ArrayPasses(votes, mask, array_namespace(evidence.votes), dtype)


def pass_threads() -> int:
    """Threads a compiled pass takes: those of ``OMP_NUM_THREADS``, or every processor.

    Passes are bound by memory, which one thread of most machines cannot keep busy. Workers of
    joblib and Dask have the variable set, since they share the machine. The sums have the same bits
    whatever the number.

    Returns
    -------
    int
    """
    asked = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if asked.isdecimal() and 0 < int(asked) < 10**6:
        return int(asked)
    return int(_processors())


_processors = lru_cache(maxsize=1)(cpu_count)
