// Recomputes peak and time of a plan from the problem alone, slot by slot, as slowly and plainly as possible; and finds the best of all
// plans by trying every one. Shares no code with planner/: only the problem's data.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/model.h"

namespace reprise::planner::test {

struct Checked {
    int64_t time = 0;  // on the problem's grid
    int64_t peak = 0;
    std::vector<int64_t> memory;
};
Checked check_plan(const Problem &problem, const Plan &plan);

struct Best {
    bool feasible = false;
    int64_t time = 0, peak = 0;  // least time within the budget; least peak among those
    int64_t smallest_peak = 0;   // of any plan
};
// The number of all plans, or `limit` when there are more.
int64_t plan_count(const Problem &problem, int64_t limit);
Best try_all(const Problem &problem);

}  // namespace reprise::planner::test
