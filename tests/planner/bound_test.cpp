// Any multipliers, any order of the payments, any fees, any decisions fixed: never a bound above the best plan that these allow.
#include <gtest/gtest.h>

#include <algorithm>

#include "planner/core.h"
#include "planner/cuts.h"
#include "planner/lagrangian.h"
#include "planner/occupancy.h"
#include "planner/planner.h"
#include "planner/presolve.h"
#include "tests/planner/evaluator.h"
#include "tests/planner/instances.h"

namespace reprise::planner::test {
namespace {

// The least time of all plans of the core that keep to `fixing` and the budget, INT64_MAX without one.
int64_t least_time(const Core &core, const Fixing &fixing) {
    int64_t best = INT64_MAX;
    Occupancy plan(core);
    Choice choice{std::vector<uint8_t>(core.instances.size()), std::vector<uint8_t>(core.windows.size())};
    for (uint64_t x = 0; x < uint64_t{1} << core.size(); x++) {
        bool allowed = true;
        for (int i = 0; i < core.size(); i++) {
            choice.replay[i] = x >> i & 1;
            allowed = allowed && (fixing.choice[i] < 0 || fixing.choice[i] == choice.replay[i]);
        }
        if (!allowed) continue;
        std::vector<uint32_t> left = fixing.mechanisms;
        while (true) {
            for (size_t w = 0; w < left.size(); w++) choice.mechanism[w] = static_cast<uint8_t>(__builtin_ctz(left[w]));
            plan.set(choice);
            if (plan.fits(core.budget)) best = std::min(best, plan.time());
            size_t w = 0;
            for (; w < left.size(); w++) {
                left[w] &= left[w] - 1;
                if (left[w]) break;
                left[w] = fixing.mechanisms[w];
            }
            if (w == left.size()) break;
        }
    }
    return best;
}

TEST(Bound, HoldsForAnyMultipliers) {
    int checked = 0;
    for (uint64_t index = 0; index < std::min<uint64_t>(250, scaled(250)); index++) {
        Problem problem = small_problem(9000000 + index, 3000);
        std::vector<Core> cores = compile(problem);
        if (cores.size() != 1) continue;
        const Core &core = cores[0];
        Random random(index);
        Fixing fixing = all_open(core);
        for (int8_t &choice : fixing.choice)
            if (choice < 0 && random.below(6) == 0) choice = static_cast<int8_t>(random.below(2));
        for (uint32_t &mask : fixing.mechanisms)
            if (!decided(mask) && random.below(3) == 0) mask &= mask - 1;
        int64_t best = least_time(core, fixing);
        if (best == INT64_MAX) continue;
        checked++;
        Work work;
        Lagrangian lagrangian(core, work);
        Relaxed relaxed;
        for (int trial = 0; trial < 12; trial++) {
            std::vector<int> slots;
            for (int k = 0; k < 1 + random.below(5); k++) slots.push_back(random.below(core.slots));
            lagrangian.set_slots(slots);
            lagrangian.set_variant(random.below(Lagrangian::kVariants));
            if (random.below(3) == 0) {
                std::vector<int> order = lagrangian.order();
                for (size_t i = order.size(); i > 1; i--)
                    std::swap(order[i - 1], order[static_cast<size_t>(random.below(static_cast<int>(i)))]);
                lagrangian.set_order(order);
            }
            std::vector<int64_t> fees;
            if (random.below(2))
                for (int w = 0; w < core.window_count(); w++)
                    fees.push_back(random.below(2) ? static_cast<int64_t>(random.log_uniform(1, 1e9)) << kShift : 0);
            lagrangian.set_fees(fees);
            std::vector<int64_t> multipliers;
            for (int k = 0; k < lagrangian.count(); k++)
                multipliers.push_back(random.below(3) ? static_cast<int64_t>(random.log_uniform(1, 1e8)) : 0);
            lagrangian.evaluate(multipliers, fixing, relaxed, true);
            EXPECT_LE(relaxed.bound, best << kShift) << "problem " << index << " trial " << trial;
            // No pot is paid twice.
            for (int64_t rest : relaxed.rest) EXPECT_GE(rest, 0);
        }
    }
    EXPECT_GT(checked, scaled(250) < 250 ? 5 : 100);
}

// Whatever the fractions that ask for them: every plan that fits keeps to the cuts, and charging them leaves the bound a bound.
TEST(Bound, CutsHoldForEveryPlan) {
    int cuts = 0, checked = 0;
    for (uint64_t index = 0; index < std::min<uint64_t>(250, scaled(250)); index++) {
        Problem problem = small_problem(9700000 + index, 3000);
        for (const Core &core : compile(problem)) {
            Random random(index);
            Fixing fixing = all_open(core);
            std::vector<Cut> held;
            Occupancy plan(core);
            Choice choice{std::vector<uint8_t>(core.instances.size()), std::vector<uint8_t>(core.windows.size())};
            for (int trial = 0; trial < 10; trial++) {
                std::vector<double> replayed(core.instances.size());
                for (double &part : replayed) part = random.below(3) ? random.unit() : random.below(2);
                Found found = find_cut(core, core.budget, random.below(core.slots), replayed);
                if (found.missed <= 0) continue;
                double freed = 0;
                for (auto [i, pages] : found.cut.saved) freed += static_cast<double>(pages) * replayed[i];
                EXPECT_LT(freed, static_cast<double>(found.cut.need)) << "problem " << index;
                held.push_back(found.cut);
            }
            if (held.empty()) continue;
            cuts++;
            for (uint64_t x = 0; x < uint64_t{1} << core.size(); x++)
                for (int m = 0; m < 3; m++) {
                    for (int i = 0; i < core.size(); i++) choice.replay[i] = x >> i & 1;
                    for (int w = 0; w < core.window_count(); w++)
                        choice.mechanism[w] = static_cast<uint8_t>(random.below(core.windows[w].mechanism_count));
                    plan.set(choice);
                    if (!plan.fits(core.budget)) continue;
                    checked++;
                    for (const Cut &cut : held) {
                        int64_t freed = 0;
                        for (auto [i, pages] : cut.saved) freed += choice.replay[i] ? pages : 0;
                        ASSERT_GE(freed, cut.need) << "problem " << index << " plan " << x;
                    }
                }
            int64_t best = least_time(core, fixing);
            if (best == INT64_MAX) continue;
            std::vector<int64_t> bonus(core.instances.size(), 0);
            int64_t owed = 0;
            for (const Cut &cut : held) {
                auto multiplier = static_cast<int64_t>(random.log_uniform(1, 1e8));
                owed += multiplier * cut.need;
                for (auto [i, pages] : cut.saved) bonus[i] += multiplier * pages;
            }
            Work work;
            Lagrangian lagrangian(core, work);
            Relaxed relaxed;
            lagrangian.set_bonus(bonus, owed);
            for (int trial = 0; trial < 4; trial++) {
                lagrangian.set_slots({random.below(core.slots), random.below(core.slots)});
                std::vector<int64_t> multipliers;
                for (int k = 0; k < lagrangian.count(); k++) multipliers.push_back(static_cast<int64_t>(random.log_uniform(1, 1e8)));
                lagrangian.evaluate(multipliers, fixing, relaxed);
                EXPECT_LE(relaxed.bound, best << kShift) << "problem " << index;
            }
        }
    }
    EXPECT_GT(cuts, scaled(250) < 250 ? 2 : 40);
    EXPECT_GT(checked, 100);
}

// Few large segments and many small ones: the linear bound replays a part of a large one, and no plan can.
TEST(Bound, CutsTellThatALargeSegmentCountsAsWhatIsMissing) {
    Problem problem = make_problem(kRandom, 4, 200, 20, 0.15);
    const Answer answer = solve(problem).value();
    EXPECT_GT(static_cast<double>(answer.bound_ns), 0.87 * static_cast<double>(answer.objective_ns));  // 0.84 without cuts
}

TEST(Bound, DroppedMechanismsAreNeverNeeded) {
    for (uint64_t index = 0; index < std::min<uint64_t>(150, scaled(150)); index++) {
        Problem problem = small_problem(9500000 + index, 3000);
        for (const Core &core : compile(problem)) {
            Fixing all = all_open(core), fewer = all;
            if (drop_dominated_mechanisms(core, fewer) == 0) continue;
            EXPECT_EQ(least_time(core, all), least_time(core, fewer)) << "problem " << index;
        }
    }
}

TEST(Occupancy, SingleChangesAgreeWithTheWhole) {
    for (uint64_t seed = 1; seed <= 20; seed++) {
        Problem problem = make_problem(static_cast<int>(seed % kFamilies), seed, 30, 6, 0.4);
        Random random(seed);
        for (const Core &core : compile(problem)) {
            Occupancy step(core), whole(core);
            for (int change = 0; change < 200; change++) {
                if (random.below(4) == 0 && core.window_count() > 0) {
                    int w = random.below(core.window_count());
                    step.set_mechanism(w, random.below(core.windows[w].mechanism_count));
                } else {
                    step.set_replay(random.below(core.size()), random.below(2) == 1);
                }
                whole.set(step.choice());
                ASSERT_EQ(step.memory(), whole.memory()) << "seed " << seed << " change " << change;
                ASSERT_EQ(step.time(), whole.time()) << "seed " << seed << " change " << change;
            }
        }
    }
}

}  // namespace
}  // namespace reprise::planner::test
