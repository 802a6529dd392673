// Work without the interpreter's lock, shared by threads.
#pragma once

#include <Python.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace sparsebag {

// nanobind's own ends the process with an error where a daemon thread comes back to an interpreter
// that is gone: Python before 3.14 unwinds such a thread, through functions that must not throw. It
// sleeps instead, as from 3.14 on.
class WithoutGil {
  public:
    WithoutGil() : state(PyEval_SaveThread()) {}
    ~WithoutGil() {
        try {
            PyEval_RestoreThread(state);
        } catch (...) {
            for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
        }
    }
    WithoutGil(const WithoutGil &) = delete;
    WithoutGil &operator=(const WithoutGil &) = delete;

  private:
    PyThreadState *state;
};

// work(part, thread) for every part, by up to so many threads, of which the caller's is the first.
// An exception that leaves a thread, or a thread nobody joins, would end the process.
template <typename Work>
void share(std::size_t n_parts, std::size_t n_threads, const Work &work) {
    std::atomic<std::size_t> next{0};
    std::exception_ptr failure;
    std::mutex on_failure;
    const auto take_parts = [&](std::size_t thread) {
        try {
            for (std::size_t part; (part = next.fetch_add(1)) < n_parts;) work(part, thread);
        } catch (...) {
            const std::lock_guard<std::mutex> lock(on_failure);
            failure = std::current_exception();
        }
    };
    std::vector<std::thread> helpers;
    try {
        for (std::size_t t = 1; t < n_threads; ++t) helpers.emplace_back(take_parts, t);
    } catch (...) {
        // The system gives no more threads: those there are share the parts.
    }
    take_parts(0);
    for (std::thread &helper : helpers) helper.join();
    if (failure) std::rethrow_exception(failure);
}

}  // namespace sparsebag
