// Eight rows of smooth_lines.h at a time, one a lane: nothing is padded but the last rows, and the
// gate's arithmetic, which is not products, is done while those of the members are waited for.
#pragma once

#include "smooth_lines.h"

#define SPARSEBAG_EIGHT_TARGET __attribute__((target("avx2,fma,avx512f,avx512dq,avx512vl")))
#define SPARSEBAG_EIGHT inline __attribute__((always_inline)) SPARSEBAG_EIGHT_TARGET
#define SPARSEBAG_ALL _Pragma("GCC unroll 32")

namespace sparsebag {
namespace eight {

constexpr std::size_t ROWS = 8;
constexpr std::size_t FEWEST = 5;  // rows that are no faster by twos

SPARSEBAG_EIGHT __m512d every(double x) { return _mm512_set1_pd(x); }
SPARSEBAG_EIGHT __m512d fused(__m512d a, __m512d b, __m512d c) { return _mm512_fmadd_pd(a, b, c); }

// As in smooth_lines_few.h: the same operations in the same order.
SPARSEBAG_EIGHT __m512d power_of_two(__m512d t) {
    const __m512d magic = every(6755399441055744.0);
    const __m512d shifted = _mm512_add_pd(t, magic);
    const __m512d f = _mm512_sub_pd(t, _mm512_sub_pd(shifted, magic));
    const __m512d square = _mm512_mul_pd(f, f);
    __m512d p = every(POWERS[N_POWERS - 1]), odd = every(POWERS[N_POWERS - 2]);
    SPARSEBAG_ALL for (std::size_t i = N_POWERS - 3; i > 0; i -= 2) {
        p = fused(p, square, every(POWERS[i]));
        odd = fused(odd, square, every(POWERS[i - 1]));
    }
    p = fused(odd, f, fused(p, square, every(POWERS[0])));
    const __m512i n = _mm512_slli_epi64(_mm512_castpd_si512(shifted), 52);
    return _mm512_castsi512_pd(_mm512_add_epi64(_mm512_castpd_si512(p), n));
}

// As the gate reads a number: in single precision, the mean where that is none, between its ends.
SPARSEBAG_EIGHT __m512d held(const SmoothLines &of, std::size_t f, __m512d x) {
    x = _mm512_cvtps_pd(_mm512_cvtpd_ps(x));
    constexpr int NO_NUMBER = 0x99;  // NaN or infinite
    const __mmask8 unknown = _mm512_fpclass_pd_mask(x, NO_NUMBER);
    x = _mm512_mask_blend_pd(unknown, x, every(of.mean[f]));
    x = _mm512_sub_pd(x, every(of.origin[f]));
    return _mm512_min_pd(_mm512_max_pd(x, every(of.least[f])), every(of.most[f]));
}

// Some first numbers of a row, the others zero; none of those is read.
SPARSEBAG_EIGHT __m512d load(const double *x, __mmask8 some) {
    return _mm512_maskz_loadu_pd(some, x);
}
SPARSEBAG_EIGHT __m512d load(const float *x, __mmask8 some) {
    return _mm512_cvtps_pd(_mm256_maskz_loadu_ps(some, x));
}

// Eight columns of eight rows, column after column.
template <typename T>
SPARSEBAG_EIGHT void transpose(const T *const (&rows)[ROWS], std::size_t f, __mmask8 some,
                               double *to) {
    __m512d x[ROWS], even[ROWS / 2], odd[ROWS / 2];  // pairs of rows, every other column
    SPARSEBAG_ALL for (std::size_t i = 0; i < ROWS; ++i) x[i] = load(rows[i] + f, some);
    SPARSEBAG_ALL for (std::size_t i = 0; i < ROWS / 2; ++i) {
        even[i] = _mm512_unpacklo_pd(x[2 * i], x[2 * i + 1]);
        odd[i] = _mm512_unpackhi_pd(x[2 * i], x[2 * i + 1]);
    }
    const auto columns = [&](const __m512d(&of)[ROWS / 2], double *at)
        __attribute__((always_inline)) SPARSEBAG_EIGHT_TARGET {
        const __m512d a = _mm512_shuffle_f64x2(of[0], of[1], 0x44);  // first half of both
        const __m512d b = _mm512_shuffle_f64x2(of[2], of[3], 0x44);
        const __m512d c = _mm512_shuffle_f64x2(of[0], of[1], 0xee);  // last half
        const __m512d e = _mm512_shuffle_f64x2(of[2], of[3], 0xee);
        _mm512_store_pd(at, _mm512_shuffle_f64x2(a, b, 0x88));
        _mm512_store_pd(at + 2 * ROWS, _mm512_shuffle_f64x2(a, b, 0xdd));
        _mm512_store_pd(at + 4 * ROWS, _mm512_shuffle_f64x2(c, e, 0x88));
        _mm512_store_pd(at + 6 * ROWS, _mm512_shuffle_f64x2(c, e, 0xdd));
    };
    columns(even, to);
    columns(odd, to + ROWS);
}

// Columns of eight rows, `stride` numbers apart, and where the next rows are, `next_stride` numbers
// of the caller's: while there is arithmetic to do, they come from memory.
template <typename T>
struct Columns {
    const double *x;
    std::int64_t stride;
    const T *next;
    std::int64_t next_stride;
};

SPARSEBAG_EIGHT __m512d total(const __m512d (&x)[QUAD]) {
    return _mm512_add_pd(_mm512_add_pd(x[0], x[2]), _mm512_add_pd(x[1], x[3]));
}

// Where the gate sees eight rows. Every QUAD-th feature is summed apart, as there.
template <std::size_t RANK, typename T>
SPARSEBAG_EIGHT void sides(const SmoothLines &of, const Columns<T> &rows, __m512d (&side)[RANK]) {
    const std::size_t d = of.n_features, width = of.mean.size();
    __m512d h[RANK][QUAD];
    SPARSEBAG_ALL for (std::size_t r = 0; r < RANK; ++r)
        SPARSEBAG_ALL for (std::size_t l = 0; l < QUAD; ++l) h[r][l] = every(0.0);
    for (std::size_t first = 0; first < d; first += QUAD)
        SPARSEBAG_ALL for (std::size_t l = 0; l < QUAD; ++l) {
            const std::size_t f = first + l;
            if (f >= d) break;
            // Line by line: eight columns of each row before the next ones.
            _mm_prefetch(reinterpret_cast<const char *>(
                             rows.next + static_cast<std::int64_t>(f % ROWS) * rows.next_stride +
                             f / ROWS * ROWS),
                         _MM_HINT_T0);
            const __m512d x =
                held(of, f, _mm512_loadu_pd(rows.x + static_cast<std::int64_t>(f) * rows.stride));
            SPARSEBAG_ALL for (std::size_t r = 0; r < RANK; ++r)
                h[r][l] = fused(x, every(of.down[r * width + f]), h[r][l]);
        }
    SPARSEBAG_ALL for (std::size_t r = 0; r < RANK; ++r) {
        const __m512d low = _mm512_add_pd(h[r][0], h[r][1]), high = _mm512_add_pd(h[r][2], h[r][3]);
        const __m512d sum = _mm512_add_pd(_mm512_add_pd(low, high), every(of.offset[r]));
        side[r] = _mm512_div_pd(sum, _mm512_sqrt_pd(fused(sum, sum, every(1.0))));
    }
}

// What the members of Q registers of smooth_lines_few.h add to the sums of eight rows. Those of
// every QUAD-th member are summed apart, as there.
template <std::size_t Q, std::size_t RANK, typename T>
SPARSEBAG_EIGHT void add_members(const SmoothLines &of, const SmoothLines::Part &part,
                                 const Columns<T> &rows, const __m512d (&side)[RANK],
                                 __m512d (&votes)[QUAD], __m512d (&weights)[QUAD]) {
    constexpr std::size_t K = QUAD * Q;
    const std::size_t d = of.n_features;
    __m512d vote[K];
    SPARSEBAG_ALL for (std::size_t j = 0; j < K; ++j) vote[j] = every(part.intercepts[j]);
    const double *slopes = part.slopes.data(), *at = rows.x;
    for (std::size_t f = 0; f < d; ++f, slopes += K, at += rows.stride) {
        const __m512d x = _mm512_loadu_pd(at);
        SPARSEBAG_ALL for (std::size_t j = 0; j < K; ++j)
            vote[j] = fused(x, every(slopes[j]), vote[j]);
    }
    SPARSEBAG_ALL for (std::size_t j = 0; j < K; ++j) {
        __m512d logit = every(part.base[j]);
        SPARSEBAG_ALL for (std::size_t r = 0; r < RANK; ++r)
            logit = fused(side[r], every(part.up[r * K + j]), logit);
        const __m512d weight = power_of_two(logit);
        weights[j % QUAD] = _mm512_add_pd(weights[j % QUAD], weight);
        votes[j % QUAD] = fused(weight, vote[j], votes[j % QUAD]);
    }
}

template <std::size_t RANK, typename T>
SPARSEBAG_EIGHT void add_part(const SmoothLines &of, const SmoothLines::Part &part,
                              const Columns<T> &rows, const __m512d (&side)[RANK],
                              __m512d (&votes)[QUAD], __m512d (&weights)[QUAD]) {
    switch (part.n_quads) {
        case 1: return add_members<1, RANK>(of, part, rows, side, votes, weights);
        case 2: return add_members<2, RANK>(of, part, rows, side, votes, weights);
        case 3: return add_members<3, RANK>(of, part, rows, side, votes, weights);
        case 4: return add_members<4, RANK>(of, part, rows, side, votes, weights);
        case 5: return add_members<5, RANK>(of, part, rows, side, votes, weights);
        default: return add_members<MOST_QUADS, RANK>(of, part, rows, side, votes, weights);
    }
}

template <std::size_t RANK, typename T>
SPARSEBAG_EIGHT_TARGET void sum_of_rank(const SmoothLines &of, const Columns<T> &rows,
                                        __mmask8 some, double *out) {
    __m512d side[RANK], votes[QUAD], weights[QUAD];
    SPARSEBAG_ALL for (std::size_t j = 0; j < QUAD; ++j) votes[j] = weights[j] = every(0.0);
    sides<RANK>(of, rows, side);
    for (const SmoothLines::Part &part : of.parts)
        add_part<RANK>(of, part, rows, side, votes, weights);
    _mm512_mask_storeu_pd(out, some, _mm512_div_pd(total(votes), total(weights)));
}

inline __mmask8 first_of(std::size_t n) {
    return static_cast<__mmask8>(n < ROWS ? (1u << n) - 1u : 0xffu);
}

// Whether columns of eight rows lie as they are read.
inline const double *own_columns(const Rows<double> &rows) {
    return rows.row_stride == 1 ? rows.x : nullptr;
}
inline const double *own_columns(const Rows<float> &) { return nullptr; }

// At most ROWS rows; past the last one, it again. `room` is for their columns.
template <typename T>
SPARSEBAG_EIGHT_TARGET void sum_eight(const SmoothLines &of, const Rows<T> &rows, const T *next,
                                      double *room, double *out) {
    const std::size_t d = of.n_features;
    Columns<T> columns{room, ROWS, next, rows.row_stride};
    const double *own = rows.n == ROWS ? own_columns(rows) : nullptr;
    const T *row[ROWS];
    for (std::size_t i = 0; i < ROWS; ++i) row[i] = rows.row(std::min(i, rows.n - 1));
    if (own != nullptr) {
        columns.x = own;
        columns.stride = rows.column_stride;
    } else if (rows.column_stride == 1) {
        for (std::size_t f = 0; f < d; f += ROWS)
            transpose<T>(row, f, first_of(d - f), room + ROWS * f);
    } else {
        for (std::size_t f = 0; f < d; ++f)
            for (std::size_t i = 0; i < ROWS; ++i)
                room[ROWS * f + i] = static_cast<double>(
                    row[i][static_cast<std::int64_t>(f) * rows.column_stride]);
    }
    const __mmask8 some = first_of(rows.n);
    switch (of.rank) {
        case 1: return sum_of_rank<1, T>(of, columns, some, out);
        case 2: return sum_of_rank<2, T>(of, columns, some, out);
        case 3: return sum_of_rank<3, T>(of, columns, some, out);
        default: return sum_of_rank<MOST_RANK, T>(of, columns, some, out);
    }
}

// How many rows, the first ones, were summed: the others are too few.
template <typename T>
std::size_t sum_rows(const SmoothLines &of, const Rows<T> &rows, double *out) {
    thread_local std::vector<double> held;
    const std::size_t needed = (of.n_features + ROWS) * ROWS + ROWS;
    if (held.size() < needed) held.resize(needed);
    const auto past = reinterpret_cast<std::uintptr_t>(held.data()) % (ROWS * sizeof(double));
    double *room = held.data() + (ROWS - past / sizeof(double)) % ROWS;  // whole lines of the cache
    std::size_t first = 0;
    for (; first + FEWEST <= rows.n; first += ROWS) {
        const std::size_t left = rows.n - first;
        const Rows<T> part = rows.part(first, std::min(ROWS, left));
        sum_eight<T>(of, part, part.row(left >= 2 * ROWS ? ROWS : 0), room, out + first);
    }
    return std::min(first, rows.n);
}

}  // namespace eight
}  // namespace sparsebag

#undef SPARSEBAG_EIGHT
#undef SPARSEBAG_EIGHT_TARGET
#undef SPARSEBAG_ALL
