// Chooses, per operation and size class, the fastest variant and whether to use all workers, by timing real calls. Used by copy.cpp,
// swap.cpp and compare.cpp; any thread; no locks, no allocation, no start-up work. Tuner decides and knows no clock (its tests give it
// the times); Trial is what times one call.
//
// Why on the real data and not on a scratch buffer: every candidate gives the same bytes, so a trial costs only the difference in speed
// (a few ms in all), it sees the pages (huge or not), the neighbours on the memory bus and the workers as they are, and it needs no
// memory in a job that may stand right below its cgroup's limit. A trial that met page faults (first touch of a fresh pool) says
// nothing about the variant and is not counted. The least time of a few rounds counts, so that a preempted trial does no harm.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "kernels/variants.h"

namespace reprise::kernels::detail {

// How to run one operation.
struct Choice {
    unsigned variant = 0;
    bool parallel = false;
};

class Tuner {
  public:
    static constexpr unsigned kRounds = 3;         // trials of each candidate
    static constexpr unsigned kMaxUncounted = 48;  // after so many trials with page faults every trial counts
    static constexpr unsigned kDropFactor16 = 22;  // a candidate slower than 22/16 of the best, twice, is not tried again

    // The decision, or a best guess so far (`decided()` tells).
    Choice best() const;
    bool decided() const { return decided_.load(std::memory_order_acquire) >= 0; }

    // What to try now; `usable`: mask of variants.
    Choice next(unsigned usable, bool may_parallel);
    // What a trial took, in picoseconds per KiB. Not `clean`: it met page faults, and does not count, up to kMaxUncounted of them.
    void record(Choice choice, uint64_t time, bool clean);

  private:
    static constexpr unsigned kCandidates = 2 * kMaxVariants;

    std::atomic<int> decided_{-1};         // candidate = 2 * variant + parallel
    std::atomic<unsigned> handed_out_{0};  // trials started
    std::atomic<unsigned> uncounted_{0};
    std::atomic<unsigned> total_{0};  // trials that make a decision, known at the first one
    std::atomic<unsigned> counted_{0};
    std::atomic<uint64_t> least_[kCandidates]{};  // picoseconds per KiB; 0: not tried
    std::atomic<uint8_t> tried_[kCandidates]{};   // counted trials, up to 2
};

// What is tuned apart. Tests and benchmarks can force each.
enum class Kind : unsigned { copy, swap, equal, digest, merge, count };

// Every operation of `kind` uses this variant, and all workers or none, until unforce().
void force(Kind kind, unsigned variant, bool parallel);
void unforce(Kind kind);
bool forced(Kind kind);

// One operation, or one batch of it. Construct it, run choice(), let it go out of scope.
class Trial {
  public:
    // `usable`: mask of variants, asked only while the decision is open; `bytes`: how many this batch moves.
    Trial(Kind kind, Tuner &tuner, unsigned (*usable)(), size_t bytes);
    ~Trial();
    Trial(const Trial &) = delete;
    Trial &operator=(const Trial &) = delete;
    Choice choice() const { return choice_; }
    void discard() { timed_ = false; }  // the work turned out to be untypical

  private:
    Tuner &tuner_;
    size_t bytes_;
    Choice choice_;
    bool timed_ = false;
    uint64_t start_ = 0;
    long faults_ = 0;
};

// While a decision is open, large operations are cut into batches of this size: more than most caches hold.
inline constexpr size_t kTrialBytes = size_t{32} << 20;

// How much of an operation with `left` bytes to do next.
inline size_t batch_size(Kind kind, const Tuner &tuner, size_t left) {
    if (left < 2 * kTrialBytes || tuner.decided() || forced(kind)) return left;
    return kTrialBytes;
}

// Size classes of long ranges. Below kMedium nothing is chosen: the bytes stay in the cache and the C library does it best.
inline constexpr size_t kMedium = size_t{256} << 10;
inline constexpr size_t kHuge = size_t{64} << 20;
// Runs of a list from here on count as ranges; lists of shorter runs are a class of their own.
inline constexpr size_t kRun = size_t{64} << 10;

enum SizeClass : unsigned { kMediumClass, kLargeClass, kHugeClass, kScatteredClass, kSizeClasses };
SizeClass class_of(size_t bytes);

// The tuners of one operation: decisions differ with workers and without (a forked child has none).
struct Tuners {
    Tuner of[kSizeClasses][2];
    Tuner &get(SizeClass size_class);
};

}  // namespace reprise::kernels::detail
