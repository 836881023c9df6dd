// What preserving costs: measured, kept for the next process, and refused where it cannot be.
#include "policy/cost_meter.h"

#include <gtest/gtest.h>

#include "policy/machine_cache.h"
#include "policy/text_file.h"
#include "tests/policy/planning_job.h"

namespace reprise::test {
namespace {

std::string text_of(const std::string &path) {
    std::string text, why;
    return read_text_file(path, &text, &why) ? text : "";
}

TEST(CostMeter, MeasuresWhatAMachineCanDoAndKeepsIt) {
    const Folder folder;
    const std::string path = folder / "cache/costs";
    const planner::MechanismCosts measured = CostMeter::measure(WatchedPort::get(), path);
    // 1 TB/s to 0.27 ms per page: wide, because the machine may be busy, and right by orders of magnitude.
    for (int64_t cost : {measured.copy_ps, measured.delta_ps, measured.selective_load_ps}) {
        EXPECT_GE(cost, 4'000);
        EXPECT_LE(cost, int64_t{1} << 28);
    }
    EXPECT_GE(measured.arm_ps, 1);
    ASSERT_NE(text_of(path), "");
    const planner::MechanismCosts again = CostMeter::measure(WatchedPort::get(), path);
    EXPECT_EQ(again.copy_ps, measured.copy_ps);
    EXPECT_EQ(again.arm_ps, measured.arm_ps);
    EXPECT_EQ(again.delta_ps, measured.delta_ps);
    EXPECT_EQ(again.selective_load_ps, measured.selective_load_ps);
}

TEST(CostMeter, TakesWhatAnotherProcessMeasured) {
    const Folder folder;
    write_machine_file(folder / "costs", "2 190001 502 1000003 1000004\n");
    const planner::MechanismCosts costs = CostMeter::measure(WatchedPort::get(), folder / "costs");
    EXPECT_EQ(costs.copy_ps, 190001);
    EXPECT_EQ(costs.arm_ps, 502);
    EXPECT_EQ(costs.delta_ps, 1000003);
    EXPECT_EQ(costs.selective_load_ps, 1000004);
}

TEST(CostMeter, MeasuresAgainWhereTheCacheCannotBeTrue) {
    for (const char *text : {"", "2 190001", "two 1 2 3 4", "1 48 20048 97 97\n", "1 190001 502 1000003 1000004\n", "2 48 20048 97 97\n",
                             "2 190001 0 1000003 1000004\n", "2 190001 502 1000003 99999999999\n", "2 -190001 502 1000003 1000004\n"}) {
        SCOPED_TRACE(text);
        const Folder folder;
        write_machine_file(folder / "costs", text);
        EXPECT_GE(CostMeter::measure(WatchedPort::get(), folder / "costs").copy_ps, 4'000);
        EXPECT_NE(text_of(folder / "costs"), text);
    }
}

// Times that a test makes up once went into the cache of whoever ran the tests: in its jobs a copy cost nothing from then on.
TEST(CostMeter, ATestsClockLeavesNothingBehind) {
    const VirtualClock clock;
    const Folder folder;
    const planner::MechanismCosts costs = CostMeter::measure(WatchedPort::get(), folder / "costs"), defaults;
    EXPECT_EQ(costs.copy_ps, defaults.copy_ps);
    EXPECT_EQ(costs.delta_ps, defaults.delta_ps);
    EXPECT_FALSE(exists(folder / "costs"));
    write_machine_file(folder / "costs", "2 190001 502 1000003 1000004\n");
    EXPECT_EQ(CostMeter::measure(WatchedPort::get(), folder / "costs").copy_ps, defaults.copy_ps);
}

// Medians of the job's own copies, from the fifth on; small ones are mostly the fixed part.
TEST(CostMeter, TheJobsOwnCopiesComeBeforeTheCalibration) {
    CostMeter meter;
    const planner::MechanismCosts base;
    constexpr uint64_t kMiB = 1 << 20;
    for (int i = 0; i < 4; ++i) meter.copied(kMiB, 256 * 300), meter.loaded(2 * kMiB, 512 * 700);
    EXPECT_EQ(meter.refine(base).copy_ps, base.copy_ps);
    for (int i = 0; i < 3; ++i)
        meter.copied(kMiB, 256 * 300), meter.loaded(2 * kMiB, 512 * 700), meter.copied(kMiB / 2, 1), meter.loaded(kMiB / 2, 1);
    EXPECT_EQ(meter.refine(base).copy_ps, 300'000);
    EXPECT_EQ(meter.refine(base).selective_load_ps, 700'000);
    EXPECT_EQ(meter.refine(base).delta_ps, base.delta_ps);
    for (int i = 0; i < 20; ++i) meter.copied(kMiB, 0), meter.loaded(kMiB, uint64_t{3600} * 1'000'000'000);
    EXPECT_EQ(meter.refine(base).copy_ps, 300'000);
    EXPECT_EQ(meter.refine(base).selective_load_ps, 700'000);
}

}  // namespace
}  // namespace reprise::test
