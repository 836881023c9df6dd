#include <atomic>

#include "kernels/kernels.h"
#include "kernels/split.h"

namespace reprise::kernels {
namespace {

void run_serial(size_t count, void (*body)(void *, size_t), void *context) {
    for (size_t i = 0; i < count; i++) body(context, i);
}

// Two words that are read apart: a reader may pair the old function with the new count, which both work (the count only sizes the work).
constinit std::atomic<ParallelFor> g_run{run_serial};
constinit std::atomic<unsigned> g_workers{1};

}  // namespace

void set_parallel(ParallelFor run, unsigned workers) {
    if (run == nullptr || workers <= 1) run = run_serial, workers = 1;
    g_workers.store(workers, std::memory_order_relaxed);
    g_run.store(run, std::memory_order_release);
}

unsigned parallel_workers() { return g_workers.load(std::memory_order_relaxed); }

namespace detail {

void run_parallel(size_t count, void (*body)(void *, size_t), void *context) {
    if (count == 0) return;
    if (count == 1) return body(context, 0);
    g_run.load(std::memory_order_acquire)(count, body, context);
}

}  // namespace detail
}  // namespace reprise::kernels
