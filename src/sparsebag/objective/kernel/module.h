// What the compiled modules share: arrays from Python, checks, and the choice of instructions.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#if defined(__GNUC__) && defined(__x86_64__)
#define SPARSEBAG_X86 1
#include <immintrin.h>
#endif

namespace nb = nanobind;

namespace sparsebag {

template <typename T, int N>
using In = nb::ndarray<const T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;
template <typename T, int N>
using Out = nb::ndarray<T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;

inline void check(bool holds, const char *message) {
    if (!holds) throw std::invalid_argument(message);  // Python's ValueError
}

// What a module calls first: nanobind's objects belong to the first interpreter that loads it.
inline void open_module() {
    if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0)
        throw std::runtime_error("sparsebag does not run in sub-interpreters; use threads or "
                                 "processes instead.");
    nb::set_leak_warnings(false);  // threads that outlive the interpreter hold models: no leak
}

// Ways to do the same on this machine, each named by the instructions it needs; the last is fastest.
template <typename Way>
class Ways {
  public:
    explicit Ways(std::vector<Way> ways) : all(std::move(ways)), chosen(&all.back()) {}

    const Way &now() const { return *chosen.load(std::memory_order_relaxed); }

    // For tests: every way is to be tried on a machine that would take the last.
    void bind(nb::module_ &m) {
        m.def("instruction_sets", [this] {
            std::vector<std::string> names;
            for (const Way &way : all) names.push_back(way.name);
            return names;
        });
        m.def("use_instructions", [this](const std::string &name) {
            for (const Way &way : all)
                if (name == way.name) return chosen.store(&way);
            check(false, ("this machine has no instructions named " + name + ".").c_str());
        });
    }

  private:
    const std::vector<Way> all;
    std::atomic<const Way *> chosen;
};

}  // namespace sparsebag
