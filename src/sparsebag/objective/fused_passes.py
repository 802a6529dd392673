"""Products on a CUDA device: votes and mask in one read, in the precision they are stored in.

`ArrayPasses` on a GPU turns the byte mask into floats at every product and reads everything
several times. `FusedPasses` calls the kernels of `triton_kernels`; Triton comes with PyTorch on
Linux. CuPy arrays are lent to it without a copy (DLPack). Where Triton or PyTorch is missing,
`ArrayPasses` does the same work, slower.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from array_api_compat import is_cupy_array, is_torch_array

from sparsebag.evidence.arrays import is_on_cuda

Array = Any

FORWARD_TILE = (4, 512)
TRANSPOSED_TILE = (4, 512)
"""Rows and members of a tile: 16 entries a thread, enough loads in flight to fill the memory's
pipeline and few enough registers for many programs on a multiprocessor."""
WARPS = 4
GROUPS_OF_ROWS = 64
"""Parts the rows are cut in for the transposed product: with the column tiles, more programs than
a large card can hold at a time."""
ONE_READ_ENTRIES = 1 << 14
"""Entries of a tile of whole rows; with their weights and sums they fill the registers of one
multiprocessor. More members than this need two reads."""
ONE_READ_WARPS = 16
ONE_READ_STAGES = 3
"""Tiles on their way at a time."""


@dataclass(frozen=True)
class RowTerms:
    """What turns a row's weighted vote into the loss's slope; see `SimplexObjective`.

    Attributes
    ----------
    loss : {"log", "square"}
    uniform_vote, target, row_weight : array of shape (B,)
    prior_mass, least_denominator, least_vote, kept_share, floor, scale : float
        τ, what guards the division, the loss's clip, 1-ε, ε/C, and the factor of the slope.
    """

    loss: str
    uniform_vote: Array
    target: Array
    row_weight: Array
    prior_mass: float
    least_denominator: float
    least_vote: float
    kept_share: float
    floor: float
    scale: float


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
        self._lent = _lender(votes[0])
        self._votes = tuple(self._lent.to_torch(v) for v in votes)
        self._mask = None if mask is None else self._lent.bytes_to_torch(mask)

    @property
    def reads_once(self) -> bool:
        """Whether a row fits a tile, so that `vote_and_gradient` may be called."""
        return len(self._votes) == 1 and self._votes[0].shape[1] <= ONE_READ_ENTRIES

    def forward(self, weights: Array) -> tuple[Array, Array]:
        """Weighted votes (K, B) and weighted mask (B,), in float64."""
        import torch

        w = self._single(weights)
        n_rows, n_members = self._votes[0].shape
        found = torch.empty((len(self._votes) + 1, n_rows), dtype=torch.float32, device=w.device)
        rows, columns = FORWARD_TILE
        with _current(w.device):
            for k, votes in enumerate(self._votes):
                _kernels().forward_kernel[(-(-n_rows // rows),)](
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
                    num_warps=WARPS,
                )
        found = found.to(torch.float64)
        if self._mask is None:
            found[-1] = self._lent.to_torch(weights).sum()
        return self._lent.back(found[:-1]), self._lent.back(found[-1])

    def transposed(self, on_votes: Array, on_mask: Array) -> Array:
        """``Σ_k V_kᵀ on_votes_k + Iᵀ on_mask``, shape (N,), in float64."""
        import torch

        a, b = self._single(on_votes), self._single(on_mask)
        n_rows, n_members = self._votes[0].shape
        rows, columns = TRANSPOSED_TILE
        rows_each = rows * -(-n_rows // (rows * GROUPS_OF_ROWS))
        groups = -(-n_rows // rows_each)
        shape = (len(self._votes), groups, n_members)
        sums = torch.empty(shape, dtype=torch.float32, device=a.device)
        nothing = torch.zeros_like(b)
        with _current(a.device):
            for k, votes in enumerate(self._votes):
                _kernels().transposed_kernel[(-(-n_members // columns), groups)](
                    votes,
                    self._mask_or(votes),
                    a[k],
                    b if k == 0 else nothing,  # the mask's part counts once
                    sums[k],
                    n_rows,
                    n_members,
                    rows_each,
                    *self._strides(votes),
                    HAS_MASK=self._mask is not None,
                    ROWS=rows,
                    COLUMNS=columns,
                    num_warps=WARPS,
                )
        return self._lent.back(sums.sum(dim=(0, 1), dtype=torch.float64))

    def vote_and_gradient(self, weights: Array, terms: RowTerms) -> tuple[Array, Array, Array]:
        """Weighted votes (1, B), weighted mask (B,) and the loss's gradient (N,), in one read."""
        import torch

        w, votes = self._single(weights), self._votes[0]
        n_rows, n_members = votes.shape
        columns = max(16, 1 << (n_members - 1).bit_length())
        rows = max(1, ONE_READ_ENTRIES // columns)
        n_programs = min(_multiprocessors(w.device), -(-n_rows // rows))
        found = torch.empty((2, n_rows), dtype=torch.float32, device=w.device)
        sums = torch.empty((n_programs, n_members), dtype=torch.float32, device=w.device)
        per_row = (terms.uniform_vote, terms.target, terms.row_weight)
        with _current(w.device):
            _kernels().one_read_kernel[(n_programs,)](
                votes,
                self._mask_or(votes),
                w,
                *(self._lent.to_torch(values).contiguous() for values in per_row),
                found[0],
                found[1],
                sums,
                n_rows,
                n_members,
                *self._strides(votes),
                terms.prior_mass,
                terms.least_denominator,
                terms.least_vote,
                terms.kept_share,
                terms.floor,
                terms.scale,
                LOG=terms.loss == "log",
                HAS_MASK=self._mask is not None,
                ROWS=rows,
                COLUMNS=columns,
                STAGES=ONE_READ_STAGES,
                num_warps=ONE_READ_WARPS,
            )
        found = found.to(torch.float64)
        gradient = sums.sum(dim=0, dtype=torch.float64)
        return self._lent.back(found[:1]), self._lent.back(found[1]), self._lent.back(gradient)

    def _single(self, values: Array) -> Any:
        return self._lent.to_torch(values).float().contiguous()

    def _mask_or(self, votes: Any) -> Any:
        """The mask, or any pointer that is never read."""
        return votes if self._mask is None else self._mask

    def _strides(self, votes: Any) -> tuple[int, int]:
        return votes.stride(0), 0 if self._mask is None else self._mask.stride(0)


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


@cache
def _kernels() -> Any:
    from sparsebag.objective import triton_kernels

    return triton_kernels


@cache
def _multiprocessors(device: Any) -> int:
    import torch

    if device.type != "cuda":  # Triton's interpreter, in tests
        return 2
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def _current(device: Any) -> Any:
    """Kernels start on the current device, which need not be the arrays'."""
    import torch

    return torch.cuda.device(device if device.type == "cuda" else -1)


class _Torch:
    """PyTorch tensors, as they are."""

    @staticmethod
    def to_torch(values: Array) -> Any:
        return values

    @staticmethod
    def bytes_to_torch(mask: Array) -> Any:
        import torch

        return mask.view(torch.uint8)

    @staticmethod
    def back(values: Any) -> Array:
        return values


class _CuPy:
    """CuPy arrays, lent to PyTorch and back without a copy."""

    @staticmethod
    def to_torch(values: Array) -> Any:
        import torch

        return torch.from_dlpack(values)

    @staticmethod
    def bytes_to_torch(mask: Array) -> Any:
        import torch

        return torch.from_dlpack(mask.view("uint8"))

    @staticmethod
    def back(values: Any) -> Array:
        import cupy

        return cupy.from_dlpack(values)


def _lender(like: Array) -> Any:
    return _CuPy if is_cupy_array(like) else _Torch
