// A profile as text and back (`reprise.profile/1`, docs/formats.md): policy writes the line into the records, `reprise plan` reads it. One
// line. Not used on any hot path; any thread. No exception leaves.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "allocator/base/status.h"
#include "planner/profile.h"

namespace reprise::planner {

std::string write_profile(const Profile &profile);

// The events in their order, as profiles and timelines have them: who, what, and whether it begins or ends. null: an event of nobody's.
nlohmann::ordered_json events_of(const Profile &profile);

// Unknown fields are ignored, another major version and half a text are refused; what is read has passed validate(). The sentence says
// what is wrong where.
Result<Profile> read_profile(std::string_view text) noexcept;

}  // namespace reprise::planner
