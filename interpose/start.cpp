#include "interpose/start.h"

#include <atomic>

#include "allocator/allocator.h"
#include "interpose/raw_log.h"

namespace reprise {
namespace {
constinit std::atomic<bool> g_started{false};
constinit std::atomic<bool> g_said{false};
}  // namespace

void ensure_allocator_started() {
    if (g_started.load(std::memory_order_acquire)) [[likely]]
        return;
    // Threads that race here all call it: it is safe to call twice, and each needs it done before going on.
    if (!allocator_start() && !g_said.exchange(true))
        LogLine(LogLevel::kWarn) << "no address space for tracked arenas (ulimit -v, overcommit or REPRISE_ARENA): tensors stay with the "
                                    "job's allocator and are copied whole; raise the limit or set REPRISE_ARENA to fewer bytes";
    g_started.store(true, std::memory_order_release);
}

bool allocator_in_use() { return g_started.load(std::memory_order_acquire); }

}  // namespace reprise
