// The two products every evaluation is made of, over one block of rows.
//
// The mask is read as bytes next to the votes, so it is neither stored nor converted to floats;
// BLAS would need both. `make bench-passes` shows what that is worth.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#if defined(__GNUC__) && defined(__x86_64__)
#include <immintrin.h>
#endif

namespace nb = nanobind;

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

// The whole evaluation of a block in one read: a few rows' products, their slopes, and the rows'
// share of the gradient while they are still in the first cache. `losses.py` has the slopes.
//
// What is known of rows beside their votes comes in one of two ways: of evidence in memory as
// uniform_vote and row_weight; of a block of a stream as prior (NaN: no member has the row out of
// bag), or, where that is not held, from the votes themselves while they are read. Pointers may be
// null: a target is then 1, a weight too.
struct RowTerms {
    const double *uniform_vote, *target, *row_weight;
    double prior_mass, least_denominator, least_vote, kept_share, floor, multiplicity;
    bool log_loss, is_zeroed;
    const float *prior = nullptr;
    float *found_prior = nullptr;
    double weight_scale = 1.0;

    bool finds_prior() const { return !uniform_vote && !prior; }
    double target_of(std::size_t i) const { return target ? target[i] : 1.0; }
};


constexpr std::size_t MOST_ROWS = 64;     // voted on, then differentiated, from the cache
constexpr std::size_t LOG_ROWS = 8;       // of equal weight, that share one logarithm
constexpr std::size_t SHORT_ROW = 400;    // members below which a turn stays in the first cache
constexpr std::size_t MEDIUM_ROW = 2048;  // members up to which the second one holds a large turn
constexpr std::size_t LONG_ROW = 4096;    // members whose weights take half the first cache
constexpr std::size_t FLUSH_ROWS = 64;  // rows summed in single precision before doubles take over

// Prior votes and weights of a few rows: as given, or from the sum and the number of a row's votes.
INLINE double priors_of_rows(const RowTerms &t, std::size_t first, std::size_t rows,
                             const double *sum, const double *count, double *prior,
                             double *weight) {
    if (t.uniform_vote) {
        for (std::size_t r = 0; r < rows; ++r) {
            prior[r] = t.uniform_vote[first + r];
            weight[r] = t.row_weight[first + r];
        }
        return 0.0;
    }
    // Plain loops without branches, which compile to vectors. Without votes 0 / 0 says so; sums that
    // overflowed both ways are no such thing.
    float vote[MOST_ROWS];
    if (t.prior)
        for (std::size_t r = 0; r < rows; ++r) vote[r] = t.prior[first + r];
    else
        for (std::size_t r = 0; r < rows; ++r) {
            const double mean = sum[r] / count[r];
            const bool overflowed = mean != mean && count[r] > 0.0;
            vote[r] = overflowed ? std::numeric_limits<float>::infinity() : static_cast<float>(mean);
        }
    if (t.found_prior)
        for (std::size_t r = 0; r < rows; ++r) t.found_prior[first + r] = vote[r];
    const double scale = t.weight_scale;
    for (std::size_t r = 0; r < rows; ++r) {
        const bool counts = vote[r] == vote[r];
        prior[r] = counts ? static_cast<double>(vote[r]) : 0.0;
        weight[r] = counts ? scale : 0.0;
    }
    if (t.row_weight)
        for (std::size_t r = 0; r < rows; ++r) weight[r] *= t.row_weight[first + r];
    double total = 0.0;
    for (std::size_t r = 0; r < rows; ++r) total += weight[r];
    return total;
}

// Losses of a few rows, from their products, and the slopes in them. Rows of equal weight, the
// usual case, share one logarithm: eight votes of at least 1e-15 multiply to no less than 1e-120.
INLINE double losses_of_rows(const RowTerms &t, std::size_t first, std::size_t rows,
                             const double *n, const double *d, const double *prior, double *weight,
                             float *on_votes, float *on_mask) {
    double p[MOST_ROWS], q[MOST_ROWS], share[MOST_ROWS], slope[MOST_ROWS];
    // Locals: what is stored below could be t's own, for all the compiler knows.
    const double tau = t.prior_mass, added = t.prior_mass + t.least_denominator;
    const double least = t.least_vote, kept = t.kept_share, floor = t.floor;
    const double multiplicity = t.multiplicity;
    for (std::size_t r = 0; r < rows; ++r) {
        share[r] = 1.0 / (d[r] + added);
        const double found = (n[r] + tau * prior[r]) * share[r];
        q[r] = found > least ? found : least;
        p[r] = kept * q[r] + floor;
        weight[r] *= multiplicity;
    }
    if (t.log_loss)
        for (std::size_t r = 0; r < rows; ++r) slope[r] = -1.0 / p[r];
    else
        for (std::size_t r = 0; r < rows; ++r) slope[r] = 2.0 * (p[r] - t.target_of(first + r));
    for (std::size_t r = 0; r < rows; ++r) {
        const double found = kept * weight[r] * slope[r] * share[r];
        on_votes[r] = static_cast<float>(found);
        on_mask[r] = static_cast<float>(-found * q[r]);
    }
    double loss = 0.0;
    if (!t.log_loss) {
        for (std::size_t r = 0; r < rows; ++r) {
            const double off = p[r] - t.target_of(first + r);
            loss += weight[r] * off * off;
        }
        return loss;
    }
    for (std::size_t begin = 0; begin < rows; begin += LOG_ROWS) {
        const std::size_t end = begin + LOG_ROWS < rows ? begin + LOG_ROWS : rows;
        double product = 1.0;
        bool alike = true;
        for (std::size_t r = begin; r < end; ++r) {
            product *= p[r];
            alike &= weight[r] == weight[begin];
        }
        if (alike)
            loss -= weight[begin] * std::log(product);
        else
            for (std::size_t r = begin; r < end; ++r) loss -= weight[r] * std::log(p[r]);
    }
    return loss;
}

// Wherever there are no kernels of our own below: two plain products of a few rows.
struct Portable {
    static double run(const float *v, const std::uint8_t *m, const float *w, std::size_t rows,
                      std::size_t first, std::size_t c, const RowTerms &t, float *sums,
                      double &total) {
        float a[MOST_ROWS], b[MOST_ROWS];
        double n[MOST_ROWS], d[MOST_ROWS], u[MOST_ROWS], k[MOST_ROWS], weight[MOST_ROWS];
        // Votes in the bag may be anything, NaN included: a copy of these rows has zeros there.
        static thread_local std::vector<float> kept;
        if (!t.is_zeroed) {
            kept.resize(rows * c);
            for (std::size_t j = 0; j < rows * c; ++j) kept[j] = m[j] ? v[j] : 0.0f;
            v = kept.data();
        }
        if (t.finds_prior()) {
            static thread_local std::vector<float> ones;
            ones.resize(c, 1.0f);
            forward_f32(v, m, ones.data(), rows, c, u, k);
        }
        forward_f32(v, m, w, rows, c, n, d);
        total += priors_of_rows(t, first, rows, u, k, u, weight);
        const double loss = losses_of_rows(t, first, rows, n, d, u, weight, a, b);
        transposed_f32(v, m, a, b, rows, c, sums);
        return loss;
    }
};

#if defined(__GNUC__) && defined(__x86_64__)
#define HAS_X86_KERNELS 1

// Sixteen members at a time. The mask's bytes become a mask register, so that its products are
// additions of the weights that are in; votes in the bag, whatever they hold, are not computed with.
struct Avx512 {
    __attribute__((target("avx512f,avx512bw,avx512vl"), always_inline)) static inline __mmask16
    is_in(const std::uint8_t *m, __mmask16 here = 0xffff) {
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
    template <bool FINDS_PRIOR>
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
                const __mmask16 in = is_in(m + k);
                sum_v[l] = _mm512_mask3_fmadd_ps(votes, weight, sum_v[l], in);
                sum_m[l] = _mm512_mask_add_ps(sum_m[l], in, sum_m[l], weight);
                if constexpr (FINDS_PRIOR) {
                    sum_u[l] = _mm512_mask_add_ps(sum_u[l], in, sum_u[l], votes);
                    count += __builtin_popcount(in);
                }
            }
        for (; j < c; j += 16) {
            const __mmask16 here = c - j >= 16 ? 0xffff : (1u << (c - j)) - 1u;
            const __m512 weight = _mm512_maskz_loadu_ps(here, w + j);
            const __mmask16 in = is_in(m + j, here);
            const __m512 votes = _mm512_maskz_loadu_ps(in, v + j);
            sum_v[0] = _mm512_fmadd_ps(votes, weight, sum_v[0]);
            sum_m[0] = _mm512_mask_add_ps(sum_m[0], in, sum_m[0], weight);
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
    template <bool FINDS_PRIOR>
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
                const __mmask16 in = is_in(m + r * c + j);
                const __m512 votes = _mm512_loadu_ps(v + r * c + j);
                sum_v[r] = _mm512_mask3_fmadd_ps(votes, weight, sum_v[r], in);
                sum_m[r] = _mm512_mask_add_ps(sum_m[r], in, sum_m[r], weight);
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
                n[r] += m[r * c + j] ? static_cast<double>(v[r * c + j] * w[j]) : 0.0;
                d[r] += m[r * c + j] ? static_cast<double>(w[j]) : 0.0;
                if constexpr (FINDS_PRIOR) {
                    u[r] += m[r * c + j] ? static_cast<double>(v[r * c + j]) : 0.0;
                    k_in[r] += m[r * c + j] ? 1.0 : 0.0;
                }
            }
        }
    }

    template <std::size_t R>
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
                const __mmask16 in = is_in(m + r * c + j);
                left = _mm512_mask3_fmadd_ps(_mm512_loadu_ps(v + r * c + j), a[r], left, in);
                right = _mm512_mask_add_ps(right, in, right, b[r]);
            }
            _mm512_storeu_ps(sums + j, left + right);
        }
        if (j < c) {
            const __mmask16 here = (1u << (c - j)) - 1u;
            __m512 total = _mm512_maskz_loadu_ps(here, sums + j);
            for (std::size_t r = 0; r < R; ++r) {
                const __mmask16 in = is_in(m + r * c + j, here);
                total = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(in, v + r * c + j), a[r], total);
                total = _mm512_mask_add_ps(total, in, total, b[r]);
            }
            _mm512_mask_storeu_ps(sums + j, here, total);
        }
    }

    template <bool FINDS_PRIOR>
    __attribute__((target("avx512f,avx512bw,avx512vl"))) static void votes_of_rows(const float *v, const std::uint8_t *m, const float *w,
                              std::size_t rows, std::size_t c, double *n, double *d, double *u,
                              double *k) {
        std::size_t r = 0;
        for (; c >= LONG_ROW && r + 4 <= rows; r += 4)
            forward_four<FINDS_PRIOR>(v + r * c, m + r * c, w, c, n + r, d + r, u + r, k + r);
        for (; r < rows; ++r)
            forward<FINDS_PRIOR>(v + r * c, m + r * c, w, c, n[r], d[r], u[r], k[r]);
    }

    __attribute__((target("avx512f,avx512bw,avx512vl"))) static double run(
        const float *v, const std::uint8_t *m, const float *w, std::size_t rows, std::size_t first,
        std::size_t c, const RowTerms &t, float *sums, double &total) {
        float a[MOST_ROWS], b[MOST_ROWS];
        double n[MOST_ROWS], d[MOST_ROWS], u[MOST_ROWS], k[MOST_ROWS], weight[MOST_ROWS];
        if (t.finds_prior())
            votes_of_rows<true>(v, m, w, rows, c, n, d, u, k);
        else
            votes_of_rows<false>(v, m, w, rows, c, n, d, u, k);
        total += priors_of_rows(t, first, rows, u, k, u, weight);
        const double loss = losses_of_rows(t, first, rows, n, d, u, weight, a, b);
        std::size_t r = 0;
        for (; r + 8 <= rows; r += 8) transposed<8>(v + r * c, m + r * c, a + r, b + r, c, sums);
        for (; r + 4 <= rows; r += 4) transposed<4>(v + r * c, m + r * c, a + r, b + r, c, sums);
        for (; r < rows; ++r) transposed<1>(v + r * c, m + r * c, a + r, b + r, c, sums);
        return loss;
    }
};
#endif

// Rows voted on before they are differentiated. Each turn from the one to the other lets memory's
// read-ahead run dry, so turns are few where many rows fit the second cache; short rows do best from
// the first one, and few long ones fill the second.
std::size_t rows_a_turn(std::size_t c) {
    if (c >= LONG_ROW) return 4;
    return c >= SHORT_ROW && c <= MEDIUM_ROW ? MOST_ROWS : 8;
}

template <typename KERNEL>
double loss_and_gradient_by(const float *v, const std::uint8_t *m, const float *w, std::size_t rows,
                            std::size_t c, const RowTerms &t, float *sums, double *gradient,
                            double &total) {
    const std::size_t group = rows_a_turn(c);
    double loss = 0.0;
    for (std::size_t i = 0; i < rows;) {
        const std::size_t end = i + FLUSH_ROWS < rows ? i + FLUSH_ROWS : rows;
        for (std::size_t k = 0; k < c; ++k) sums[k] = 0.0f;
        for (; i < end; i += group) {
            const std::size_t left = end - i < group ? end - i : group;
            loss += KERNEL::run(v + i * c, m + i * c, w, left, i, c, t, sums, total);
        }
        i = end;
        for (std::size_t k = 0; k < c; ++k) gradient[k] += sums[k];
    }
    return loss;
}

using Evaluate = decltype(&loss_and_gradient_by<Portable>);

Evaluate choose_kernel() {
#if defined(HAS_X86_KERNELS)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl"))
        return loss_and_gradient_by<Avx512>;
#endif
    return loss_and_gradient_by<Portable>;
}

Evaluate evaluate() {
    static const Evaluate chosen = choose_kernel();
    return chosen;
}

template <typename T>
using Matrix = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Vector = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Output = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void check(bool fits) {
    if (!fits) throw nb::value_error("evidence pass: array shapes disagree");
}

template <typename T, auto KERNEL>
void forward(Matrix<T> votes, Matrix<std::uint8_t> mask, Vector<T> weights, Output<double> n,
             Output<double> d) {
    const std::size_t rows = votes.shape(0), members = votes.shape(1);
    check(mask.shape(0) == rows && mask.shape(1) == members && weights.shape(0) == members &&
          n.shape(0) == rows && d.shape(0) == rows);
    nb::gil_scoped_release release;
    KERNEL(votes.data(), mask.data(), weights.data(), rows, members, n.data(), d.data());
}

template <typename T, auto KERNEL>
void transposed(Matrix<T> votes, Matrix<std::uint8_t> mask, Vector<T> on_votes, Vector<T> on_mask,
                Output<T> sums) {
    const std::size_t rows = votes.shape(0), members = votes.shape(1);
    check(mask.shape(0) == rows && mask.shape(1) == members && on_votes.shape(0) == rows &&
          on_mask.shape(0) == rows && sums.shape(0) == members);
    nb::gil_scoped_release release;
    KERNEL(votes.data(), mask.data(), on_votes.data(), on_mask.data(), rows, members, sums.data());
}

double loss_and_gradient(Matrix<float> votes, Matrix<std::uint8_t> mask, Vector<float> weights,
                         Vector<double> uniform_vote, Vector<double> target,
                         Vector<double> row_weight, bool log_loss, double prior_mass,
                         double least_denominator, double least_vote, double kept_share,
                         double floor, double multiplicity, bool is_zeroed, Output<float> sums,
                         Output<double> gradient) {
    const std::size_t rows = votes.shape(0), members = votes.shape(1);
    check(mask.shape(0) == rows && mask.shape(1) == members && weights.shape(0) == members &&
          uniform_vote.shape(0) == rows && target.shape(0) == rows && row_weight.shape(0) == rows &&
          sums.shape(0) == members && gradient.shape(0) == members);
    const RowTerms terms{uniform_vote.data(), target.data(), row_weight.data(), prior_mass,
                         least_denominator,   least_vote,    kept_share,        floor,
                         multiplicity,        log_loss,      is_zeroed};
    double total = 0.0;
    nb::gil_scoped_release release;
    return evaluate()(votes.data(), mask.data(), weights.data(), rows, members, terms, sums.data(),
                      gradient.data(), total);
}

// The same of a stream's block, whose rows are known by their prior votes or not at all; vectors of
// no length are not given, or not wanted. Sums are not divided by the weight of the rows.
nb::tuple block_loss_and_gradient(Matrix<float> votes, Matrix<std::uint8_t> mask,
                                  Vector<float> weights, Vector<float> prior,
                                  Output<float> found_prior, Vector<double> target,
                                  Vector<double> row_weight, double weight_scale, bool log_loss,
                                  double prior_mass, double least_denominator, double least_vote,
                                  double kept_share, double floor, double multiplicity,
                                  bool is_zeroed, Output<float> sums, Output<double> gradient) {
    const std::size_t rows = votes.shape(0), members = votes.shape(1);
    const auto fits = [rows](std::size_t length) { return length == rows || length == 0; };
    check(mask.shape(0) == rows && mask.shape(1) == members && weights.shape(0) == members &&
          fits(prior.shape(0)) && fits(found_prior.shape(0)) && fits(target.shape(0)) &&
          fits(row_weight.shape(0)) && sums.shape(0) == members && gradient.shape(0) == members);
    RowTerms terms{nullptr,
                   target.shape(0) ? target.data() : nullptr,
                   row_weight.shape(0) ? row_weight.data() : nullptr,
                   prior_mass,
                   least_denominator,
                   least_vote,
                   kept_share,
                   floor,
                   multiplicity,
                   log_loss,
                   is_zeroed};
    terms.prior = prior.shape(0) ? prior.data() : nullptr;
    terms.found_prior = found_prior.shape(0) ? found_prior.data() : nullptr;
    terms.weight_scale = weight_scale;
    double loss = 0.0, total = 0.0;
    {
        nb::gil_scoped_release release;
        loss = evaluate()(votes.data(), mask.data(), weights.data(), rows, members, terms,
                          sums.data(), gradient.data(), total);
    }
    return nb::make_tuple(loss, total);
}

}  // namespace

NB_MODULE(_passes, m) {
    m.doc() = "Products of a block of votes and its byte mask with one vector each.";
    // noconvert: a converted output would be a copy, and the result lost with it.
    const auto exact = nb::arg().noconvert();
    m.def("forward", &forward<float, forward_f32>, exact, exact, exact, exact, exact);
    m.def("forward", &forward<double, forward_f64>, exact, exact, exact, exact, exact);
    m.def("loss_and_gradient", &loss_and_gradient, exact, exact, exact, exact, exact, exact, exact,
          exact, exact, exact, exact, exact, exact, exact, exact, exact);
    m.def("block_loss_and_gradient", &block_loss_and_gradient, exact, exact, exact, exact, exact,
          exact, exact, exact, exact, exact, exact, exact, exact, exact, exact, exact, exact, exact);
    m.def("transposed", &transposed<float, transposed_f32>, exact, exact, exact, exact, exact);
    m.def("transposed", &transposed<double, transposed_f64>, exact, exact, exact, exact, exact);
}
