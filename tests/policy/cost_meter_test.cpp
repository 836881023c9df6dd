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

bool can_watch() {
    GuardCapabilities capabilities;
    WatchedPort::get().guard_probe(&capabilities);
    return capabilities.write_protect_async;
}

TEST(CostMeter, MeasuresWhatAMachineCanDoAndKeepsIt) {
    const Folder folder;
    const std::string path = folder / "cache/costs";
    const planner::MechanismCosts measured = CostMeter::measure(WatchedPort::get(), can_watch(), path);
    // 1 TB/s to 0.27 ms per page: wide, because the machine may be busy, and right by orders of magnitude.
    for (int64_t cost : {measured.copy_ps, measured.copy_load_ps, measured.compare_ps, measured.page_copy_ps, measured.page_load_ps}) {
        EXPECT_GE(cost, 4'000);
        EXPECT_LE(cost, int64_t{1} << 28);
    }
    for (int64_t cost : {measured.fault_ps, measured.look_ps, measured.look_fixed_ns}) EXPECT_EQ(cost >= 1, can_watch());
    ASSERT_NE(text_of(path), "");
    const planner::MechanismCosts again = CostMeter::measure(WatchedPort::get(), can_watch(), path);
    for (int64_t planner::MechanismCosts::*cost : planner::kMeasuredCosts) EXPECT_EQ(again.*cost, measured.*cost);
}

TEST(CostMeter, TakesWhatAnotherProcessMeasured) {
    const Folder folder;
    write_machine_file(folder / "costs", "3 190001 570002 150008 503 10004 700005 250006 1000007\n");
    const planner::MechanismCosts costs = CostMeter::measure(WatchedPort::get(), can_watch(), folder / "costs");
    EXPECT_EQ(costs.copy_ps, 190001);
    EXPECT_EQ(costs.copy_load_ps, 570002);
    EXPECT_EQ(costs.compare_ps, 150008);
    EXPECT_EQ(costs.look_ps, 503);
    EXPECT_EQ(costs.look_fixed_ns, 10004);
    EXPECT_EQ(costs.fault_ps, 700005);
    EXPECT_EQ(costs.page_copy_ps, 250006);
    EXPECT_EQ(costs.page_load_ps, 1000007);
}

TEST(CostMeter, MeasuresAgainWhereTheCacheCannotBeTrue) {
    for (const char *text :
         {"", "3", "3 190001", "3 190001 570002 150008 503 10004 700005 250006\n", "three 1 2 3 4 5 6 7 8",
          "2 190001 502 1000003 1000004\n", "3 48 97 150008 503 10004 700005 250006 1000007\n",
          "3 190001 570002 150008 0 10004 700005 250006 1000007\n", "3 190001 570002 150008 503 0 700005 250006 1000007\n",
          "3 190001 570002 150008 503 10004 700005 250006 99999999999\n", "3 -190001 570002 150008 503 10004 700005 250006 1000007\n",
          "3 190001 570002 150008 503 10004 700005 x 1000007\n", "3 190001 570002 150008 503 10004 700005 250006 1000007 8\n"}) {
        SCOPED_TRACE(text);
        const Folder folder;
        write_machine_file(folder / "costs", text);
        EXPECT_GE(CostMeter::measure(WatchedPort::get(), can_watch(), folder / "costs").copy_ps, 4'000);
        EXPECT_NE(text_of(folder / "costs"), text);
    }
}

// Times that a test makes up once went into the cache of whoever ran the tests: in its jobs a copy cost nothing from then on.
TEST(CostMeter, ATestsClockLeavesNothingBehind) {
    const VirtualClock clock;
    const Folder folder;
    const planner::MechanismCosts costs = CostMeter::measure(WatchedPort::get(), can_watch(), folder / "costs"), defaults;
    EXPECT_EQ(costs.copy_ps, defaults.copy_ps);
    EXPECT_EQ(costs.fault_ps, defaults.fault_ps);
    EXPECT_FALSE(exists(folder / "costs"));
    write_machine_file(folder / "costs", "3 190001 570002 150008 503 10004 700005 250006 1000007\n");
    EXPECT_EQ(CostMeter::measure(WatchedPort::get(), can_watch(), folder / "costs").copy_ps, defaults.copy_ps);
}

// Medians of the job's own copies, from the fifth on; small ones are mostly the fixed part.
TEST(CostMeter, TheJobsOwnCopiesComeBeforeTheCalibration) {
    CostMeter meter;
    const planner::MechanismCosts base;
    constexpr uint64_t kMiB = 1 << 20;
    // A load is two copies of three.
    constexpr LoadedBytes kCopies{2 * kMiB, kMiB / 8, 4096}, kPages{kMiB / 16, kMiB, 0};
    const auto samples = [&meter](int count, uint64_t copied, LoadedBytes loaded, uint64_t nanoseconds) {
        for (int i = 0; i < count; ++i) meter.copied(kMiB, copied), meter.loaded(loaded, nanoseconds);
    };
    samples(4, 256 * 300 + 2'000, kCopies, 544 * 700);
    samples(4, 256 * 300 + 2'000, kPages, 272 * 1'000);
    EXPECT_EQ(meter.refine(base).copy_load_ps, base.copy_load_ps);
    EXPECT_EQ(meter.refine(base).page_load_ps, base.page_load_ps);
    samples(3, 256 * 300 + 2'000, kCopies, 545 * 700);
    samples(3, 256 * 300 + 2'000, kPages, 272 * 1'000);
    // Little, and of both kinds.
    samples(9, 256 * 300 + 2'000, {kMiB / 8, 0, 0}, 1);
    samples(9, 256 * 300 + 2'000, {kMiB, kMiB, 0}, 512 * 9'000);
    for (int i = 0; i < 20; ++i) meter.copied(kMiB / 8, 1);
    const planner::MechanismCosts refined = meter.refine(base);
    EXPECT_EQ(refined.copy_ps, 300'000);
    EXPECT_NEAR(static_cast<double>(refined.copy_load_ps), 1'050'000, 3'000);
    EXPECT_EQ(refined.page_load_ps, 1'500'000);
    EXPECT_EQ(refined.fault_ps, base.fault_ps);
    samples(20, 0, kCopies, uint64_t{3600} * 1'000'000'000);
    EXPECT_EQ(meter.refine(base).copy_ps, 300'000);
    EXPECT_EQ(meter.refine(base).copy_load_ps, refined.copy_load_ps);
}

// Where no page can be watched a shadow compares, and takes no faults.
TEST(CostMeter, WithoutWatchingALookIsAComparison) {
    CostMeter meter;
    const planner::MechanismCosts base;
    EXPECT_EQ(meter.refine(base).look_ps, base.look_ps);
    meter.set_watches(false);
    EXPECT_EQ(meter.refine(base).look_ps, base.compare_ps);
    EXPECT_EQ(meter.refine(base).look_fixed_ns, 0);
    EXPECT_EQ(meter.refine(base).fault_ps, 0);
}

// A guard that fails: the rest is measured, and nothing is kept for those that come after.
TEST(CostMeter, WhatCouldNotBeWatchedIsNotKept) {
    const Folder folder;
    AllocatorPort port = WatchedPort::get();
    port.guard_arm = [](AddressRange) { return GuardResult::kUnavailable; };
    const planner::MechanismCosts costs = CostMeter::measure(port, true, folder / "costs"), defaults;
    EXPECT_TRUE(costs.copy_ps != defaults.copy_ps || costs.compare_ps != defaults.compare_ps);
    EXPECT_EQ(costs.fault_ps, defaults.fault_ps);
    EXPECT_FALSE(exists(folder / "costs"));
}

// Where that is known it is kept, and no measurement for one that watches.
TEST(CostMeter, WhoCannotWatchMeasuresOnce) {
    const Folder folder;
    const planner::MechanismCosts costs = CostMeter::measure(WatchedPort::get(), false, folder / "costs");
    EXPECT_EQ(costs.fault_ps, 0);
    const std::string kept = text_of(folder / "costs");
    ASSERT_NE(kept, "");
    EXPECT_EQ(CostMeter::measure(WatchedPort::get(), false, folder / "costs").copy_ps, costs.copy_ps);
    EXPECT_EQ(text_of(folder / "costs"), kept);
    if (!can_watch()) return;
    EXPECT_GE(CostMeter::measure(WatchedPort::get(), true, folder / "costs").fault_ps, 4'000);
    EXPECT_NE(text_of(folder / "costs"), kept);
}

}  // namespace
}  // namespace reprise::test
