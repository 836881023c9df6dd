// Profiles for tests: random cycles, and what a plan does to one, found by simulating pages and versions. Shares no code with the planner.
#pragma once

#include "planner/profile.h"

namespace reprise::planner::test {

// A cycle of so many forwards in a random order of events, with up to `buffers` buffers: small, large, sparse, dense, untellable.
Profile random_profile(uint64_t seed, int forwards, int buffers = 4);

// A transformer's cycle: forwards, then replays in reverse order, one shared queue and a private buffer for each block.
Profile transformer_profile(int blocks, int micro_batches = 1);

// Does one of its users see it change between forward and replay?
bool sees_change(const Profile &profile, const ProfileBuffer &buffer);

// Bytes per slot when the plan is followed.
std::vector<int64_t> simulate(const Profile &profile, const JobPlan &plan);

// Peak and added time (in whole microseconds, rounded up each) of every combination of decisions and mechanisms.
struct Everything {
    int64_t peak_bytes = 0, added_ns = 0;
};
std::vector<Everything> every_plan(const Profile &profile);

}  // namespace reprise::planner::test
