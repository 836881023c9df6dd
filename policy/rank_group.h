// Several processes that must decide alike: ranks of one distributed job. A segment that contains a collective would hang if one rank
// replayed it and another had kept its activations, so the ranks that run the same segments plan from the worst of their measurements, with
// the same planner, and switch to the plan at the same forward of each segment.
//
// This is what one rank knows; how the texts travel is the adapter's business (the group's store, never a collective). Under the engine's
// mutex. The stages, each with a text of one's own for all to read, none of which ever waits:
//
//     OFFER    my profile              -> OFFERS: all plan from the worst of those with their order of segments
//     COUNTS   my counts of forwards   -> ALL_COUNTS: the same forward of every segment at which to switch, some cycles ahead
//              that I will switch      -> COMMIT: everybody will
//
// A rank that dies leaves the others where they are: everything is replayed, which is always right.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "planner/profile.h"

namespace reprise {

struct RankOffer {
    uint64_t order = 0;         // of the rank's cycles
    uint64_t pinned = 0;        // digest of the plan of REPRISE_PLAN, if it fits this rank; 0: there is none
    uint64_t budget_bytes = 0;  // the least of the members' counts
    std::string profile;        // its text
};

std::string write_offer(const RankOffer &offer);
bool read_offer(std::string_view text, RankOffer *offer);

// When each segment switches: forwards of it, counted from the beginning of the job.
using ForwardCounts = std::unordered_map<std::string, uint64_t>;
std::string write_counts(const ForwardCounts &counts);
bool read_counts(std::string_view text, ForwardCounts *counts);

// Every member computes the same from the same texts: the first one's counts, whole cycles on, so that no member has come so far yet.
// `per_cycle`: forwards of each segment in one cycle.
ForwardCounts agree(const std::vector<ForwardCounts> &members, const ForwardCounts &per_cycle);

// The worst of every measurement. False, and why, when the profiles do not have the same events.
bool worst_of(const std::vector<planner::Profile> &members, planner::Profile *worst, std::string *why);

}  // namespace reprise
