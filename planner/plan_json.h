// A job's plan as text and back (`reprise.plan/1`, docs/formats.md): what REPRISE_SAVE_PLAN and `reprise plan -o` write, REPRISE_PLAN
// reads, and the records hold. One line. Not used on any hot path; any thread. No exception leaves.
#pragma once

#include <string>
#include <string_view>

#include "allocator/base/status.h"
#include "planner/profile.h"

namespace reprise::planner {

// run, step: which run adopted it when; a file that pins decisions has none.
std::string write_plan(const JobPlan &plan, const std::string &run = "", uint64_t step = 0);

// Unknown fields are ignored; another major version, half a text, and decisions that contradict each other are refused. The sentence says
// what is wrong where. Whether it is a plan of this job is for differences() to say.
Result<JobPlan> read_plan(std::string_view text) noexcept;

}  // namespace reprise::planner
