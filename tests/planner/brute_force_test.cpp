// The planner against all plans there are. REPRISE_TEST_FULL=1: ten times as many problems.
#include <gtest/gtest.h>

#include "tests/planner/evaluator.h"
#include "tests/planner/instances.h"

namespace reprise::planner::test {
namespace {

constexpr int64_t kMostPlans = 6000;

void check_answer(const Problem &problem, const Best &best, uint64_t index) {
    Result<Answer> result = solve(problem);
    ASSERT_TRUE(result.ok()) << "problem " << index << ": " << result.status().text();
    const Answer &answer = result.value();
    ASSERT_EQ(answer.verdict == Verdict::planned, best.feasible) << "problem " << index << ": " << verdict_name(answer.verdict);
    if (!best.feasible) {
        ASSERT_EQ(answer.verdict, Verdict::infeasible) << "problem " << index;
        EXPECT_TRUE(answer.smallest.exact) << "problem " << index;
        EXPECT_EQ(answer.smallest.feasible_pages, best.smallest_peak) << "problem " << index;
        EXPECT_FALSE(answer.binding.empty()) << "problem " << index << ": infeasible without a reason";
        return;
    }
    Checked checked = check_plan(problem, answer.plan);
    EXPECT_LE(checked.peak, problem.budget_pages) << "problem " << index;
    EXPECT_EQ(checked.peak, answer.peak_pages) << "problem " << index;
    EXPECT_EQ(checked.time, answer.objective_ns) << "problem " << index;
    EXPECT_EQ(checked.memory, answer.memory) << "problem " << index;
    EXPECT_EQ(answer.objective_ns, best.time) << "problem " << index;
    EXPECT_EQ(answer.proof, Proof::exact) << "problem " << index;
    EXPECT_EQ(answer.bound_ns, best.time) << "problem " << index;
    EXPECT_TRUE(answer.least_peak) << "problem " << index;
    EXPECT_EQ(answer.peak_pages, best.peak) << "problem " << index;
}

TEST(BruteForce, LeastTimeThenLeastPeak) {
    uint64_t count = scaled(1000), infeasible = 0;
    for (uint64_t index = 0; index < count && !HasFailure(); index++) {
        Problem problem = small_problem(index, kMostPlans);
        Best best = try_all(problem);
        infeasible += !best.feasible;
        check_answer(problem, best, index);
    }
    // The list must hold both kinds, or it proves little.
    EXPECT_GE(infeasible, count / 50);
    EXPECT_LT(infeasible, count / 2);
}

TEST(BruteForce, SmallestBudgetIsFeasibleAndOnePageLessIsNot) {
    uint64_t count = scaled(300);
    for (uint64_t index = 0; index < count && !HasFailure(); index++) {
        Problem problem = small_problem(1000000 + index, kMostPlans);
        Best best = try_all(problem);
        SmallestBudget smallest = smallest_budget(problem).value();
        ASSERT_TRUE(smallest.exact) << "problem " << index;
        ASSERT_EQ(smallest.feasible_pages, best.smallest_peak) << "problem " << index;
        ASSERT_EQ(check_plan(problem, smallest.plan).peak, smallest.feasible_pages) << "problem " << index;
        problem.budget_pages = smallest.feasible_pages;
        ASSERT_EQ(solve(problem).value().verdict, Verdict::planned) << "problem " << index;
        problem.budget_pages--;
        ASSERT_EQ(solve(problem).value().verdict, Verdict::infeasible) << "problem " << index;
    }
}

TEST(BruteForce, WithinATolerance) {
    for (uint64_t index = 0; index < scaled(200) && !HasFailure(); index++) {
        Problem problem = small_problem(2000000 + index, kMostPlans);
        Best best = try_all(problem);
        Options options;
        options.tolerance_ppm = 50000;
        Answer answer = solve(problem, options).value();
        ASSERT_EQ(answer.verdict == Verdict::planned, best.feasible) << "problem " << index;
        if (!best.feasible) continue;
        EXPECT_LE(answer.bound_ns, best.time) << "problem " << index;
        EXPECT_GE(answer.objective_ns, best.time) << "problem " << index;
        EXPECT_LE(answer.objective_ns - answer.bound_ns, answer.objective_ns / 20 + problem.grid_ns) << "problem " << index;
        EXPECT_NE(answer.proof, Proof::none) << "problem " << index;
    }
}

}  // namespace
}  // namespace reprise::planner::test
