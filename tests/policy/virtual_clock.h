// The engine's clock in tests of planning: each thread's own, and it passes only when a test says so. What a plan is made from is then the
// same on a busy machine as on a quiet one. Nothing here is ever compared between threads: the engine measures durations, each in one.
#pragma once

#include <cstdint>

#include "policy/clock.h"

namespace reprise::test {

class VirtualClock {
  public:
    static constexpr uint64_t kTickNs = 200;  // of each reading

    VirtualClock() {
        if (users_++ == 0) g_clock_source.store(&read, std::memory_order_relaxed);
    }
    ~VirtualClock() {
        if (--users_ == 0) g_clock_source.store(nullptr, std::memory_order_relaxed);
    }
    VirtualClock(const VirtualClock &) = delete;
    VirtualClock &operator=(const VirtualClock &) = delete;

    static void pass(uint64_t ns) { now_ += ns; }
    static void jump(int64_t ns) { now_ += static_cast<uint64_t>(ns); }

  private:
    static uint64_t read() { return now_ += kTickNs; }
    static inline int users_ = 0;
    static inline thread_local uint64_t now_ = uint64_t{1} << 50;
};

}  // namespace reprise::test
