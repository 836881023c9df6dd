// A cycle's record against made-up readings of the ledger: what becomes of them in the profile that the planner gets.
#include "policy/cycle.h"

#include <gtest/gtest.h>

#include "policy/clock.h"

namespace reprise::test {
namespace {

constexpr int64_t kMiB = 1 << 20;
using planner::Freedom;

// A job whose memory is what the test says. Everything of a slot happens between two events: a peak, then what is left of it.
class CycleTest : public testing::Test {
  protected:
    CycleTest() : port_(made_port()), cycle_(port_, {}) { ledger_ = {}; }

    // The job's (and our) memory changes: up to `peak`, then `live`. In MiB.
    static void memory(uint64_t live, uint64_t peak) {
        ledger_.live = live << 20;
        ledger_.peak = std::max({ledger_.peak, peak << 20, ledger_.live});
    }
    static void memory(uint64_t live) { memory(live, live); }

    // An event in which we hold `own` MiB afterwards, of which `spare` could go.
    int32_t forward(const std::string &segment, Freedom freedom = Freedom::open) {
        Segment named;
        named.name = segment;
        Instance instance;
        instance.segment = &named;
        cycle_.enter();
        const int32_t index = cycle_.forward_begins(instance, freedom, freedom == Freedom::open ? nullptr : "because");
        cycle_.event(EventKind::kForwardBegin, index, 0, 0);
        cycle_.leave(own_);
        return index;
    }
    void at(EventKind kind, int32_t index, uint64_t job_ns = 0, uint64_t own_ns = 0) {
        cycle_.enter();
        cycle_.event(kind, index, job_ns, own_ns);
        cycle_.leave(own_);
    }
    static Buffer buffer(uint64_t id, const std::string &name, size_t bytes) {
        Buffer made;
        made.id = id;
        made.name = name;
        made.range = {0x10000, 0x10000 + bytes};
        return made;
    }

    static AllocatorPort made_port() {
        AllocatorPort port{};
        port.ledger_take_peak = &take;
        return port;
    }
    static LedgerReading take() {
        const LedgerReading now = ledger_;
        ledger_.peak = ledger_.live;
        return now;
    }
    static inline LedgerReading ledger_;
    AllocatorPort port_;
    OwnBytes own_;
    Cycle cycle_;
};

// What could have gone until it went was not needed; afterwards nothing is subtracted any more.
TEST_F(CycleTest, WhatHasGoneWasNotNeeded) {
    own_ = {uint64_t{30} << 20, uint64_t{20} << 20};
    memory(100);
    const int32_t i = forward("s");
    at(EventKind::kForwardEnd, i);
    memory(104, 110);  // the job's, and 20 of the 100 could go
    cycle_.enter();
    memory(84);  // and go
    own_ = {uint64_t{10} << 20, 0};
    cycle_.let_go(own_);
    EXPECT_EQ(cycle_.events().back().most_bytes, uint64_t{110} << 20);
    EXPECT_EQ(cycle_.events().back().most_needed, uint64_t{90} << 20);
    EXPECT_EQ(cycle_.live_bytes(), uint64_t{84} << 20);
    cycle_.event(EventKind::kReplayBegin, i, 0, 0);
    cycle_.leave(own_);
    memory(84, 95);
    at(EventKind::kReplayEnd, i);
    EXPECT_EQ(cycle_.last_slot()->most_needed, uint64_t{95} << 20);
}

// Before the first event, too: then it is part of no slot.
TEST_F(CycleTest, WhatGoesBeforeTheFirstEventIsInNoSlot) {
    own_ = {uint64_t{30} << 20, uint64_t{20} << 20};
    memory(100);
    cycle_.enter();
    cycle_.leave(own_);
    cycle_.enter();
    memory(80);
    own_ = {uint64_t{10} << 20, 0};
    cycle_.let_go(own_);
    cycle_.leave(own_);
    EXPECT_EQ(cycle_.most_before(), uint64_t{100} << 20);
    EXPECT_EQ(cycle_.job_bytes(), uint64_t{70} << 20);
    forward("s");
    EXPECT_EQ(cycle_.events().back().most_needed, uint64_t{80} << 20);
}

TEST_F(CycleTest, WhatAReplayLeavesIsKeptAndWhatItTakesBesideIsTransient) {
    memory(100);
    const int32_t i = forward("s");
    memory(100, 116);  // the forward's own, gone when it ends
    at(EventKind::kForwardEnd, i, 5000);
    memory(101, 130);
    at(EventKind::kReplayBegin, i);
    memory(109, 121);  // makes 8 MiB again, with 12 beside them
    at(EventKind::kReplayEnd, i, 7000, 300);
    memory(102);
    const planner::Profile profile = cycle_.profile();
    ASSERT_EQ(profile.instances.size(), 1u);
    const planner::ProfileInstance &made = profile.instances[0];
    EXPECT_EQ(made.segment, "s");
    EXPECT_EQ(made.keep_bytes, 8 * kMiB);
    EXPECT_EQ(made.transient_bytes, 20 * kMiB);
    EXPECT_EQ(made.forward_ns, 5000);
    EXPECT_EQ(made.replay_ns, 7000);
    EXPECT_EQ(made.overhead_ns, 300);
    // Forward: what a kept one needs beside it (100 + 20), more than the 116 that were seen. Replay: without what it takes itself.
    // At its end all of it is still there.
    EXPECT_EQ(profile.base_bytes, (std::vector<int64_t>{120 * kMiB, 130 * kMiB, 101 * kMiB, 109 * kMiB}));
}

TEST_F(CycleTest, WhatWeHoldIsNotTheJobs) {
    memory(100);
    const int32_t i = forward("s");
    cycle_.enter();
    memory(150);  // a shadow of 50, of which 20 could go
    own_ = {uint64_t{50} << 20, uint64_t{20} << 20};
    cycle_.event(EventKind::kForwardEnd, i, 0, 0);
    cycle_.leave(own_);
    memory(160, 170);
    at(EventKind::kReplayBegin, i);
    at(EventKind::kReplayEnd, i);
    EXPECT_EQ(cycle_.profile().base_bytes[1], 120 * kMiB);
    ASSERT_EQ(cycle_.events().size(), 4u);
    EXPECT_EQ(cycle_.events()[1].most_bytes, uint64_t{170} << 20);
    EXPECT_EQ(cycle_.events()[1].most_needed, uint64_t{150} << 20) << "less what could have gone";
    EXPECT_EQ(cycle_.events()[1].most_job_bytes, uint64_t{120} << 20);
}

TEST_F(CycleTest, AnInstanceThatCanOnlyBeReplayedStaysInTheBase) {
    memory(10);
    const int32_t i = forward("s", Freedom::replay);
    at(EventKind::kForwardEnd, i);
    at(EventKind::kReplayBegin, i);
    memory(14, 20);
    at(EventKind::kReplayEnd, i);
    const planner::Profile profile = cycle_.profile();
    EXPECT_EQ(profile.instances[0].freedom, Freedom::replay);
    EXPECT_EQ(profile.instances[0].why, "because");
    EXPECT_EQ(profile.instances[0].transient_bytes, 0);
    EXPECT_EQ(profile.base_bytes[2], 20 * kMiB);
}

TEST_F(CycleTest, InstancesWithoutAReplayAreLeftOutAndUsersCountedWithoutThem) {
    const Buffer both = buffer(1, "both", 3 * kMiB), dropped = buffer(2, "of the dropped one", 5);
    const int32_t first = forward("evaluated");
    cycle_.uses(first, both);
    cycle_.uses(first, dropped);
    at(EventKind::kForwardEnd, first);
    const int32_t second = forward("trained");
    cycle_.uses(second, both);
    cycle_.uses(second, both);  // named twice in one scope
    at(EventKind::kForwardEnd, second);
    cycle_.wrote(both, {{1, 2}});
    at(EventKind::kReplayBegin, second);
    at(EventKind::kReplayEnd, second);
    const planner::Profile profile = cycle_.profile();
    ASSERT_EQ(profile.instances.size(), 1u);
    EXPECT_EQ(profile.instances[0].segment, "trained");
    ASSERT_EQ(profile.buffers.size(), 1u);
    EXPECT_EQ(profile.buffers[0].name, "both");
    EXPECT_EQ(profile.buffers[0].users, std::vector<int32_t>{0});
    ASSERT_EQ(profile.buffers[0].writes.size(), 1u);
    EXPECT_EQ(profile.buffers[0].writes[0].slot, 3);
    ASSERT_EQ(profile.buffers[0].writes[0].pages.size(), 1u);
    EXPECT_EQ(profile.buffers[0].writes[0].pages[0].begin, 1);
    EXPECT_EQ(profile.buffers[0].writes[0].pages[0].end, 3);
}

TEST_F(CycleTest, OfSeveralReplaysTheFirstBeginTheLastEndAndAllTheirTime) {
    const int32_t i = forward("s");
    at(EventKind::kForwardEnd, i, 10);
    for (uint64_t ns : {200, 400}) {
        at(EventKind::kReplayBegin, i);
        at(EventKind::kReplayEnd, i, ns);
    }
    const planner::ProfileInstance made = cycle_.profile().instances.at(0);
    EXPECT_EQ(made.replay_begin, 2);
    EXPECT_EQ(made.replay_end, 5);
    EXPECT_EQ(made.replay_ns, 600);
}

TEST_F(CycleTest, TimesThatAreNoneDoNotAddUpBeyondReason) {
    const int32_t i = forward("s");
    at(EventKind::kForwardEnd, i, ~uint64_t{0} / 2);
    for (int k = 0; k < 20; ++k) {
        at(EventKind::kReplayBegin, i);
        at(EventKind::kReplayEnd, i, kMostElapsedNs, kMostElapsedNs);
    }
    const planner::Profile profile = cycle_.profile();
    EXPECT_EQ(profile.instances[0].replay_ns, static_cast<int64_t>(kMostElapsedNs));
    EXPECT_TRUE(planner::plan_job(profile, 100 * kMiB, planner::Policy::joint, {}).ok());
}

TEST_F(CycleTest, AReplayInsideTheForwardDecidesNothing) {
    const int32_t outer = forward("outer"), inside = forward("inside");
    at(EventKind::kReplayBegin, inside);
    at(EventKind::kReplayEnd, inside);
    at(EventKind::kForwardEnd, inside);
    at(EventKind::kReplayBegin, outer);  // while its forward is open, and beyond
    at(EventKind::kForwardEnd, outer);
    at(EventKind::kReplayEnd, outer);
    const planner::Profile profile = cycle_.profile();
    ASSERT_EQ(profile.instances.size(), 1u);
    EXPECT_EQ(profile.instances[0].segment, "outer");
    EXPECT_EQ(profile.instances[0].freedom, Freedom::replay);
}

TEST_F(CycleTest, ForwardsAndBuffersOfOneNameAreNumbered) {
    const Buffer named = buffer(1, "queue", 100), again = buffer(2, "queue", 100), a = buffer(3, "0x7f00", 100),
                 b = buffer(4, "0x7f80", 100), other = buffer(5, "0x7fc0", 64);
    const int32_t first = forward("s"), second = forward("s"), third = forward("t");
    EXPECT_EQ(cycle_.next_ordinal("s"), 2);
    EXPECT_EQ(cycle_.next_ordinal("never"), 0);
    for (const Buffer *used : {&named, &again, &a, &b, &other}) cycle_.uses(first, *used);
    cycle_.uses(third, a);
    for (int32_t i : {first, second, third}) at(EventKind::kForwardEnd, i);
    for (int32_t i : {third, second, first}) {
        at(EventKind::kReplayBegin, i);
        at(EventKind::kReplayEnd, i);
    }
    const planner::Profile profile = cycle_.profile();
    EXPECT_EQ(profile.instances[1].ordinal, 1);
    EXPECT_EQ(profile.instances[2].ordinal, 0);
    std::vector<std::string> names;
    for (const auto &made : profile.buffers) names.push_back(made.name);
    EXPECT_EQ(names, (std::vector<std::string>{"queue", "queue#2", "unnamed+100", "unnamed+100#2", "unnamed+64"}));
    EXPECT_EQ(profile.buffers[2].users, (std::vector<int32_t>{0, 2}));
}

TEST_F(CycleTest, TheOrderIsThatOfTheForwards) {
    const uint64_t none = cycle_.order();
    (void)forward("a");
    (void)forward("b");
    const uint64_t both = cycle_.order(), last = cycle_.order(1);
    EXPECT_NE(both, none);
    EXPECT_NE(both, last);
    EXPECT_EQ(Cycle(port_, {}).order(), none);
}

TEST_F(CycleTest, WritesAtRandomStayFew) {
    const Buffer large = buffer(1, "large", size_t{1} << 30);
    const int32_t i = forward("s");
    cycle_.uses(i, large);
    at(EventKind::kForwardEnd, i);
    PageRuns runs;
    for (uint32_t page = 0; page < 250'000; page += 7) runs.push_back({page, 1});
    cycle_.wrote(large, runs);
    at(EventKind::kReplayBegin, i);
    at(EventKind::kReplayEnd, i);
    const auto profile = cycle_.profile();
    const auto &pages = profile.buffers.at(0).writes.at(0).pages;
    EXPECT_LE(pages.size(), 4096u);
    // All of them are in it.
    size_t at_run = 0;
    for (PageRun run : runs) {
        while (at_run < pages.size() && pages[at_run].end <= run.first) ++at_run;
        ASSERT_LT(at_run, pages.size()) << run.first;
        ASSERT_TRUE(pages[at_run].begin <= run.first && run.end() <= pages[at_run].end) << run.first;
    }
}

TEST_F(CycleTest, OneThatNeverEndsIsGivenUp) {
    const int32_t i = forward("s");
    while (!cycle_.too_long()) at(EventKind::kReplayEnd, i);
    EXPECT_EQ(cycle_.events().size(), Cycle::kMostEvents);
}

}  // namespace
}  // namespace reprise::test
