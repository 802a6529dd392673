"""CUDA kernels of the evidence's products, in Triton. Imported only where a CUDA array is met.

Each reads votes and mask side by side, zeroes the votes of rows in the bag itself, multiplies in
float32 whatever the votes are stored in, and keeps one running sum a lane, so that no float32 sum
is longer than the rows (or column tiles) one program sees. What programs found is added up in
float64 by the caller.

Votes are addressed by 64-bit row offsets: an evidence of 10¹⁰ entries is the reason to be here.
"""

import triton
import triton.language as tl


@triton.jit
def _tile(votes, mask, rows, columns, here, votes_stride, mask_stride, HAS_MASK: tl.constexpr):
    """Votes of a tile in float32, zero where in the bag, and the mask as float32."""
    v = tl.load(votes + rows * votes_stride + columns, mask=here, other=0.0).to(tl.float32)
    if HAS_MASK:
        m = tl.load(mask + rows * mask_stride + columns, mask=here, other=0) != 0
        v = tl.where(m, v, 0.0)
    else:
        m = here
    return v, m.to(tl.float32)


@triton.jit(do_not_specialize=["n_rows"])
def forward_kernel(
    votes,
    mask,
    weights,
    on_votes,
    on_mask,
    n_rows,
    n_members,
    votes_stride,
    mask_stride,
    HAS_MASK: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """``on_votes_i = Σ_j w_j V_ij`` and ``on_mask_i = Σ_j w_j I_ij``; one program a few rows."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = rows < n_rows
    n = tl.zeros((ROWS, COLUMNS), tl.float32)
    d = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in tl.range(0, n_members, COLUMNS):
        columns = start + tl.arange(0, COLUMNS)
        here = inside[:, None] & (columns < n_members)[None, :]
        w = tl.load(weights + columns, mask=columns < n_members, other=0.0)[None, :]
        v, m = _tile(
            votes, mask, rows[:, None], columns[None, :], here, votes_stride, mask_stride, HAS_MASK
        )
        n += v * w
        d += m * w
    tl.store(on_votes + rows, tl.sum(n, axis=1), mask=inside)
    tl.store(on_mask + rows, tl.sum(d, axis=1), mask=inside)


@triton.jit(do_not_specialize=["n_rows", "rows_each"])
def transposed_kernel(
    votes,
    mask,
    on_votes,
    on_mask,
    sums,
    n_rows,
    n_members,
    rows_each,
    votes_stride,
    mask_stride,
    HAS_MASK: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """``Σ_i V_ij a_i + I_ij b_i`` over some rows; ``sums`` has one line a group of rows."""
    tiles = tl.cdiv(n_members, COLUMNS)  # neighbours in time are neighbours in memory
    columns = (tl.program_id(0) % tiles) * COLUMNS + tl.arange(0, COLUMNS)
    group = (tl.program_id(0) // tiles).to(tl.int64)
    first = group * rows_each
    last = tl.minimum(first + rows_each, n_rows)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in tl.range(first, last, ROWS):
        rows = start + tl.arange(0, ROWS)
        inside = rows < last
        here = inside[:, None] & (columns < n_members)[None, :]
        a = tl.load(on_votes + rows, mask=inside, other=0.0)[:, None]
        b = tl.load(on_mask + rows, mask=inside, other=0.0)[:, None]
        v, m = _tile(
            votes, mask, rows[:, None], columns[None, :], here, votes_stride, mask_stride, HAS_MASK
        )
        total += v * a + m * b
    line = sums + group * n_members + columns
    tl.store(line, tl.sum(total, axis=0), mask=columns < n_members)
