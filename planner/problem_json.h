// A problem as text and back (`reprise.problem/1`, docs/planner.md): to look at, to plan for a job that ran elsewhere, to report a plan
// that seems wrong. Not used on any hot path. No exception leaves.
#pragma once

#include <string>
#include <string_view>

#include "allocator/base/status.h"
#include "planner/planner.h"

namespace reprise::planner {

std::string write_problem(const Problem &problem);

// Unknown fields are ignored, an unknown major version is refused; what is read has passed validate().
Result<Problem> read_problem(std::string_view text) noexcept;

// `reprise.answer/1`: everything that an Answer says, the problem's names included.
std::string write_answer(const Problem &problem, const Answer &answer);

}  // namespace reprise::planner
