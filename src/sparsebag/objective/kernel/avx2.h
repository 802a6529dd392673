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

    // Of one row; eight of each, still to be added up.
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

    SPARSEBAG_AVX2_INLINE void add(Sums &s, const Sums &more) {
        s.votes = _mm256_add_ps(s.votes, more.votes);
        s.weights = _mm256_add_ps(s.weights, more.weights);
        s.plain = _mm256_add_ps(s.plain, more.plain);
        s.count = _mm256_add_ps(s.count, more.count);
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

    // A short row, or part of one, two sums at a time. Whether the prior is found too has no part in
    // the order of the other sums: a pass has the same bits either way.
    template <bool FINDS_PRIOR, InBag IN_BAG>
    SPARSEBAG_AVX2_INLINE Sums sums_of_part(const float *v, const std::uint8_t *m, const float *w,
                                            std::size_t c) {
        Sums s{}, t{};
        std::size_t j = 0;
        for (; j + 2 * LANES_OF <= c; j += 2 * LANES_OF) {
            const std::size_t k = j + LANES_OF;
            add<FINDS_PRIOR, IN_BAG>(s, _mm256_loadu_ps(v + j), once(w + j), is_in<IN_BAG>(m + j));
            add<FINDS_PRIOR, IN_BAG>(t, _mm256_loadu_ps(v + k), once(w + k), is_in<IN_BAG>(m + k));
        }
        for (; j + LANES_OF <= c; j += LANES_OF)
            add<FINDS_PRIOR, IN_BAG>(s, _mm256_loadu_ps(v + j), once(w + j), is_in<IN_BAG>(m + j));
        add_rest<FINDS_PRIOR, IN_BAG>(s, v, m, w, j, c);
        add(s, t);
        return s;
    }

    template <bool FINDS_PRIOR, InBag IN_BAG>
    SPARSEBAG_AVX2_INLINE Sums sums_of_row(const float *v, const std::uint8_t *m, const float *w,
                                           std::size_t c) {
        Sums all{};
        for (std::size_t j = 0; j < c; j += SUMMED_MEMBERS) {
            const std::size_t here = c - j < SUMMED_MEMBERS ? c - j : SUMMED_MEMBERS;
            add(all, sums_of_part<FINDS_PRIOR, IN_BAG>(v + j, m + j, w + j, here));
        }
        return all;
    }

    // R rows so long that the weights leave the first cache: four at a time share their reading, and
    // one alone is added up in the same order. Shorter ones are read one after the other, in the order
    // memory brings them.
    template <std::size_t R, bool FINDS_PRIOR, InBag IN_BAG>
    SPARSEBAG_AVX2_INLINE void sums_of_long_rows(const float *v, const std::uint8_t *m,
                                                 const float *w, std::size_t c, Sums *all) {
        std::size_t j = 0;
        for (std::size_t end = 0; end < c;) {
            end = end + SUMMED_MEMBERS < c ? end + SUMMED_MEMBERS : c;
            Sums s[R]{};
            for (; j + LANES_OF <= end; j += LANES_OF) {
                const __m256 weight = once(w + j);
                for (std::size_t r = 0; r < R; ++r)
                    add<FINDS_PRIOR, IN_BAG>(s[r], _mm256_loadu_ps(v + r * c + j), weight,
                                             is_in<IN_BAG>(m + r * c + j));
            }
            for (std::size_t r = 0; r < R; ++r) add(all[r], s[r]);
        }
        for (std::size_t r = 0; r < R; ++r)
            add_rest<FINDS_PRIOR, IN_BAG>(all[r], v + r * c, m + r * c, w, j, c);
    }

    SPARSEBAG_AVX2_INLINE __m256d added_up(__m256 a, __m256 b, __m256 c, __m256 d) {
        const __m256 halves = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
        return _mm256_cvtps_pd(
            _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1)));
    }

    // Four rows' sums at a time: adding up a short row's alone takes as long as reading it.
    template <bool FINDS_PRIOR>
    SPARSEBAG_AVX2_INLINE void store(const Sums (&s)[4], Turn &turn, std::size_t r) {
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
        for (; r + 4 <= rows; r += 4) {
            const float *x = v + r * c;
            const std::uint8_t *y = m + r * c;
            if (c <= SUMMED_MEMBERS) {
                const Sums s[4]{sums_of_part<FINDS_PRIOR, IN_BAG>(x, y, w, c),
                                sums_of_part<FINDS_PRIOR, IN_BAG>(x + c, y + c, w, c),
                                sums_of_part<FINDS_PRIOR, IN_BAG>(x + 2 * c, y + 2 * c, w, c),
                                sums_of_part<FINDS_PRIOR, IN_BAG>(x + 3 * c, y + 3 * c, w, c)};
                store<FINDS_PRIOR>(s, turn, r);
                continue;
            }
            Sums s[4]{};
            if (c < LONG_ROW)
                for (std::size_t i = 0; i < 4; ++i)
                    s[i] = sums_of_row<FINDS_PRIOR, IN_BAG>(x + i * c, y + i * c, w, c);
            else
                sums_of_long_rows<4, FINDS_PRIOR, IN_BAG>(x, y, w, c, s);
            store<FINDS_PRIOR>(s, turn, r);
        }
        for (; r < rows; ++r) {  // what is stored of rows after it is written over, or not read
            Sums s[4]{};
            if (c >= LONG_ROW)
                sums_of_long_rows<1, FINDS_PRIOR, IN_BAG>(v + r * c, m + r * c, w, c, s);
            else
                s[0] = sums_of_row<FINDS_PRIOR, IN_BAG>(v + r * c, m + r * c, w, c);
            store<FINDS_PRIOR>(s, turn, r);
        }
    }

    template <InBag IN_BAG>
    SPARSEBAG_AVX2 static void run_rows(const float *v, const std::uint8_t *m, const float *w,
                                          std::size_t rows, std::size_t first, std::size_t c,
                                          const RowTerms &t, float *sums, Totals &found) {
        Turn turn;
        if (t.finds_prior())
            votes_of_rows<true, IN_BAG>(v, m, w, rows, c, turn);
        else
            votes_of_rows<false, IN_BAG>(v, m, w, rows, c, turn);
        settle(t, first, rows, turn, found);
        std::size_t r = 0;
        for (; r + 4 <= rows; r += 4)
            transposed<4, IN_BAG>(v + r * c, m + r * c, turn.on_votes + r, turn.on_mask + r, c,
                                  sums);
        for (; r < rows; ++r)
            transposed<1, IN_BAG>(v + r * c, m + r * c, turn.on_votes + r, turn.on_mask + r, c,
                                  sums);
    }

    static void run(const float *v, const std::uint8_t *m, const float *w, std::size_t rows,
                      std::size_t first, std::size_t c, const RowTerms &t, float *sums,
                      Totals &found) {
        if (c < LANES_OF) return Portable::run(v, m, w, rows, first, c, t, sums, found);
        if (!t.has_mask) return run_rows<InBag::NOBODY>(v, m, w, rows, first, c, t, sums, found);
        if (t.is_zeroed) return run_rows<InBag::ZEROS>(v, m, w, rows, first, c, t, sums, found);
        return run_rows<InBag::ANYTHING>(v, m, w, rows, first, c, t, sums, found);
    }
};

}  // namespace

#undef SPARSEBAG_AVX2
#undef SPARSEBAG_AVX2_INLINE

#endif
