// Sums of a row's standardised features, which gates read.
//
// Rows never mix and each gets the same operations in the same order, whatever its neighbours: a
// row gets the same bits alone and among others, with the instructions of any machine.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "compare.h"
#include "keys.h"
#include "power.h"

namespace sparsebag {

constexpr std::size_t GATE_ROWS = 64;  // that are read together
// Partial sums of a row's features, the f-th to the one f modulo their number: of a single chain of
// additions each would wait for the one before. Whoever sums a row does it in this order; features
// without a say add zeros, so that they may be left out or not.
constexpr std::size_t SUM_LANES = 4;
constexpr std::size_t MOST_SUMS = 4;   // for which registers are kept

struct Sums {
    std::size_t rank = 0, n_features = 0;
    double clip = 0.0;
    std::vector<std::uint32_t> columns;             // that have a say
    std::vector<double> mean, inverse_scale, down;  // of those; down: rank numbers a column
    // Of all features in whole lanes, where most have a say: row by row they are read side by side.
    std::vector<double> every_mean, every_inverse, every_down;  // down: one direction after another

    std::size_t nbytes() const {
        return columns.size() * 4 +
               (mean.size() + inverse_scale.size() + down.size() + every_mean.size() +
                every_inverse.size() + every_down.size()) *
                   sizeof(double);
    }

    // Arrays of all features; down of shape (rank, d).
    void set(std::size_t d, std::size_t n_sums, const double *means, const double *scales,
             const double *slopes, double most) {
        n_features = d;
        rank = n_sums;
        clip = most;
        for (std::size_t f = 0; f < d; ++f) {
            bool has_a_say = false;
            for (std::size_t r = 0; r < rank; ++r) has_a_say |= slopes[r * d + f] != 0.0;
            if (!has_a_say) continue;
            columns.push_back(static_cast<std::uint32_t>(f));
            mean.push_back(means[f]);
            inverse_scale.push_back(1.0 / scales[f]);
            for (std::size_t r = 0; r < rank; ++r) down.push_back(slopes[r * d + f]);
        }
        if (2 * columns.size() < d) return;
        const std::size_t width = (d + SUM_LANES - 1) / SUM_LANES * SUM_LANES;
        every_mean.assign(width, 0.0);
        every_inverse.assign(width, 0.0);
        every_down.assign(rank * width, 0.0);
        for (std::size_t f = 0; f < columns.size(); ++f) {
            every_mean[columns[f]] = mean[f];
            every_inverse[columns[f]] = inverse_scale[f];
            for (std::size_t r = 0; r < rank; ++r)
                every_down[r * width + columns[f]] = down[f * rank + r];
        }
    }

    // Numbers that `of_rows` needs besides its result.
    std::size_t n_room() const { return (SUM_LANES * rank + 1) * GATE_ROWS; }

    // At most GATE_ROWS rows: few enough that what is known of them stays in the first cache. Sums
    // of a direction side by side, those of the next one `stride` on.
    template <typename T>
    void of_rows(const Rows<T> &rows, double *room, double *h, std::size_t stride) const {
#if defined(SPARSEBAG_X86)
        const Instructions *chosen = chosen_instructions().load(std::memory_order_relaxed);
        if (chosen->compare == compare_avx2) {
            if (rows.column_stride != 1 || every_mean.empty())
                return by_columns_avx2<T>(rows, room, h, stride);
            switch (rank) {
                case 1: return by_rows_avx2<1, T>(rows, h, stride);
                case 2: return by_rows_avx2<2, T>(rows, h, stride);
                case 3: return by_rows_avx2<3, T>(rows, h, stride);
                case 4: return by_rows_avx2<4, T>(rows, h, stride);
                default: return by_columns_avx2<T>(rows, room, h, stride);
            }
        }
#endif
        by_columns<T>(rows, room, h, stride);
    }

    // All sums of one row.
    template <typename T>
    SPARSEBAG_INLINE void of_row(const T *row, std::int64_t column_stride, double *room,
                                 double *RESTRICT h, std::size_t stride) const {
        double *RESTRICT lanes = room;  // rank of them each
        std::fill(lanes, lanes + SUM_LANES * rank, 0.0);
        for (std::size_t f = 0; f < columns.size(); ++f) {
            const double z = standardised(read<T>(row, column_stride, f), f);
            double *RESTRICT to = lanes + columns[f] % SUM_LANES * rank;
            for (std::size_t r = 0; r < rank; ++r) to[r] += down[f * rank + r] * z;
        }
        for (std::size_t r = 0; r < rank; ++r)
            h[r * stride] = together(lanes[r], lanes[rank + r], lanes[2 * rank + r],
                                     lanes[3 * rank + r]);
    }

  private:
    SPARSEBAG_INLINE static double together(double a, double b, double c, double d) {
        return (a + b) + (c + d);
    }

    // float32, as trees read it
    template <typename T>
    SPARSEBAG_INLINE double read(const T *row, std::int64_t column_stride, std::size_t f) const {
        return static_cast<double>(
            static_cast<float>(row[static_cast<std::int64_t>(columns[f]) * column_stride]));
    }

    // NaN and infinities are read as the mean: x - x is zero for numbers alone.
    SPARSEBAG_INLINE double standardised(double x, std::size_t f) const {
        const double z = at_most(at_least((x - mean[f]) * inverse_scale[f], -clip), clip);
        return x - x == 0.0 ? z : 0.0;
    }

    // One column of all rows after another, for whatever rows and features.
    template <typename T>
    SPARSEBAG_INLINE void by_columns(const Rows<T> &rows, double *room, double *h,
                                     std::size_t stride) const {
        const std::size_t n = rows.n, lane = rank * GATE_ROWS;
        double *lanes = room, *RESTRICT z = room + SUM_LANES * lane;
        std::fill(lanes, lanes + SUM_LANES * lane, 0.0);
        for (std::size_t f = 0; f < columns.size(); ++f) {
            for (std::size_t i = 0; i < n; ++i) z[i] = read<T>(rows.row(i), rows.column_stride, f);
            for (std::size_t i = 0; i < n; ++i) z[i] = standardised(z[i], f);
            for (std::size_t r = 0; r < rank; ++r) {
                const double slope = down[f * rank + r];
                double *RESTRICT to = lanes + columns[f] % SUM_LANES * lane + r * GATE_ROWS;
                for (std::size_t i = 0; i < n; ++i) to[i] += slope * z[i];
            }
        }
        for (std::size_t r = 0; r < rank; ++r) {
            const double *of = lanes + r * GATE_ROWS;
            for (std::size_t i = 0; i < n; ++i)
                h[r * stride + i] =
                    together(of[i], of[lane + i], of[2 * lane + i], of[3 * lane + i]);
        }
    }

#if defined(SPARSEBAG_X86)
    template <typename T>
    __attribute__((target("avx2"))) void by_columns_avx2(const Rows<T> &rows, double *room,
                                                         double *h, std::size_t stride) const {
        by_columns<T>(rows, room, h, stride);
    }

    // Four numbers side by side, or the first `left` of them and zeros, as float32 has them.
    __attribute__((target("avx2"), always_inline)) static inline __m256d load(const double *x) {
        return _mm256_cvtps_pd(_mm256_cvtpd_ps(_mm256_loadu_pd(x)));
    }
    __attribute__((target("avx2"), always_inline)) static inline __m256d load(const float *x) {
        return _mm256_cvtps_pd(_mm_loadu_ps(x));
    }
    __attribute__((target("avx2"), always_inline)) static inline __m256d load(const double *x,
                                                                              __m256i left) {
        return _mm256_cvtps_pd(_mm256_cvtpd_ps(_mm256_maskload_pd(x, left)));
    }
    __attribute__((target("avx2"), always_inline)) static inline __m256d load(const float *x,
                                                                              __m256i left) {
        const __m256i halves = _mm256_permutevar8x32_epi32(left, _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6));
        return _mm256_cvtps_pd(_mm_maskload_ps(x, _mm256_castsi256_si128(halves)));
    }

    // Adds what the f-th four features of a row say.
    template <std::size_t RANK>
    __attribute__((target("avx2"), always_inline)) inline void add_four(__m256d x, std::size_t f,
                                                                        __m256d (&sum)[RANK]) const {
        const __m256d most = _mm256_set1_pd(clip), least = _mm256_set1_pd(-clip);
        const __m256d known =
            _mm256_cmp_pd(_mm256_sub_pd(x, x), _mm256_setzero_pd(), _CMP_EQ_OQ);
        x = _mm256_mul_pd(_mm256_sub_pd(x, _mm256_loadu_pd(every_mean.data() + f)),
                          _mm256_loadu_pd(every_inverse.data() + f));
        x = _mm256_and_pd(known, _mm256_min_pd(_mm256_max_pd(x, least), most));
        const double *slopes = every_down.data() + f;
        UNROLLED for (std::size_t r = 0; r < RANK; ++r)
            sum[r] = _mm256_add_pd(
                sum[r], _mm256_mul_pd(_mm256_loadu_pd(slopes + r * every_mean.size()), x));
    }

    // Two rows after another, whose features lie side by side: lanes are those of a register.
    template <std::size_t RANK, typename T>
    __attribute__((target("avx2"))) void by_rows_avx2(const Rows<T> &rows, double *h,
                                                      std::size_t stride) const {
        const std::size_t whole = n_features / SUM_LANES * SUM_LANES;
        const auto left = static_cast<long long>(n_features - whole);
        const __m256i rest =
            _mm256_cmpgt_epi64(_mm256_set1_epi64x(left), _mm256_setr_epi64x(0, 1, 2, 3));
        for (std::size_t i = 0; i < rows.n; i += 2) {
            const bool both = i + 1 < rows.n;
            const T *a = rows.row(i), *b = rows.row(both ? i + 1 : i);
            __m256d of_a[RANK], of_b[RANK];
            UNROLLED for (std::size_t r = 0; r < RANK; ++r) of_a[r] = of_b[r] = _mm256_setzero_pd();
            for (std::size_t f = 0; f < whole; f += SUM_LANES) {
                add_four<RANK>(load(a + f), f, of_a);
                add_four<RANK>(load(b + f), f, of_b);
            }
            if (left > 0) {
                add_four<RANK>(load(a + whole, rest), whole, of_a);
                add_four<RANK>(load(b + whole, rest), whole, of_b);
            }
            UNROLLED for (std::size_t r = 0; r < RANK; ++r) {
                // Two lanes of each row, then the other two.
                const __m256d pairs = _mm256_hadd_pd(of_a[r], of_b[r]);
                const __m128d sum = _mm_add_pd(_mm256_castpd256_pd128(pairs),
                                               _mm256_extractf128_pd(pairs, 1));
                if (both) _mm_storeu_pd(h + r * stride + i, sum);
                else _mm_store_sd(h + r * stride + i, sum);
            }
        }
    }
#endif
};

}  // namespace sparsebag
