"""Products on a CUDA device: votes and mask in one read, in the precision they are stored in.

`ArrayPasses` on a GPU turns the byte mask into floats at every product and reads everything
several times. `FusedPasses` calls the kernels of `triton_kernels`; Triton comes with PyTorch on
Linux. CuPy arrays are lent to it without a copy (DLPack). Where Triton or PyTorch is missing,
`ArrayPasses` does the same work, slower.
"""

from __future__ import annotations

from typing import Any

from sparsebag.evidence.torch_loan import as_torch, bytes_as_torch, returned
from sparsebag.objective.triton_device import kernels, on_device_of

Array = Any

FORWARD_TILE, FORWARD_WARPS = (1, 1024), 8
TRANSPOSED_TILE, TRANSPOSED_WARPS = (4, 1024), 4
"""Rows and members of a tile, and the warps at it: the fastest of those tried on an H200."""
ROWS_EACH = 512
"""Rows one program of the transposed product adds up: few enough for float32, and for more programs
than a large card can hold at a time."""


class FusedPasses:
    """Products of one row block on a CUDA device.

    Parameters
    ----------
    votes : tuple of K matrices of shape (B, N)
        float16, bfloat16 or float32, rows contiguous; anything where a row was in the bag.
    mask : array of shape (B, N) or None
        Booleans or bytes.
    """

    def __init__(self, votes: tuple[Array, ...], mask: Array | None) -> None:
        self._like = votes[0]
        self._votes = tuple(as_torch(v) for v in votes)
        self._mask = None if mask is None else bytes_as_torch(mask)

    def forward(self, weights: Array) -> tuple[Array, Array]:
        """Weighted votes (K, B) and weighted mask (B,), in float64."""
        import torch

        w = self._single(weights)
        n_rows, n_members = self._votes[0].shape
        found = torch.empty((len(self._votes) + 1, n_rows), dtype=torch.float32, device=w.device)
        rows, columns = FORWARD_TILE
        with on_device_of(w):
            for k, votes in enumerate(self._votes):
                kernels().forward_kernel[(-(-n_rows // rows),)](
                    votes,
                    self._mask_or(votes),
                    w,
                    found[k],
                    found[-1],
                    n_rows,
                    n_members,
                    *self._strides(votes),
                    HAS_MASK=self._mask is not None,
                    ROWS=rows,
                    COLUMNS=columns,
                    num_warps=FORWARD_WARPS,
                )
        found = found.to(torch.float64)
        if self._mask is None:
            found[-1] = as_torch(weights).sum()
        return self._back(found[:-1]), self._back(found[-1])

    def transposed(self, on_votes: Array, on_mask: Array) -> Array:
        """``Σ_k V_kᵀ on_votes_k + Iᵀ on_mask``, shape (N,), in float64."""
        import torch

        a, b = self._single(on_votes), self._single(on_mask)
        n_rows, n_members = self._votes[0].shape
        rows, columns = TRANSPOSED_TILE
        groups = -(-n_rows // ROWS_EACH)
        shape = (len(self._votes), groups, n_members)
        sums = torch.empty(shape, dtype=torch.float32, device=a.device)
        nothing = torch.zeros_like(b)
        with on_device_of(a):
            for k, votes in enumerate(self._votes):
                kernels().transposed_kernel[(-(-n_members // columns) * groups,)](
                    votes,
                    self._mask_or(votes),
                    a[k],
                    b if k == 0 else nothing,  # the mask's part counts once
                    sums[k],
                    n_rows,
                    n_members,
                    ROWS_EACH,
                    *self._strides(votes),
                    HAS_MASK=self._mask is not None,
                    ROWS=rows,
                    COLUMNS=columns,
                    num_warps=TRANSPOSED_WARPS,
                )
        return self._back(sums.sum(dim=(0, 1), dtype=torch.float64))

    def _single(self, values: Array) -> Any:
        return as_torch(values).float().contiguous()

    def _back(self, values: Any) -> Array:
        return returned(values, self._like)

    def _mask_or(self, votes: Any) -> Any:
        """The mask, or any pointer that is never read."""
        return votes if self._mask is None else self._mask

    def _strides(self, votes: Any) -> tuple[int, int]:
        return votes.stride(0), 0 if self._mask is None else self._mask.stride(0)
