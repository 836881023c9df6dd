// From a profile to a plan in the job's terms: what plan_job and the sentences about a plan share. Private to the planner.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "planner/profile.h"

namespace reprise::planner {

// The planner's problem of a profile, and where its parts come from.
struct JobModel {
    Problem problem;                   // shadows live only in their windows
    std::vector<int32_t> buffer_of;    // per window; of a window for unchanged buffers the first of them
    std::vector<uint8_t> unchanged;    // per window: it stands for buffers that nobody finds changed
    std::vector<int64_t> kept_shadow;  // per buffer: pages of its shadow, 0 where it can have none
};
JobModel model_of(const Profile &profile, int64_t budget_bytes);

int64_t pages_up(int64_t bytes);
int64_t bytes_of(int64_t pages);

// Per buffer: whether some replay is served from its shadow.
std::vector<uint8_t> shadows_used(const JobModel &model, const Plan &plan);

// What a plan really takes: as evaluate(), and every shadow in use in all slots.
Result<Evaluation> evaluate_job(const JobModel &model, const Plan &plan);

// What lives in a slot under a plan, in pages.
struct Contents {
    int64_t base = 0, kept = 0, running = 0, preserved = 0;
    std::vector<std::pair<int64_t, int32_t>> instances;  // kept or running: pages and number, largest first
    std::vector<std::pair<int64_t, int32_t>> buffers;    // preserved, likewise
};
Contents contents(const JobModel &model, const Plan &plan, int32_t slot);

// "48 MiB"
std::string size_text(int64_t bytes);
// "3.1 ms"
std::string time_text(int64_t ns);
// "'block.7'", or "'block.7' (2)" for the third forward of a segment that runs several times
std::string name_of(const Profile &profile, int32_t instance);
// "event 31 (the forward of 'block.7' has ended)"
std::string event_text(const Profile &profile, int32_t slot);

// Fills in the sentences of a plan: why, and binding (slots with their share of the multipliers).
void explain_plan(const Profile &profile, const JobModel &model, const Plan &plan, const std::vector<Binding> &binding, JobPlan &out);

}  // namespace reprise::planner
