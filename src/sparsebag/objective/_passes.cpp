// The two products every evaluation is made of, over one block of rows.
//
// The mask is read as bytes next to the votes, so it is neither stored nor converted to floats;
// BLAS would need both. `make bench-passes` shows what that is worth.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernel/losses.h"
#include "kernel/module.h"
#include "kernel/threads.h"

// Wider vectors where the machine has them, chosen when the module loads; no -march flag needed.
// Needs ifunc, hence glibc.
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__)
#define DISPATCH __attribute__((target_clones("avx512f", "arch=haswell", "default")))
#else
#define DISPATCH
#endif

namespace {

using namespace sparsebag;

// -- kernels of one source --------------------------------------------------------------------------

#if defined(__clang__)
#define SHUFFLED(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLED(a, b, ...) __builtin_shuffle(a, b, Places{__VA_ARGS__})
#endif

#define KERNEL one_by_one
#define TARGET
#define LANES 1
#include "kernel/rows.h"
#if defined(__GNUC__)
// A byte each, in place: only whether it is zero is asked.
typedef std::int32_t FourInts __attribute__((vector_size(16)));
INLINE FourInts four_bytes(const std::uint8_t *m) {
    constexpr std::uint8_t OWN[16] = {255, 0, 0, 0, 0, 255, 0, 0, 0, 0, 255, 0, 0, 0, 0, 255};
    std::int32_t all;
    FourInts own;
    std::memcpy(&all, m, sizeof all);
    std::memcpy(&own, OWN, sizeof own);
    return own & all;
}
#define KERNEL portable
#define TARGET
#define LANES 4
#define WIDENED(m) four_bytes(m)
#include "kernel/rows.h"
#else
namespace portable = one_by_one;
#endif
#if defined(SPARSEBAG_X86)
#define KERNEL avx2
#define TARGET __attribute__((target("avx2,fma")))
#define LANES 8
#define WIDENED(m) _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(m)))
#define KEPT(x, in) _mm256_sign_epi32((__m256i)(x), (__m256i)(in))
#include "kernel/rows.h"
#endif

using Evaluate = decltype(&one_by_one::evaluate);

struct Kernel {
    const char *name;
    std::size_t lanes;  // members of a row, at least
    Evaluate evaluate;
};

Ways<Kernel> &kernels() {
    static Ways<Kernel> here([] {
        std::vector<Kernel> all{{"portable", 4, portable::evaluate}};
#if defined(SPARSEBAG_X86)
        if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
            all.push_back({"avx2", 8, avx2::evaluate});
#endif
        return all;
    }());
    return here;
}

// -- one pass -----------------------------------------------------------------------------------------

constexpr std::size_t ENTRY_BYTES = 5;       // a vote and its mask
constexpr std::size_t PART_BYTES = 1 << 20;  // of evidence, at least: less is not worth a helper
constexpr std::size_t MOST_PARTS = 64;

// Cuts of rows into a power of two of parts, which most numbers of threads share evenly. They lie
// between groups of FLUSH_ROWS, which single precision adds up: sums over blocks of whole groups
// then do not depend on the number of groups a block has, but for a double's last digits.
struct Parts {
    std::size_t rows, groups, n = 1;

    Parts(std::size_t rows, std::size_t members)
        : rows(rows), groups((rows + FLUSH_ROWS - 1) / FLUSH_ROWS) {
        const std::size_t fit =
            std::min({MOST_PARTS, rows * members * ENTRY_BYTES / PART_BYTES, rows / FLUSH_ROWS});
        while (2 * n <= fit) n *= 2;
    }

    // Of at most so many threads, those that have a part to read.
    std::size_t threads(std::size_t most) const {
        return std::max<std::size_t>(1, std::min(most, n));
    }

    std::size_t begin(std::size_t part) const {
        return std::min(rows, part * groups / n * FLUSH_ROWS);
    }
    std::size_t end(std::size_t part) const { return begin(part + 1); }
};

// Rows voted on before they are differentiated. Each turn from the one to the other lets memory's
// read-ahead run dry, so turns are few where many rows fit the second cache; short rows do best from
// the first one, and few long ones fill the second.
std::size_t rows_a_turn(std::size_t c) {
    return c >= SHORT_ROW && c <= MEDIUM_ROW ? MOST_ROWS : 16;
}

// Every row's share, by as many threads as the evidence is worth. A mask without rows is none.
double evaluate(const In<float, 2> &votes, const In<std::uint8_t, 2> &mask, const float *w,
                RowTerms t, std::size_t n_threads, double *gradient) {
    const std::size_t rows = votes.shape(0), c = votes.shape(1);
    const float *v = votes.data();
    t.has_mask = mask.shape(0) > 0;
    if (!t.has_mask)
        for (std::size_t k = 0; k < c; ++k) t.denominator += w[k];
    // Kernels count bytes from here in any case; without a mask they read none.
    const std::uint8_t *m =
        t.has_mask ? mask.data() : reinterpret_cast<const std::uint8_t *>(votes.data());
    const Kernel &kernel = kernels().now();
    const Evaluate run = c < kernel.lanes ? one_by_one::evaluate : kernel.evaluate;
    const Parts parts(rows, c);
    n_threads = parts.threads(n_threads);
    std::vector<float> sums(n_threads * c);
    std::vector<double> slopes(parts.n > 1 ? parts.n * c : 0), losses(parts.n);
    share(parts.n, n_threads, [&](std::size_t part, std::size_t thread) {
        losses[part] = run(v, m, w, parts.begin(part), parts.end(part), c, rows_a_turn(c), t,
                           sums.data() + thread * c,
                           parts.n > 1 ? slopes.data() + part * c : gradient)
                           .loss;
    });
    for (std::size_t at = 0; at < slopes.size(); at += c)
        for (std::size_t k = 0; k < c; ++k) gradient[k] += slopes[at + k];
    double loss = 0.0;
    for (const double part : losses) loss += part;
    return loss;
}

// -- products, as the compiler makes them ----------------------------------------------------------

constexpr std::size_t PARTIAL_SUMS = 32;  // independent: vectorises without -ffast-math
constexpr std::size_t TAIL_SUMS = 8;
constexpr std::size_t ROWS = 4;  // whose contributions share one load and store of a sum

template <typename T>
INLINE void forward_rows(const T *votes, const std::uint8_t *mask, const T *weights,
                         std::size_t n_rows, std::size_t n_members, double *n, double *d) {
    for (std::size_t i = 0; i < n_rows; ++i) {
        const T *v = votes + i * n_members;
        const std::uint8_t *m = mask + i * n_members;
        T sum_v[PARTIAL_SUMS] = {}, sum_m[PARTIAL_SUMS] = {};
        std::size_t j = 0;
        for (; j + PARTIAL_SUMS <= n_members; j += PARTIAL_SUMS)
            for (std::size_t l = 0; l < PARTIAL_SUMS; ++l) {
                sum_v[l] += v[j + l] * weights[j + l];
                sum_m[l] += static_cast<T>(m[j + l]) * weights[j + l];
            }
        for (; j + TAIL_SUMS <= n_members; j += TAIL_SUMS)  // short rows live in the tail
            for (std::size_t l = 0; l < TAIL_SUMS; ++l) {
                sum_v[l] += v[j + l] * weights[j + l];
                sum_m[l] += static_cast<T>(m[j + l]) * weights[j + l];
            }
        double total_v = 0.0, total_m = 0.0;
        for (std::size_t l = 0; l < PARTIAL_SUMS; ++l) {
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
INLINE void transposed_rows(const T *votes, const std::uint8_t *mask, const T *on_votes,
                            const T *on_mask, std::size_t n_rows, std::size_t n_members, T *sums) {
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

// -- for Python ---------------------------------------------------------------------------------------

std::size_t threads_taken(std::size_t rows, std::size_t members, std::size_t most) {
    return Parts(rows, members).threads(most);
}

void check_shapes(bool fit) { check(fit, "evidence pass: array shapes disagree"); }

template <typename T, auto PRODUCT>
void forward(In<T, 2> votes, In<std::uint8_t, 2> mask, In<T, 1> weights, Out<double, 1> n,
             Out<double, 1> d) {
    const std::size_t rows = votes.shape(0), members = votes.shape(1);
    check_shapes(mask.shape(0) == rows && mask.shape(1) == members && weights.shape(0) == members &&
          n.shape(0) == rows && d.shape(0) == rows);
    const WithoutGil meanwhile;
    PRODUCT(votes.data(), mask.data(), weights.data(), rows, members, n.data(), d.data());
}

template <typename T, auto PRODUCT>
void transposed(In<T, 2> votes, In<std::uint8_t, 2> mask, In<T, 1> on_votes, In<T, 1> on_mask,
                Out<T, 1> sums) {
    const std::size_t rows = votes.shape(0), members = votes.shape(1);
    check_shapes(mask.shape(0) == rows && mask.shape(1) == members && on_votes.shape(0) == rows &&
          on_mask.shape(0) == rows && sums.shape(0) == members);
    const WithoutGil meanwhile;
    PRODUCT(votes.data(), mask.data(), on_votes.data(), on_mask.data(), rows, members, sums.data());
}

double loss_and_gradient(In<float, 2> votes, In<std::uint8_t, 2> mask, In<double, 1> prior,
                         In<double, 1> target, In<double, 1> row_weight, bool log_loss,
                         double least_denominator, double least_vote, double kept_share,
                         double floor, double multiplicity, bool is_zeroed, In<float, 1> weights,
                         double prior_mass, std::size_t n_threads, Out<double, 1> gradient) {
    const std::size_t rows = votes.shape(0), members = votes.shape(1);
    check_shapes((mask.shape(0) == rows || mask.shape(0) == 0) && mask.shape(1) == members &&
          weights.shape(0) == members && prior.shape(0) == rows && target.shape(0) == rows &&
          row_weight.shape(0) == rows && gradient.shape(0) == members);
    const RowTerms terms{prior.data(), target.data(), row_weight.data(), prior_mass,
                         least_denominator, least_vote, kept_share, floor, multiplicity, log_loss,
                         is_zeroed};
    const WithoutGil meanwhile;
    return evaluate(votes, mask, weights.data(), terms, n_threads, gradient.data());
}

}  // namespace

NB_MODULE(_passes, m) {
    open_module();
    kernels().bind(m);
    m.doc() = "Products of a block of votes and its byte mask with one vector each.";
    // noconvert: a converted output would be a copy, and the result lost with it.
    const auto exact = nb::arg().noconvert();
    m.def("forward", &forward<float, forward_f32>, exact, exact, exact, exact, exact);
    m.def("forward", &forward<double, forward_f64>, exact, exact, exact, exact, exact);
    m.def("loss_and_gradient", &loss_and_gradient, exact, exact, exact, exact, exact, exact, exact,
          exact, exact, exact, exact, exact, exact, exact, exact, exact);
    m.def("threads_taken", &threads_taken, nb::arg("rows"), nb::arg("members"), nb::arg("most"));
    m.def("transposed", &transposed<float, transposed_f32>, exact, exact, exact, exact, exact);
    m.def("transposed", &transposed<double, transposed_f64>, exact, exact, exact, exact, exact);
}
