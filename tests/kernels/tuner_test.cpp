#include "support.h"

#include <functional>

namespace reprise::kernels::testing {
namespace {

using detail::Choice;
using detail::Kind;
using detail::Trial;
using detail::Tuner;

unsigned one_usable() { return 1; }

// Trials that take what `time` says, until the decision. No clock: on a busy machine real times prove nothing.
unsigned tune(Tuner &tuner, unsigned usable, bool may_parallel, const std::function<uint64_t(Choice, unsigned trial)> &time) {
    unsigned trials = 0;
    for (; !tuner.decided() && trials < 500; trials++) {
        Choice choice = tuner.next(usable, may_parallel);
        EXPECT_TRUE(usable >> choice.variant & 1) << choice.variant;
        EXPECT_TRUE(may_parallel || !choice.parallel);
        tuner.record(choice, time(choice, trials), true);
    }
    return trials;
}

TEST(Tuner, TakesTheFastestOfTheUsable) {
    for (unsigned fastest : {0u, 1u, 3u}) {
        Tuner tuner;
        unsigned trials = tune(tuner, 0b1011, false, [&](Choice choice, unsigned) { return choice.variant == fastest ? 200 : 700; });
        EXPECT_EQ(trials, 3 * Tuner::kRounds);
        EXPECT_EQ(tuner.best().variant, fastest);
        EXPECT_FALSE(tuner.best().parallel);
    }
}

TEST(Tuner, UsesWorkersOnlyWhereTheyPay) {
    for (bool pays : {false, true}) {
        Tuner tuner;
        tune(tuner, 1, true, [&](Choice choice, unsigned) { return choice.parallel == pays ? 200 : 900; });
        ASSERT_TRUE(tuner.decided());
        EXPECT_EQ(tuner.best().parallel, pays);
    }
}

// A trial that was preempted, whichever it is, costs a turn and no more: the least of the rounds counts.
TEST(Tuner, OnePreemptedTrialDoesNoHarm) {
    for (unsigned preempted = 0; preempted < 2 * Tuner::kRounds; preempted++) {
        Tuner tuner;
        tune(tuner, 0b11, false,
             [&](Choice choice, unsigned trial) { return (choice.variant == 1 ? 200u : 250u) + (trial == preempted ? 100000u : 0u); });
        ASSERT_TRUE(tuner.decided());
        EXPECT_EQ(tuner.best().variant, 1u) << preempted;
    }
}

TEST(Tuner, OneThatIsMuchSlowerIsTriedTwice) {
    Tuner tuner;
    unsigned slow = 0;
    tune(tuner, 0b11, false, [&](Choice choice, unsigned) {
        slow += choice.variant == 0;
        return choice.variant == 0 ? 900u : 200u;
    });
    EXPECT_EQ(tuner.best().variant, 1u);
    EXPECT_EQ(slow, 2u);
}

TEST(Tuner, PageFaultsDoNotCountForALongTime) {
    Tuner tuner;
    for (unsigned i = 0; i < Tuner::kMaxUncounted; i++) {
        tuner.record(tuner.next(0b11, false), 1, false);
        ASSERT_FALSE(tuner.decided());
    }
    for (unsigned i = 0; i < 2 * Tuner::kRounds; i++) {
        ASSERT_FALSE(tuner.decided());
        Choice choice = tuner.next(0b11, false);
        tuner.record(choice, choice.variant == 1 ? 200 : 210, false);
    }
    EXPECT_TRUE(tuner.decided()) << "a job whose every copy meets faults is not measured for ever";
    EXPECT_EQ(tuner.best().variant, 1u);
}

// A trial gives what it took to the decision; what a busy machine makes of it is its own affair.
TEST(Tuner, TrialsDecide) {
    Tuner tuner;
    for (unsigned i = 0; i < 2 * Tuner::kRounds + Tuner::kMaxUncounted && !tuner.decided(); i++) {
        Trial trial(Kind::copy, tuner, one_usable, size_t{64} << 20);
        ASSERT_EQ(trial.choice().variant, 0u);
    }
    EXPECT_TRUE(tuner.decided());
}

TEST(Tuner, NoWorkersForShortWork) {
    WithWorkers workers;
    Tuner tuner;
    for (int i = 0; i < 50; i++) {
        Trial trial(Kind::copy, tuner, one_usable, 100000);
        ASSERT_FALSE(trial.choice().parallel);
    }
}

TEST(Tuner, DiscardedTrialsDecideNothing) {
    Tuner tuner;
    for (int i = 0; i < 500; i++) {
        Trial trial(Kind::copy, tuner, one_usable, size_t{1} << 20);
        trial.discard();
    }
    EXPECT_FALSE(tuner.decided());
}

TEST(Tuner, ForcedWins) {
    Tuner tuner;
    Forced forced(Kind::swap, 3, true);
    Trial mine(Kind::swap, tuner, one_usable, size_t{64} << 20);
    EXPECT_EQ(mine.choice().variant, 3u);
    EXPECT_TRUE(mine.choice().parallel);
}

// Every index once, whatever the split.
TEST(Parallel, SetAndReset) {
    EXPECT_EQ(parallel_workers(), 1u);
    set_parallel(run_threads, 4);
    EXPECT_EQ(parallel_workers(), 4u);
    set_parallel(run_threads, 0);
    EXPECT_EQ(parallel_workers(), 1u);
    set_parallel(nullptr, 7);
    EXPECT_EQ(parallel_workers(), 1u);
}

}  // namespace
}  // namespace reprise::kernels::testing
