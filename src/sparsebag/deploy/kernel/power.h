// Powers of two in arithmetic that compilers make vectors of, which a call of the library's is not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "compare.h"
#include "nodes.h"

namespace sparsebag {

// Small functions that must be part of the loop they are in, or the loop is no vector's; and of
// the function it is in, or they are not of its instructions.
#if defined(__GNUC__)
#define SPARSEBAG_INLINE inline __attribute__((always_inline))
#else
#define SPARSEBAG_INLINE inline
#endif

#if defined(__GNUC__) || defined(_MSC_VER)
#define RESTRICT __restrict
#else
#define RESTRICT
#endif

SPARSEBAG_INLINE double at_least(double x, double least) { return x < least ? least : x; }
SPARSEBAG_INLINE double at_most(double x, double most) { return x > most ? most : x; }

constexpr double LOG2_E = 1.44269504088896340736;
constexpr double LEAST_POWER = -1000.0;  // exponents of two that float64 has

// 2^f for |f| <= 1/2, relative error below 3e-16 (Chebyshev's interpolation in 40 digits).
constexpr double POWERS[] = {1.0,
                             6.9314718055994998e-01,
                             2.4022650695910098e-01,
                             5.5504108664447719e-02,
                             9.6181291076068885e-03,
                             1.3333558230164974e-03,
                             1.5403530441736050e-04,
                             1.5252657260200837e-05,
                             1.3215442587921690e-06,
                             1.0208690299958306e-07,
                             7.0725859492692237e-09};
constexpr std::size_t N_POWERS = sizeof POWERS / sizeof POWERS[0];

// 2^t for |t| <= 1000, within a few units in the last place: n + f = t, |f| <= 1/2, the polynomial
// of 2^f by pairs (Estrin), since one chain of products would be waited for, and n added to the
// exponent's bits.
SPARSEBAG_INLINE double power_of_two(double t) {
    constexpr double MAGIC = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to a whole number
    const double shifted = t + MAGIC;
    const double f = t - (shifted - MAGIC);
    const double f2 = f * f, f4 = f2 * f2;
    const double a = (POWERS[3] * f + POWERS[2]) * f2 + (POWERS[1] * f + POWERS[0]);
    const double b = (POWERS[7] * f + POWERS[6]) * f2 + (POWERS[5] * f + POWERS[4]);
    const double c = POWERS[10] * f2 + (POWERS[9] * f + POWERS[8]);
    double p = (c * f4 + b) * f4 + a;
    std::uint64_t bits, exponent;
    std::memcpy(&bits, &p, sizeof bits);
    std::memcpy(&exponent, &shifted, sizeof exponent);
    bits += exponent << 52;
    std::memcpy(&p, &bits, sizeof p);
    return p;
}

#if defined(SPARSEBAG_X86)
__attribute__((target("avx2"), always_inline)) inline __m256d sum_of(__m256d x, __m256d y, __m256d z) {
    return _mm256_add_pd(_mm256_mul_pd(x, y), z);
}
__attribute__((target("avx2"), always_inline)) inline __m256d power_pair(std::size_t i, __m256d f) {
    return sum_of(_mm256_set1_pd(POWERS[i + 1]), f, _mm256_set1_pd(POWERS[i]));
}

// The same of R registers, step by step, so that none of them waits for its own last one.
template <std::size_t R>
__attribute__((target("avx2"), always_inline)) inline void powers_of_two(__m256d (&t)[R]) {
    const __m256d magic = _mm256_set1_pd(6755399441055744.0);
    __m256d f[R], f2[R], f4[R], a[R], b[R], c[R];
    __m256i n[R];
    UNROLLED for (std::size_t q = 0; q < R; ++q) {
        const __m256d shifted = _mm256_add_pd(t[q], magic);
        n[q] = _mm256_slli_epi64(_mm256_castpd_si256(shifted), 52);
        f[q] = _mm256_sub_pd(t[q], _mm256_sub_pd(shifted, magic));
    }
    UNROLLED for (std::size_t q = 0; q < R; ++q) f2[q] = _mm256_mul_pd(f[q], f[q]);
    UNROLLED for (std::size_t q = 0; q < R; ++q)
        a[q] = sum_of(power_pair(2, f[q]), f2[q], power_pair(0, f[q]));
    UNROLLED for (std::size_t q = 0; q < R; ++q)
        b[q] = sum_of(power_pair(6, f[q]), f2[q], power_pair(4, f[q]));
    UNROLLED for (std::size_t q = 0; q < R; ++q)
        c[q] = sum_of(_mm256_set1_pd(POWERS[10]), f2[q], power_pair(8, f[q]));
    UNROLLED for (std::size_t q = 0; q < R; ++q) f4[q] = _mm256_mul_pd(f2[q], f2[q]);
    UNROLLED for (std::size_t q = 0; q < R; ++q)
        c[q] = sum_of(sum_of(c[q], f4[q], b[q]), f4[q], a[q]);
    UNROLLED for (std::size_t q = 0; q < R; ++q)
        t[q] = _mm256_castsi256_pd(_mm256_add_epi64(_mm256_castpd_si256(c[q]), n[q]));
}
#endif

}  // namespace sparsebag
