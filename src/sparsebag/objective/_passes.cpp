// The two products every evaluation is made of, over one block of rows.
//
// The mask is read as bytes next to the votes, so it is neither stored nor converted to floats;
// BLAS would need both. `make bench-passes` shows what that is worth.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
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
struct RowTerms {
    const double *uniform_vote, *target, *row_weight;
    double prior_mass, least_denominator, least_vote, kept_share, floor, multiplicity;
    bool log_loss, is_zeroed;
};

constexpr std::size_t MOST_ROWS = 64;     // voted on, then differentiated, from the cache
constexpr std::size_t LOG_ROWS = 8;       // of equal weight, that share one logarithm
constexpr std::size_t SHORT_ROW = 400;    // members below which a turn stays in the first cache
constexpr std::size_t MEDIUM_ROW = 2048;  // members up to which the second one holds a large turn
constexpr std::size_t LONG_ROW = 4096;    // members whose weights take half the first cache
constexpr std::size_t FLUSH_ROWS = 64;  // rows summed in single precision before doubles take over

// Losses of a few rows, from their products, and the slopes in them. Rows of equal weight, the
// usual case, share one logarithm: eight votes of at least 1e-15 multiply to no less than 1e-120.
INLINE double losses_of_rows(const RowTerms &t, std::size_t first, std::size_t rows,
                             const double *n, const double *d, float *on_votes, float *on_mask) {
    double p[MOST_ROWS], weight[MOST_ROWS];
    for (std::size_t r = 0; r < rows; ++r) {
        const std::size_t i = first + r;
        const double share = 1.0 / (d[r] + t.prior_mass + t.least_denominator);
        double q = (n[r] + t.prior_mass * t.uniform_vote[i]) * share;
        q = q > t.least_vote ? q : t.least_vote;
        p[r] = t.kept_share * q + t.floor;
        weight[r] = t.multiplicity * t.row_weight[i];
        const double slope = t.log_loss ? -1.0 / p[r] : 2.0 * (p[r] - t.target[i]);
        const double found = t.kept_share * weight[r] * slope * share;
        on_votes[r] = static_cast<float>(found);
        on_mask[r] = static_cast<float>(-found * q);
    }
    double loss = 0.0;
    if (!t.log_loss) {
        for (std::size_t r = 0; r < rows; ++r) {
            const double off = p[r] - t.target[first + r];
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
                      std::size_t first, std::size_t c, const RowTerms &t, float *sums) {
        float a[MOST_ROWS], b[MOST_ROWS];
        double n[MOST_ROWS], d[MOST_ROWS];
        // Votes in the bag may be anything, NaN included: a copy of these rows has zeros there.
        static thread_local std::vector<float> kept;
        if (!t.is_zeroed) {
            kept.resize(rows * c);
            for (std::size_t k = 0; k < rows * c; ++k) kept[k] = m[k] ? v[k] : 0.0f;
            v = kept.data();
        }
        forward_f32(v, m, w, rows, c, n, d);
        const double loss = losses_of_rows(t, first, rows, n, d, a, b);
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

    // One row after the other, in the order memory brings them.
    __attribute__((target("avx512f,avx512bw,avx512vl"))) static void forward(
        const float *v, const std::uint8_t *m, const float *w, std::size_t c, double &n,
        double &d) {
        __m512 sum_v[4], sum_m[4];
        for (int l = 0; l < 4; ++l) sum_v[l] = sum_m[l] = _mm512_setzero_ps();
        std::size_t j = 0;
        for (; j + 64 <= c; j += 64)
            for (int l = 0; l < 4; ++l) {
                const std::size_t k = j + 16 * l;
                const __m512 weight = _mm512_loadu_ps(w + k);
                const __mmask16 in = is_in(m + k);
                sum_v[l] = _mm512_mask3_fmadd_ps(_mm512_loadu_ps(v + k), weight, sum_v[l], in);
                sum_m[l] = _mm512_mask_add_ps(sum_m[l], in, sum_m[l], weight);
            }
        for (; j < c; j += 16) {
            const __mmask16 here = c - j >= 16 ? 0xffff : (1u << (c - j)) - 1u;
            const __m512 weight = _mm512_maskz_loadu_ps(here, w + j);
            const __mmask16 in = is_in(m + j, here);
            sum_v[0] = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(in, v + j), weight, sum_v[0]);
            sum_m[0] = _mm512_mask_add_ps(sum_m[0], in, sum_m[0], weight);
        }
        n = _mm512_reduce_add_ps((sum_v[0] + sum_v[1]) + (sum_v[2] + sum_v[3]));
        d = _mm512_reduce_add_ps((sum_m[0] + sum_m[1]) + (sum_m[2] + sum_m[3]));
    }

    // Rows so long that the weights leave the first cache: four at a time share their reading.
    __attribute__((target("avx512f,avx512bw,avx512vl"))) static void forward_four(
        const float *v, const std::uint8_t *m, const float *w, std::size_t c, double *n,
        double *d) {
        __m512 sum_v[4], sum_m[4];
        for (int r = 0; r < 4; ++r) sum_v[r] = sum_m[r] = _mm512_setzero_ps();
        const std::size_t whole = c - c % 16;
        for (std::size_t j = 0; j < whole; j += 16) {
            const __m512 weight = _mm512_loadu_ps(w + j);
            for (int r = 0; r < 4; ++r) {
                const __mmask16 in = is_in(m + r * c + j);
                const __m512 votes = _mm512_loadu_ps(v + r * c + j);
                sum_v[r] = _mm512_mask3_fmadd_ps(votes, weight, sum_v[r], in);
                sum_m[r] = _mm512_mask_add_ps(sum_m[r], in, sum_m[r], weight);
            }
        }
        for (int r = 0; r < 4; ++r) {
            n[r] = _mm512_reduce_add_ps(sum_v[r]);
            d[r] = _mm512_reduce_add_ps(sum_m[r]);
            for (std::size_t j = whole; j < c; ++j) {
                n[r] += m[r * c + j] ? static_cast<double>(v[r * c + j] * w[j]) : 0.0;
                d[r] += m[r * c + j] ? static_cast<double>(w[j]) : 0.0;
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

    static double run(const float *v, const std::uint8_t *m, const float *w, std::size_t rows,
                      std::size_t first, std::size_t c, const RowTerms &t, float *sums) {
        float a[MOST_ROWS], b[MOST_ROWS];
        double n[MOST_ROWS], d[MOST_ROWS];
        std::size_t r = 0;
        for (; c >= LONG_ROW && r + 4 <= rows; r += 4)
            forward_four(v + r * c, m + r * c, w, c, n + r, d + r);
        for (; r < rows; ++r) forward(v + r * c, m + r * c, w, c, n[r], d[r]);
        const double loss = losses_of_rows(t, first, rows, n, d, a, b);
        r = 0;
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
                            std::size_t c, const RowTerms &t, float *sums, double *gradient) {
    const std::size_t group = rows_a_turn(c);
    double loss = 0.0;
    for (std::size_t i = 0; i < rows;) {
        const std::size_t end = i + FLUSH_ROWS < rows ? i + FLUSH_ROWS : rows;
        for (std::size_t k = 0; k < c; ++k) sums[k] = 0.0f;
        for (; i < end; i += group) {
            const std::size_t left = end - i < group ? end - i : group;
            loss += KERNEL::run(v + i * c, m + i * c, w, left, i, c, t, sums);
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
    static const Evaluate evaluate = choose_kernel();
    nb::gil_scoped_release release;
    return evaluate(votes.data(), mask.data(), weights.data(), rows, members, terms, sums.data(),
                    gradient.data());
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
    m.def("transposed", &transposed<float, transposed_f32>, exact, exact, exact, exact, exact);
    m.def("transposed", &transposed<double, transposed_f64>, exact, exact, exact, exact, exact);
}
