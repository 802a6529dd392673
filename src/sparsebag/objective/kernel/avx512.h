#ifndef SPARSEBAG_AVX512_H
#define SPARSEBAG_AVX512_H

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "row_terms.h"

#define SPARSEBAG_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,fma")))
#define SPARSEBAG_AVX512_INLINE \
    __attribute__((target("avx512f,avx512bw,avx512vl,fma"), always_inline)) static inline

namespace {

// Sixteen members at a time. The mask's bytes become a mask register, so that its products are additions of the weights that are
// in; votes in the bag, whatever they hold, are not computed with.
struct Avx512 {
    // Without a mask all that are here: the compiler then leaves out what a mask would do.
    template <bool HAS_MASK>
    SPARSEBAG_AVX512_INLINE __mmask16 is_in(const std::uint8_t *m, __mmask16 here = 0xffff) {
        if constexpr (!HAS_MASK) return here;
        const __m128i bytes = _mm_maskz_loadu_epi8(here, m);
        return _mm_test_epi8_mask(bytes, bytes);
    }

    // Of one row; sixteen of each, still to be added up.
    struct Sums {
        __m512 votes, weights, plain, count;
    };

    template <bool HAS_MASK, bool FINDS_PRIOR>
    SPARSEBAG_AVX512_INLINE void add(Sums &s, __m512 votes, __m512 weight, __mmask16 in) {
        s.votes = _mm512_mask3_fmadd_ps(votes, weight, s.votes, in);
        if constexpr (HAS_MASK) s.weights = _mm512_mask_add_ps(s.weights, in, s.weights, weight);
        if constexpr (FINDS_PRIOR) {
            s.plain = _mm512_mask_add_ps(s.plain, in, s.plain, votes);
            if constexpr (HAS_MASK)
                s.count = _mm512_mask_add_ps(s.count, in, s.count, _mm512_set1_ps(1.0f));
        }
    }

    SPARSEBAG_AVX512_INLINE void add(Sums &s, const Sums &more) {
        s.votes = _mm512_add_ps(s.votes, more.votes);
        s.weights = _mm512_add_ps(s.weights, more.weights);
        s.plain = _mm512_add_ps(s.plain, more.plain);
        s.count = _mm512_add_ps(s.count, more.count);
    }

    template <bool HAS_MASK, bool FINDS_PRIOR>
    SPARSEBAG_AVX512_INLINE void add_sixteen(Sums &s, const float *v, const std::uint8_t *m,
                                             const float *w) {
        add<HAS_MASK, FINDS_PRIOR>(s, _mm512_loadu_ps(v), _mm512_loadu_ps(w), is_in<HAS_MASK>(m));
    }

    // The members after the last whole sixteen.
    template <bool HAS_MASK, bool FINDS_PRIOR>
    SPARSEBAG_AVX512_INLINE void add_rest(Sums &s, const float *v, const std::uint8_t *m,
                                          const float *w, std::size_t done, std::size_t c) {
        if (done == c) return;
        const __mmask16 here = static_cast<__mmask16>((1u << (c - done)) - 1u);
        add<HAS_MASK, FINDS_PRIOR>(s, _mm512_maskz_loadu_ps(here, v + done),
                                   _mm512_maskz_loadu_ps(here, w + done),
                                   is_in<HAS_MASK>(m + done, here));
    }

    // A short row, or part of one, two sums at a time. Whether the prior is found too has no part in
    // the order of the other sums: a pass has the same bits either way.
    template <bool HAS_MASK, bool FINDS_PRIOR>
    SPARSEBAG_AVX512_INLINE Sums sums_of_part(const float *v, const std::uint8_t *m, const float *w,
                                              std::size_t c) {
        Sums s{}, t{};
        std::size_t j = 0;
        for (; j + 32 <= c; j += 32) {
            add_sixteen<HAS_MASK, FINDS_PRIOR>(s, v + j, m + j, w + j);
            add_sixteen<HAS_MASK, FINDS_PRIOR>(t, v + j + 16, m + j + 16, w + j + 16);
        }
        for (; j + 16 <= c; j += 16) add_sixteen<HAS_MASK, FINDS_PRIOR>(s, v + j, m + j, w + j);
        add_rest<HAS_MASK, FINDS_PRIOR>(s, v, m, w, j, c);
        add(s, t);
        return s;
    }

    template <bool HAS_MASK, bool FINDS_PRIOR>
    SPARSEBAG_AVX512_INLINE Sums sums_of_row(const float *v, const std::uint8_t *m, const float *w,
                                             std::size_t c) {
        Sums all{};
        for (std::size_t j = 0; j < c; j += SUMMED_MEMBERS) {
            const std::size_t here = c - j < SUMMED_MEMBERS ? c - j : SUMMED_MEMBERS;
            add(all, sums_of_part<HAS_MASK, FINDS_PRIOR>(v + j, m + j, w + j, here));
        }
        return all;
    }

    // R rows so long that the weights leave the first cache: four at a time share their reading, and
    // one alone is added up in the same order. Shorter ones are read one after the other, in the order
    // memory brings them.
    template <std::size_t R, bool HAS_MASK, bool FINDS_PRIOR>
    SPARSEBAG_AVX512_INLINE void sums_of_long_rows(const float *v, const std::uint8_t *m,
                                                   const float *w, std::size_t c, Sums *all) {
        std::size_t j = 0;
        for (std::size_t end = 0; end < c;) {
            end = end + SUMMED_MEMBERS < c ? end + SUMMED_MEMBERS : c;
            Sums s[R]{};
            for (; j + 16 <= end; j += 16) {
                const __m512 weight = _mm512_loadu_ps(w + j);
                for (std::size_t r = 0; r < R; ++r)
                    add<HAS_MASK, FINDS_PRIOR>(s[r], _mm512_loadu_ps(v + r * c + j), weight,
                                               is_in<HAS_MASK>(m + r * c + j));
            }
            for (std::size_t r = 0; r < R; ++r) add(all[r], s[r]);
        }
        for (std::size_t r = 0; r < R; ++r)
            add_rest<HAS_MASK, FINDS_PRIOR>(all[r], v + r * c, m + r * c, w, j, c);
    }

    SPARSEBAG_AVX512_INLINE __m256 half(__m512 x) {
        const __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x), 1));
        return _mm256_add_ps(_mm512_castps512_ps256(x), high);
    }

    SPARSEBAG_AVX512_INLINE __m256 pairs(__m256 a, __m256 b) {
        return _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xdd));
    }

    SPARSEBAG_AVX512_INLINE __m256d added_up(__m512 a, __m512 b, __m512 c, __m512 d) {
        const __m256 sums = pairs(pairs(half(a), half(b)), pairs(half(c), half(d)));
        return _mm256_cvtps_pd(
            _mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps(sums, 1)));
    }

    // Four rows' sums at a time: adding up a short row's alone takes as long as reading it.
    template <bool FINDS_PRIOR>
    SPARSEBAG_AVX512_INLINE void store(const Sums (&s)[4], Turn &turn, std::size_t r) {
        _mm256_storeu_pd(turn.n + r, added_up(s[0].votes, s[1].votes, s[2].votes, s[3].votes));
        _mm256_storeu_pd(turn.d + r,
                         added_up(s[0].weights, s[1].weights, s[2].weights, s[3].weights));
        if constexpr (FINDS_PRIOR) {
            _mm256_storeu_pd(turn.sum + r,
                             added_up(s[0].plain, s[1].plain, s[2].plain, s[3].plain));
            _mm256_storeu_pd(turn.count + r,
                             added_up(s[0].count, s[1].count, s[2].count, s[3].count));
        }
    }

    template <std::size_t R, bool HAS_MASK>
    SPARSEBAG_AVX512 static void transposed(const float *v, const std::uint8_t *m,
                                            const float *on_votes, const float *on_mask,
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
                total = _mm512_mask3_fmadd_ps(_mm512_maskz_loadu_ps(in, v + r * c + j), a[r], total,
                                              in);
                total = _mm512_mask_add_ps(total, in, total, b[r]);
            }
            _mm512_mask_storeu_ps(sums + j, here, total);
        }
    }

    template <bool HAS_MASK, bool FINDS_PRIOR>
    SPARSEBAG_AVX512 static void votes_of_rows(const float *v, const std::uint8_t *m,
                                               const float *w, std::size_t rows, std::size_t c,
                                               Turn &turn) {
        std::size_t r = 0;
        for (; r + 4 <= rows; r += 4) {
            const float *x = v + r * c;
            const std::uint8_t *y = m + r * c;
            if (c <= SUMMED_MEMBERS) {
                const Sums s[4]{sums_of_part<HAS_MASK, FINDS_PRIOR>(x, y, w, c),
                                sums_of_part<HAS_MASK, FINDS_PRIOR>(x + c, y + c, w, c),
                                sums_of_part<HAS_MASK, FINDS_PRIOR>(x + 2 * c, y + 2 * c, w, c),
                                sums_of_part<HAS_MASK, FINDS_PRIOR>(x + 3 * c, y + 3 * c, w, c)};
                store<FINDS_PRIOR>(s, turn, r);
                continue;
            }
            Sums s[4]{};
            if (c < LONG_ROW)
                for (std::size_t i = 0; i < 4; ++i)
                    s[i] = sums_of_row<HAS_MASK, FINDS_PRIOR>(x + i * c, y + i * c, w, c);
            else
                sums_of_long_rows<4, HAS_MASK, FINDS_PRIOR>(x, y, w, c, s);
            store<FINDS_PRIOR>(s, turn, r);
        }
        for (; r < rows; ++r) {  // what is stored of rows after it is written over, or not read
            Sums s[4]{};
            if (c >= LONG_ROW)
                sums_of_long_rows<1, HAS_MASK, FINDS_PRIOR>(v + r * c, m + r * c, w, c, s);
            else
                s[0] = sums_of_row<HAS_MASK, FINDS_PRIOR>(v + r * c, m + r * c, w, c);
            store<FINDS_PRIOR>(s, turn, r);
        }
    }

    template <bool HAS_MASK>
    SPARSEBAG_AVX512 static void run_rows(const float *v, const std::uint8_t *m, const float *w,
                                            std::size_t rows, std::size_t first, std::size_t c,
                                            const RowTerms &t, float *sums, Totals &found) {
        Turn turn;
        if (t.finds_prior())
            votes_of_rows<HAS_MASK, true>(v, m, w, rows, c, turn);
        else
            votes_of_rows<HAS_MASK, false>(v, m, w, rows, c, turn);
        settle(t, first, rows, turn, found);
        const float *a = turn.on_votes, *b = turn.on_mask;
        std::size_t r = 0;
        for (; r + 8 <= rows; r += 8)
            transposed<8, HAS_MASK>(v + r * c, m + r * c, a + r, b + r, c, sums);
        for (; r + 4 <= rows; r += 4)
            transposed<4, HAS_MASK>(v + r * c, m + r * c, a + r, b + r, c, sums);
        for (; r < rows; ++r)
            transposed<1, HAS_MASK>(v + r * c, m + r * c, a + r, b + r, c, sums);
    }

    static void run(const float *v, const std::uint8_t *m, const float *w, std::size_t rows,
                      std::size_t first, std::size_t c, const RowTerms &t, float *sums,
                      Totals &found) {
        if (t.has_mask) return run_rows<true>(v, m, w, rows, first, c, t, sums, found);
        return run_rows<false>(v, m, w, rows, first, c, t, sums, found);
    }
};

}  // namespace

#undef SPARSEBAG_AVX512
#undef SPARSEBAG_AVX512_INLINE

#endif
