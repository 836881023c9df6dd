// What `reprise plan` and `run` are given: the profile it plans for, out of a record file or a file of its own, and budgets as people write
// them. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/profile.h"

namespace reprise::cli {

struct ProfileChoice {
    std::string run;    // "": any
    int64_t step = -1;  // -1: any
};

// The newest profile in the file that the choice allows. "" or what is wrong with the file, or which profiles it has.
std::string load_profile(const std::string &path, const ProfileChoice &choice, planner::Profile *out);

// Whether a file holds a plan that can be read: "" or why not.
std::string check_plan_file(const std::string &path);

// "44GiB", "512M", a number of bytes, or "80%" of `whole`. False when it does not parse, is zero, or is beyond any machine.
bool parse_budget(const std::string &text, int64_t whole, int64_t *out);

}  // namespace reprise::cli
