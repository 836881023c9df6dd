// libreprise_parallel.so: the ParallelFor on oneTBB. The engine opens it RTLD_LOCAL | RTLD_DEEPBIND and calls reprise_parallel_open; where
// that fails, everything runs on the calling thread.
//
// A library of its own, linked to private copies of libtbb and libstdc++ whose SONAMEs are ours (cmake/private_libraries.cmake), so that
// a job that brings another TBB keeps it. Nothing here throws outwards or is ever destroyed; the arena is ours, so the job's own
// parallel regions and ours never steal each other's tasks.
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>
#include <tbb/task_scheduler_observer.h>
#include <tbb/version.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <new>
#include <thread>

#include "kernels/kernels.h"

namespace {

using reprise::kernels::ParallelFor;

// Workers take no signals (the job's handlers must not run on our threads) and carry a name that people see in `top`.
class QuietWorkers : public tbb::task_scheduler_observer {
  public:
    explicit QuietWorkers(tbb::task_arena &arena) : tbb::task_scheduler_observer(arena) { observe(true); }
    void on_scheduler_entry(bool is_worker) override {
        if (!is_worker) return;
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, nullptr);
        pthread_setname_np(pthread_self(), "reprise-worker");
    }
};

template <class T>
struct alignas(T) Storage {
    unsigned char bytes[sizeof(T)];
};

constinit std::atomic<tbb::task_arena *> g_arena{nullptr};
constinit std::atomic<pid_t> g_owner{0};
unsigned g_workers = 0;
Storage<tbb::task_arena> g_arena_storage;
Storage<QuietWorkers> g_observer_storage;
std::mutex g_open;

struct Job {
    size_t count;
    void (*body)(void *, size_t);
    void *context;
    std::atomic<size_t> next{0};

    // Whoever comes takes the next index: each runs exactly once, whatever happens to the threads that were to help.
    void work() noexcept {
        for (size_t i = next.fetch_add(1, std::memory_order_relaxed); i < count; i = next.fetch_add(1, std::memory_order_relaxed))
            body(context, i);
    }
};

void run(size_t count, void (*body)(void *, size_t), void *context) noexcept {
    Job job{count, body, context};
    tbb::task_arena *arena = g_arena.load(std::memory_order_acquire);
    // A forked child has the arena but not its threads.
    if (arena != nullptr && g_owner.load(std::memory_order_relaxed) == getpid()) {
        try {
            const size_t helpers = count < g_workers ? count : g_workers;
            arena->execute([&] {
                tbb::parallel_for(
                    tbb::blocked_range<size_t>(0, helpers, 1), [&](const tbb::blocked_range<size_t> &) { job.work(); },
                    tbb::simple_partitioner());
            });
        } catch (...) {
            // No memory or no thread to be had: TBB has waited for what it had started; the rest is done below.
        }
    }
    job.work();
}

// The job's own libtbb stands before ours in the lookup when the job has it in its global scope and we were opened without
// RTLD_DEEPBIND. Then our calls would go to a TBB of another version: refuse.
bool bound_to_private_copy() {
    Dl_info info;
    if (dladdr(reinterpret_cast<void *>(&TBB_runtime_interface_version), &info) == 0 || info.dli_fname == nullptr) return false;
    return strstr(info.dli_fname, "libreprise_tbb.so") != nullptr && TBB_runtime_interface_version() >= TBB_INTERFACE_VERSION;
}

}  // namespace

// Makes the workers (0: as many as this process may use CPUs). Returns 0 and sets *run and *workers_out, or an errno value. Once open,
// later calls return what the first one made.
extern "C" __attribute__((visibility("default"))) int reprise_parallel_open(unsigned workers, ParallelFor *run_out, unsigned *workers_out) {
    if (run_out == nullptr || workers_out == nullptr) return EINVAL;
    if (!bound_to_private_copy()) return ELIBACC;
    try {
        std::lock_guard lock(g_open);
        if (g_arena.load(std::memory_order_relaxed) == nullptr) {
            // Asked in a plain way, for only the affinity mask counts here.
            cpu_set_t allowed;
            unsigned cpus = 0;
            if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) cpus = static_cast<unsigned>(CPU_COUNT(&allowed));
            if (cpus == 0) cpus = std::thread::hardware_concurrency();
            if (cpus == 0) cpus = 1;
            if (workers == 0 || workers > cpus) workers = cpus;
            // Threads made from here inherit our mask: blocked before their first instruction.
            sigset_t all, before;
            sigfillset(&all);
            pthread_sigmask(SIG_SETMASK, &all, &before);
            int error = 0;
            try {
                auto *arena = new (g_arena_storage.bytes) tbb::task_arena(static_cast<int>(workers), 1);
                arena->initialize();
                new (g_observer_storage.bytes) QuietWorkers(*arena);
                g_workers = workers;
                g_owner.store(getpid(), std::memory_order_relaxed);
                g_arena.store(arena, std::memory_order_release);
            } catch (...) {
                error = ENOMEM;
            }
            if (error == 0 && workers > 1) {
                // Starts the threads now, with our mask.
                run(
                    workers, [](void *, size_t) { std::this_thread::yield(); }, nullptr);
            }
            pthread_sigmask(SIG_SETMASK, &before, nullptr);
            if (error != 0) return error;
        }
        *workers_out = g_workers;
        *run_out = &run;
        return 0;
    } catch (...) {
        return EAGAIN;
    }
}
