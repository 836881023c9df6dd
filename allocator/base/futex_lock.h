// A lock for code that runs inside malloc: four bytes, no registration, no destructor, a bounded form for hooks.
//
// Used by the allocator's tables from any thread. Hooks take it with lock_bounded() and have something to do when it fails (next
// allocator, deferred free, "untracked"); observers and fork handlers take it with lock(). Never held across anything that may call
// the job's code. Not a pthread mutex: those may be interposed, and cannot be reset in a forked child.
#pragma once

#include <linux/futex.h>

#include <atomic>

#include "allocator/base/sys.h"

namespace reprise {

class FutexLock {
  public:
    constexpr FutexLock() = default;
    FutexLock(const FutexLock &) = delete;
    FutexLock &operator=(const FutexLock &) = delete;

    bool try_lock() {
        uint32_t expected = kFree;
        return state_.compare_exchange_strong(expected, kHeld, std::memory_order_acquire, std::memory_order_relaxed);
    }
    // At most ~100 spins and `naps` sleeps of 2 ms: long enough for a holder that was descheduled, short enough never to look like a hang.
    bool lock_bounded(int naps = 25) { return try_lock() || lock_slow(naps); }
    void lock() {
        while (!lock_bounded(1 << 20)) {
        }
    }
    void unlock() {
        if (state_.exchange(kFree, std::memory_order_release) == kContended) wake();
    }
    // In a forked child: whoever held it is not there any more.
    void reset() { state_.store(kFree, std::memory_order_release); }

  private:
    static constexpr uint32_t kFree = 0, kHeld = 1, kContended = 2;

    __attribute__((noinline)) bool lock_slow(int naps) {
        for (int spin = 0; spin < 100; ++spin) {
            if (state_.load(std::memory_order_relaxed) == kFree && try_lock()) return true;
            pause();
        }
        for (int nap = 0; nap < naps; ++nap) {
            if (state_.exchange(kContended, std::memory_order_acquire) == kFree) return true;
            const timespec limit{0, 2000000};
            sys::call(SYS_futex, &state_, FUTEX_WAIT_PRIVATE, kContended, &limit, nullptr, 0);
        }
        return false;
    }
    __attribute__((noinline)) void wake() { sys::call(SYS_futex, &state_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0); }
    static void pause() {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        asm volatile("yield");
#endif
    }

    std::atomic<uint32_t> state_{kFree};
};

// Unlocks at the end of the scope; made from a lock that is already held.
template <class Lock>
class HeldLock {
  public:
    explicit HeldLock(Lock &lock) : lock_(lock) {}
    ~HeldLock() { lock_.unlock(); }
    HeldLock(const HeldLock &) = delete;
    HeldLock &operator=(const HeldLock &) = delete;

  private:
    Lock &lock_;
};

}  // namespace reprise
