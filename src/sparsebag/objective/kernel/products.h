// Products of rows of votes and mask bytes with one vector each, as the compiler makes them.
#ifndef SPARSEBAG_PRODUCTS_H
#define SPARSEBAG_PRODUCTS_H

#include <cstddef>
#include <cstdint>

// Wider vectors where the machine has them, chosen when the module loads; no -march flag needed.
// Needs ifunc, hence glibc.
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__)
#define DISPATCH __attribute__((target_clones("avx512f", "arch=haswell", "default")))
#else
#define DISPATCH
#endif

#if defined(_MSC_VER)
#define INLINE __forceinline
#else
#define INLINE inline __attribute__((always_inline))
#endif

namespace {

constexpr std::size_t LANES = 32;  // independent partial sums: vectorises without -ffast-math
constexpr std::size_t TAIL_LANES = 8;
constexpr std::size_t ROWS = 4;    // rows whose contributions share one load and store of a sum

template <typename T>
INLINE void forward_rows(const T *votes, const std::uint8_t *mask,
                                                        const T *weights, std::size_t n_rows,
                                                        std::size_t n_members, double *n,
                                                        double *d) {
    for (std::size_t i = 0; i < n_rows; ++i) {
        const T *v = votes + i * n_members;
        const std::uint8_t *m = mask + i * n_members;
        T sum_v[LANES] = {}, sum_m[LANES] = {};
        std::size_t j = 0;
        for (; j + LANES <= n_members; j += LANES)
            for (std::size_t l = 0; l < LANES; ++l) {
                sum_v[l] += v[j + l] * weights[j + l];
                sum_m[l] += static_cast<T>(m[j + l]) * weights[j + l];
            }
        for (; j + TAIL_LANES <= n_members; j += TAIL_LANES)  // short rows live in the tail
            for (std::size_t l = 0; l < TAIL_LANES; ++l) {
                sum_v[l] += v[j + l] * weights[j + l];
                sum_m[l] += static_cast<T>(m[j + l]) * weights[j + l];
            }
        double total_v = 0.0, total_m = 0.0;
        for (std::size_t l = 0; l < LANES; ++l) {
            total_v += sum_v[l];
            total_m += sum_m[l];
        }
        for (; j < n_members; ++j) {
            total_v += static_cast<double>(v[j] * weights[j]);
            total_m += static_cast<double>(static_cast<T>(m[j]) * weights[j]);
        }
        n[i] = total_v;
        d[i] = total_m;
    }
}

template <typename T>
INLINE void transposed_rows(const T *votes,
                                                           const std::uint8_t *mask,
                                                           const T *on_votes, const T *on_mask,
                                                           std::size_t n_rows,
                                                           std::size_t n_members, T *sums) {
    std::size_t i = 0;
    for (; i + ROWS <= n_rows; i += ROWS) {
        const T *v = votes + i * n_members;
        const std::uint8_t *m = mask + i * n_members;
        const T a0 = on_votes[i], a1 = on_votes[i + 1], a2 = on_votes[i + 2], a3 = on_votes[i + 3];
        const T b0 = on_mask[i], b1 = on_mask[i + 1], b2 = on_mask[i + 2], b3 = on_mask[i + 3];
        for (std::size_t j = 0; j < n_members; ++j) {
            const std::size_t j1 = j + n_members, j2 = j1 + n_members, j3 = j2 + n_members;
            const T left = (a0 * v[j] + a1 * v[j1]) + (a2 * v[j2] + a3 * v[j3]);
            const T right = (b0 * static_cast<T>(m[j]) + b1 * static_cast<T>(m[j1])) +
                            (b2 * static_cast<T>(m[j2]) + b3 * static_cast<T>(m[j3]));
            sums[j] += left + right;
        }
    }
    for (; i < n_rows; ++i) {
        const T *v = votes + i * n_members;
        const std::uint8_t *m = mask + i * n_members;
        for (std::size_t j = 0; j < n_members; ++j)
            sums[j] += on_votes[i] * v[j] + on_mask[i] * static_cast<T>(m[j]);
    }
}

DISPATCH void forward_f32(const float *v, const std::uint8_t *m, const float *w, std::size_t r,
                          std::size_t c, double *n, double *d) {
    forward_rows<float>(v, m, w, r, c, n, d);
}
DISPATCH void forward_f64(const double *v, const std::uint8_t *m, const double *w, std::size_t r,
                          std::size_t c, double *n, double *d) {
    forward_rows<double>(v, m, w, r, c, n, d);
}
DISPATCH void transposed_f32(const float *v, const std::uint8_t *m, const float *a, const float *b,
                             std::size_t r, std::size_t c, float *s) {
    transposed_rows<float>(v, m, a, b, r, c, s);
}
DISPATCH void transposed_f64(const double *v, const std::uint8_t *m, const double *a,
                             const double *b, std::size_t r, std::size_t c, double *s) {
    transposed_rows<double>(v, m, a, b, r, c, s);
}

}  // namespace

#endif
