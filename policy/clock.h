// The engine's time: monotonic nanoseconds. What is measured with it are durations, all of them through elapsed_ns(): one never wraps
// round, whatever a clock does. Any thread.
#pragma once

#include <atomic>
#include <ctime>

#include <cstdint>

namespace reprise {

using ClockSource = uint64_t (*)();

// Tests put a clock of their own in its place; null: CLOCK_MONOTONIC.
inline constinit std::atomic<ClockSource> g_clock_source{nullptr};

inline uint64_t now_ns() {
    if (const ClockSource source = g_clock_source.load(std::memory_order_relaxed)) return source();
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1000000000ULL + static_cast<uint64_t>(now.tv_nsec);
}

// More than this is no measurement: the clock jumped, or the job was stopped.
inline constexpr uint64_t kMostElapsedNs = uint64_t{3600} * 1'000'000'000;

// 0 where `until` comes before `from`; kMostElapsedNs at most.
inline uint64_t elapsed_ns(uint64_t from, uint64_t until) {
    const uint64_t elapsed = until > from ? until - from : 0;
    return elapsed < kMostElapsedNs ? elapsed : kMostElapsedNs;
}
inline uint64_t elapsed_ns(uint64_t from) { return elapsed_ns(from, now_ns()); }

}  // namespace reprise
