// The cheapest lock: one atomic exchange to take, a plain store to give back. For sections of a few instructions only.
//
// Used by the shards of the heap table, inside malloc and free. A futex lock costs a second atomic operation on release, which is a
// quarter of what noting a block may cost. Waiters spin, yield, then nap: a holder that was descheduled on a busy machine
// needs milliseconds, which yielding alone burns through.
#pragma once

#include <atomic>

#include "allocator/base/sys.h"

namespace reprise {

class SpinLock {
  public:
    constexpr SpinLock() = default;
    SpinLock(const SpinLock &) = delete;
    SpinLock &operator=(const SpinLock &) = delete;

    bool try_lock() { return !held_.load(std::memory_order_relaxed) && !held_.exchange(true, std::memory_order_acquire); }
    // Gives up after about 50 ms.
    bool lock_bounded() { return !held_.exchange(true, std::memory_order_acquire) || wait(100); }
    void lock() {
        if (held_.exchange(true, std::memory_order_acquire)) {
            while (!wait(1 << 30)) {
            }
        }
    }
    void unlock() { held_.store(false, std::memory_order_release); }
    void reset() { unlock(); }

  private:
    static constexpr int kSpins = 100, kYields = 50;

    __attribute__((noinline)) bool wait(int naps) {
        for (int round = 0; round < kSpins + kYields + naps; ++round) {
            if (try_lock()) return true;
            if (round < kSpins) {
#if defined(__x86_64__)
                __builtin_ia32_pause();
#elif defined(__aarch64__)
                asm volatile("yield");
#endif
            } else if (round < kSpins + kYields) {
                sys::call(SYS_sched_yield);
            } else {
                const timespec nap{0, 500000};
                sys::call(SYS_nanosleep, &nap, nullptr);
            }
        }
        return false;
    }

    std::atomic<bool> held_{false};
};

}  // namespace reprise
