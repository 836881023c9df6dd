// The plan of a job, kept for its next run: there it is the first guess, adopted after one measured cycle instead of three. Only a plan of
// the same job (segments, order, buffers, sizes), policy, budget, kernel and processor is taken, and only while instances keep what they
// kept then; what the job really uses is compared with it and corrected like any other plan's. Used by the planner's thread, but for made()
// and known().
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "planner/profile.h"
#include "policy/config.h"

namespace reprise {

class PlanCache {
  public:
    // Nowhere: finds nothing, keeps nothing.
    PlanCache() = default;
    // On the job's thread: reads the environment.
    static PlanCache made(const Config &config);

    // Is there a file for such a job at all? Costs no more than looking for its name.
    bool known(const planner::Profile &profile) const;
    // Of a job that is known(). Budget: what is planned for, less any margin. Where one is found, the profile's memory becomes what the
    // earlier run corrected it to.
    std::optional<planner::JobPlan> find(planner::Profile *profile, int64_t budget_bytes) const;
    void keep(const planner::JobPlan &plan) const;

  private:
    std::string path_for(uint64_t shape) const;

    std::string prefix_;  // of all plans
    std::string suffix_;  // policy and budget
};

}  // namespace reprise
