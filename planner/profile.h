// What one cycle of a job looked like, measured (`reprise.profile/1`), and what is made of it: the planner's problem, and a plan in the
// job's own terms (`reprise.plan/1`). A cycle is what lies between two boundaries of the job (optimizer steps, else moments in which no
// instance is outstanding). Filled and used by policy, read by the command: both plan from the same numbers through the same functions, so
// what `reprise plan` shows is what a job does. Plain values and pure functions: any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "allocator/base/status.h"
#include "planner/planner.h"
#include "planner/tables.h"

namespace reprise::planner {

// Of one forward and its replay. Events are numbered through the cycle: slot t lies between event t and event t + 1.
struct ProfileInstance {
    std::string segment;
    int32_t ordinal = 0;  // among the forwards of that segment in the cycle, from 0: with the segment's name the key of a decision
    int32_t forward_begin = 0, forward_end = 0, replay_begin = 0, replay_end = 0;
    int64_t forward_ns = 0, replay_ns = 0;  // the job's own time, without ours
    int64_t overhead_ns = 0;                // ours in a forward and a replay beside what buffers cost: scopes, generators, clones
    int64_t keep_bytes = 0;                 // alive at the end of the replay and not at its beginning: what retaining costs
    int64_t measured_keep_bytes = 0;        // so, where retained forwards have shown that keep_bytes is less; else 0
    int64_t transient_bytes = 0;            // the replay's peak above its beginning, without what loading needs
    Freedom freedom = Freedom::open;
    std::string why;  // freedom is not open: the reason, in words
};

struct ProfileBuffer {
    std::string name;  // unique in the profile
    int64_t bytes = 0;
    std::vector<int32_t> users;  // instances whose scope holds it
    // Written between two cuts, in pages from the beginning of the buffer's first page; slot is the one before the event at which it was
    // found.
    std::vector<BufferWrite> writes;
    bool selective = true;  // false: what was written could not be told, so it is only ever copied whole
    // Held for it while anything that uses it may be replayed, though nobody finds it changed: its shadow, or the copy of a small buffer.
    int64_t held_bytes = 0;
    uint64_t id = 0;  // the engine's, in this process alone; not part of the text form
};

struct Profile {
    std::string run;
    uint64_t step = 0;                // of the cycle
    uint32_t cycles = 0;              // that the times are medians of
    int64_t unseen_bytes = 0;         // resident memory of the process that the ledger does not see
    std::vector<int64_t> base_bytes;  // per slot: the most that was in use, without what the planner decides about
    std::vector<ProfileInstance> instances;
    std::vector<ProfileBuffer> buffers;
    MechanismCosts costs;
};

// Whether the numbers make sense; the sentence names the first thing that does not. What the job measured does; a file may say anything.
Status validate(const Profile &profile);

// Which segments ran in which order, with which buffers: two cycles with the same shape can take the same plan.
uint64_t shape_of(const Profile &profile);

// Sizes are rounded up to pages, the budget down; times count in whole microseconds. What the planner decides about is in it exactly but
// for one thing: a shadow that was filled lives on outside its window, and only plan_job counts that memory.
Problem problem_of(const Profile &profile, int64_t budget_bytes);

struct PlannedInstance {
    std::string segment;
    int32_t ordinal = 0;
    bool replay = true;
    int64_t keep_bytes = 0, replay_ns = 0;
    std::string why;                  // in words: "fits", "replayed: costs 3.1 ms, saves 48 MiB at event 31", "nested: always replayed"
    int64_t measured_keep_bytes = 0;  // the profile's
};

// One buffer in one stretch of the cycle: how it is preserved for these readers.
struct PlannedWindow {
    std::string buffer;
    int64_t bytes = 0;
    Kind kind = Kind::whole;
    std::string mechanism;
    std::vector<int32_t> readers;    // replayed ones alone, in the order of their forwards; empty: nobody needs it
    std::vector<uint8_t> unchanged;  // per reader: nothing was written since the reader before it (a whole copy serves both)
};

struct JobPlan {
    Policy policy = Policy::joint;
    uint64_t shape = 0;
    int64_t budget_bytes = 0;
    Verdict verdict = Verdict::undecided;
    Proof proof = Proof::none;
    int64_t added_ns = 0, bound_ns = 0;                    // beyond retaining everything; no plan adds less. On the grid
    int64_t retained_bytes = 0;                            // peak when everything is retained
    int64_t smallest_bytes = 0, smallest_bound_bytes = 0;  // the least budget with a plan; every budget below the bound has none
    int64_t peak_bytes = 0;
    int32_t peak_slot = 0;
    std::vector<PlannedInstance> instances;  // as the profile's
    std::vector<PlannedWindow> windows;
    std::vector<int64_t> memory_bytes;  // per slot
    std::vector<std::string> binding;   // what keeps it from being faster, or from existing, heaviest first, in words
    uint64_t work = 0;
};

// The plan of a policy for this profile within a budget, the shadows that live from cycle to cycle included. Verdict infeasible or
// undecided: the plan of least memory that was found, with smallest_bytes and binding, so that the job can run with it. A policy that is a
// rule has one plan: where that does not fit, it is returned with the verdict infeasible, and its peak is the smallest budget. Verdict
// planned: smallest_bytes is filled in as far as it is cheap, and only with options.explain; 0 is unknown.
Result<JobPlan> plan_job(const Profile &profile, int64_t budget_bytes, Policy policy, const Options &options = {}) noexcept;

// The same decisions in the numbers of another profile of the same job: its memory, and whether that is within this budget (verdict
// planned) or not (undecided); no bound and no proof. An error where it is another job, or its buffers change elsewhere.
Result<JobPlan> follow_plan(const JobPlan &decisions, const Profile &profile, int64_t budget_bytes) noexcept;

// What a job plans with, and therefore the command: what is measured has one percent of noise, so that a ten-thousandth is proof enough.
// The work of one search: a quarter of a second on a machine of 2023; looking for the least peak, or for room for shadows, comes on top.
inline Options job_options() {
    Options options;
    options.tolerance_ppm = 100;
    options.work = 330'000'000;
    return options;
}

// The difference between a plan and a job, one sentence each, at most `most`; empty: it matches.
std::vector<std::string> differences(const JobPlan &plan, const Profile &profile, size_t most = 8);

}  // namespace reprise::planner
