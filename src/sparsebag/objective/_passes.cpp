// The two products every evaluation is made of, over one block of rows.
//
// The mask is read as bytes next to the votes, so it is neither stored nor converted to floats;
// BLAS would need both. `make bench-passes` shows what that is worth.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernel/parts.h"
#include "kernel/portable.h"
#include "kernel/products.h"
#include "kernel/row_terms.h"
#include "kernel/threads.h"

#if defined(__GNUC__) && defined(__x86_64__)
#define HAS_X86_KERNELS 1
#include "kernel/avx2.h"
#include "kernel/avx512.h"
#endif

namespace nb = nanobind;

namespace {

template <typename T>
using Matrix = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Vector = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Output = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Rows voted on before they are differentiated. Each turn from the one to the other lets memory's
// read-ahead run dry, so turns are few where many rows fit the second cache; short rows do best from
// the first one, and few long ones fill the second. The fewer a turn has of those the better memory
// keeps up, and the more the better it does from caches that hold all rows.
std::size_t rows_a_turn(std::size_t rows, std::size_t c) {
    if (c >= LONG_ROW) return 4;
    if (c <= TINY_ROW && rows * c * ENTRY_BYTES <= CACHED_BYTES) return SETTLED_ROWS;
    return c >= SHORT_ROW && c <= MEDIUM_ROW ? MOST_ROWS : 8;
}

// Rows [i, rows) of a block, `group` of them a turn; their gradient is added to. `sums` has room for whole registers.
template <typename KERNEL>
Totals loss_and_gradient_by(const float *v, const std::uint8_t *m, const float *w, std::size_t i,
                            std::size_t rows, std::size_t c, std::size_t group, const RowTerms &t,
                            float *sums, double *gradient) {
    Totals found;
    while (i < rows) {
        const std::size_t end = i + FLUSH_ROWS < rows ? i + FLUSH_ROWS : rows;
        for (std::size_t k = 0; k < c; ++k) sums[k] = 0.0f;
        for (; i < end; i += group) {
            const std::size_t left = end - i < group ? end - i : group;
            KERNEL::run(v + i * c, m + i * c, w, left, i, c, t, sums, found);
        }
        i = end;
        for (std::size_t k = 0; k < c; ++k) gradient[k] += sums[k];
    }
    found.loss -= found.logs.total();
    return found;
}

using Evaluate = decltype(&loss_and_gradient_by<Portable>);

// A way to evaluate rows, by the instructions it needs; the first that the machine has is taken. On
// AMD's AVX2 comes before AVX-512: on Zen 4, whose wide registers are two narrow ones, it is a tenth
// faster from caches and the same from memory, where votes in the bag are zeros.
struct Kernel {
    const char *name;
    bool is_here;
    Evaluate evaluate;
};

std::vector<Kernel> known_kernels() {
    std::vector<Kernel> known{
#if defined(HAS_X86_KERNELS)
        {"avx512",
         __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma"),
         loss_and_gradient_by<Avx512>},
        {"avx2", __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"),
         loss_and_gradient_by<Avx2>},
#endif
        {"portable", true, loss_and_gradient_by<Portable>},
    };
#if defined(HAS_X86_KERNELS)
    if (__builtin_cpu_is("amd")) std::swap(known[0], known[1]);
#endif
    return known;
}

const std::vector<Kernel> &kernels() {
    static const std::vector<Kernel> known = known_kernels();
    return known;
}

const Kernel *first_here() {
    for (const Kernel &kernel : kernels())
        if (kernel.is_here) return &kernel;
    return nullptr;  // the last one is always here
}

std::atomic<const Kernel *> &chosen() {
    static std::atomic<const Kernel *> kernel{first_here()};
    return kernel;
}

// Every row's share, by as many threads as the evidence is worth. A mask without rows is none.
Totals evaluate(const Matrix<float> &votes, const Matrix<std::uint8_t> &mask, const float *w,
                RowTerms t, std::size_t n_threads, double *gradient) {
    const std::size_t rows = votes.shape(0), c = votes.shape(1);
    const float *v = votes.data();
    t.has_mask = mask.shape(0) > 0;
    t.n_voters = static_cast<double>(c);
    if (!t.has_mask)
        for (std::size_t k = 0; k < c; ++k) t.denominator += w[k];
    // Kernels count bytes from here in any case; without a mask they read none.
    const std::uint8_t *m =
        t.has_mask ? mask.data() : reinterpret_cast<const std::uint8_t *>(votes.data());
    const Evaluate run = chosen().load(std::memory_order_relaxed)->evaluate;
    const Parts parts(rows, c);
    const std::size_t group = rows_a_turn(rows, c);
    n_threads = parts.threads(n_threads);
    // All room is made here: a thread that finds none left would end the process.
    const std::size_t width = c + MOST_LANES;
    std::vector<float> sums(n_threads * width);
    std::vector<double> slopes(parts.n > 1 ? parts.n * c : 0);
    std::vector<Totals> found(parts.n);
    share(parts.n, n_threads, [&](std::size_t part, std::size_t thread) {
        found[part] = run(v, m, w, parts.begin(part), parts.end(part), c, group, t,
                          sums.data() + thread * width,
                          parts.n > 1 ? slopes.data() + part * c : gradient);
    });
    for (std::size_t part = 1; part < parts.n; ++part) {
        found[0].loss += found[part].loss;
        found[0].weight += found[part].weight;
    }
    for (std::size_t at = 0; at < slopes.size(); at += c)
        for (std::size_t k = 0; k < c; ++k) gradient[k] += slopes[at + k];
    return found[0];
}

std::vector<std::string> kernels_here() {
    std::vector<std::string> names;
    for (const Kernel &kernel : kernels())
        if (kernel.is_here) names.push_back(kernel.name);
    return names;
}

// For tests and benchmarks: every kernel is to be tried on a machine that would take the first.
std::string use_kernel(const std::string &name) {
    const std::string before = chosen().load()->name;
    for (const Kernel &kernel : kernels())
        if (kernel.is_here && name == kernel.name) {
            chosen().store(&kernel);
            return before;
        }
    throw nb::value_error("this machine has no such kernel; kernels() names those it has");
}

std::size_t threads_taken(std::size_t rows, std::size_t members, std::size_t most) {
    return Parts(rows, members).threads(most);
}

void check(bool fits) {
    if (!fits) throw nb::value_error("evidence pass: array shapes disagree");
}

bool is_mask(const Matrix<std::uint8_t> &mask, std::size_t rows, std::size_t members) {
    return (mask.shape(0) == rows || mask.shape(0) == 0) && mask.shape(1) == members;
}

template <typename T, auto KERNEL>
void forward(Matrix<T> votes, Matrix<std::uint8_t> mask, Vector<T> weights, Output<double> n,
             Output<double> d) {
    const std::size_t rows = votes.shape(0), members = votes.shape(1);
    check(mask.shape(0) == rows && mask.shape(1) == members && weights.shape(0) == members &&
          n.shape(0) == rows && d.shape(0) == rows);
    const sparsebag::WithoutGil meanwhile;
    KERNEL(votes.data(), mask.data(), weights.data(), rows, members, n.data(), d.data());
}

template <typename T, auto KERNEL>
void transposed(Matrix<T> votes, Matrix<std::uint8_t> mask, Vector<T> on_votes, Vector<T> on_mask,
                Output<T> sums) {
    const std::size_t rows = votes.shape(0), members = votes.shape(1);
    check(mask.shape(0) == rows && mask.shape(1) == members && on_votes.shape(0) == rows &&
          on_mask.shape(0) == rows && sums.shape(0) == members);
    const sparsebag::WithoutGil meanwhile;
    KERNEL(votes.data(), mask.data(), on_votes.data(), on_mask.data(), rows, members, sums.data());
}

double loss_and_gradient(Matrix<float> votes, Matrix<std::uint8_t> mask, Vector<float> weights,
                         Vector<double> uniform_vote, Vector<double> target,
                         Vector<double> row_weight, bool log_loss, double prior_mass,
                         double least_denominator, double least_vote, double kept_share,
                         double floor, double multiplicity, bool is_zeroed, std::size_t n_threads,
                         Output<double> gradient) {
    const std::size_t rows = votes.shape(0), members = votes.shape(1);
    check(is_mask(mask, rows, members) && weights.shape(0) == members &&
          uniform_vote.shape(0) == rows && target.shape(0) == rows && row_weight.shape(0) == rows &&
          gradient.shape(0) == members);
    const RowTerms terms{uniform_vote.data(), target.data(), row_weight.data(), prior_mass,
                         least_denominator,   least_vote,    kept_share,        floor,
                         multiplicity,        log_loss,      is_zeroed};
    const sparsebag::WithoutGil meanwhile;
    return evaluate(votes, mask, weights.data(), terms, n_threads, gradient.data()).loss;
}

// The same of a stream's block, whose rows are known by their prior votes or not at all; vectors of
// no length are not given, or not wanted. Sums are not divided by the weight of the rows.
nb::tuple block_loss_and_gradient(Matrix<float> votes, Matrix<std::uint8_t> mask,
                                  Vector<float> weights, Vector<float> prior,
                                  Output<float> found_prior, Vector<double> target,
                                  Vector<double> row_weight, double weight_scale, bool log_loss,
                                  double prior_mass, double least_denominator, double least_vote,
                                  double kept_share, double floor, double multiplicity,
                                  bool is_zeroed, std::size_t n_threads, Output<double> gradient) {
    const std::size_t rows = votes.shape(0), members = votes.shape(1);
    const auto fits = [rows](std::size_t length) { return length == rows || length == 0; };
    check(is_mask(mask, rows, members) && weights.shape(0) == members &&
          fits(prior.shape(0)) && fits(found_prior.shape(0)) && fits(target.shape(0)) &&
          fits(row_weight.shape(0)) && gradient.shape(0) == members);
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
    Totals found;
    {
        const sparsebag::WithoutGil meanwhile;
        found = evaluate(votes, mask, weights.data(), terms, n_threads, gradient.data());
    }
    return nb::make_tuple(found.loss, found.weight);
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
          exact, exact, exact, exact, exact, exact, exact, exact, exact, exact, exact, exact,
          exact);
    m.def("threads_taken", &threads_taken, nb::arg("rows"), nb::arg("members"), nb::arg("most"));
    m.def("kernels", &kernels_here);
    m.def("use_kernel", &use_kernel, nb::arg("name"));
    m.def("transposed", &transposed<float, transposed_f32>, exact, exact, exact, exact, exact);
    m.def("transposed", &transposed<double, transposed_f64>, exact, exact, exact, exact, exact);
}
