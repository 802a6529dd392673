// Work without the interpreter's lock, for threads that may outlive the interpreter.
#ifndef SPARSEBAG_WITHOUT_GIL_H
#define SPARSEBAG_WITHOUT_GIL_H

#include <Python.h>

#include <chrono>
#include <thread>

namespace {

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

}  // namespace

#endif
