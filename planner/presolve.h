// What can be decided before and between searches without losing any plan worth having. All functions only narrow a Fixing.
#pragma once

#include "planner/core.h"
#include "planner/lagrangian.h"

namespace reprise::planner {

// Everything that the job leaves open.
Fixing all_open(const Core &core);

// Drops mechanisms that cost no less than another one in every respect: every element of the better one fits into one of the worse one.
// Returns how many.
int drop_dominated_mechanisms(const Core &core, Fixing &fixing);

// Fixes instances whose other decision would lift the bound above the cut-off. Returns how many.
int fix_by_reduced_cost(const Relaxed &relaxed, int64_t cutoff, Fixing &fixing);

// Of windows that one instance alone can use, drops the mechanisms with which its replay would lift the bound above the cut-off: nobody
// else pays there, so that no evaluation is needed. Returns how many.
int drop_private_mechanisms(const Core &core, const Lagrangian &lagrangian, const Relaxed &relaxed, int64_t cutoff, Fixing &fixing);

// Of shared windows, drops the mechanisms with which the bound lies above the cut-off, until `work` has reached `stop`. Returns how many.
int probe_mechanisms(const Core &core, Lagrangian &lagrangian, const std::vector<int64_t> &multipliers, int64_t cutoff, const Work &work,
                     uint64_t stop, Fixing &fixing);

}  // namespace reprise::planner
