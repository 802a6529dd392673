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


@triton.jit
def _add_pairs(n, d, more_n, more_d):
    return n + more_n, d + more_d


@triton.jit(do_not_specialize=["n_rows", "rows_each"])
def one_read_kernel(
    votes,
    mask,
    weights,
    uniform_vote,
    target,
    row_weight,
    on_votes,
    on_mask,
    sums,
    n_rows,
    n_members,
    rows_each,
    votes_stride,
    mask_stride,
    prior_mass,
    least_denominator,
    least_vote,
    kept_share,
    floor,
    multiplicity,
    IS_LOG_LOSS: tl.constexpr,
    LEFT: tl.constexpr,
    RIGHT: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Vote, slope and share of the gradient of one row after the other, each read once.

    A row stays in registers between its two products while the next ones are on their way to
    shared memory. It is held in two parts, since a part's length must be a power of two.
    """
    group = tl.program_id(0).to(tl.int64)
    first = group * rows_each
    last = tl.minimum(first + rows_each, n_rows)
    left = tl.arange(0, LEFT)
    right = LEFT + tl.arange(0, RIGHT)
    w_left = tl.load(weights + left, mask=left < n_members, other=0.0)
    w_right = tl.load(weights + right, mask=right < n_members, other=0.0)
    total_left = tl.zeros((LEFT,), tl.float32)
    total_right = tl.zeros((RIGHT,), tl.float32)
    for row in tl.range(first, last, 1, num_stages=STAGES):
        uniform = tl.load(uniform_vote + row)  # before the sums: loads do not pass their barriers
        weight = kept_share * multiplicity * tl.load(row_weight + row)
        wanted = tl.load(target + row)
        v_left, m_left = _tile(
            votes, mask, row, left, left < n_members, votes_stride, mask_stride, True
        )
        v_right, m_right = _tile(
            votes, mask, row, right, right < n_members, votes_stride, mask_stride, True
        )
        # Both sums of a part at once: every reduction is a wait for all warps.
        n, d = tl.reduce((v_left * w_left, m_left * w_left), 0, _add_pairs)
        n_right, d_right = tl.reduce((v_right * w_right, m_right * w_right), 0, _add_pairs)
        n += n_right
        d += d_right
        tl.store(on_votes + row, n)
        tl.store(on_mask + row, d)
        if IS_LOG_LOSS:
            uniform, weight = uniform.to(tl.float32), weight.to(tl.float32)
        else:  # a target may be large beside what is left of it
            n, d = n.to(tl.float64), d.to(tl.float64)
        share = 1.0 / (d + prior_mass + least_denominator)
        q = tl.maximum((n + prior_mass * uniform) * share, least_vote)
        p = kept_share * q + floor
        slope = -1.0 / p if IS_LOG_LOSS else 2.0 * (p - wanted)
        a = weight * slope * share
        b = (-a * q).to(tl.float32)
        a = a.to(tl.float32)
        total_left += v_left * a + m_left * b
        total_right += v_right * a + m_right * b
    tl.store(sums + group * n_members + left, total_left, mask=left < n_members)
    tl.store(sums + group * n_members + right, total_right, mask=right < n_members)
