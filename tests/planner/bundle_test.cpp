// The bundle method on functions whose best point is known.
#include "planner/bundle.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

namespace reprise::planner::test {
namespace {

struct Known {
    double value;
    std::vector<double> slope;
};

// The best value after so many steps from `start`.
double climb(const std::function<Known(const std::vector<double> &)> &function, std::vector<double> point, int steps, Bundle &bundle) {
    Known now = function(point);
    bundle.restart(point, now.value, false);
    bundle.add(point, now.value, now.slope, {static_cast<int64_t>(now.slope[0])});
    double length = 1e-3;
    for (int step = 0; step < steps; step++) {
        double promised = bundle.propose(length, point);
        for (double p : point) EXPECT_GE(p, 0);
        now = function(point);
        bundle.add(point, now.value, now.slope, {static_cast<int64_t>(now.slope[0])});
        if (now.value > bundle.value() + 0.1 * promised) {
            bundle.move_center(point, now.value);
            length *= 4;
        }
    }
    return bundle.value();
}

// A ridge along x = y, a hundred times as steep as it rises: a subgradient method jumps across it.
Known ridge(const std::vector<double> &p) {
    double across = p[0] - p[1], along = p[0] + p[1] - 100;
    double a = across > 0 ? -100 : 100, b = along > 0 ? -1 : 1;
    return {-100 * std::abs(across) - std::abs(along), {a + b, -a + b}};
}

// Best where the first coordinate would be negative.
Known edge(const std::vector<double> &p) {
    double a = -1, b = p[1] > 7 ? -1 : 1;
    return {-p[0] - std::abs(p[1] - 7), {a, b}};
}

TEST(Bundle, FollowsARidge) {
    Bundle bundle;
    EXPECT_GT(climb(ridge, {3, 1}, 40, bundle), -1.0);
}

TEST(Bundle, StaysAtTheEdge) {
    Bundle bundle;
    EXPECT_GT(climb(edge, {2, 0}, 40, bundle), -0.1);
}

// At the top of the ridge the planes of both sides are mixed so that they cancel out.
TEST(Bundle, MixesUsages) {
    Bundle bundle;
    std::vector<double> top{50, 50};
    bundle.restart(top, 0, false);
    bundle.add(top, 0, {101, -99}, {300});
    bundle.add(top, 0, {-101, 99}, {100});
    bundle.propose(1, top);
    ASSERT_EQ(bundle.usage().size(), 1U);
    EXPECT_NEAR(bundle.usage()[0], 200, 1);
}

// Two plans, of which one exceeds slot 2 (usage 30 of 20) and the other one slot 5 (25 of 20): the second price is found from the planes
// that were there before, and both together promise what the plans cost.
TEST(Bundle, WidensByUsage) {
    Bundle bundle;
    std::vector<double> point{3};
    bundle.restart(point, 100, true);
    bundle.add(point, 100, {10}, {0, 0, 30, 0, 0, 18});
    bundle.add(point, 130, {-10}, {0, 0, 10, 0, 0, 25});
    bundle.widen({2}, {2, 5}, 20);
    double promised = bundle.propose(1e6, point);
    ASSERT_EQ(point.size(), 2U);
    // 100 + 10 (x - 3) - 2 y and 130 - 10 (x - 3) + 5 y meet and rise together along y.
    EXPECT_GT(point[1], 0);
    EXPECT_NEAR(10 * (point[0] - 3) - 2 * point[1], 30 - 10 * (point[0] - 3) + 5 * point[1], 1e-3 * promised);
    EXPECT_GT(promised, 15);
}

TEST(Bundle, SaysWhatCannotBe) {
    Bundle bundle;
    bundle.restart({0}, 10, false);
    EXPECT_TRUE(bundle.add({1}, 11, {1}, {}));
    EXPECT_FALSE(bundle.add({1}, 5, {2}, {}));  // at 0 it would be 3, but there it is 10
}

}  // namespace
}  // namespace reprise::planner::test
