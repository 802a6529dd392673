// Which of 64 rows are above each of many thresholds, one bit a row.
//
// The only code here that knows a processor: portable C++, SSE2, and AVX2 where the machine that
// runs it has it (no build flags, so one wheel serves all). All give the same bits.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "keys.h"

#if defined(__SSE2__) && defined(__GNUC__)
#define SPARSEBAG_X86 1
#include <immintrin.h>
#endif

namespace sparsebag {

struct Split {
    std::uint32_t feature, threshold;
};

// Splits sorted by feature; features[k] is the first split of the k-th one, the last their number.
struct Splits {
    std::vector<Split> all;
    std::vector<std::uint32_t> features;
};

constexpr std::uint32_t SIGN = 0x80000000u;  // flipped, unsigned order becomes signed order

// keys: of the first of WORD rows, groups of LANES rows `width` apart; the bits of split j go to
// above[j * stride].
using Compare = void (*)(const Splits &, const std::uint32_t *keys, std::size_t width,
                         std::uint64_t *above, std::size_t stride);

// Written for the compiler to make vectors of: lanes of LANES rows collect their bits apart.
inline void compare_portable(const Splits &splits, const std::uint32_t *keys, std::size_t width,
                             std::uint64_t *above, std::size_t stride) {
    const Split *split = splits.all.data();
    std::int32_t x[WORD];
    std::uint32_t bit[WORD / 2];
    for (std::size_t i = 0; i < WORD / 2; ++i) bit[i] = std::uint32_t(1) << i;
    for (std::size_t f = 0; f + 1 < splits.features.size(); ++f) {
        const std::uint32_t *from = keys + split[splits.features[f]].feature;
        for (std::size_t i = 0; i < WORD; ++i)
            x[i] = static_cast<std::int32_t>(from[i / LANES * width + i % LANES] ^ SIGN);
        for (std::size_t j = splits.features[f]; j < splits.features[f + 1]; ++j) {
            const auto t = static_cast<std::int32_t>(split[j].threshold ^ SIGN);
            std::uint32_t low[LANES] = {}, high[LANES] = {};
            for (std::size_t g = 0; g < WORD / 2; g += LANES)
                for (std::size_t l = 0; l < LANES; ++l) {
                    low[l] |= t < x[g + l] ? bit[g + l] : 0;
                    high[l] |= t < x[WORD / 2 + g + l] ? bit[g + l] : 0;
                }
            for (std::size_t l = 1; l < LANES; ++l) {
                low[0] |= low[l];
                high[0] |= high[l];
            }
            above[j * stride] = static_cast<std::uint64_t>(high[0]) << 32 | low[0];
        }
    }
}

#if defined(SPARSEBAG_X86)
inline void compare_sse2(const Splits &splits, const std::uint32_t *keys, std::size_t width,
                         std::uint64_t *above, std::size_t stride) {
    const Split *split = splits.all.data();
    const __m128i sign = _mm_set1_epi32(static_cast<int>(SIGN));
    for (std::size_t f = 0; f + 1 < splits.features.size(); ++f) {
        __m128i x[WORD / 4];
        const std::uint32_t *from = keys + split[splits.features[f]].feature;
        for (std::size_t g = 0; g < WORD / 4; ++g)
            x[g] = _mm_xor_si128(sign, _mm_loadu_si128(reinterpret_cast<const __m128i *>(
                                           from + g / 2 * width + g % 2 * 4)));
        for (std::size_t j = splits.features[f]; j < splits.features[f + 1]; ++j) {
            const __m128i t = _mm_set1_epi32(static_cast<int>(split[j].threshold ^ SIGN));
            std::uint64_t bits = 0;
            UNROLLED for (int g = 0; g < 4; ++g) {
                const __m128i *of = x + 4 * g;
                const __m128i low = _mm_packs_epi32(_mm_cmpgt_epi32(of[0], t),
                                                    _mm_cmpgt_epi32(of[1], t));
                const __m128i high = _mm_packs_epi32(_mm_cmpgt_epi32(of[2], t),
                                                     _mm_cmpgt_epi32(of[3], t));
                const int sixteen = _mm_movemask_epi8(_mm_packs_epi16(low, high));
                bits |= static_cast<std::uint64_t>(static_cast<std::uint32_t>(sixteen)) << 16 * g;
            }
            above[j * stride] = bits;
        }
    }
}

__attribute__((target("avx2"))) inline std::uint64_t above_avx2(const __m256i *x, __m256i t) {
    const __m256i low = _mm256_packs_epi32(_mm256_cmpgt_epi32(x[0], t), _mm256_cmpgt_epi32(x[1], t));
    const __m256i high =
        _mm256_packs_epi32(_mm256_cmpgt_epi32(x[2], t), _mm256_cmpgt_epi32(x[3], t));
    // Packs stay within halves of a register: four bytes of each operand's first half, then of
    // its second; the permutation puts rows back in order.
    const __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high),
                                                      _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    return static_cast<std::uint32_t>(_mm256_movemask_epi8(bytes));
}

__attribute__((target("avx2"))) inline void compare_avx2(const Splits &splits,
                                                         const std::uint32_t *keys,
                                                         std::size_t width, std::uint64_t *above,
                                                         std::size_t stride) {
    const Split *split = splits.all.data();
    const __m256i sign = _mm256_set1_epi32(static_cast<int>(SIGN));
    for (std::size_t f = 0; f + 1 < splits.features.size(); ++f) {
        __m256i x[WORD / LANES];
        const std::uint32_t *from = keys + split[splits.features[f]].feature;
        for (std::size_t g = 0; g < WORD / LANES; ++g)
            x[g] = _mm256_xor_si256(
                sign, _mm256_loadu_si256(reinterpret_cast<const __m256i *>(from + g * width)));
        for (std::size_t j = splits.features[f]; j < splits.features[f + 1]; ++j) {
            const __m256i t = _mm256_set1_epi32(static_cast<int>(split[j].threshold ^ SIGN));
            above[j * stride] = above_avx2(x, t) | above_avx2(x + 4, t) << 32;
        }
    }
}
#endif

// How linear regressors under a smooth gate are summed (smooth_lines.h): in any C++, or with fused
// multiplications and registers of four numbers, or of eight where rows are many.
enum class LineSums { portable, few, eight };

struct Instructions {
    const char *name;
    Compare compare;
    double split_cost;  // of one split against a word of rows, in choice.h's unit
    LineSums lines;
};

// What this machine can run, the fastest last.
inline const std::vector<Instructions> &instructions() {
    static const std::vector<Instructions> all = [] {
        std::vector<Instructions> out{{"portable", compare_portable, 9.8, LineSums::portable}};
#if defined(SPARSEBAG_X86)
        out.push_back({"sse2", compare_sse2, 3.0, LineSums::portable});
        if (!__builtin_cpu_supports("avx2")) return out;
        const bool fused = __builtin_cpu_supports("fma");
        const LineSums lines = fused ? LineSums::few : LineSums::portable;
        out.push_back({"avx2", compare_avx2, 1.6, lines});
        if (fused && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
            __builtin_cpu_supports("avx512vl"))
            out.push_back({"avx512", compare_avx2, 1.6, LineSums::eight});
#endif
        return out;
    }();
    return all;
}

inline std::atomic<const Instructions *> &chosen_instructions() {
    static std::atomic<const Instructions *> chosen{&instructions().back()};
    return chosen;
}

}  // namespace sparsebag
