// What must hold of the planner's answers whatever the problem: more budget is never slower, order does not matter, no baseline is better,
// a work limit costs quality and never truth, nonsense is refused by name.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <numeric>

#include "tests/effort.h"
#include "tests/planner/evaluator.h"
#include "tests/planner/instances.h"

namespace reprise::planner::test {
namespace {

using reprise::test::by_build;
using reprise::test::kUnderThreads;

std::string about(int family, uint64_t seed) { return std::string(family_name(family)) + " seed " + std::to_string(seed); }

// Windows without a replayed reader have no mechanism: whatever stands there means nothing.
void expect_same_plan(const Problem &problem, const Plan &a, const Plan &b, const std::string &what) {
    EXPECT_EQ(a.replay, b.replay) << what;
    for (size_t w = 0; w < problem.windows.size(); w++) {
        const auto &readers = problem.windows[w].readers;
        bool used = std::any_of(readers.begin(), readers.end(), [&](int32_t r) { return a.replay[static_cast<size_t>(r)]; });
        if (used) {
            EXPECT_EQ(a.mechanism[w], b.mechanism[w]) << what << ", window " << problem.windows[w].name;
        }
    }
}

// Problems of one family. Interleaved orders are the hard ones: they get smaller problems, and all a limit at which most are still proved.
class Family : public ::testing::TestWithParam<int> {
  protected:
    int family() const { return GetParam(); }
    bool hard() const { return family() == kPipeline; }
    static Options limited(uint64_t work) {
        Options options;
        options.work = work;
        return options;
    }
};
// All families; under ThreadSanitizer one of each order of events.
std::vector<int> families() {
    if (kUnderThreads) return {kTransformer, kRandom};
    std::vector<int> all(kFamilies);
    std::iota(all.begin(), all.end(), 0);
    return all;
}

std::string name_of_family(const ::testing::TestParamInfo<int> &family) {
    std::string name = family_name(family.param);
    std::erase_if(name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); });
    return name;
}
INSTANTIATE_TEST_SUITE_P(All, Family, ::testing::ValuesIn(families()), name_of_family);

TEST_P(Family, MoreBudgetIsNeverSlower) {
    const int steps = by_build(12, 6, 4);
    int proved = 0, tried = 0;
    for (uint64_t seed = 1; seed <= by_build(2u, hard() ? 1u : 2u, 1u); seed++) {
        Problem problem = make_problem(family(), seed, hard() ? 14 : 24, 6, 0.5);
        int64_t smallest = smallest_budget(problem).value().feasible_pages;
        Problem retained = problem;
        retained.budget_pages = INT64_MAX / 8;
        int64_t enough = solve(retained, Policy::retain).value().peak_pages;
        int64_t last = INT64_MAX, least = INT64_MAX;  // of the budgets so far: the least time, proved; the least time of any plan
        for (int step = 0; step <= steps; step++) {
            problem.budget_pages = smallest + (enough - smallest) * step / steps;
            Answer answer = solve(problem, limited(60'000'000)).value();
            ASSERT_EQ(answer.verdict, Verdict::planned) << about(family(), seed) << " step " << step;
            EXPECT_LE(answer.bound_ns, least) << about(family(), seed) << " step " << step << ": what fitted before fits now";
            least = std::min(least, answer.objective_ns);
            tried++;
            if (answer.proof != Proof::exact) continue;
            proved++;
            EXPECT_LE(answer.objective_ns, last) << about(family(), seed) << " step " << step;
            last = answer.objective_ns;
        }
        EXPECT_EQ(last, 0) << about(family(), seed) << ": everything fits, nothing should be replayed";
    }
    EXPECT_GE(proved, tried * 2 / 3) << "what is not proved is not compared";
}

TEST(Properties, SmallestBudgetOfLargerJobs) {
    for (int family : {kTransformer, kResnet, kMoe, kQueue, kGradientAccumulation})
        for (uint64_t seed = 1; seed <= by_build(2u, 2u, 1u); seed++) {
            Problem problem = make_problem(family, seed, by_build(60, 60, 20), 10, 0.5);
            SmallestBudget smallest = smallest_budget(problem).value();
            ASSERT_TRUE(smallest.exact) << about(family, seed);
            EXPECT_EQ(check_plan(problem, smallest.plan).peak, smallest.feasible_pages) << about(family, seed);
            problem.budget_pages = smallest.feasible_pages;
            EXPECT_EQ(solve(problem).value().verdict, Verdict::planned) << about(family, seed);
            problem.budget_pages--;
            Answer less = solve(problem).value();
            EXPECT_EQ(less.verdict, Verdict::infeasible) << about(family, seed);
            EXPECT_FALSE(less.binding.empty()) << about(family, seed);
        }
}

TEST_P(Family, OrderOfTheInputDoesNotMatter) {
    Problem problem = make_problem(family(), 3, hard() || family() == kRandom ? 20 : by_build(60, 60, 24), 8, 0.4);
    Options options = limited(by_build(250'000'000u, 30'000'000u, 10'000'000u));
    Answer answer = solve(problem, options).value();
    for (uint64_t seed = 1; seed <= by_build(3u, 2u, 1u); seed++) {
        Shuffled shuffled = shuffle(problem, seed);
        Answer again = solve(shuffled.problem, options).value();
        EXPECT_EQ(again.objective_ns, answer.objective_ns) << about(family(), seed);
        EXPECT_EQ(again.bound_ns, answer.bound_ns) << about(family(), seed);
        EXPECT_EQ(again.work, answer.work) << about(family(), seed) << ": it took another way";
        expect_same_plan(shuffled.problem, again.plan, moved(answer.plan, shuffled), about(family(), seed));
    }
}

TEST(Properties, SmallOnesInEveryOrder) {
    for (uint64_t index = 0; index < scaled(150); index++) {
        Problem problem = small_problem(5000000 + index, 6000);
        Shuffled shuffled = shuffle(problem, index);
        Answer answer = solve(problem).value(), again = solve(shuffled.problem).value();
        ASSERT_EQ(answer.verdict, again.verdict) << "problem " << index;
        if (answer.verdict == Verdict::planned)
            expect_same_plan(shuffled.problem, again.plan, moved(answer.plan, shuffled), "problem " + std::to_string(index));
    }
}

TEST_P(Family, NoBaselineIsBetter) {
    Options options = limited(by_build(250'000'000u, 30'000'000u, 10'000'000u));
    for (double tightness : {0.0, 0.2, 0.5, 0.8, 1.0}) {
        Problem problem = make_problem(family(), 7, by_build(40, 40, 20), 8, tightness);
        Answer joint = solve(problem, options).value();
        for (Policy policy : {Policy::retain, Policy::whole, Policy::selective, Policy::fixed, Policy::eager_whole, Policy::greedy}) {
            std::string what = std::string(policy_name(policy)) + " on " + family_name(family());
            Answer other = solve(problem, policy, options).value();
            if (other.verdict != Verdict::planned) continue;
            Checked checked = check_plan(problem, other.plan);
            EXPECT_LE(checked.peak, problem.budget_pages) << what;
            EXPECT_EQ(checked.time, other.objective_ns) << what;
            ASSERT_EQ(joint.verdict, Verdict::planned) << what << " found a plan";
            EXPECT_LE(joint.bound_ns, other.objective_ns) << what << " beats the bound";
            if (joint.proof == Proof::exact) {
                EXPECT_LE(joint.objective_ns, other.objective_ns) << what;
            }
        }
    }
}

TEST(Properties, EagerWholeUsesNothingSelective) {
    for (uint64_t seed = 1; seed <= 3; seed++) {
        Problem problem = make_problem(kTransformer, seed, 40, 8, 0.5);
        Answer answer = solve(problem, Policy::eager_whole).value();
        ASSERT_EQ(answer.verdict, Verdict::planned);
        for (size_t w = 0; w < problem.windows.size(); w++) {
            Kind kind = problem.windows[w].mechanisms[static_cast<size_t>(answer.plan.mechanism[w])].kind;
            EXPECT_TRUE(kind == Kind::whole || kind == Kind::small) << problem.windows[w].name;
        }
    }
}

TEST_P(Family, AWorkLimitCostsQualityAndNeverTruth) {
    Problem problem = make_problem(family(), 5, by_build(60, 60, 24), 10, 0.3);
    // The answer that no bound may pass: with more work than any of those below.
    Answer best = solve(problem, limited(by_build(400'000'000u, 80'000'000u, 80'000'000u))).value();
    for (uint64_t work : {uint64_t{0}, uint64_t{10'000}, uint64_t{1'000'000}, uint64_t{10'000'000}, uint64_t{40'000'000}}) {
        Answer answer = solve(problem, limited(work)).value(), again = solve(problem, limited(work)).value();
        std::string what = about(family(), work) + " work";
        EXPECT_NE(answer.verdict, Verdict::infeasible) << what;
        EXPECT_EQ(answer.plan.replay, again.plan.replay) << what;
        EXPECT_EQ(answer.work, again.work) << what;
        // One step may be long, but none is endless.
        EXPECT_LT(answer.work, 4 * work + 30'000'000) << what;
        if (answer.verdict != Verdict::planned) continue;
        Checked checked = check_plan(problem, answer.plan);
        EXPECT_LE(checked.peak, problem.budget_pages) << what;
        EXPECT_EQ(checked.time, answer.objective_ns) << what;
        EXPECT_LE(answer.bound_ns, best.objective_ns) << what << ": no bound above a known plan";
        EXPECT_GE(answer.objective_ns, best.bound_ns) << what;
    }
}

TEST(Properties, TheGridIsStatedAndKept) {
    Problem problem = make_problem(kPerSegment, 2, 30, 5, 0.4);
    Answer fine = solve(problem).value();
    problem.grid_ns = 100000;
    Answer coarse = solve(problem).value();
    ASSERT_EQ(coarse.proof, Proof::exact);
    EXPECT_EQ(coarse.objective_ns % problem.grid_ns, 0);
    EXPECT_EQ(coarse.objective_ns, check_plan(problem, coarse.plan).time);
    EXPECT_LE(coarse.time_ns, coarse.objective_ns);
    EXPECT_GE(coarse.time_ns, fine.objective_ns);
}

TEST(Extremes, NothingToDecide) {
    Problem empty;
    Answer answer = solve(empty).value();
    EXPECT_EQ(answer.verdict, Verdict::planned);
    EXPECT_EQ(answer.proof, Proof::exact);
    EXPECT_EQ(smallest_budget(empty).value().feasible_pages, 0);

    Problem base_only;
    base_only.base = {5, 9, 7};
    base_only.budget_pages = 9;
    EXPECT_EQ(solve(base_only).value().verdict, Verdict::planned);
    EXPECT_EQ(solve(base_only).value().peak_pages, 9);
    base_only.budget_pages = 8;
    Answer over = solve(base_only).value();
    EXPECT_EQ(over.verdict, Verdict::infeasible);
    EXPECT_EQ(over.smallest.feasible_pages, 9);
    ASSERT_FALSE(over.binding.empty());
    EXPECT_EQ(over.binding[0].slot, 1);
    EXPECT_EQ(over.binding[0].base_pages, 9);
}

TEST(Extremes, OneSegment) {
    Problem problem;
    problem.base = {10, 10, 10, 10};
    Instance one;
    one.name = "only";
    one.forward_end = 1, one.replay_begin = 2, one.replay_end = 3;
    one.keep_pages = 100, one.replay_ns = 1000, one.transient_pages = 50;
    problem.instances.push_back(one);
    for (auto [budget, replayed] : {std::pair{110, 0}, std::pair{109, 1}, std::pair{60, 1}}) {
        problem.budget_pages = budget;
        Answer answer = solve(problem).value();
        ASSERT_EQ(answer.verdict, Verdict::planned) << budget;
        EXPECT_EQ(answer.plan.replay[0], replayed) << budget;
        EXPECT_EQ(answer.objective_ns, replayed * 1000) << budget;
    }
    problem.budget_pages = 59;
    Answer answer = solve(problem).value();
    EXPECT_EQ(answer.verdict, Verdict::infeasible);
    EXPECT_EQ(answer.smallest.feasible_pages, 60);
    EXPECT_TRUE(answer.smallest.exact);
    ASSERT_FALSE(answer.binding.empty());
    EXPECT_EQ(answer.binding[0].slot, 2);
    EXPECT_EQ(answer.binding[0].instances, std::vector<int32_t>{0});
}

TEST(Extremes, FiveThousandSegments) {
    for (int family : {kTransformer, kPipeline}) {
        Problem problem = make_problem(family, 1, by_build(5000, 500, 30), 40, 0.4);
        Answer answer = solve(problem).value();
        ASSERT_EQ(answer.verdict, Verdict::planned) << family_name(family);
        Evaluation checked = evaluate(problem, answer.plan).value();
        EXPECT_LE(checked.peak_pages, problem.budget_pages);
        EXPECT_LE(answer.bound_ns, answer.objective_ns);
        EXPECT_LT(answer.work, 2'000'000'000u) << "the limit is one";
    }
}

TEST(Refusals, NonsenseIsNamed) {
    Problem good = make_problem(kTransformer, 1, 12, 3, 0.5);
    ASSERT_TRUE(validate(good).ok());
    ASSERT_FALSE(good.windows.empty());
    auto refused = [&](const char *expected, auto spoil) {
        Problem bad = good;
        spoil(bad);
        Result<Answer> result = solve(bad);
        ASSERT_FALSE(result.ok()) << expected;
        EXPECT_EQ(result.status().code(), REPRISE_INVALID_ARGUMENT);
        EXPECT_NE(std::string(result.status().text()).find(expected), std::string::npos) << result.status().text();
        EXPECT_FALSE(smallest_budget(bad).ok());
    };
    refused("time grid", [](Problem &p) { p.grid_ns = 0; });
    refused("slot 3", [](Problem &p) { p.base[3] = -1; });
    refused("instance 2 (segment2)", [](Problem &p) { std::swap(p.instances[2].forward_begin, p.instances[2].replay_end); });
    refused("belongs to two", [](Problem &p) { p.instances[1].forward_begin = p.instances[0].forward_begin; });
    refused("segment4", [](Problem &p) { p.instances[4].keep_pages = -5; });
    refused("segment4", [](Problem &p) { p.instances[4].replay_ns = INT64_MAX; });
    refused("no instance", [](Problem &p) { p.windows[0].readers[0] = 99; });
    refused("reads it twice", [](Problem &p) { p.windows[0].readers.push_back(p.windows[0].readers[0]); });
    refused("0 mechanisms", [](Problem &p) { p.windows[0].mechanisms.clear(); });
    refused("costs of", [](Problem &p) { p.windows[0].mechanisms[0].readers.emplace_back(); });
    refused("is no reader", [](Problem &p) { p.windows[0].mechanisms[0].elements[0].uses[0].instance = -1; });
    refused("outside its instance", [](Problem &p) { p.windows[0].mechanisms[0].elements[0].uses[0].end = 1000; });
    refused("an element is negative", [](Problem &p) { p.windows[0].mechanisms[0].elements[0].pages = -1; });

    Plan plan{std::vector<uint8_t>(12, 0), std::vector<int32_t>(good.windows.size(), 0)};
    EXPECT_TRUE(evaluate(good, plan).ok());
    plan.mechanism[0] = 17;
    EXPECT_FALSE(evaluate(good, plan).ok());
    plan.mechanism.pop_back();
    EXPECT_FALSE(evaluate(good, plan).ok());
}

}  // namespace
}  // namespace reprise::planner::test
