#include "support.h"

#include <chrono>

namespace reprise::kernels::testing {
namespace {

using detail::Choice;
using detail::Kind;
using detail::Trial;
using detail::Tuner;

unsigned one_usable() { return 1; }

void work_for(std::chrono::microseconds time) {
    auto end = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < end) {
    }
}

#if !REPRISE_KERNELS_SANITIZED  // there only plain code is chosen
unsigned three_usable() { return 0b1011; }

TEST(Tuner, TakesTheFastestOfTheUsable) {
    Tuner tuner;
    unsigned trials = 0;
    while (!tuner.decided() && trials < 100) {
        Trial trial(Kind::copy, tuner, three_usable, size_t{64} << 20);
        unsigned v = trial.choice().variant;
        ASSERT_TRUE(v == 0 || v == 1 || v == 3) << v;
        ASSERT_FALSE(trial.choice().parallel) << "no workers are set";
        work_for(std::chrono::microseconds(v == 1 ? 200 : v == 3 ? 700 : 1500));
        trials++;
    }
    EXPECT_LE(trials, 3 * Tuner::kRounds + Tuner::kMaxUncounted);
    EXPECT_EQ(tuner.best().variant, 1u);
}
#endif

TEST(Tuner, UsesWorkersOnlyWhereTheyPay) {
    WithWorkers workers;
    for (bool pays : {false, true}) {
        Tuner tuner;
        for (int i = 0; i < 200 && !tuner.decided(); i++) {
            Trial trial(Kind::copy, tuner, one_usable, size_t{64} << 20);
            work_for(std::chrono::microseconds(trial.choice().parallel == pays ? 200 : 900));
        }
        ASSERT_TRUE(tuner.decided());
        EXPECT_EQ(tuner.best().parallel, pays);
    }
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
