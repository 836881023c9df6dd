// What `reprise plan` prints for people.
#pragma once

#include "cli/plan_sweep.h"

namespace reprise::cli {

void print_profile(const std::string &file, const planner::Profile &profile, const Sweep &sweep);
void print_sweep(const Sweep &sweep);
void print_comparison(const Sweep &sweep);
// What was measured: costs, segments, buffers.
void print_measurements(const planner::Profile &profile);
// Per segment and buffer what a plan decides and why.
void print_decisions(const planner::Profile &profile, const planner::JobPlan &plan);

}  // namespace reprise::cli
