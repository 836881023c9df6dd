// Profiles and plans as text: there and back, nonsense of every kind, and texts that were damaged at random.
#include <gtest/gtest.h>

#include <string>

#include "bench/planner_families.h"
#include "planner/plan_json.h"
#include "planner/profile_json.h"
#include "tests/planner/instances.h"
#include "tests/planner/profiles.h"

namespace reprise::planner::test {
namespace {

std::string with(std::string text, const std::string &from, const std::string &to) {
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TEST(ProfileJson, ThereAndBack) {
    for (uint64_t seed = 1; seed <= 40; seed++) {
        Profile profile = random_profile(seed, 2 + static_cast<int>(seed % 5));
        const std::string text = write_profile(profile);
        EXPECT_EQ(text.find('\n'), std::string::npos);
        Result<Profile> read = read_profile(text);
        ASSERT_TRUE(read.ok()) << read.status().text();
        EXPECT_EQ(write_profile(read.value()), text);
        EXPECT_EQ(shape_of(read.value()), shape_of(profile));
        const int64_t budget = plan_job(profile, 0, Policy::joint).value().smallest_bytes;
        const JobPlan plan = plan_job(profile, budget, Policy::joint).value();
        const std::string written = write_plan(plan, "1-1", 7);
        EXPECT_EQ(write_plan(plan_job(read.value(), budget, Policy::joint).value(), "1-1", 7), written);
        Result<JobPlan> back = read_plan(written);
        ASSERT_TRUE(back.ok()) << back.status().text();
        EXPECT_EQ(write_plan(back.value(), "1-1", 7), written);
        EXPECT_TRUE(differences(back.value(), profile).empty());
    }
}

TEST(ProfileJson, EveryMeasuredCostIsKept) {
    Profile profile = transformer_profile(2);
    int64_t value = 12'345;
    for (int64_t MechanismCosts::*cost : kMeasuredCosts) profile.costs.*cost = value++;
    Result<Profile> read = read_profile(write_profile(profile));
    ASSERT_TRUE(read.ok()) << read.status().text();
    for (int64_t MechanismCosts::*cost : kMeasuredCosts) EXPECT_EQ(read.value().costs.*cost, profile.costs.*cost);
}

TEST(ProfileJson, WhatIsWrongIsSaidWithItsPlace) {
    const std::string text = write_profile(transformer_profile(2));
    for (size_t cut = 0; cut < text.size(); cut += 1 + cut / 8) {
        Result<Profile> result = read_profile(text.substr(0, cut));
        ASSERT_FALSE(result.ok()) << cut;
        EXPECT_NE(std::string(result.status().text()).find("not whole JSON"), std::string::npos) << result.status().text();
    }
    const std::pair<std::string, std::string> cases[] = {
        {with(text, "reprise.profile/1", "reprise.profile/2"), "reprise.profile/2"},
        {with(text, "reprise.profile/1", "reprise.plan/1"), "reprise.plan/1"},
        {with(text, "\"base_bytes\":", "\"bass\":"), "base_bytes is missing"},
        {with(text, "\"keep_bytes\":", "\"keep_bytes\":-"), "instances[0].keep_bytes is -"},
        {with(text, "\"ordinal\":0", "\"ordinal\":9999999999"), "instances[0].ordinal"},
        {with(text, "\"replay_ns\":", "\"replay_ns\":1e3,\"x\":"), "instances[0].replay_ns is no whole number"},
        {with(text, "\"step\":12", "\"step\":18446744073709551615"), "step is beyond reason"},
        {with(text, "\"open\"", "\"free\""), "unknown freedom 'free'"},
        {with(text, "[\"F\",\"blocks.0\",0,\"begin\"]", "[\"F\",\"other\",0,\"begin\"]"), "events[1] is of no instance"},
        {with(text, "[\"F\",\"blocks.0\",0,\"begin\"]", "[\"F\",\"blocks.0\",0,\"end\"]"), "has been before"},
        {with(text, "[\"F\",\"blocks.0\",0,\"begin\"]", "null"), "not all four of segment 'blocks.0'"},
        {with(text, "[\"F\",\"blocks.0\",0,\"begin\"]", "[\"F\"]"), "events[1] has only 1 entries"},
        {with(text, "\"users\":[0,", "\"users\":[7,"), "buffer 'queue': user 7"},
        {with(text, "\"pages\":[[0,64]]", "\"pages\":[[64,0]]"), "the pages [64, 0)"},
        {with(text, "\"bytes\":67108864", "\"bytes\":9000000000000000000"), "buffer 'queue'"},
        {with(text, "\"copy_ps\":190000", "\"copy_ps\":190000000000"), "copy_ps"},
        {with(text, "\"page_bytes\":4096", "\"page_bytes\":16384"), "page_bytes"},
        {"[]", "no object"},
        {"null", "no object"},
        {"{}", "schema is missing"},
    };
    for (const auto &[bad, said] : cases) {
        Result<Profile> result = read_profile(bad);
        ASSERT_FALSE(result.ok()) << said;
        EXPECT_NE(std::string(result.status().text()).find(said), std::string::npos) << said << "\n" << result.status().text();
    }
    EXPECT_TRUE(read_profile(with(text, "\"step\":12", "\"step\":12,\"weather\":[\"fine\"]")).ok());
    EXPECT_TRUE(read_profile(with(text, "reprise.profile/1", "reprise.profile/1.4")).ok());
}

TEST(PlanJson, WhatIsWrongIsSaidWithItsPlace) {
    const Profile profile = transformer_profile(3);
    const std::string text = write_plan(plan_job(profile, 0, Policy::joint).value());
    ASSERT_TRUE(read_plan(text).ok());
    for (size_t cut = 0; cut < text.size(); cut += 1 + cut / 8) EXPECT_FALSE(read_plan(text.substr(0, cut)).ok()) << cut;
    const std::pair<std::string, std::string> cases[] = {
        {with(text, "reprise.plan/1", "reprise.plan/2"), "reprise.plan/2"},
        {with(text, "\"joint\"", "\"hope\""), "unknown policy 'hope'"},
        {with(text, "\"shape\":\"", "\"shape\":\"x"), "shape is not"},
        {with(text, "\"decision\":\"replay\"", "\"decision\":\"maybe\""), "instances[0].decision"},
        {with(text, "\"decision\":\"replay\"", "\"decision\":\"retain\""), "is an instance that the plan retains"},
        {with(text, "\"readers\":[0,", "\"readers\":[3,"), "is no instance of the plan"},
        {with(text, "\"readers\":[0,1", "\"readers\":[0,0"), "is there twice"},
        {with(text, "\"unchanged\":[false,", "\"unchanged\":["), "an entry for each reader"},
        {with(text, "\"unchanged\":[false", "\"unchanged\":[true"), "before the first"},
        {with(text, "\"segment\":\"blocks.1\"", "\"segment\":\"blocks.0\""), "instances[1] is a forward that the plan has twice"},
        {with(text, "\"peak_slot\":", "\"peak_slot\":99"), "peak_slot"},
    };
    for (const auto &[bad, said] : cases) {
        Result<JobPlan> result = read_plan(bad);
        ASSERT_FALSE(result.ok()) << said;
        EXPECT_NE(std::string(result.status().text()).find(said), std::string::npos) << said << "\n" << result.status().text();
    }
}

// Whatever is read does no harm: it is planned with.
TEST(ProfileJson, DamagedTextsAreRefusedOrPlanned) {
    Random random(7);
    int read = 0;
    const uint64_t rounds = scaled(3000);
    for (uint64_t k = 0; k < rounds; k++) {
        const Profile profile = random_profile(1 + k % 20, 2 + static_cast<int>(k % 3), 2);
        std::string text = write_profile(profile);
        for (int n = 0; n < 1 + random.below(4); n++) {
            const auto at = static_cast<size_t>(random.below(static_cast<int>(text.size())));
            static const char kBytes[] = "0123456789-,.:\"[]{}eE\\ntf\xff";
            // Digits mostly become other digits: such texts are read.
            const bool digit = text[at] >= '0' && text[at] <= '9';
            text[at] = kBytes[static_cast<size_t>(random.below(digit && random.below(8) != 0 ? 10 : static_cast<int>(sizeof kBytes - 1)))];
            if (random.below(6) == 0) text.insert(at, std::to_string(random.below(1 << 30)));
        }
        Result<Profile> result = read_profile(text);
        if (!result.ok()) {
            EXPECT_NE(std::string(result.status().text()), "");
            continue;
        }
        read++;
        Result<JobPlan> plan = plan_job(result.value(), 100 << 20, Policy::joint, {.work = 200'000});
        if (plan.ok()) {
            EXPECT_TRUE(read_plan(write_plan(plan.value())).ok());
        }
    }
    EXPECT_GT(read, static_cast<int>(rounds / 20));
}

TEST(Differences, AreNamed) {
    const Profile profile = transformer_profile(4);
    const JobPlan plan = plan_job(profile, 0, Policy::joint).value();
    EXPECT_TRUE(differences(plan, profile).empty());
    auto first = [&](const Profile &other) {
        const std::vector<std::string> all = differences(plan, other);
        return all.empty() ? std::string() : all[0];
    };
    EXPECT_EQ(first(transformer_profile(5)), "segment 'blocks.4' is not in the plan, and ran 1 forward");
    EXPECT_EQ(first(transformer_profile(3)), "segment 'blocks.3' is in the plan with 1 forward, and did not run");
    EXPECT_EQ(first(transformer_profile(4, 2)), "segment 'blocks.0' is in the plan with 1 forward, and ran 2 forwards");
    Profile larger = profile;
    larger.buffers[0].bytes *= 2;
    EXPECT_EQ(first(larger), "buffer 'queue' has 134217728 bytes, and 67108864 in the plan");
    Profile renamed = profile;
    renamed.buffers[0].name = "bank";
    EXPECT_EQ(first(renamed), "buffer 'queue' is in the plan, and no segment of the job uses it");
    Profile swapped = profile;
    std::swap(swapped.instances[1].segment, swapped.instances[2].segment);
    EXPECT_EQ(first(swapped), "forward 1 of the cycle is one of 'blocks.2', and of 'blocks.1' in the plan");
    Profile reordered = profile;
    std::swap(reordered.instances[1].replay_end, reordered.instances[0].replay_begin);
    EXPECT_NE(first(reordered).find("another order"), std::string::npos);
    EXPECT_EQ(differences(plan, transformer_profile(40), 5).size(), 5u);
    EXPECT_EQ(differences(plan, transformer_profile(40), 5).back(), "and 32 more differences");
}

}  // namespace
}  // namespace reprise::planner::test
