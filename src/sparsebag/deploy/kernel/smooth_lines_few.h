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

// 2^t of Q registers, -1000 <= t <= 0: n + f = t, |f| <= 1/2, the polynomial of 2^f, and n added to
// the exponent. All of them step by step: none waits for its own last step.
template <std::size_t Q>
SPARSEBAG_FEW void powers_of_two(__m256d (&t)[Q]) {
    const __m256d magic = every(6755399441055744.0);  // 1.5 * 2^52, as in power.h
    __m256d f[Q];
    __m256i n[Q];
    SPARSEBAG_ALL for (std::size_t q = 0; q < Q; ++q) {
        const __m256d shifted = _mm256_add_pd(t[q], magic);
        n[q] = _mm256_slli_epi64(_mm256_castpd_si256(shifted), 52);
        f[q] = _mm256_sub_pd(t[q], _mm256_sub_pd(shifted, magic));
        t[q] = every(POWERS[N_POWERS - 1]);
    }
    SPARSEBAG_ALL for (std::size_t i = N_POWERS - 1; i > 0; --i)
        SPARSEBAG_ALL for (std::size_t q = 0; q < Q; ++q)
            t[q] = fused(t[q], f[q], every(POWERS[i - 1]));
    SPARSEBAG_ALL for (std::size_t q = 0; q < Q; ++q)
        t[q] = _mm256_castsi256_pd(_mm256_add_epi64(_mm256_castpd_si256(t[q]), n[q]));
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

// Where the gate sees R rows, QUAD numbers each, features side by side. All numbers are known, or
// it returns false; if CAREFUL it looks at each of them.
template <std::size_t R, std::size_t RANK, bool CAREFUL>
SPARSEBAG_FEW bool sides(const SmoothLines &of, const Given<R> &rows, double *g) {
    const std::size_t d = of.n_features, width = of.mean.size();
    const double *mean = of.mean.data(), *least = of.least.data(), *most = of.most.data();
    const double *down = of.down.data();
    const __m256d zero = _mm256_setzero_pd();
    __m256d h[R][QUAD], unknown = zero;
    SPARSEBAG_ALL for (std::size_t i = 0; i < R; ++i)
        SPARSEBAG_ALL for (std::size_t r = 0; r < QUAD; ++r) h[i][r] = zero;
    const auto add = [&](std::size_t f, const __m256d(&given)[R])
        __attribute__((always_inline)) SPARSEBAG_FEW_TARGET {
        const __m256d low = load_once(least + f), high = load_once(most + f);
        __m256d x[R], all = zero;
        SPARSEBAG_ALL for (std::size_t i = 0; i < R; ++i) {
            x[i] = single(given[i]);
            if (CAREFUL) x[i] = known(x[i], load(mean + f));
            all = i == 0 ? x[0] : _mm256_add_pd(all, x[i]);
            x[i] = _mm256_min_pd(_mm256_max_pd(x[i], low), high);
        }
        unknown = fused(all, zero, unknown);  // NaN from then on, where one was no number
        SPARSEBAG_ALL for (std::size_t r = 0; r < RANK; ++r) {
            const __m256d slopes = load_once(down + r * width + f);
            SPARSEBAG_ALL for (std::size_t i = 0; i < R; ++i) h[i][r] = fused(x[i], slopes, h[i][r]);
        }
    };
    __m256d x[R];
    std::size_t f = 0;
    for (; f + QUAD <= d; f += QUAD) {
        SPARSEBAG_ALL for (std::size_t i = 0; i < R; ++i) {
            if (f % (2 * QUAD) == 0)
                _mm_prefetch(reinterpret_cast<const char *>(rows.row_to_be(i) + f), _MM_HINT_T0);
            x[i] = load(rows.row(i) + f);
        }
        add(f, x);
    }
    if (f < d) {
        SPARSEBAG_ALL for (std::size_t i = 0; i < R; ++i) x[i] = load_some(rows.row(i) + f, d - f);
        add(f, x);
    }
    SPARSEBAG_ALL for (std::size_t i = 0; i < R; ++i) {
        const __m256d ab = _mm256_hadd_pd(h[i][0], h[i][1]), ce = _mm256_hadd_pd(h[i][2], h[i][3]);
        const __m256d low = _mm256_permute2f128_pd(ab, ce, 0x20);
        const __m256d high = _mm256_permute2f128_pd(ab, ce, 0x31);
        const __m256d side = _mm256_add_pd(_mm256_add_pd(low, high), load(of.offset));
        _mm256_storeu_pd(g + QUAD * i,
                         _mm256_div_pd(side, _mm256_sqrt_pd(fused(side, side, every(1.0)))));
    }
    return _mm256_movemask_pd(_mm256_cmp_pd(unknown, unknown, _CMP_UNORD_Q)) == 0;
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
    if (!sides<R, RANK, false>(of, rows, g)) sides<R, RANK, true>(of, rows, g);
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
