#include "kernels/tuner.h"

#include <sys/resource.h>
#include <time.h>

#include "kernels/split.h"

namespace reprise::kernels::detail {
namespace {

uint64_t now_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
}

long minor_faults() {
    rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_minflt : 0;
}

constexpr Choice choice_of(unsigned candidate) { return {candidate / 2, candidate % 2 != 0}; }
constexpr unsigned candidate_of(Choice choice) { return 2 * choice.variant + (choice.parallel ? 1 : 0); }

constinit std::atomic<int> g_forced[] = {-1, -1, -1, -1, -1};
static_assert(sizeof g_forced / sizeof g_forced[0] == static_cast<size_t>(Kind::count));

}  // namespace

Choice Tuner::best() const {
    int decided = decided_.load(std::memory_order_acquire);
    if (decided >= 0) return choice_of(static_cast<unsigned>(decided));
    unsigned best = 0;
    uint64_t least = 0;
    for (unsigned i = 0; i < kCandidates; i++) {
        uint64_t time = least_[i].load(std::memory_order_relaxed);
        if (time != 0 && (least == 0 || time < least)) least = time, best = i;
    }
    return choice_of(best);
}

// Candidates take turns: every round tries each usable one once, except those already known to be much slower.
Choice Tuner::next(unsigned usable, bool may_parallel) {
    unsigned candidates[kCandidates], count = 0;
    for (unsigned i = 0; i < kCandidates; i++) {
        if ((usable >> (i / 2) & 1) != 0 && (i % 2 == 0 || may_parallel)) candidates[count++] = i;
    }
    total_.store(count * kRounds, std::memory_order_relaxed);
    unsigned candidate = candidates[handed_out_.fetch_add(1, std::memory_order_relaxed) % count];
    uint64_t own = least_[candidate].load(std::memory_order_relaxed);
    // Once may have been bad luck (a trial that was preempted).
    if (own == 0 || tried_[candidate].load(std::memory_order_relaxed) < 2) return choice_of(candidate);
    const Choice front = best();
    uint64_t least = least_[candidate_of(front)].load(std::memory_order_relaxed);
    return own > least * kDropFactor16 / 16 ? front : choice_of(candidate);
}

void Tuner::record(Choice choice, uint64_t time, bool clean) {
    const unsigned candidate = candidate_of(choice);
    if (!clean && uncounted_.fetch_add(1, std::memory_order_relaxed) < kMaxUncounted) return;
    if (time == 0) time = 1;
    uint64_t seen = least_[candidate].load(std::memory_order_relaxed);
    while ((seen == 0 || time < seen) && !least_[candidate].compare_exchange_weak(seen, time, std::memory_order_relaxed)) {
    }
    if (tried_[candidate].load(std::memory_order_relaxed) < 2) tried_[candidate].fetch_add(1, std::memory_order_relaxed);
    if (counted_.fetch_add(1, std::memory_order_relaxed) + 1 < total_.load(std::memory_order_relaxed)) return;
    int undecided = -1;
    decided_.compare_exchange_strong(undecided, static_cast<int>(candidate_of(best())), std::memory_order_release,
                                     std::memory_order_relaxed);
}

Trial::Trial(Kind kind, Tuner &tuner, unsigned (*usable)(), size_t bytes) : tuner_(tuner), bytes_(bytes) {
    const bool may_parallel = worth_splitting(bytes);
    if (int value = g_forced[static_cast<unsigned>(kind)].load(std::memory_order_relaxed); value >= 0) {
        choice_ = choice_of(static_cast<unsigned>(value));
    } else if (tuner.decided()) {
        choice_ = tuner.best();
    } else {
        // Under a sanitizer only what it can see into.
        choice_ = tuner.next(REPRISE_KERNELS_SANITIZED ? 1u : usable(), may_parallel);
        timed_ = true;
        faults_ = minor_faults();
        start_ = now_ns();
    }
    choice_.parallel = choice_.parallel && may_parallel;
}

Trial::~Trial() {
    if (!timed_) return;
    uint64_t elapsed = now_ns() - start_;
    // A huge page costs one fault per 2 MiB; other threads' few faults are tolerated.
    bool clean = static_cast<size_t>(minor_faults() - faults_) <= bytes_ / (size_t{8} << 20);
    tuner_.record(choice_, elapsed * 1000 * 1024 / (bytes_ + 1), clean);
}

void force(Kind kind, unsigned variant, bool parallel) {
    g_forced[static_cast<unsigned>(kind)].store(static_cast<int>(candidate_of({variant, parallel})), std::memory_order_relaxed);
}
void unforce(Kind kind) { g_forced[static_cast<unsigned>(kind)].store(-1, std::memory_order_relaxed); }
bool forced(Kind kind) { return g_forced[static_cast<unsigned>(kind)].load(std::memory_order_relaxed) >= 0; }

SizeClass class_of(size_t bytes) { return bytes < kParallelMinimum ? kMediumClass : bytes < kHuge ? kLargeClass : kHugeClass; }

Tuner &Tuners::get(SizeClass size_class) { return of[size_class][parallel_workers() > 1 ? 1 : 0]; }

}  // namespace reprise::kernels::detail
