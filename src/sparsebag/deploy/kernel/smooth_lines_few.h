// Rows of smooth_lines.h by twos: four features, then four members a register.
#pragma once

#include "smooth_lines.h"

#define SPARSEBAG_FEW_TARGET __attribute__((target("avx2,fma")))
#define SPARSEBAG_FEW inline __attribute__((always_inline)) SPARSEBAG_FEW_TARGET
#define SPARSEBAG_ALL _Pragma("GCC unroll 16")

namespace sparsebag {
namespace few {

SPARSEBAG_FEW __m256d every(double x) { return _mm256_set1_pd(x); }
SPARSEBAG_FEW __m256d load(const double *x) { return _mm256_loadu_pd(x); }
// Into a register: for two rows compilers would read it twice, and reads would be waited for.
SPARSEBAG_FEW __m256d load_once(const double *x) {
    __m256d held = load(x);
    asm("" : "+x"(held));
    return held;
}
SPARSEBAG_FEW __m256d fused(__m256d a, __m256d b, __m256d c) { return _mm256_fmadd_pd(a, b, c); }
SPARSEBAG_FEW double total(__m256d x) {
    const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(x), _mm256_extractf128_pd(x, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

// 2^t of Q registers, -1000 <= t <= 0: n + f = t, |f| <= 1/2, the polynomial of 2^f, even powers and
// odd ones apart, and n added to the exponent. All registers step by step: none waits for its own
// last step. f and n wait in memory, or there would be no room for the rest.
template <std::size_t Q>
SPARSEBAG_FEW void powers_of_two(__m256d (&t)[Q]) {
    const __m256d magic = every(6755399441055744.0);  // 1.5 * 2^52, as in power.h
    alignas(32) double f[Q][QUAD], n[Q][QUAD];
    __m256d square[Q], odd[Q];
    SPARSEBAG_ALL for (std::size_t q = 0; q < Q; ++q) {
        const __m256d shifted = _mm256_add_pd(t[q], magic);
        const __m256i bits = _mm256_slli_epi64(_mm256_castpd_si256(shifted), 52);
        const __m256d rest = _mm256_sub_pd(t[q], _mm256_sub_pd(shifted, magic));
        _mm256_store_pd(n[q], _mm256_castsi256_pd(bits));
        _mm256_store_pd(f[q], rest);
        square[q] = _mm256_mul_pd(rest, rest);
        t[q] = every(POWERS[N_POWERS - 1]);
        odd[q] = every(POWERS[N_POWERS - 2]);
    }
    asm("" ::: "memory");
    SPARSEBAG_ALL for (std::size_t i = N_POWERS - 3; i > 0; i -= 2) {
        SPARSEBAG_ALL for (std::size_t q = 0; q < Q; ++q)
            t[q] = fused(t[q], square[q], every(POWERS[i]));
        SPARSEBAG_ALL for (std::size_t q = 0; q < Q; ++q)
            odd[q] = fused(odd[q], square[q], every(POWERS[i - 1]));
    }
    SPARSEBAG_ALL for (std::size_t q = 0; q < Q; ++q) {
        t[q] = fused(t[q], square[q], every(POWERS[0]));
        t[q] = fused(odd[q], load(f[q]), t[q]);
        const __m256i bits = _mm256_castpd_si256(load(n[q]));
        t[q] = _mm256_castsi256_pd(_mm256_add_epi64(_mm256_castpd_si256(t[q]), bits));
    }
}

// As trees read a number: what float32 does not reach is no number, and counts as the mean.
SPARSEBAG_FEW __m256d single(__m256d x) { return _mm256_cvtps_pd(_mm256_cvtpd_ps(x)); }
SPARSEBAG_FEW __m256d known(__m256d x, __m256d mean) {
    const __m256d is_number = _mm256_cmp_pd(_mm256_sub_pd(x, x), _mm256_setzero_pd(), _CMP_EQ_OQ);
    return _mm256_blendv_pd(mean, x, is_number);
}

// The first 1 to 4 numbers, then zeros.
SPARSEBAG_FEW __m256d load_some(const double *x, std::size_t n) {
    const __m256i lane = _mm256_setr_epi64x(0, 1, 2, 3);
    return _mm256_maskload_pd(
        x, _mm256_cmpgt_epi64(_mm256_set1_epi64x(static_cast<long long>(n)), lane));
}

// R rows, those of x `stride` numbers apart; `next`, as many, are prefetched.
template <std::size_t R>
struct Given {
    const double *x, *next;
    std::int64_t stride;

    const double *row(std::size_t i) const { return x + static_cast<std::int64_t>(i) * stride; }
    const double *row_to_be(std::size_t i) const {
        return next + static_cast<std::int64_t>(i) * stride;
    }
};

// Sums of a direction's lanes, in one order whatever stands beside them: neighbours, then halves.
SPARSEBAG_FEW __m128d halves(__m256d x) {
    return _mm_add_pd(_mm256_castpd256_pd128(x), _mm256_extractf128_pd(x, 1));
}
SPARSEBAG_FEW __m128d side(__m128d h) {
    return _mm_div_pd(h, _mm_sqrt_pd(_mm_fmadd_pd(h, h, _mm_set1_pd(1.0))));
}
SPARSEBAG_FEW __m256d side(__m256d h) {
    return _mm256_div_pd(h, _mm256_sqrt_pd(fused(h, h, every(1.0))));
}

// Two directions, r and the next, of one row, and of two; one direction of one, and of two. Nothing
// but sides is divided: it is what takes longest.
SPARSEBAG_FEW void store_two(const __m256d (&h)[1][QUAD], std::size_t r, const double *offset,
                             double *g) {
    const __m128d sum = halves(_mm256_hadd_pd(h[0][r], h[0][r + 1]));
    _mm_storeu_pd(g + r, side(_mm_add_pd(sum, _mm_loadu_pd(offset + r))));
}
SPARSEBAG_FEW void store_two(const __m256d (&h)[2][QUAD], std::size_t r, const double *offset,
                             double *g) {
    const __m256d a = _mm256_hadd_pd(h[0][r], h[0][r + 1]);
    const __m256d b = _mm256_hadd_pd(h[1][r], h[1][r + 1]);
    const __m256d sum =
        _mm256_add_pd(_mm256_permute2f128_pd(a, b, 0x20), _mm256_permute2f128_pd(a, b, 0x31));
    const __m128d both = _mm_loadu_pd(offset + r);
    const __m256d found = side(_mm256_add_pd(sum, _mm256_set_m128d(both, both)));
    _mm_storeu_pd(g + r, _mm256_castpd256_pd128(found));
    _mm_storeu_pd(g + QUAD + r, _mm256_extractf128_pd(found, 1));
}
SPARSEBAG_FEW void store_one(const __m256d (&h)[1][QUAD], std::size_t r, const double *offset,
                             double *g) {
    const __m128d sum = halves(_mm256_hadd_pd(h[0][r], h[0][r]));
    _mm_store_sd(g + r, side(_mm_add_pd(sum, _mm_set1_pd(offset[r]))));
}
SPARSEBAG_FEW void store_one(const __m256d (&h)[2][QUAD], std::size_t r, const double *offset,
                             double *g) {
    const __m128d sum = halves(_mm256_hadd_pd(h[0][r], h[1][r]));
    const __m128d found = side(_mm_add_pd(sum, _mm_set1_pd(offset[r])));
    _mm_storel_pd(g + r, found);
    _mm_storeh_pd(g + QUAD + r, found);
}

// Where the gate sees R rows, QUAD numbers each, features side by side. All numbers are known, or
// it returns false; if CAREFUL it looks at each of them, and subtracts origins, which may be zeros.
template <std::size_t R, std::size_t RANK, bool CAREFUL>
SPARSEBAG_FEW bool sides(const SmoothLines &of, const Given<R> &rows, double *g) {
    const std::size_t d = of.n_features, width = of.mean.size();
    const double *mean = of.mean.data(), *origin = of.origin.data();
    const double *least = of.least.data(), *most = of.most.data();
    const double *down = of.down.data();
    const __m256d zero = _mm256_setzero_pd();
    __m256d h[R][QUAD], seen = zero;
    SPARSEBAG_ALL for (std::size_t i = 0; i < R; ++i)
        SPARSEBAG_ALL for (std::size_t r = 0; r < QUAD; ++r) h[i][r] = zero;
    const auto add = [&](std::size_t f, const __m256d(&given)[R])
        __attribute__((always_inline)) SPARSEBAG_FEW_TARGET {
        const __m256d low = load_once(least + f), high = load_once(most + f);
        __m256d x[R], all = zero;
        SPARSEBAG_ALL for (std::size_t i = 0; i < R; ++i) {
            x[i] = single(given[i]);
            if (CAREFUL) x[i] = _mm256_sub_pd(known(x[i], load(mean + f)), load(origin + f));
            all = i == 0 ? x[0] : _mm256_add_pd(all, x[i]);
            x[i] = _mm256_min_pd(_mm256_max_pd(x[i], low), high);
        }
        seen = fused(all, zero, seen);  // no number from then on, where one was none
        SPARSEBAG_ALL for (std::size_t r = 0; r < RANK; ++r) {
            const __m256d slopes = load_once(down + r * width + f);
            SPARSEBAG_ALL for (std::size_t i = 0; i < R; ++i) h[i][r] = fused(x[i], slopes, h[i][r]);
        }
    };
    __m256d x[R];
    std::size_t f = 0;
    const auto add_whole = [&](std::size_t at) __attribute__((always_inline)) SPARSEBAG_FEW_TARGET {
        SPARSEBAG_ALL for (std::size_t i = 0; i < R; ++i) x[i] = load(rows.row(i) + at);
        add(at, x);
    };
    for (; f + 2 * QUAD <= d; f += 2 * QUAD) {  // a line of the cache
        SPARSEBAG_ALL for (std::size_t i = 0; i < R; ++i)
            _mm_prefetch(reinterpret_cast<const char *>(rows.row_to_be(i) + f), _MM_HINT_T0);
        add_whole(f);
        add_whole(f + QUAD);
    }
    if (f + QUAD <= d) {
        add_whole(f);
        f += QUAD;
    }
    if (f < d) {
        SPARSEBAG_ALL for (std::size_t i = 0; i < R; ++i) x[i] = load_some(rows.row(i) + f, d - f);
        add(f, x);
    }
    SPARSEBAG_ALL for (std::size_t r = 0; r + 1 < RANK; r += 2) store_two(h, r, of.offset, g);
    if (RANK % 2 == 1) store_one(h, RANK - 1, of.offset, g);
    const __m256d is_number = _mm256_cmp_pd(_mm256_sub_pd(seen, seen), zero, _CMP_EQ_OQ);
    return _mm256_movemask_pd(is_number) == 0xf;
}

// Of every QUAD-th member, a row's weighted votes and weights so far.
struct RowSums {
    alignas(32) double votes[QUAD] = {}, weights[QUAD] = {};
};

// What Q registers of members add to the sums of R rows.
template <std::size_t R, std::size_t Q, std::size_t RANK>
SPARSEBAG_FEW void add_members(const SmoothLines &of, const SmoothLines::Part &part,
                               const Given<R> &rows, const double *g, RowSums *sums) {
    const std::size_t d = of.n_features;
    __m256d vote[R][Q];
    SPARSEBAG_ALL for (std::size_t i = 0; i < R; ++i)
        SPARSEBAG_ALL for (std::size_t q = 0; q < Q; ++q)
            vote[i][q] = load(part.intercepts.data() + QUAD * q);
    const double *slopes = part.slopes.data();
    for (std::size_t f = 0; f < d; ++f, slopes += QUAD * Q) {
        __m256d at[R];
        SPARSEBAG_ALL for (std::size_t i = 0; i < R; ++i) at[i] = every(rows.row(i)[f]);
        SPARSEBAG_ALL for (std::size_t q = 0; q < Q; ++q) {
            const __m256d of_members = load_once(slopes + QUAD * q);
            SPARSEBAG_ALL for (std::size_t i = 0; i < R; ++i)
                vote[i][q] = fused(at[i], of_members, vote[i][q]);
        }
    }
    // Powers take all registers there are: votes wait in memory, and rows take turns.
    alignas(32) double waiting[R][QUAD * Q];
    SPARSEBAG_ALL for (std::size_t i = 0; i < R; ++i)
        SPARSEBAG_ALL for (std::size_t q = 0; q < Q; ++q)
            _mm256_store_pd(waiting[i] + QUAD * q, vote[i][q]);
    _Pragma("GCC unroll 1") for (std::size_t i = 0; i < R; ++i) {
        asm("" ::: "memory");
        __m256d weight[Q];
        SPARSEBAG_ALL for (std::size_t q = 0; q < Q; ++q)
            weight[q] = load(part.base.data() + QUAD * q);
        SPARSEBAG_ALL for (std::size_t r = 0; r < RANK; ++r) {
            const __m256d side = every(g[QUAD * i + r]);
            SPARSEBAG_ALL for (std::size_t q = 0; q < Q; ++q)
                weight[q] = fused(side, load(part.up.data() + QUAD * (r * Q + q)), weight[q]);
        }
        powers_of_two(weight);
        __m256d votes = load(sums[i].votes), weights = load(sums[i].weights);
        SPARSEBAG_ALL for (std::size_t q = 0; q < Q; ++q) {
            weights = _mm256_add_pd(weights, weight[q]);
            votes = fused(weight[q], load(waiting[i] + QUAD * q), votes);
        }
        _mm256_store_pd(sums[i].votes, votes);
        _mm256_store_pd(sums[i].weights, weights);
    }
}

template <std::size_t R, std::size_t RANK>
SPARSEBAG_FEW void add_part(const SmoothLines &of, const SmoothLines::Part &part,
                            const Given<R> &rows, const double *g, RowSums *sums) {
    switch (part.n_quads) {
        case 1: return add_members<R, 1, RANK>(of, part, rows, g, sums);
        case 2: return add_members<R, 2, RANK>(of, part, rows, g, sums);
        case 3: return add_members<R, 3, RANK>(of, part, rows, g, sums);
        case 4: return add_members<R, 4, RANK>(of, part, rows, g, sums);
        case 5: return add_members<R, 5, RANK>(of, part, rows, g, sums);
        default: return add_members<R, MOST_QUADS, RANK>(of, part, rows, g, sums);
    }
}

template <std::size_t R, std::size_t RANK>
SPARSEBAG_FEW_TARGET void sum_of_rank(const SmoothLines &of, const Given<R> &rows, double *out) {
    double g[QUAD * R];
    if (of.is_centred || !sides<R, RANK, false>(of, rows, g)) sides<R, RANK, true>(of, rows, g);
    RowSums sums[R];
    for (const SmoothLines::Part &part : of.parts) add_part<R, RANK>(of, part, rows, g, sums);
    SPARSEBAG_ALL for (std::size_t i = 0; i < R; ++i)
        out[i] = total(load(sums[i].votes)) / total(load(sums[i].weights));
}

template <std::size_t R>
SPARSEBAG_FEW void sum_few(const SmoothLines &of, const Given<R> &rows, double *out) {
    switch (of.rank) {
        case 1: return sum_of_rank<R, 1>(of, rows, out);
        case 2: return sum_of_rank<R, 2>(of, rows, out);
        case 3: return sum_of_rank<R, 3>(of, rows, out);
        default: return sum_of_rank<R, MOST_RANK>(of, rows, out);
    }
}

// Rows as float64 side by side: their own memory where it is that already.
inline const double *own_numbers(const Rows<double> &rows) {
    return rows.column_stride == 1 ? rows.x : nullptr;
}
inline const double *own_numbers(const Rows<float> &) { return nullptr; }

// Rows by twos, for which there are registers.
template <typename T>
SPARSEBAG_FEW_TARGET void sum_rows(const SmoothLines &of, const Rows<T> &rows, double *out) {
    constexpr std::size_t TWO = 2, AHEAD = 8;  // rows that are prefetched before they are read
    thread_local std::vector<double> room;
    const std::size_t d = of.n_features;
    for (std::size_t first = 0; first < rows.n; first += TWO) {
        const std::size_t left = rows.n - first;
        const Rows<T> part = rows.part(first, std::min(TWO, left));
        const double *x = own_numbers(part), *next = x;
        std::int64_t stride = rows.row_stride;
        if (x == nullptr) {
            if (room.size() < TWO * d) room.resize(TWO * d);
            for (std::size_t i = 0; i < part.n; ++i)
                for (std::size_t f = 0; f < d; ++f)
                    room[i * d + f] = static_cast<double>(
                        part.row(i)[static_cast<std::int64_t>(f) * rows.column_stride]);
            x = next = room.data();
            stride = static_cast<std::int64_t>(d);
        } else if (left >= AHEAD + TWO) {
            next = x + static_cast<std::int64_t>(AHEAD) * stride;
        }
        if (part.n == TWO)
            sum_few<TWO>(of, {x, next, stride}, out + first);
        else
            sum_few<1>(of, {x, next, stride}, out + first);
    }
}

}  // namespace few
}  // namespace sparsebag

#undef SPARSEBAG_FEW
#undef SPARSEBAG_FEW_TARGET
#undef SPARSEBAG_ALL
