// Rows of smooth_lines.h by twos: four members a register.
#pragma once

#include "smooth_lines.h"

#define SPARSEBAG_FEW_TARGET __attribute__((target("avx2,fma")))
#define SPARSEBAG_FEW inline __attribute__((always_inline)) SPARSEBAG_FEW_TARGET
#define SPARSEBAG_ALL _Pragma("GCC unroll 16")

namespace sparsebag {
namespace few {

SPARSEBAG_FEW __m256d every(double x) { return _mm256_set1_pd(x); }
SPARSEBAG_FEW __m256d load(const double *x) { return _mm256_loadu_pd(x); }
SPARSEBAG_FEW __m256d fused(__m256d a, __m256d b, __m256d c) { return _mm256_fmadd_pd(a, b, c); }
SPARSEBAG_FEW double total(__m256d x) {
    const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(x), _mm256_extractf128_pd(x, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

// 2^t for -1000 <= t <= 0: n + f = t, |f| <= 1/2, the polynomial of 2^f by pairs (Estrin), since
// one chain of products would be waited for, and n added to the exponent.
SPARSEBAG_FEW __m256d power_of_two(__m256d t) {
    const __m256d magic = every(6755399441055744.0);  // 1.5 * 2^52, as in power.h
    const __m256d shifted = _mm256_add_pd(t, magic);
    const __m256d f = _mm256_sub_pd(t, _mm256_sub_pd(shifted, magic));
    const __m256d f2 = _mm256_mul_pd(f, f), f4 = _mm256_mul_pd(f2, f2);
    const auto pair = [&](std::size_t i) __attribute__((always_inline)) SPARSEBAG_FEW_TARGET {
        return fused(every(POWERS[i + 1]), f, every(POWERS[i]));
    };
    const __m256d a = fused(pair(2), f2, pair(0)), b = fused(pair(6), f2, pair(4));
    const __m256d c = fused(every(POWERS[10]), f2, pair(8));
    const __m256d p = fused(fused(c, f4, b), f4, a);
    const __m256i n = _mm256_slli_epi64(_mm256_castpd_si256(shifted), 52);
    return _mm256_castsi256_pd(_mm256_add_epi64(_mm256_castpd_si256(p), n));
}

// What features are standardised by, of its own: in memory that `z` might be, it would be read again
// for every register.
struct Standard {
    const double *mean, *inverse_scale;
    __m256d least, most;
};

SPARSEBAG_FEW void standardise(const Standard &by, std::size_t f, __m256d x, double *z) {
    x = _mm256_cvtps_pd(_mm256_cvtpd_ps(x));  // float32, as trees read it
    // What float32 does not reach is the mean, as in sums.h: x - x is zero for numbers alone.
    const __m256d known =
        _mm256_cmp_pd(_mm256_sub_pd(x, x), _mm256_setzero_pd(), _CMP_EQ_OQ);
    x = _mm256_mul_pd(_mm256_sub_pd(x, load(by.mean + f)), load(by.inverse_scale + f));
    x = _mm256_min_pd(_mm256_max_pd(x, by.least), by.most);
    _mm256_storeu_pd(z + f, _mm256_and_pd(known, x));
}

// One row; z has room for whole registers. `next` is a row that will be, and comes from memory
// while there is arithmetic to do.
SPARSEBAG_FEW void standardise_row(const Standard &by, std::size_t d, const double *x,
                                   const double *next, double *z) {
    const std::size_t left = d % QUAD;
    std::size_t f = 0;
    for (; f + 2 * QUAD <= d; f += 2 * QUAD) {
        _mm_prefetch(reinterpret_cast<const char *>(next + f), _MM_HINT_T0);
        standardise(by, f, load(x + f), z);
        standardise(by, f + QUAD, load(x + f + QUAD), z);
    }
    _mm_prefetch(reinterpret_cast<const char *>(next + d - 1), _MM_HINT_T0);
    for (; f + QUAD <= d; f += QUAD) standardise(by, f, load(x + f), z);
    if (left > 0)
        standardise(by, f,
                    _mm256_setr_pd(x[f], left > 1 ? x[f + 1] : 0.0, left > 2 ? x[f + 2] : 0.0, 0.0),
                    z);
}

// R rows as float64, and standardised.
template <std::size_t R>
struct Numbers {
    const double *x[R], *z[R];
};

SPARSEBAG_FEW void store_side(__m256d h, double *g) {
    _mm256_storeu_pd(g, _mm256_div_pd(h, _mm256_sqrt_pd(fused(h, h, every(1.0)))));
}

// g of EIGHT rows, QUAD numbers each: enough of them that no sum is waited for.
constexpr std::size_t EIGHT = 8;
SPARSEBAG_FEW void sides(const SmoothLines &of, const double *z, double *g) {
    const std::size_t d = of.n_features, width = of.mean.size();
    const double *down = of.down.data();
    __m256d h[EIGHT];
    SPARSEBAG_ALL for (std::size_t i = 0; i < EIGHT; ++i) h[i] = load(of.offset);
    for (std::size_t f = 0; f < d; ++f) {
        const __m256d slopes = load(down + QUAD * f);
        SPARSEBAG_ALL for (std::size_t i = 0; i < EIGHT; ++i)
            h[i] = fused(every(z[i * width + f]), slopes, h[i]);
    }
    SPARSEBAG_ALL for (std::size_t i = 0; i < EIGHT; ++i) store_side(h[i], g + QUAD * i);
}

// What Q registers of members add to the sums of R rows, weighted votes and weights. Where g, QUAD
// numbers a row, is not known, the first ones find it out: directions are one more register.
template <std::size_t R, std::size_t Q, std::size_t RANK, bool FIRST>
SPARSEBAG_FEW void add_members(const SmoothLines &of, const SmoothLines::Part &part,
                               const Numbers<R> &rows, double *g, __m256d (&votes)[R],
                               __m256d (&weights)[R]) {
    const std::size_t d = of.n_features;
    __m256d vote[R][Q], h[R];
    SPARSEBAG_ALL for (std::size_t i = 0; i < R; ++i) {
        h[i] = load(of.offset);
        SPARSEBAG_ALL for (std::size_t q = 0; q < Q; ++q)
            vote[i][q] = load(part.intercepts.data() + QUAD * q);
    }
    const double *slopes = part.slopes.data(), *down = of.down.data();
    for (std::size_t f = 0; f < d; ++f, slopes += QUAD * Q) {
        __m256d at[R];
        SPARSEBAG_ALL for (std::size_t i = 0; i < R; ++i) {
            if (FIRST) h[i] = fused(every(rows.z[i][f]), load(down + QUAD * f), h[i]);
            at[i] = every(rows.x[i][f]);
        }
        // Slopes are read once for all rows: a read a product would be waited for.
        SPARSEBAG_ALL for (std::size_t q = 0; q < Q; ++q) {
            __m256d of_members = load(slopes + QUAD * q);
            asm("" : "+x"(of_members));  // compilers would read it again
            SPARSEBAG_ALL for (std::size_t i = 0; i < R; ++i)
                vote[i][q] = fused(at[i], of_members, vote[i][q]);
        }
    }
    SPARSEBAG_ALL for (std::size_t i = 0; i < R; ++i) {
        if (FIRST) store_side(h[i], g + QUAD * i);
        __m256d side[RANK];
        SPARSEBAG_ALL for (std::size_t r = 0; r < RANK; ++r) side[r] = every(g[QUAD * i + r]);
        SPARSEBAG_ALL for (std::size_t q = 0; q < Q; ++q) {
            __m256d logit = load(part.base.data() + QUAD * q);
            SPARSEBAG_ALL for (std::size_t r = 0; r < RANK; ++r)
                logit = fused(side[r], load(part.up.data() + QUAD * (r * Q + q)), logit);
            const __m256d weight = power_of_two(logit);
            weights[i] = _mm256_add_pd(weights[i], weight);
            votes[i] = fused(weight, vote[i][q], votes[i]);
        }
    }
}

template <std::size_t R, std::size_t RANK, bool FIRST>
SPARSEBAG_FEW void add_part(const SmoothLines &of, const SmoothLines::Part &part,
                            const Numbers<R> &rows, double *g, __m256d (&votes)[R],
                            __m256d (&weights)[R]) {
    switch (part.n_quads) {
        case 1: return add_members<R, 1, RANK, FIRST>(of, part, rows, g, votes, weights);
        case 2: return add_members<R, 2, RANK, FIRST>(of, part, rows, g, votes, weights);
        case 3: return add_members<R, 3, RANK, FIRST>(of, part, rows, g, votes, weights);
        case 4: return add_members<R, 4, RANK, FIRST>(of, part, rows, g, votes, weights);
        case 5: return add_members<R, 5, RANK, FIRST>(of, part, rows, g, votes, weights);
        default: return add_members<R, MOST_QUADS, RANK, FIRST>(of, part, rows, g, votes, weights);
    }
}

template <std::size_t R, std::size_t RANK, bool FIRST>
SPARSEBAG_FEW_TARGET void sum_of_rank(const SmoothLines &of, const Numbers<R> &rows, double *g,
                                      double *out) {
    __m256d votes[R], weights[R];
    SPARSEBAG_ALL for (std::size_t i = 0; i < R; ++i) votes[i] = weights[i] = _mm256_setzero_pd();
    add_part<R, RANK, FIRST>(of, of.parts[0], rows, g, votes, weights);
    for (std::size_t p = 1; p < of.parts.size(); ++p)
        add_part<R, RANK, false>(of, of.parts[p], rows, g, votes, weights);
    SPARSEBAG_ALL for (std::size_t i = 0; i < R; ++i) out[i] = total(votes[i]) / total(weights[i]);
}

// R rows, those of x `stride` numbers apart; FIRST: whose g is not known.
template <std::size_t R, bool FIRST>
SPARSEBAG_FEW void sum_few(const SmoothLines &of, const double *x, std::int64_t stride,
                           const double *z, double *g, double *out) {
    Numbers<R> rows;
    for (std::size_t i = 0; i < R; ++i) {
        rows.x[i] = x + static_cast<std::int64_t>(i) * stride;
        rows.z[i] = z + i * of.mean.size();
    }
    switch (of.rank) {
        case 1: return sum_of_rank<R, 1, FIRST>(of, rows, g, out);
        case 2: return sum_of_rank<R, 2, FIRST>(of, rows, g, out);
        case 3: return sum_of_rank<R, 3, FIRST>(of, rows, g, out);
        default: return sum_of_rank<R, MOST_RANK, FIRST>(of, rows, g, out);
    }
}

// At most EIGHT of `left` rows by twos, for which there are registers; z has room for them.
SPARSEBAG_FEW_TARGET inline void sum_eight(const SmoothLines &of, const double *x,
                                           std::int64_t stride, std::size_t left, double *z,
                                           double *out) {
    const std::size_t n = std::min(EIGHT, left), ahead = left >= 2 * EIGHT ? EIGHT : 0;
    const std::size_t width = of.mean.size();
    const auto row = [&](std::size_t i) { return x + static_cast<std::int64_t>(i) * stride; };
    double g[EIGHT * QUAD];
    const Standard by{of.mean.data(), of.inverse_scale.data(), every(-of.clip), every(of.clip)};
    for (std::size_t i = 0; i < n; ++i)
        standardise_row(by, of.n_features, row(i), row(i + ahead), z + i * width);
    std::size_t i = 0;
    if (n == EIGHT) {
        sides(of, z, g);
        for (; i < n; i += 2)
            sum_few<2, false>(of, row(i), stride, z + i * width, g + QUAD * i, out + i);
    }
    for (; i + 2 <= n; i += 2) sum_few<2, true>(of, row(i), stride, z + i * width, g, out + i);
    if (i < n) sum_few<1, true>(of, row(i), stride, z + i * width, g, out + i);
}

// Rows as float64 side by side: their own memory where it is that already.
inline const double *own_numbers(const Rows<double> &rows) {
    return rows.column_stride == 1 ? rows.x : nullptr;
}
inline const double *own_numbers(const Rows<float> &) { return nullptr; }

template <typename T>
void sum_rows(const SmoothLines &of, const Rows<T> &rows, double *out) {
    thread_local std::vector<double> room;
    const std::size_t d = of.n_features, width = of.mean.size();
    if (room.size() < 2 * EIGHT * width) room.resize(2 * EIGHT * width);
    double *copy = room.data(), *z = copy + EIGHT * width;
    for (std::size_t first = 0; first < rows.n; first += EIGHT) {
        Rows<T> part = rows.part(first, rows.n - first);
        const double *x = own_numbers(part);
        std::int64_t stride = rows.row_stride;
        if (x == nullptr) {
            part.n = std::min(EIGHT, part.n);
            for (std::size_t i = 0; i < part.n; ++i)
                for (std::size_t f = 0; f < d; ++f)
                    copy[i * d + f] = static_cast<double>(
                        part.row(i)[static_cast<std::int64_t>(f) * rows.column_stride]);
            x = copy;
            stride = static_cast<std::int64_t>(d);
        }
        sum_eight(of, x, stride, part.n, z, out + first);
    }
}

}  // namespace few
}  // namespace sparsebag

#undef SPARSEBAG_FEW
#undef SPARSEBAG_FEW_TARGET
#undef SPARSEBAG_ALL
