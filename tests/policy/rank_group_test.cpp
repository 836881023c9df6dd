// What ranks agree on: the worst of every measurement, and a forward that none of them has begun.
#include "policy/rank_group.h"

#include <gtest/gtest.h>

namespace reprise::test {
namespace {

planner::Profile one_segment() {
    planner::Profile profile;
    profile.base_bytes = {100, 200, 300, 400};
    planner::ProfileInstance &it = profile.instances.emplace_back();
    it.segment = "layer";
    it.forward_end = 1, it.replay_begin = 2, it.replay_end = 3;
    it.forward_ns = 10, it.replay_ns = 20, it.keep_bytes = 30;
    profile.buffers.push_back({"state", 8192, {0}, {{1, {{0, 1}}}}, true, 0, 1});
    return profile;
}

TEST(RankGroup, PlansForTheWorstOfEveryMeasurement) {
    const planner::Profile base = one_segment();
    constexpr size_t kCosts = std::size(planner::kMeasuredCosts);
    // One member is worst in exactly one measurement: the result has all of them.
    std::vector<planner::Profile> members(kCosts + 3, base);
    for (size_t i = 0; i < kCosts; ++i) members[i].costs.*planner::kMeasuredCosts[i] += static_cast<int64_t>(1000 + i);
    members[kCosts].instances[0].replay_ns = 21;
    members[kCosts + 1].base_bytes[2] = 301;
    members[kCosts + 2].buffers[0].writes[0].pages = {{0, 2}};
    planner::Profile worst;
    std::string why;
    ASSERT_TRUE(worst_of(members, &worst, &why)) << why;
    for (size_t i = 0; i < kCosts; ++i)
        EXPECT_EQ(worst.costs.*planner::kMeasuredCosts[i], base.costs.*planner::kMeasuredCosts[i] + static_cast<int64_t>(1000 + i)) << i;
    EXPECT_EQ(worst.instances[0].replay_ns, 21);
    EXPECT_EQ(worst.instances[0].forward_ns, 10);
    EXPECT_EQ(worst.base_bytes, (std::vector<int64_t>{100, 200, 301, 400}));
    EXPECT_EQ(worst.buffers[0].writes[0].pages[0].end, 2);
}

TEST(RankGroup, OtherEventsAreAnotherJob) {
    std::vector<planner::Profile> members(2, one_segment());
    members[1].instances[0].segment = "other";
    planner::Profile worst;
    std::string why;
    EXPECT_FALSE(worst_of(members, &worst, &why));
    EXPECT_NE(why, "");
}

TEST(RankGroup, AgreesOnAForwardThatNobodyHasBegun) {
    const std::vector<ForwardCounts> members = {{{"a", 10}, {"b", 20}}, {{"a", 13}, {"b", 20}}, {{"a", 10}}};
    const ForwardCounts agreed = agree(members, {{"a", 1}, {"b", 2}, {"never", 0}});
    ASSERT_EQ(agreed.size(), 2u);
    for (const auto &[segment, at] : agreed) {
        for (const ForwardCounts &member : members) {
            auto found = member.find(segment);
            if (found != member.end()) {
                EXPECT_GT(at, found->second) << segment;
            }
        }
    }
    EXPECT_EQ((agreed.at("b") - 20) % 2, 0u) << "whole cycles after the first member's";
}

}  // namespace
}  // namespace reprise::test
