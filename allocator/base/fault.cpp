#include "allocator/base/fault.h"

#include <string.h>

namespace reprise {
namespace {

constexpr const char *kNames[] = {"arena_reserve", "arena_open",       "meta_open",      "heap_table_full",
                                  "guard_open",    "guard_scan_eperm", "guard_register", "lock_contended"};
constexpr int kPoints = static_cast<int>(FaultPoint::kCount);
static_assert(sizeof kNames / sizeof kNames[0] == kPoints);

constexpr int kOff = -1, kAlways = 0;
std::atomic<int> countdown[kPoints];

}  // namespace

constinit std::atomic<bool> fault_armed{false};

bool fault_fires(FaultPoint point) {
    std::atomic<int> &left = countdown[static_cast<int>(point)];
    int n = left.load(std::memory_order_relaxed);
    do {
        if (n == kOff) return false;
        if (n == kAlways) return true;
    } while (!left.compare_exchange_weak(n, n == 1 ? kOff : n - 1, std::memory_order_relaxed));
    return n == 1;
}

void fault_configure(const char *plan) {
    fault_armed.store(false, std::memory_order_relaxed);
    for (std::atomic<int> &left : countdown) left.store(kOff, std::memory_order_relaxed);
    if (plan == nullptr || *plan == '\0') return;
    bool any = false;
    while (*plan != '\0') {
        const size_t length = strcspn(plan, ":,");
        int nth = 0;
        const char *rest = plan + length;
        if (*rest == ':') {
            for (++rest; *rest >= '0' && *rest <= '9'; ++rest) nth = nth * 10 + (*rest - '0');
        }
        for (int i = 0; i < kPoints; ++i) {
            if (strlen(kNames[i]) == length && strncmp(kNames[i], plan, length) == 0) {
                countdown[i].store(nth, std::memory_order_relaxed);
                any = true;
            }
        }
        rest += strcspn(rest, ",");
        plan = *rest == ',' ? rest + 1 : rest;
    }
    fault_armed.store(any, std::memory_order_relaxed);
}

}  // namespace reprise
