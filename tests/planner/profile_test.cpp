// Plans of whole cycles against a simulation that knows pages and versions, and nothing of windows, tables or the solver.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "bench/planner_families.h"
#include "planner/profile.h"
#include "tests/planner/instances.h"
#include "tests/planner/profiles.h"

namespace reprise::planner::test {
namespace {

constexpr int64_t kPage = 4096;

// Of a buffer that somebody sees change, every replayed user: whoever is left out holds what nobody counts.
void expect_every_user_in_one_window(const Profile &profile, const JobPlan &plan) {
    for (const ProfileBuffer &buffer : profile.buffers) {
        std::multiset<int32_t> readers;
        for (const PlannedWindow &window : plan.windows)
            if (window.buffer == buffer.name) readers.insert(window.readers.begin(), window.readers.end());
        if (!sees_change(profile, buffer)) {
            EXPECT_TRUE(readers.empty()) << buffer.name;
            continue;
        }
        for (int32_t user : buffer.users)
            EXPECT_EQ(readers.count(user), plan.instances[static_cast<size_t>(user)].replay ? 1u : 0u) << buffer.name << " " << user;
    }
}

TEST(PlanJob, MemoryIsWhatASimulationOfEveryPageFinds) {
    for (uint64_t seed = 1; seed <= scaled(30); seed++) {
        Profile profile = random_profile(seed, 2 + static_cast<int>(seed % 6));
        JobPlan all = plan_job(profile, INT64_MAX / 2, Policy::retain).value();
        for (Policy policy :
             {Policy::joint, Policy::retain, Policy::whole, Policy::selective, Policy::fixed, Policy::eager_whole, Policy::greedy})
            for (int percent : {0, 40, 70, 90, 100}) {
                int64_t budget = all.retained_bytes / 100 * percent;
                Result<JobPlan> result = plan_job(profile, budget, policy);
                ASSERT_TRUE(result.ok()) << result.status().text();
                const JobPlan &plan = result.value();
                std::vector<int64_t> seen = simulate(profile, plan);
                ASSERT_EQ(plan.memory_bytes, seen) << "seed " << seed << " policy " << policy_name(policy) << " at " << percent;
                int64_t peak = seen.empty() ? 0 : *std::max_element(seen.begin(), seen.end());
                EXPECT_EQ(plan.peak_bytes, peak);
                EXPECT_EQ(plan.verdict == Verdict::planned, peak <= plan.budget_bytes)
                    << "seed " << seed << " policy " << policy_name(policy) << " at " << percent;
                EXPECT_LE(plan.bound_ns, plan.added_ns);
                expect_every_user_in_one_window(profile, plan);
                if (plan.verdict != Verdict::planned) {
                    EXPECT_GE(plan.smallest_bytes, plan.smallest_bound_bytes);
                    EXPECT_GT(plan.smallest_bytes, plan.budget_bytes);
                    EXPECT_LE(plan.peak_bytes, plan.smallest_bytes);
                    EXPECT_FALSE(plan.binding.empty());
                }
                EXPECT_EQ(plan.retained_bytes, all.peak_bytes);
            }
    }
}

// What is kept is decisions: the memory is that of the profile that they are followed in.
TEST(PlanJob, FollowedInAnotherProfileItHasThatOnesMemory) {
    int fits = 0, not_any_more = 0;
    for (uint64_t seed = 1; seed <= scaled(60); seed++) {
        const Profile profile = random_profile(seed + 4000, 2 + static_cast<int>(seed % 6));
        const JobPlan least = plan_job(profile, 0, Policy::joint).value();
        const int64_t retained = plan_job(profile, INT64_MAX / 2, Policy::retain).value().peak_bytes;
        const int64_t budget = least.smallest_bytes + (retained - least.smallest_bytes) / 2;
        const JobPlan plan = plan_job(profile, budget, Policy::joint).value();
        const Result<JobPlan> same = follow_plan(plan, profile, budget);
        ASSERT_TRUE(same.ok()) << same.status().text();
        EXPECT_EQ(same.value().memory_bytes, plan.memory_bytes) << seed;
        EXPECT_EQ(same.value().added_ns, plan.added_ns) << seed;
        EXPECT_EQ(same.value().verdict == Verdict::planned, plan.verdict == Verdict::planned) << seed;

        Profile other = profile;
        for (int64_t &bytes : other.base_bytes) bytes += static_cast<int64_t>(seed % 7) * kPage;
        for (ProfileInstance &it : other.instances)
            it.keep_bytes += static_cast<int64_t>(seed % 5) * kPage, it.transient_bytes += 4 * kPage;
        const Result<JobPlan> followed = follow_plan(plan, other, budget);
        ASSERT_TRUE(followed.ok()) << followed.status().text();
        EXPECT_EQ(followed.value().memory_bytes, simulate(other, plan)) << seed;
        const int64_t peak = *std::max_element(followed.value().memory_bytes.begin(), followed.value().memory_bytes.end());
        EXPECT_EQ(followed.value().verdict == Verdict::planned, peak <= followed.value().budget_bytes) << seed;
        (followed.value().verdict == Verdict::planned ? fits : not_any_more)++;
        for (size_t i = 0; i < plan.instances.size(); i++) EXPECT_EQ(followed.value().instances[i].replay, plan.instances[i].replay);
    }
    EXPECT_GT(fits, 0);
    EXPECT_GT(not_any_more, 0);
}

TEST(PlanJob, OfAnotherJobIsNotFollowed) {
    const Profile profile = transformer_profile(6), longer = transformer_profile(7);
    const JobPlan plan = plan_job(profile, INT64_MAX / 2, Policy::joint).value();
    ASSERT_TRUE(follow_plan(plan, profile, INT64_MAX / 2).ok());
    EXPECT_FALSE(follow_plan(plan, longer, INT64_MAX / 2).ok());
    Profile bound = profile;  // by now the job leaves no choice
    bound.instances[2].freedom = Freedom::replay;
    EXPECT_FALSE(follow_plan(plan, bound, INT64_MAX / 2).ok());
}

// Every plan there is, each measured by the simulation.
TEST(PlanJob, NoPlanIsBetterThanItsBounds) {
    int infeasible = 0, exact = 0, planned = 0;
    for (uint64_t seed = 1; seed <= scaled(120); seed++) {
        Profile profile = random_profile(seed + 1000, 2 + static_cast<int>(seed % 3), 2);
        JobPlan retained = plan_job(profile, INT64_MAX / 2, Policy::retain).value();
        JobPlan lowest = plan_job(profile, 0, Policy::joint).value();
        std::vector<Everything> all = every_plan(profile);
        int64_t least_peak = INT64_MAX;
        for (const Everything &one : all) least_peak = std::min(least_peak, one.peak_bytes);
        EXPECT_LE(lowest.smallest_bound_bytes, least_peak) << seed;
        EXPECT_GE(lowest.smallest_bytes, least_peak) << seed;
        for (int percent : {5, 30, 60, 95}) {
            int64_t budget = lowest.smallest_bytes + (retained.peak_bytes - lowest.smallest_bytes) / 100 * percent;
            if (percent == 5) budget = lowest.smallest_bound_bytes - kPage;
            JobPlan plan = plan_job(profile, budget, Policy::joint).value();
            int64_t best = INT64_MAX;
            for (const Everything &one : all)
                if (one.peak_bytes <= plan.budget_bytes) best = std::min(best, one.added_ns);
            if (plan.verdict == Verdict::planned) {
                planned++;
                exact += plan.proof == Proof::exact;
                ASSERT_NE(best, INT64_MAX);
                EXPECT_LE(plan.bound_ns, best) << seed;
                EXPECT_GE(plan.added_ns, best) << seed;
                if (plan.proof == Proof::exact) {
                    EXPECT_EQ(plan.added_ns, best) << seed;
                }
            } else if (plan.verdict == Verdict::infeasible) {
                infeasible++;
                EXPECT_EQ(best, INT64_MAX) << seed << " at " << percent;
            }
        }
    }
    EXPECT_GT(infeasible, planned / 10);
    EXPECT_GT(exact, planned * 7 / 10) << "of " << planned;
}

}  // namespace
}  // namespace reprise::planner::test
