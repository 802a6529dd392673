#ifndef SPARSEBAG_AVX2_H
#define SPARSEBAG_AVX2_H

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "portable.h"
#include "row_terms.h"

#define SPARSEBAG_AVX2 __attribute__((target("avx2,fma")))
#define SPARSEBAG_AVX2_INLINE __attribute__((target("avx2,fma"), always_inline)) static inline

namespace {

// Eight members at a time. A mask's bytes become integers, whose sign (0 or above) keeps or clears
// the bits of a number: one instruction, whatever is set in the byte, and whatever a vote in the
// bag holds, NaN included.
struct Avx2 {
    static constexpr std::size_t LANES_OF = 8;

    // What rows hold of the members that have them in the bag: anything, zeros, or there is no mask
    // and no such member. Then no mask is read, and `RowTerms` has the weights' sum.
    enum class InBag { ANYTHING, ZEROS, NOBODY };

    template <InBag IN_BAG = InBag::ANYTHING>
    SPARSEBAG_AVX2_INLINE __m256i is_in(const std::uint8_t *m) {
        if constexpr (IN_BAG == InBag::NOBODY) return _mm256_setzero_si256();  // is not asked
        return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(m)));
    }

    SPARSEBAG_AVX2_INLINE __m256 kept(__m256 x, __m256i in) {
        return _mm256_castsi256_ps(_mm256_sign_epi32(_mm256_castps_si256(x), in));
    }

    // The members after the last whole eight, 1 to 7 of them; a row has eight at least, so that their
    // bytes can be read with those before them and shifted to the front. Other lanes are zero.
    template <InBag IN_BAG>
    SPARSEBAG_AVX2_INLINE __m256i is_in_rest(const std::uint8_t *end, std::size_t rest) {
        if constexpr (IN_BAG == InBag::NOBODY) return _mm256_setzero_si256();
        const __m128i eight = _mm_loadl_epi64(reinterpret_cast<const __m128i *>(end - LANES_OF));
        const __m128i bits = _mm_cvtsi64_si128(static_cast<long long>(8 * (LANES_OF - rest)));
        return _mm256_cvtepu8_epi32(_mm_srl_epi64(eight, bits));
    }

    SPARSEBAG_AVX2_INLINE __m256i first_lanes(std::size_t n) {
        const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), lane);
    }

    SPARSEBAG_AVX2_INLINE __m128 folded(__m256 x) {
        return _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    }

    struct Sums {
        __m256 votes, weights, plain, count;
    };

    template <bool FINDS_PRIOR, InBag IN_BAG>
    SPARSEBAG_AVX2_INLINE void add(Sums &s, __m256 votes, __m256 weight, __m256i in) {
        if constexpr (IN_BAG == InBag::ANYTHING) votes = kept(votes, in);
        s.votes = _mm256_fmadd_ps(votes, weight, s.votes);
        if constexpr (FINDS_PRIOR) s.plain = _mm256_add_ps(s.plain, votes);
        if constexpr (IN_BAG != InBag::NOBODY) {
            s.weights = _mm256_add_ps(s.weights, kept(weight, in));
            if constexpr (FINDS_PRIOR)
                s.count = _mm256_add_ps(s.count, kept(_mm256_set1_ps(1.0f), in));
        }
    }

    template <bool FINDS_PRIOR>
    SPARSEBAG_AVX2_INLINE void finish(const Sums &s, double &n, double &d, double &u, double &k) {
        const __m128 pairs = _mm_hadd_ps(folded(s.votes), folded(s.weights));
        __m128 more = pairs;
        if constexpr (FINDS_PRIOR) more = _mm_hadd_ps(folded(s.plain), folded(s.count));
        const __m128 four = _mm_hadd_ps(pairs, more);
        n = four[0];
        d = four[1];
        if constexpr (FINDS_PRIOR) {
            u = four[2];
            k = four[3];
        }
    }

    template <bool FINDS_PRIOR, InBag IN_BAG>
    SPARSEBAG_AVX2_INLINE void add_rest(Sums &s, const float *v, const std::uint8_t *m,
                                        const float *w, std::size_t done, std::size_t c) {
        if (done == c) return;
        const __m256i lanes = first_lanes(c - done);
        add<FINDS_PRIOR, IN_BAG>(s, _mm256_maskload_ps(v + done, lanes),
                                 _mm256_maskload_ps(w + done, lanes),
                                 is_in_rest<IN_BAG>(m + c, c - done));
    }

    SPARSEBAG_AVX2_INLINE __m256 once(const float *x) {
        __m256 held = _mm256_loadu_ps(x);
        asm("" : "+x"(held));  // compilers would read it twice
        return held;
    }

    // One row, several sums at a time. Whether the prior is found too has no part in the order of
    // the other sums: a pass has the same bits either way.
    template <bool FINDS_PRIOR, InBag IN_BAG>
    SPARSEBAG_AVX2 static void forward(const float *v, const std::uint8_t *m, const float *w,
                                       std::size_t c, double &n, double &d, double &u, double &k) {
        constexpr std::size_t SUMS = 3;
        const __m256 zero = _mm256_setzero_ps();
        Sums s[SUMS];
        for (std::size_t l = 0; l < SUMS; ++l) s[l] = {zero, zero, zero, zero};
        std::size_t j = 0;
        for (; j + SUMS * LANES_OF <= c; j += SUMS * LANES_OF)
            for (std::size_t l = 0; l < SUMS; ++l) {
                const std::size_t at = j + LANES_OF * l;
                add<FINDS_PRIOR, IN_BAG>(s[l], _mm256_loadu_ps(v + at), once(w + at),
                                         is_in<IN_BAG>(m + at));
            }
        for (; j + LANES_OF <= c; j += LANES_OF)
            add<FINDS_PRIOR, IN_BAG>(s[0], _mm256_loadu_ps(v + j), once(w + j),
                                     is_in<IN_BAG>(m + j));
        add_rest<FINDS_PRIOR, IN_BAG>(s[0], v, m, w, j, c);
        for (std::size_t l = 1; l < SUMS; ++l) {
            s[0].votes = _mm256_add_ps(s[0].votes, s[l].votes);
            s[0].weights = _mm256_add_ps(s[0].weights, s[l].weights);
            s[0].plain = _mm256_add_ps(s[0].plain, s[l].plain);
            s[0].count = _mm256_add_ps(s[0].count, s[l].count);
        }
        finish<FINDS_PRIOR>(s[0], n, d, u, k);
    }

    // Rows so long that the weights leave the first cache: four at a time share their reading.
    template <bool FINDS_PRIOR, InBag IN_BAG>
    SPARSEBAG_AVX2 static void forward_four(const float *v, const std::uint8_t *m, const float *w,
                                            std::size_t c, double *n, double *d, double *u,
                                            double *k) {
        const __m256 zero = _mm256_setzero_ps();
        Sums s[4];
        for (int r = 0; r < 4; ++r) s[r] = {zero, zero, zero, zero};
        std::size_t j = 0;
        for (; j + LANES_OF <= c; j += LANES_OF) {
            const __m256 weight = once(w + j);
            for (int r = 0; r < 4; ++r)
                add<FINDS_PRIOR, IN_BAG>(s[r], _mm256_loadu_ps(v + r * c + j), weight,
                                         is_in<IN_BAG>(m + r * c + j));
        }
        for (int r = 0; r < 4; ++r) {
            add_rest<FINDS_PRIOR, IN_BAG>(s[r], v + r * c, m + r * c, w, j, c);
            finish<FINDS_PRIOR>(s[r], n[r], d[r], u[r], k[r]);
        }
    }

    template <InBag IN_BAG>
    SPARSEBAG_AVX2_INLINE void differentiate(__m256 votes, __m256i in, __m256 a, __m256 b,
                                             __m256 &left, __m256 &right) {
        if constexpr (IN_BAG == InBag::ANYTHING) votes = kept(votes, in);
        left = _mm256_fmadd_ps(votes, a, left);
        right = _mm256_add_ps(right, IN_BAG == InBag::NOBODY ? b : kept(b, in));
    }

    // Of four rows, the sum of `b` over every set of them: sets of the first three a lane, without
    // and with the fourth. In the order in which it would be added row by row.
    struct SetSums {
        __m256 without, with;

        SPARSEBAG_AVX2_INLINE SetSums of(const __m256 *b) {
            const __m256i first = _mm256_setr_epi32(0, 1, 0, 1, 0, 1, 0, 1);
            const __m256i second = _mm256_setr_epi32(0, 0, 1, 1, 0, 0, 1, 1);
            const __m256i third = _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1);
            const __m256 two = _mm256_add_ps(kept(b[0], first), kept(b[1], second));
            const __m256 sum = _mm256_add_ps(two, kept(b[2], third));
            return {sum, _mm256_add_ps(sum, b[3])};
        }

        SPARSEBAG_AVX2_INLINE __m256 at(const SetSums &sums, __m256i set) {
            const __m256 fourth = _mm256_castsi256_ps(_mm256_slli_epi32(set, 28));  // the sign
            return _mm256_blendv_ps(_mm256_permutevar8x32_ps(sums.without, set),
                                    _mm256_permutevar8x32_ps(sums.with, set), fourth);
        }
    };

    // Which of four rows have each of 32 members out of bag, a bit a row.
    SPARSEBAG_AVX2_INLINE __m256i sets_of(const std::uint8_t *m, std::size_t c) {
        __m256i set = _mm256_setzero_si256();
        for (std::size_t r = 4; r-- > 0;) {
            const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(m + r * c));
            const __m256i bit = _mm256_min_epu8(bytes, _mm256_set1_epi8(1));
            set = _mm256_add_epi8(_mm256_add_epi8(set, set), bit);
        }
        return set;
    }

    // Adds to sums, which has room for whole eights; what is past the last member means nothing.
    // Votes that are zero in the bag need no mask of their own: what four rows' masks add to a member
    // is looked up at once.
    template <std::size_t R, InBag IN_BAG>
    SPARSEBAG_AVX2 static void transposed(const float *v, const std::uint8_t *m,
                                          const float *on_votes, const float *on_mask,
                                          std::size_t c, float *sums) {
        __m256 a[R], b[R];
        for (std::size_t r = 0; r < R; ++r) {
            a[r] = _mm256_set1_ps(on_votes[r]);
            b[r] = _mm256_set1_ps(on_mask[r]);
        }
        std::size_t j = 0;
        if constexpr (R == 4 && IN_BAG == InBag::ZEROS) {
            const SetSums on_sets = SetSums::of(b);
            for (; j + 4 * LANES_OF <= c; j += 4 * LANES_OF) {
                alignas(32) std::uint8_t sets[4 * LANES_OF];
                _mm256_store_si256(reinterpret_cast<__m256i *>(sets), sets_of(m + j, c));
                for (std::size_t k = 0; k < 4 * LANES_OF; k += LANES_OF) {
                    __m256 left = _mm256_loadu_ps(sums + j + k);
                    for (std::size_t r = 0; r < R; ++r)
                        left = _mm256_fmadd_ps(_mm256_loadu_ps(v + r * c + j + k), a[r], left);
                    const __m256 right = SetSums::at(on_sets, is_in(sets + k));
                    _mm256_storeu_ps(sums + j + k, _mm256_add_ps(left, right));
                }
            }
        }
        for (; j + LANES_OF <= c; j += LANES_OF) {
            __m256 left = _mm256_loadu_ps(sums + j), right = _mm256_setzero_ps();
            for (std::size_t r = 0; r < R; ++r)
                differentiate<IN_BAG>(_mm256_loadu_ps(v + r * c + j), is_in<IN_BAG>(m + r * c + j),
                                      a[r], b[r], left, right);
            _mm256_storeu_ps(sums + j, _mm256_add_ps(left, right));
        }
        if (j < c) {
            const __m256i lanes = first_lanes(c - j);
            __m256 left = _mm256_loadu_ps(sums + j), right = _mm256_setzero_ps();
            for (std::size_t r = 0; r < R; ++r)
                differentiate<IN_BAG>(_mm256_maskload_ps(v + r * c + j, lanes),
                                      is_in_rest<IN_BAG>(m + (r + 1) * c, c - j), a[r], b[r], left,
                                      right);
            _mm256_storeu_ps(sums + j, _mm256_add_ps(left, right));
        }
    }

    template <bool FINDS_PRIOR, InBag IN_BAG>
    SPARSEBAG_AVX2 static void votes_of_rows(const float *v, const std::uint8_t *m, const float *w,
                                             std::size_t rows, std::size_t c, Turn &turn) {
        std::size_t r = 0;
        for (; c >= LONG_ROW && r + 4 <= rows; r += 4)
            forward_four<FINDS_PRIOR, IN_BAG>(v + r * c, m + r * c, w, c, turn.n + r, turn.d + r,
                                              turn.sum + r, turn.count + r);
        for (; r < rows; ++r)
            forward<FINDS_PRIOR, IN_BAG>(v + r * c, m + r * c, w, c, turn.n[r], turn.d[r],
                                         turn.sum[r], turn.count[r]);
    }

    template <InBag IN_BAG>
    SPARSEBAG_AVX2 static double run_rows(const float *v, const std::uint8_t *m, const float *w,
                                          std::size_t rows, std::size_t first, std::size_t c,
                                          const RowTerms &t, float *sums, double &total) {
        Turn turn;
        if (t.finds_prior())
            votes_of_rows<true, IN_BAG>(v, m, w, rows, c, turn);
        else
            votes_of_rows<false, IN_BAG>(v, m, w, rows, c, turn);
        const double loss = settle(t, first, rows, turn, total);
        std::size_t r = 0;
        for (; r + 4 <= rows; r += 4)
            transposed<4, IN_BAG>(v + r * c, m + r * c, turn.on_votes + r, turn.on_mask + r, c,
                                  sums);
        for (; r < rows; ++r)
            transposed<1, IN_BAG>(v + r * c, m + r * c, turn.on_votes + r, turn.on_mask + r, c,
                                  sums);
        return loss;
    }

    static double run(const float *v, const std::uint8_t *m, const float *w, std::size_t rows,
                      std::size_t first, std::size_t c, const RowTerms &t, float *sums,
                      double &total) {
        if (c < LANES_OF) return Portable::run(v, m, w, rows, first, c, t, sums, total);
        if (!t.has_mask) return run_rows<InBag::NOBODY>(v, m, w, rows, first, c, t, sums, total);
        if (t.is_zeroed) return run_rows<InBag::ZEROS>(v, m, w, rows, first, c, t, sums, total);
        return run_rows<InBag::ANYTHING>(v, m, w, rows, first, c, t, sums, total);
    }
};

}  // namespace

#undef SPARSEBAG_AVX2
#undef SPARSEBAG_AVX2_INLINE

#endif
