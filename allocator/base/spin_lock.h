// The cheapest lock: one atomic exchange to take, a plain store to give back. For sections of a few instructions only.
//
// Used by the shards of the heap table, inside malloc and free. A futex lock costs a second atomic operation on release, which is a
// quarter of what noting a block may cost. Waiters spin, then yield: the holder never makes a system call other than growing its table.
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
    // Gives up after a few milliseconds at least, depending on who else runs.
    bool lock_bounded() { return !held_.exchange(true, std::memory_order_acquire) || wait(2000); }
    void lock() {
        if (held_.exchange(true, std::memory_order_acquire)) {
            while (!wait(1 << 30)) {
            }
        }
    }
    void unlock() { held_.store(false, std::memory_order_release); }
    void reset() { unlock(); }

  private:
    __attribute__((noinline)) bool wait(int rounds) {
        for (int round = 0; round < rounds; ++round) {
            if (try_lock()) return true;
            if (round < 100) {
#if defined(__x86_64__)
                __builtin_ia32_pause();
#endif
            } else {
                sys::call(SYS_sched_yield);
            }
        }
        return false;
    }

    std::atomic<bool> held_{false};
};

}  // namespace reprise
