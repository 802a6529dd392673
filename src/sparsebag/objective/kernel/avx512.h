#ifndef SPARSEBAG_AVX512_H
#define SPARSEBAG_AVX512_H

#include <immintrin.h>
#include <cstddef>
#include <cstdint>

#include "row_terms.h"

namespace {

// Sixteen members at a time. The mask's bytes become a mask register, so that its products are
// additions of the weights that are in; votes in the bag, whatever they hold, are not computed with.
struct Avx512 {
    // Without a mask all that are here: the compiler then leaves out what a mask would do.
    template <bool HAS_MASK>
    __attribute__((target("avx512f,avx512bw,avx512vl"), always_inline)) static inline __mmask16
    is_in(const std::uint8_t *m, __mmask16 here = 0xffff) {
        if constexpr (!HAS_MASK) return here;
        const __m128i bytes = _mm_maskz_loadu_epi8(here, m);
        return _mm_test_epi8_mask(bytes, bytes);
    }

    __attribute__((target("avx512f,avx512bw,avx512vl"), always_inline)) static inline __m128
    folded(__m512 x) {
        const __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x), 1));
        const __m256 half = _mm512_castps512_ps256(x) + high;
        return _mm256_castps256_ps128(half) + _mm256_extractf128_ps(half, 1);
    }

    // One row after the other, in the order memory brings them. Whether the prior is found too has
    // no part in the order of the other sums: a pass has the same bits either way.
    template <bool HAS_MASK, bool FINDS_PRIOR>
    __attribute__((target("avx512f,avx512bw,avx512vl"))) static void forward(
        const float *v, const std::uint8_t *m, const float *w, std::size_t c, double &n, double &d,
        double &u, double &k_in) {
        __m512 sum_v[4], sum_m[4], sum_u[4];
        unsigned count = 0;
        for (int l = 0; l < 4; ++l) sum_v[l] = sum_m[l] = sum_u[l] = _mm512_setzero_ps();
        std::size_t j = 0;
        for (; j + 64 <= c; j += 64)
            for (int l = 0; l < 4; ++l) {
                const std::size_t k = j + 16 * l;
                const __m512 weight = _mm512_loadu_ps(w + k), votes = _mm512_loadu_ps(v + k);
                const __mmask16 in = is_in<HAS_MASK>(m + k);
                sum_v[l] = _mm512_mask3_fmadd_ps(votes, weight, sum_v[l], in);
                if constexpr (HAS_MASK) sum_m[l] = _mm512_mask_add_ps(sum_m[l], in, sum_m[l], weight);
                if constexpr (FINDS_PRIOR) {
                    sum_u[l] = _mm512_mask_add_ps(sum_u[l], in, sum_u[l], votes);
                    count += __builtin_popcount(in);
                }
            }
        for (; j < c; j += 16) {
            const __mmask16 here = c - j >= 16 ? 0xffff : (1u << (c - j)) - 1u;
            const __m512 weight = _mm512_maskz_loadu_ps(here, w + j);
            const __mmask16 in = is_in<HAS_MASK>(m + j, here);
            const __m512 votes = _mm512_maskz_loadu_ps(in, v + j);
            sum_v[0] = _mm512_fmadd_ps(votes, weight, sum_v[0]);
            if constexpr (HAS_MASK) sum_m[0] = _mm512_mask_add_ps(sum_m[0], in, sum_m[0], weight);
            if constexpr (FINDS_PRIOR) {
                sum_u[0] = sum_u[0] + votes;
                count += __builtin_popcount(in);
            }
        }
        // Short rows are over before they are added up, so their sums go together.
        const __m128 votes = folded((sum_v[0] + sum_v[1]) + (sum_v[2] + sum_v[3]));
        const __m128 weight = folded((sum_m[0] + sum_m[1]) + (sum_m[2] + sum_m[3]));
        __m128 more = weight;
        if constexpr (FINDS_PRIOR) more = folded((sum_u[0] + sum_u[1]) + (sum_u[2] + sum_u[3]));
        const __m128 pairs = _mm_hadd_ps(votes, weight);
        const __m128 two = _mm_hadd_ps(pairs, FINDS_PRIOR ? _mm_hadd_ps(more, more) : pairs);
        if constexpr (FINDS_PRIOR) {
            u = two[2];
            k_in = count;
        }
        n = two[0];
        d = two[1];
    }

    // Rows so long that the weights leave the first cache: four at a time share their reading.
    template <bool HAS_MASK, bool FINDS_PRIOR>
    __attribute__((target("avx512f,avx512bw,avx512vl"))) static void forward_four(
        const float *v, const std::uint8_t *m, const float *w, std::size_t c, double *n, double *d,
        double *u, double *k_in) {
        __m512 sum_v[4], sum_m[4], sum_u[4];
        unsigned count[4] = {};
        for (int r = 0; r < 4; ++r) sum_v[r] = sum_m[r] = sum_u[r] = _mm512_setzero_ps();
        const std::size_t whole = c - c % 16;
        for (std::size_t j = 0; j < whole; j += 16) {
            const __m512 weight = _mm512_loadu_ps(w + j);
            for (int r = 0; r < 4; ++r) {
                const __mmask16 in = is_in<HAS_MASK>(m + r * c + j);
                const __m512 votes = _mm512_loadu_ps(v + r * c + j);
                sum_v[r] = _mm512_mask3_fmadd_ps(votes, weight, sum_v[r], in);
                if constexpr (HAS_MASK) sum_m[r] = _mm512_mask_add_ps(sum_m[r], in, sum_m[r], weight);
                if constexpr (FINDS_PRIOR) {
                    sum_u[r] = _mm512_mask_add_ps(sum_u[r], in, sum_u[r], votes);
                    count[r] += __builtin_popcount(in);
                }
            }
        }
        for (int r = 0; r < 4; ++r) {
            n[r] = _mm512_reduce_add_ps(sum_v[r]);
            d[r] = _mm512_reduce_add_ps(sum_m[r]);
            if constexpr (FINDS_PRIOR) {
                u[r] = _mm512_reduce_add_ps(sum_u[r]);
                k_in[r] = count[r];
            }
            for (std::size_t j = whole; j < c; ++j) {
                const bool in = !HAS_MASK || m[r * c + j];
                n[r] += in ? static_cast<double>(v[r * c + j] * w[j]) : 0.0;
                d[r] += in ? static_cast<double>(w[j]) : 0.0;
                if constexpr (FINDS_PRIOR) {
                    u[r] += in ? static_cast<double>(v[r * c + j]) : 0.0;
                    k_in[r] += in ? 1.0 : 0.0;
                }
            }
        }
    }

    template <std::size_t R, bool HAS_MASK>
    __attribute__((target("avx512f,avx512bw,avx512vl"))) static void transposed(
        const float *v, const std::uint8_t *m, const float *on_votes, const float *on_mask,
        std::size_t c, float *sums) {
        __m512 a[R], b[R];
        for (std::size_t r = 0; r < R; ++r) {
            a[r] = _mm512_set1_ps(on_votes[r]);
            b[r] = _mm512_set1_ps(on_mask[r]);
        }
        std::size_t j = 0;
        for (; j + 16 <= c; j += 16) {
            __m512 left = _mm512_loadu_ps(sums + j), right = _mm512_setzero_ps();
            for (std::size_t r = 0; r < R; ++r) {
                const __mmask16 in = is_in<HAS_MASK>(m + r * c + j);
                left = _mm512_mask3_fmadd_ps(_mm512_loadu_ps(v + r * c + j), a[r], left, in);
                right = _mm512_mask_add_ps(right, in, right, b[r]);
            }
            _mm512_storeu_ps(sums + j, left + right);
        }
        if (j < c) {
            const __mmask16 here = (1u << (c - j)) - 1u;
            __m512 total = _mm512_maskz_loadu_ps(here, sums + j);
            for (std::size_t r = 0; r < R; ++r) {
                const __mmask16 in = is_in<HAS_MASK>(m + r * c + j, here);
                total = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(in, v + r * c + j), a[r], total);
                total = _mm512_mask_add_ps(total, in, total, b[r]);
            }
            _mm512_mask_storeu_ps(sums + j, here, total);
        }
    }

    template <bool HAS_MASK, bool FINDS_PRIOR>
    __attribute__((target("avx512f,avx512bw,avx512vl"))) static void votes_of_rows(
        const float *v, const std::uint8_t *m, const float *w, std::size_t rows, std::size_t c,
        Turn &turn) {
        std::size_t r = 0;
        for (; c >= LONG_ROW && r + 4 <= rows; r += 4)
            forward_four<HAS_MASK, FINDS_PRIOR>(v + r * c, m + r * c, w, c, turn.n + r, turn.d + r,
                                      turn.sum + r, turn.count + r);
        for (; r < rows; ++r)
            forward<HAS_MASK, FINDS_PRIOR>(v + r * c, m + r * c, w, c, turn.n[r], turn.d[r], turn.sum[r],
                                 turn.count[r]);
    }

    template <bool HAS_MASK>
    __attribute__((target("avx512f,avx512bw,avx512vl"))) static double run_rows(
        const float *v, const std::uint8_t *m, const float *w, std::size_t rows, std::size_t first,
        std::size_t c, const RowTerms &t, float *sums, double &total) {
        Turn turn;
        if (t.finds_prior())
            votes_of_rows<HAS_MASK, true>(v, m, w, rows, c, turn);
        else
            votes_of_rows<HAS_MASK, false>(v, m, w, rows, c, turn);
        const double loss = settle(t, first, rows, turn, total);
        const float *a = turn.on_votes, *b = turn.on_mask;
        std::size_t r = 0;
        for (; r + 8 <= rows; r += 8)
            transposed<8, HAS_MASK>(v + r * c, m + r * c, a + r, b + r, c, sums);
        for (; r + 4 <= rows; r += 4)
            transposed<4, HAS_MASK>(v + r * c, m + r * c, a + r, b + r, c, sums);
        for (; r < rows; ++r)
            transposed<1, HAS_MASK>(v + r * c, m + r * c, a + r, b + r, c, sums);
        return loss;
    }

    static double run(const float *v, const std::uint8_t *m, const float *w, std::size_t rows,
                      std::size_t first, std::size_t c, const RowTerms &t, float *sums,
                      double &total) {
        if (t.has_mask) return run_rows<true>(v, m, w, rows, first, c, t, sums, total);
        return run_rows<false>(v, m, w, rows, first, c, t, sums, total);
    }
};

}  // namespace

#endif
