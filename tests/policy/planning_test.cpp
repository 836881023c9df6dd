// The job plans: whatever is planned, replays see what their forwards saw, and memory stays within the budget and near the plan.
#include "tests/policy/planning_job.h"

namespace reprise::test {
namespace {

std::string name_of(Policy policy) {
    std::string name = to_string(policy);
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
}
const char *name_of(Order order) { return order == Order::kStack ? "stack" : order == Order::kAccumulated ? "accumulated" : "interleaved"; }

constexpr Policy kPolicies[] = {Policy::kJoint,  Policy::kEagerWhole, Policy::kGreedy,   Policy::kFixed,
                                Policy::kRetain, Policy::kWhole,      Policy::kSelective};

// ---- every policy, every order of events
// --------------------------------------------------------------------------------------------------

class EveryPolicy : public testing::TestWithParam<std::tuple<Policy, Order, bool>> {};
INSTANTIATE_TEST_SUITE_P(Planning, EveryPolicy,
                         testing::Combine(testing::ValuesIn(kPolicies),
                                          testing::Values(Order::kStack, Order::kAccumulated, Order::kInterleaved), testing::Bool()),
                         [](const auto &about) {
                             return name_of(std::get<0>(about.param)) + "_" + name_of(std::get<1>(about.param)) +
                                    (std::get<2>(about.param) ? "_steps" : "_stepless");
                         });

TEST_P(EveryPolicy, ReplaysSeeTheForwardsBytes) {
    const auto [policy, order, steps] = GetParam();
    const Folder folder;
    JobShape shape;
    shape.order = order;
    shape.steps = steps;
    shape.wanders = true;
    shape.releases = steps;
    Config config = planning(policy, uint64_t{64} << 20, folder / "plan");
    config.verify = Verify::kBytes;
    SimulatedJob job(config, shape);
    if (policy == Policy::kRetain) {
        for (int i = 0; i < 8; ++i) job.cycle();
        EXPECT_EQ(job.replayed, 0u);
        EXPECT_GT(job.retained, 0u);
        return;
    }
    ASSERT_TRUE(run_until(job, [&] { return exists(folder / "plan"); })) << "no plan was made";
    for (int i = 0; i < 6; ++i) job.cycle();
    EXPECT_EQ(job.wrong_bytes, 0u);
    EXPECT_EQ(job.wrong_after, 0u);
    EXPECT_GT(job.replayed, 0u);
    EXPECT_EQ(job.driver().stats().rejections, 0u);
    EXPECT_EQ(job.driver().stats().divergences, 0u);
    const bool retains = policy == Policy::kJoint || policy == Policy::kEagerWhole || policy == Policy::kGreedy;
    EXPECT_EQ(job.retained != 0, retains) << "a budget with room for everything";
}

// ---- budgets
// ------------------------------------------------------------------------------------------------------------------------------

class Budgets : public testing::TestWithParam<std::tuple<Policy, Order>> {};
INSTANTIATE_TEST_SUITE_P(Planning, Budgets,
                         testing::Combine(testing::Values(Policy::kJoint, Policy::kEagerWhole, Policy::kGreedy),
                                          testing::Values(Order::kStack, Order::kAccumulated, Order::kInterleaved)),
                         [](const auto &about) { return name_of(std::get<0>(about.param)) + "_" + name_of(std::get<1>(about.param)); });

TEST_P(Budgets, TheLedgerKeepsToThemAndToThePlan) {
    const auto [policy, order] = GetParam();
    JobShape shape;
    shape.order = order;
    shape.keep = 4 << 20;
    const Limits limits = limits_of(shape, SimulatedJob::write_all);
    for (double share : {0.25, 0.6, 0.95}) {
        SCOPED_TRACE(testing::Message() << "share " << share << " between " << limits.smallest << " and " << limits.retained);
        const Folder folder;
        const uint64_t budget = limits.budget(share);
        SimulatedJob job(planning(policy, budget, folder / "plan", folder / "records"), shape);
        job.writes = SimulatedJob::write_all;
        ASSERT_TRUE(run_until_settled(job, folder / "plan"));
        const planner::JobPlan plan = plan_in(folder / "plan");
        if (plan.verdict != planner::Verdict::planned) {  // eager-whole needs more than the least
            ASSERT_NE(policy, Policy::kJoint) << "smallest " << plan.smallest_bytes << ", budget " << plan.budget_bytes;
            continue;
        }
        WatchedPort::forget_peak();
        job.retained = job.replayed = 0;
        for (int i = 0; i < 4; ++i) job.cycle();
        (void)WatchedPort::get().ledger_take_peak();
        EXPECT_EQ(job.wrong_bytes + job.wrong_after, 0u);
        EXPECT_LE(WatchedPort::peak, budget);
        const auto planned = static_cast<uint64_t>(plan.peak_bytes);
        EXPECT_LE(WatchedPort::peak, planned + planned / 100);
        EXPECT_GE(WatchedPort::peak, planned - planned / 100);
        const auto wanted = std::count_if(plan.instances.begin(), plan.instances.end(), [](const auto &i) { return !i.replay; });
        EXPECT_EQ(job.retained, static_cast<uint64_t>(wanted) * 4) << "RETAIN as planned, every time";
        for (const planner::PlannedInstance &instance : plan.instances)
            EXPECT_TRUE(instance.replay || job.retained_names.contains(instance.segment)) << instance.segment;
        // Every cycle of the records, too.
        const std::vector<nlohmann::json> lines = lines_of(folder / "records", "reprise.timeline/1");
        EXPECT_GT(lines.size(), 4u);
        for (const nlohmann::json &line : lines) {
            EXPECT_EQ(line["budget"], budget);
            for (int64_t actual : line["actual"]) EXPECT_LE(actual, static_cast<int64_t>(budget));
        }
        EXPECT_EQ(lines_of(folder / "records", "reprise.profile/1").size(), lines_of(folder / "records", "reprise.plan/1").size());
    }
}

// What is held for a buffer in between depends on the decisions: plans that are corrected come to rest, and never beyond the budget.
TEST_P(Budgets, CorrectionsComeToRest) {
    const auto [policy, order] = GetParam();
    JobShape shape;
    shape.order = order;
    shape.segments = 9;
    shape.keep = 2 << 20;
    const Limits limits = limits_of(shape);
    const Folder folder;
    const uint64_t budget = limits.budget(0.5);
    SimulatedJob job(planning(policy, budget, folder / "plan", folder / "records"), shape);
    ASSERT_TRUE(run_until_settled(job, folder / "plan"));
    if (plan_in(folder / "plan").verdict != planner::Verdict::planned) return;
    const size_t plans = lines_of(folder / "records", "reprise.plan/1").size();
    EXPECT_LE(plans, 7u);
    WatchedPort::forget_peak();
    for (int i = 0; i < 20; ++i) job.cycle();
    (void)WatchedPort::get().ledger_take_peak();
    EXPECT_LE(WatchedPort::peak, budget);
    EXPECT_LE(lines_of(folder / "records", "reprise.plan/1").size(), plans + 1);
    EXPECT_EQ(job.wrong_bytes + job.wrong_after, 0u);
}

// When a plan is adopted, what was held before it goes and its own shadows are filled while its first cycle runs: memory that belongs to
// neither plan. Judged by it, plans of a job that is the same in every step were made again and again, and forwards refused.
class SteadyJob : public testing::TestWithParam<std::tuple<Policy, bool>> {};
INSTANTIATE_TEST_SUITE_P(Planning, SteadyJob, testing::Combine(testing::Values(Policy::kJoint, Policy::kEagerWhole), testing::Bool()),
                         [](const auto &about) {
                             return name_of(std::get<0>(about.param)) + (std::get<1>(about.param) ? "_shared" : "_of_its_own");
                         });

TEST_P(SteadyJob, IsPlannedOnceAndKeepsToTheBudget) {
    const auto [policy, shared] = GetParam();
    JobShape shape;
    shape.segments = 12;
    shape.keep = 4 << 20;
    shape.shared = shared;              // some users of a buffer see it change, others do not
    shape.buffers.assign(12, 2 << 20);  // a little of each is written after one segment's forward
    const auto write_own = [](SimulatedJob &simulated, int i) {
        memset(simulated.buffers()[static_cast<size_t>(i)].data(), simulated.cycles, 20'000);
    };
    const Limits limits = limits_of(shape, write_own);
    for (double share : {0.1, 0.3, 0.5, 0.7, 0.9}) {
        SCOPED_TRACE(testing::Message() << "share " << share);
        const Folder folder;
        const uint64_t budget = limits.budget(share);
        SimulatedJob job(planning(policy, budget, folder / "plan", folder / "records"), shape);
        job.writes = write_own;
        ASSERT_TRUE(run_until_settled(job, folder / "plan"));
        if (plan_in(folder / "plan").verdict != planner::Verdict::planned) {  // eager-whole needs more than the least
            ASSERT_NE(policy, Policy::kJoint);
            continue;
        }
        for (int i = 0; i < 4; ++i) job.cycle();
        EXPECT_EQ(lines_of(folder / "records", "reprise.plan/1").size(), 1u);
        for (const nlohmann::json &line : lines_of(folder / "records", "reprise.timeline/1")) {
            EXPECT_EQ(line["denied"], 0);
            for (int64_t actual : line["actual"]) EXPECT_LE(actual, static_cast<int64_t>(budget));
        }
        EXPECT_EQ(job.wrong_bytes + job.wrong_after, 0u);
    }
}

// A program that lets go of its scratch only after the replay's end has that measured as if it had to be kept; retained forwards tell what
// really is. What a retained forward needs beside its activations makes up for it while few are retained.
TEST(PlanningBudget, WhatAReplayHoldsAtItsEndIsNotTakenForKept) {
    JobShape shape;
    shape.keep = 4 << 20;
    shape.lingers = 3 << 20;
    for (const uint64_t budget : {uint64_t{1} << 30, uint64_t{32} << 20}) {
        SCOPED_TRACE(testing::Message() << "budget " << budget);
        const Folder folder;
        SimulatedJob job(planning(Policy::kJoint, budget, folder / "plan"), shape);
        ASSERT_TRUE(run_until_settled(job, folder / "plan"));
        const planner::JobPlan plan = plan_in(folder / "plan");
        ASSERT_EQ(plan.verdict, planner::Verdict::planned);
        WatchedPort::forget_peak();
        job.retained = 0;
        for (int i = 0; i < 4; ++i) job.cycle();
        (void)WatchedPort::get().ledger_take_peak();
        const auto planned = static_cast<uint64_t>(plan.peak_bytes);
        EXPECT_LE(WatchedPort::peak, std::min(budget, planned + planned / 100));
        EXPECT_GE(WatchedPort::peak, planned - planned / 100);
        const auto wanted = std::count_if(plan.instances.begin(), plan.instances.end(), [](const auto &i) { return !i.replay; });
        EXPECT_GT(wanted, 3);
        EXPECT_EQ(job.retained, static_cast<uint64_t>(wanted) * 4);
        for (const planner::PlannedInstance &instance : plan.instances) {
            if (instance.replay) continue;
            const auto keep = static_cast<int64_t>(job.keep_of(instance.segment.back() - '0'));
            EXPECT_NEAR(static_cast<double>(instance.keep_bytes), static_cast<double>(keep), static_cast<double>(keep) / 50)
                << instance.segment;
        }
        EXPECT_EQ(job.wrong_bytes + job.wrong_after, 0u);
    }
}

// A result that is let go after a forward that is replayed is part of what keeping takes. Were it taken for the job's own, no decision
// could save it any more: a job that needs more later was said not to fit, and passed its budget.
TEST(PlanningBudget, ResultsThatAreLetGoStayPartOfWhatIsKept) {
    JobShape shape;
    shape.keep = 4 << 20;
    shape.result = 3 << 20;
    const Limits limits = limits_of(shape, SimulatedJob::write_all);
    const Folder folder;
    const uint64_t budget = limits.budget(1.0);
    SimulatedJob job(planning(Policy::kJoint, budget, folder / "plan"), shape);
    job.writes = SimulatedJob::write_all;
    ASSERT_TRUE(run_until_settled(job, folder / "plan"));
    const Block more(6 << 20);
    memset(more.data(), 1, more.size());
    ASSERT_TRUE(run_until_settled(job, folder / "plan"));
    const planner::JobPlan plan = plan_in(folder / "plan");
    EXPECT_EQ(plan.verdict, planner::Verdict::planned) << "smallest " << plan.smallest_bytes << ", budget " << budget;
    for (const planner::PlannedInstance &instance : plan.instances) EXPECT_GE(instance.keep_bytes, 4 << 20) << instance.segment;
    WatchedPort::forget_peak();
    job.retained = 0;
    for (int i = 0; i < 4; ++i) job.cycle();
    (void)WatchedPort::get().ledger_take_peak();
    EXPECT_LE(WatchedPort::peak, budget);
    EXPECT_GT(job.retained, 0u);
    EXPECT_EQ(job.wrong_bytes + job.wrong_after, 0u);
}

TEST(PlanningBudget, MoreIsNeverPlannedSlower) {
    const JobShape shape;
    const Limits limits = limits_of(shape);
    int64_t retained_before = -1;
    for (double share : {0.0, 0.3, 0.6, 1.0}) {
        const Folder folder;
        SimulatedJob job(planning(Policy::kJoint, limits.budget(share), folder / "plan"), shape);
        ASSERT_TRUE(run_until(job, [&] { return exists(folder / "plan"); }));
        const planner::JobPlan plan = plan_in(folder / "plan");
        ASSERT_EQ(plan.verdict, planner::Verdict::planned) << share;
        int64_t kept = 0;
        for (const planner::PlannedInstance &instance : plan.instances) kept += instance.replay ? 0 : instance.keep_bytes;
        EXPECT_GE(kept, retained_before) << share;
        retained_before = kept;
        EXPECT_TRUE(share < 1.0 || plan.added_ns == 0) << "there is room for everything";
    }
}

TEST(PlanningBudget, RetainIsDeniedWhileTheJobNeedsMore) {
    const Folder folder;
    const JobShape shape;
    const Limits limits = limits_of(shape);
    const uint64_t budget = limits.budget(0.6);
    SimulatedJob job(planning(Policy::kJoint, budget, folder / "plan", folder / "records"), shape);
    ASSERT_TRUE(run_until(job, [&] { return exists(folder / "plan"); }));
    job.cycle();
    ASSERT_GT(job.retained, 0u);
    // Between two cycles the job takes most of what the plan has for retaining: the very next forward must know.
    const Block more(static_cast<size_t>((limits.retained - limits.smallest) / 10 * 6));
    WatchedPort::forget_peak();
    job.cycle();
    (void)WatchedPort::get().ledger_take_peak();
    EXPECT_LE(WatchedPort::peak, budget);
    const std::vector<nlohmann::json> lines = lines_of(folder / "records", "reprise.timeline/1");
    ASSERT_FALSE(lines.empty());
    EXPECT_GT(lines.back()["denied"], 0);
    EXPECT_EQ(job.wrong_bytes, 0u);
    // ... and is planned for.
    const planner::JobPlan before = plan_in(folder / "plan");
    ASSERT_TRUE(run_until(job, [&] { return plan_in(folder / "plan").memory_bytes != before.memory_bytes; }));
    WatchedPort::forget_peak();
    for (int i = 0; i < 4; ++i) job.cycle();
    (void)WatchedPort::get().ledger_take_peak();
    EXPECT_LE(WatchedPort::peak, budget);
    EXPECT_EQ(lines_of(folder / "records", "reprise.timeline/1").back()["denied"], 0);
}

TEST(PlanningBudget, TooSmallOneRunsOnWithTheLeast) {
    const Folder folder;
    const JobShape shape;
    SimulatedJob job(planning(Policy::kJoint, 2 << 20, folder / "plan"), shape);
    ASSERT_TRUE(run_until(job, [&] { return exists(folder / "plan"); }));
    const planner::JobPlan plan = plan_in(folder / "plan");
    EXPECT_NE(plan.verdict, planner::Verdict::planned);
    EXPECT_GT(plan.smallest_bytes, 2 << 20);
    for (int i = 0; i < 4; ++i) job.cycle();
    EXPECT_EQ(job.wrong_bytes + job.wrong_after, 0u);
}

TEST(PlanningBudget, TooSmallOneFailsWhereThatIsWanted) {
    const Folder folder;
    const JobShape shape;
    Config config = planning(Policy::kJoint, 2 << 20);
    config.on_infeasible = OnInfeasible::kFail;
    SimulatedJob job(config, shape);
    const Patience patience;
    reprise_segment refused{};
    while (!patience.over()) {
        job.cycle();
        refused = job.driver().forward("probe", job.scope_of(0));
        if (refused.status != REPRISE_OK) break;
        if (refused.action == REPRISE_REPLAY) {
            ASSERT_EQ(job.driver().end(refused), REPRISE_OK);
            ASSERT_EQ(job.driver()->release(refused.instance).code(), REPRISE_OK);
        }
    }
    ASSERT_EQ(refused.status, REPRISE_REJECTED);
    const std::string text = thread_state().error;
    EXPECT_NE(text.find("smallest budget"), std::string::npos) << text;
    EXPECT_NE(text.find("2.0 MiB"), std::string::npos) << text;
    EXPECT_NE(text.find("REPRISE_ON_INFEASIBLE=fail"), std::string::npos) << text;
    EXPECT_NE(job.driver().forward("probe", job.scope_of(0)).status, REPRISE_OK) << "and stays so";
}

}  // namespace
}  // namespace reprise::test
