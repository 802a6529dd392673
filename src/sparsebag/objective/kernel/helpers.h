// Threads that stay for the next block: one of a stream is read in less time than starting them
// takes. Every thread that makes passes has helpers of its own, so that none waits for another's.
#ifndef SPARSEBAG_HELPERS_H
#define SPARSEBAG_HELPERS_H

#include <atomic>
#include <cfenv>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#include <signal.h>
#include <unistd.h>
#endif

namespace {

// How long to look for work, or for its end, before sleeping: a stream's next block comes within it,
// and a processor that sleeps takes as long to wake.
constexpr std::chrono::microseconds LOOKOUT{200};
// How long to sleep before ending: a program's threads may be many, and have done with passes.
constexpr std::chrono::seconds PATIENCE{1};

inline long this_process() {
#if defined(__unix__) || defined(__APPLE__)
    return static_cast<long>(getpid());
#else
    return 0;  // no other system forks
#endif
}

// A thread that is started meanwhile gets no signals but those of its own faults: others are for the
// threads of the program, which may wait for one that it blocked in all of them.
class WithoutSignals {
#if defined(__unix__) || defined(__APPLE__)
  public:
    WithoutSignals() {
        sigset_t others;
        sigfillset(&others);
        for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&others, fault);
        pthread_sigmask(SIG_BLOCK, &others, &before);
    }
    ~WithoutSignals() { pthread_sigmask(SIG_SETMASK, &before, nullptr); }
    WithoutSignals(const WithoutSignals &) = delete;
    WithoutSignals &operator=(const WithoutSignals &) = delete;

  private:
    sigset_t before;
#else
  public:
    WithoutSignals() {}
#endif
};

inline void pause() {
#if defined(__GNUC__) && (defined(__x86_64__) || defined(__i386__))
    __builtin_ia32_pause();
#endif
}

// What helpers are to do: function(context, thread), rounding as the thread does that asks for it.
struct Job {
    void (*function)(const void *, std::size_t);
    const void *context;
    std::fenv_t rounding;
};

class Helper {
  public:
    explicit Helper(std::size_t number) : number(number) {}

    // Its thread holds it too, and nobody waits for the end of that: a thread of Windows ends under
    // a lock which others need to end, so that one which waits for them there waits for ever.
    static std::shared_ptr<Helper> start(std::size_t number) {
        auto helper = std::make_shared<Helper>(number);
        const WithoutSignals meanwhile;
        std::thread([helper] { helper->live(); }).detach();
        return helper;
    }

    void end() { tell(END); }
    bool has_ended() const { return state.load(std::memory_order_acquire) == END; }

    // One whose patience ends just now does not take it, and nobody misses it.
    void give(const Job &work) {
        {
            const std::lock_guard<std::mutex> hold(lock);
            if (has_ended()) return;
            job = work;
            state.store(GIVEN, std::memory_order_release);
        }
        change.notify_one();
    }

    // Takes back work that was not begun, or waits for its end.
    void finish() {
        State before = GIVEN;
        if (state.compare_exchange_strong(before, IDLE)) return;
        const auto is_done = [this] { return state.load(std::memory_order_acquire) != BUSY; };
        if (look_out(is_done)) return;
        std::unique_lock<std::mutex> hold(lock);
        change.wait(hold, is_done);
    }

  private:
    enum State { IDLE, GIVEN, BUSY, END };

    void live() {
        const auto is_called = [this] {
            const State now = state.load(std::memory_order_acquire);
            return now == GIVEN || now == END;
        };
        for (;;) {
            if (!look_out(is_called)) {
                std::unique_lock<std::mutex> hold(lock);
                if (!change.wait_for(hold, PATIENCE, is_called)) {
                    state.store(END, std::memory_order_release);
                    return;
                }
            }
            State now = GIVEN;
            if (state.compare_exchange_strong(now, BUSY)) {
                std::fesetenv(&job.rounding);
                job.function(job.context, number);
                tell(IDLE);
            } else if (now == END) {
                return;
            }
        }
    }

    void tell(State now) {
        {
            const std::lock_guard<std::mutex> hold(lock);
            state.store(now, std::memory_order_release);
        }
        change.notify_one();  // owner or helper: never do both wait
    }

    // Whether it comes to hold before it is time to sleep.
    template <typename CONDITION>
    static bool look_out(const CONDITION &holds) {
        const auto until = std::chrono::steady_clock::now() + LOOKOUT;
        do {
            for (int i = 0; i < 32; ++i) {
                if (holds()) return true;
                pause();
            }
        } while (std::chrono::steady_clock::now() < until);
        return false;
    }

    const std::size_t number;
    Job job{};
    std::atomic<State> state{IDLE};
    std::mutex lock;
    std::condition_variable change;
};

class Helpers {
  public:
    // work(thread) by up to so many threads, of which the caller's is the first. Others may come too
    // late to take part, so that work must be there for whoever comes. It must not throw.
    template <typename WORK>
    void run(std::size_t n_threads, const WORK &work) {
        Job job{[](const void *context, std::size_t thread) {
                    (*static_cast<const WORK *>(context))(thread);
                },
                &work, {}};
        std::fegetenv(&job.rounding);
        const std::size_t n = engaged(n_threads - 1);
        for (std::size_t i = 0; i < n; ++i) helpers[i]->give(job);
        work(0);
        for (std::size_t i = 0; i < n; ++i) helpers[i]->finish();
    }

    ~Helpers() {
        forget_parents();
        for (const std::shared_ptr<Helper> &helper : helpers)
            if (helper) helper->end();
    }

  private:
    // How many helpers there are, of so many; no more threads, or no memory for one, is no error.
    std::size_t engaged(std::size_t wanted) {
        forget_parents();
        std::size_t n = 0;
        try {
            if (helpers.size() < wanted) helpers.resize(wanted);
            for (; n < wanted; ++n)
                if (!helpers[n] || helpers[n]->has_ended()) helpers[n] = Helper::start(n + 1);
        } catch (...) {
        }
        return n;
    }

    // A forked process has the parent's helpers without their threads, in whose hold they stay: they
    // can be neither used nor ended.
    void forget_parents() {
        const long now = this_process();
        if (process != now) helpers.clear();
        process = now;
    }

    std::vector<std::shared_ptr<Helper>> helpers;
    long process = this_process();
};

inline Helpers &own_helpers() {
    thread_local Helpers helpers;
    return helpers;
}

}  // namespace

#endif
