// Votes of a few rows and their share of the gradient, LANES members at a time.
//
// Included once for each set of instructions: KERNEL names it, TARGET is the attribute of its
// functions, LANES the members a register holds, and WIDENED makes integers of as many bytes. A mask's
// bytes keep or clear a number's bits: whatever is set in the byte, and whatever a vote in the bag
// holds, NaN included. KEPT does that in one instruction, where there is one.

namespace KERNEL {

#define FAST TARGET INLINE static

#if LANES > 1
typedef float F __attribute__((vector_size(4 * LANES)));
typedef std::int32_t I __attribute__((vector_size(4 * LANES)));
typedef float Four __attribute__((vector_size(16)));
typedef std::int32_t Places __attribute__((vector_size(16)));

FAST I is_in(const std::uint8_t *m) { return (I)WIDENED(m); }

// The last n lanes.
FAST I last_lanes(std::size_t n) {
    I lane;
    for (int l = 0; l < LANES; ++l) lane[l] = l;
    return (lane >= LANES - static_cast<std::int32_t>(n)) & 1;
}

FAST Four folded(const F &x) {
    Four parts[LANES / 4];
    std::memcpy(parts, &x, sizeof parts);
    for (std::size_t half = LANES / 8; half > 0; half /= 2)
        for (std::size_t i = 0; i < half; ++i) parts[i] += parts[i + half];
    return parts[0];
}

// The sums of R registers' lanes, of four at a time: those of a short row alone take as long as
// reading it.
template <std::size_t R>
FAST void add_up(const F *x, double *to) {
    const Four a = folded(x[0]);
    if constexpr (R == 4) {
        const Four b = folded(x[1]), c = folded(x[2]), d = folded(x[3]);
        const Four ab = SHUFFLED(a, b, 0, 4, 2, 6) + SHUFFLED(a, b, 1, 5, 3, 7);
        const Four cd = SHUFFLED(c, d, 0, 4, 2, 6) + SHUFFLED(c, d, 1, 5, 3, 7);
        const Four all = SHUFFLED(ab, cd, 0, 1, 4, 5) + SHUFFLED(ab, cd, 2, 3, 6, 7);
        for (int r = 0; r < 4; ++r) to[r] = static_cast<double>(all[r]);
    } else {
        *to = static_cast<double>((a[0] + a[1]) + (a[2] + a[3]));
    }
}
#else
using F = float;
using I = std::int32_t;

FAST I is_in(const std::uint8_t *m) { return *m; }
FAST I last_lanes(std::size_t) { return 1; }
template <std::size_t R>
FAST void add_up(const F *x, double *to) {
    for (std::size_t r = 0; r < R; ++r) to[r] = static_cast<double>(x[r]);
}
#endif

FAST F loaded(const float *x) {
    F out;
    std::memcpy(&out, x, sizeof out);
    return out;
}

// x where a lane of `in` is not zero, else zero.
FAST F kept(F x, I in) {
#if defined(KEPT)
    return (F)KEPT(x, in);
#elif LANES > 1
    return (F)((I)x & (in != 0));
#else
    return in ? x : 0.0f;
#endif
}

// Adds R rows' votes of these members, times the weights, and the weights of who votes. `lanes` are
// the members that count, where not all do.
template <std::size_t R, InBag IN_BAG>
FAST void add_votes(const float *v, const std::uint8_t *m, const float *w, std::size_t c,
                    const I *lanes, F *votes, F *weights) {
    F weight = loaded(w);
    if (lanes) weight = kept(weight, *lanes);
    for (std::size_t r = 0; r < R; ++r) {
        F vote = loaded(v + r * c);
        if (lanes) vote = kept(vote, *lanes);
        if constexpr (IN_BAG != InBag::NOBODY) {
            const I in = is_in(m + r * c);
            if constexpr (IN_BAG == InBag::ANYTHING) vote = kept(vote, in);
            weights[r] += kept(weight, in);
        }
        votes[r] += vote * weight;
    }
}

// The sums of R rows, which then share the reading of the weights, each in U parts.
template <std::size_t R, std::size_t U, InBag IN_BAG>
FAST void vote(const float *v, const std::uint8_t *m, const float *w, std::size_t c, F *votes,
               F *weights) {
    F some_votes[U * R], some_weights[U * R];
    for (std::size_t r = 0; r < R; ++r) votes[r] = weights[r] = F{};  // not by memset
    std::size_t j = 0;
    while (j + LANES <= c) {
        const std::size_t end = c - j < SUMMED_MEMBERS ? c : j + SUMMED_MEMBERS;
        for (std::size_t r = 0; r < U * R; ++r) some_votes[r] = some_weights[r] = F{};
        for (; j + U * LANES <= end; j += U * LANES)
            for (std::size_t u = 0; u < U; ++u) {
                const std::size_t k = j + u * LANES;
                add_votes<R, IN_BAG>(v + k, m + k, w + k, c, nullptr, some_votes + u * R,
                                     some_weights + u * R);
            }
        for (; j + LANES <= end; j += LANES)
            add_votes<R, IN_BAG>(v + j, m + j, w + j, c, nullptr, some_votes, some_weights);
        for (std::size_t r = 0; r < U * R; ++r) {
            votes[r % R] += some_votes[r];
            weights[r % R] += some_weights[r];
        }
    }
    if (j < c) {  // the last whole register, of which some lanes were summed already
        const I lanes = last_lanes(c - j);
        j = c - LANES;
        add_votes<R, IN_BAG>(v + j, m + j, w + j, c, &lanes, votes, weights);
    }
}

template <std::size_t R, InBag IN_BAG>
FAST void add_slopes(const float *v, const std::uint8_t *m, const F *a, const F *b, std::size_t c,
                     const I *lanes, float *sums) {
    F left = loaded(sums), right = {};
    for (std::size_t r = 0; r < R; ++r) {
        F vote = loaded(v + r * c), on_mask = b[r];
        if (lanes) {
            vote = kept(vote, *lanes);
            on_mask = kept(on_mask, *lanes);
        }
        if constexpr (IN_BAG != InBag::NOBODY) {
            const I in = is_in(m + r * c);
            if constexpr (IN_BAG == InBag::ANYTHING) vote = kept(vote, in);
            on_mask = kept(on_mask, in);
        }
        left += vote * a[r];
        right += on_mask;
    }
    left += right;
    std::memcpy(sums, &left, sizeof left);
}

template <std::size_t R, InBag IN_BAG>
FAST void differentiate(const float *v, const std::uint8_t *m, const float *on_votes,
                        const float *on_mask, std::size_t c, float *sums) {
    F a[R], b[R];
    for (std::size_t r = 0; r < R; ++r) {
        a[r] = F{} + on_votes[r];
        b[r] = F{} + on_mask[r];
    }
    std::size_t j = 0;
    for (; j + LANES <= c; j += LANES)
        add_slopes<R, IN_BAG>(v + j, m + j, a, b, c, nullptr, sums + j);
    if (j < c) {
        const I lanes = last_lanes(c - j);
        j = c - LANES;
        add_slopes<R, IN_BAG>(v + j, m + j, a, b, c, &lanes, sums + j);
    }
}

template <std::size_t R, InBag IN_BAG>
FAST void vote_on(const float *v, const std::uint8_t *m, const float *w, std::size_t c, Turn &turn,
                  std::size_t at) {
    F votes[R], weights[R];
    if (c >= SHORT_ROW && c < LONG_ROW)  // row after row, in the order memory brings them
        for (std::size_t r = 0; r < R; ++r)
            vote<1, 2, IN_BAG>(v + r * c, m + r * c, w, c, votes + r, weights + r);
    else
        vote<R, 1, IN_BAG>(v, m, w, c, votes, weights);
    add_up<R>(votes, turn.n + at);
    if constexpr (IN_BAG != InBag::NOBODY) add_up<R>(weights, turn.d + at);
}

template <InBag IN_BAG>
TARGET static void run_rows(const float *v, const std::uint8_t *m, const float *w, std::size_t rows,
                            std::size_t first, std::size_t c, const RowTerms &t, float *sums,
                            Totals &found) {
    Turn turn;
    std::size_t r = 0;
    for (; r + 4 <= rows; r += 4) vote_on<4, IN_BAG>(v + r * c, m + r * c, w, c, turn, r);
    for (; r < rows; ++r) vote_on<1, IN_BAG>(v + r * c, m + r * c, w, c, turn, r);
    settle(t, first, rows, turn, found);
    for (r = 0; r + 4 <= rows; r += 4)
        differentiate<4, IN_BAG>(v + r * c, m + r * c, turn.on_votes + r, turn.on_mask + r, c, sums);
    for (; r < rows; ++r)
        differentiate<1, IN_BAG>(v + r * c, m + r * c, turn.on_votes + r, turn.on_mask + r, c, sums);
}

// Rows [i, rows) of a block, `group` of them a turn; their gradient is added to.
static Totals evaluate(const float *v, const std::uint8_t *m, const float *w, std::size_t i,
                       std::size_t rows, std::size_t c, std::size_t group, const RowTerms &t,
                       float *sums, double *gradient) {
    const auto run = !t.has_mask   ? run_rows<InBag::NOBODY>
                     : t.is_zeroed ? run_rows<InBag::ZEROS>
                                   : run_rows<InBag::ANYTHING>;
    Totals found;
    while (i < rows) {
        const std::size_t end = i + FLUSH_ROWS < rows ? i + FLUSH_ROWS : rows;
        for (std::size_t k = 0; k < c; ++k) sums[k] = 0.0f;
        for (; i < end; i += group)
            run(v + i * c, m + i * c, w, end - i < group ? end - i : group, i, c, t, sums, found);
        i = end;
        for (std::size_t k = 0; k < c; ++k) gradient[k] += sums[k];
    }
    found.loss -= found.logs.total();
    return found;
}

#undef FAST

}  // namespace KERNEL

#undef KERNEL
#undef TARGET
#undef LANES
#undef WIDENED
#undef KEPT
