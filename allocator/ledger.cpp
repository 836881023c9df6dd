#include "allocator/ledger.h"

#include <algorithm>
#include <atomic>

namespace reprise {
namespace {

constexpr size_t kKinds = static_cast<size_t>(LedgerKind::kCount);

struct alignas(64) Account {
    std::atomic<int64_t> live{0};
    std::atomic<int64_t> peak{0};

    void add(int64_t bytes) {
        const int64_t now = live.fetch_add(bytes, std::memory_order_relaxed) + bytes;
        if (bytes <= 0) return;
        int64_t seen = peak.load(std::memory_order_relaxed);
        while (now > seen && !peak.compare_exchange_weak(seen, now, std::memory_order_relaxed)) {
        }
    }
};

constinit Account accounts[kKinds];
// Its peak begins anew with every ledger_take_peak(): hooks keep one peak up to date, not two. The peak of all time is the greater one.
constinit Account total;
constinit std::atomic<int64_t> peak_before{0};

uint64_t positive(int64_t value) { return value > 0 ? static_cast<uint64_t>(value) : 0; }

}  // namespace

void ledger_add(LedgerKind kind, int64_t bytes) {
    if (kind >= LedgerKind::kCount) return;
    accounts[static_cast<size_t>(kind)].add(bytes);
    total.add(bytes);
}
int64_t ledger_told(LedgerKind kind) { return accounts[static_cast<size_t>(kind)].live.load(std::memory_order_relaxed); }
uint64_t ledger_live(LedgerKind kind) {
    return kind >= LedgerKind::kCount ? 0 : positive(accounts[static_cast<size_t>(kind)].live.load(std::memory_order_relaxed));
}
uint64_t ledger_peak() {
    return positive(std::max(total.peak.load(std::memory_order_relaxed), peak_before.load(std::memory_order_relaxed)));
}
LedgerReading ledger_take_peak() {
    const int64_t live = total.live.load(std::memory_order_relaxed);
    const int64_t peak = std::max(total.peak.exchange(live, std::memory_order_relaxed), live);
    if (peak > peak_before.load(std::memory_order_relaxed)) peak_before.store(peak, std::memory_order_relaxed);
    return {positive(live), positive(peak)};
}
uint64_t ledger_peak_of(LedgerKind kind) {
    return kind >= LedgerKind::kCount ? 0 : positive(accounts[static_cast<size_t>(kind)].peak.load(std::memory_order_relaxed));
}

}  // namespace reprise
