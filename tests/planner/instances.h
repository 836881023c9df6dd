// Random small problems, few enough plans to try them all; and shuffles of a problem that must not change its answer.
#pragma once

#include "bench/planner_families.h"
#include "planner/planner.h"

namespace reprise::planner::test {

// The number `index` of an endless list: all families and orders of events, up to 12 instances and 4 buffers, up to 3 mechanisms a window,
// at most `most_plans` plans. Times are made small and alike in some, so that ties occur; some decisions are fixed.
Problem small_problem(uint64_t index, int64_t most_plans);

// The same problem with instances, windows, readers, mechanisms, elements and uses in another order.
struct Shuffled {
    Problem problem;
    std::vector<int32_t> instance, window;        // the new number of an old one
    std::vector<std::vector<int32_t>> mechanism;  // per old window
};
Shuffled shuffle(const Problem &problem, uint64_t seed);
Plan moved(const Plan &plan, const Shuffled &shuffled);

// How many of `count` problems to try: ten times as many with REPRISE_TEST_FULL, a tenth under AddressSanitizer, some under ThreadSanitizer
// (tests/effort.h: the planner runs on one thread).
uint64_t scaled(uint64_t count);

}  // namespace reprise::planner::test
