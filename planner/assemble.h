// Between the caller's numbers and the solver's: plans there and back, what a plan does, what binds. Private to the planner.
#pragma once

#include "planner/core.h"
#include "planner/planner.h"

namespace reprise::planner {

// The caller's plan from the choices of all parts.
Plan assemble(const Problem &problem, const std::vector<Core> &cores, const std::vector<Choice> &choices);

// Time (exact and on the grid), peak and memory of a plan of the right shape.
struct Measured {
    Evaluation exact;
    int64_t grid_time_ns = 0;
};
Measured measure(const Problem &problem, const Plan &plan);

// The slots with multipliers (the caller's numbers), heaviest first, with what lives there.
std::vector<Binding> explain(const Problem &problem, const std::vector<std::pair<int, int64_t>> &weights);

// Fills plan, times, peak and memory.
void report(const Problem &problem, Plan plan, Answer &answer);

// One search for the least time over all parts. only: the mechanisms that may be used (per part a Fixing), or empty.
Answer solve_joint(const Problem &problem, const Options &options);
Answer solve_rule(const Problem &problem, Policy policy, const Options &options);
SmallestBudget solve_smallest(const Problem &problem, const Options &options);

// The slot whose base memory alone is largest; -1 without slots.
int fullest_base(const Problem &problem);

}  // namespace reprise::planner
