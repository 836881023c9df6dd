// Plans of one profile for many budgets and policies: made on all processors, since the planner's functions share nothing, and the same
// whatever their number. Used by `reprise plan`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/records.h"
#include "planner/profile.h"

namespace reprise::cli {

struct Sweep {
    planner::JobPlan least;                            // of the first policy: what it needs at least, and why
    std::vector<int64_t> budgets;                      // ascending
    std::vector<planner::Policy> policies;             // the first is the one that was asked for
    std::vector<std::vector<planner::JobPlan>> plans;  // by policy, by budget

    const planner::JobPlan &plan(size_t policy, size_t budget) const { return plans[policy][budget]; }
};

// The policies that a comparison shows, this one first.
std::vector<planner::Policy> compared_with(planner::Policy policy);

// budgets: none for a dozen between the smallest feasible one and retaining everything. "" or what went wrong.
std::string sweep_budgets(const planner::Profile &profile, std::vector<int64_t> budgets, const std::vector<planner::Policy> &policies,
                          Sweep *out);

uint64_t replayed(const planner::JobPlan &plan);
bool fits(const planner::JobPlan &plan);

// `reprise.sweep/1`: for programs, and for the picture.
Json sweep_json(const planner::Profile &profile, const Sweep &sweep, bool whole_plans);

}  // namespace reprise::cli
