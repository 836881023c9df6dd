// One plan being made on a thread of its own, beside the job. Made and asked by Planning, under the engine's mutex; the thread itself takes
// no lock of the engine's. It blocks all signals, so that no handler of the job's runs on it. When the process exits or the object goes
// first, the thread finishes what it has and throws it away.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "planner/profile.h"
#include "policy/cost_meter.h"
#include "policy/cycle.h"
#include "policy/plan_cache.h"

namespace reprise {

enum class PlanAsk : uint8_t {
    kPlan,
    kProfile,     // no plan: the profile and its text, to be shown to other ranks
    kFirstGuess,  // an earlier run's plan, or none: nothing is planned
};

struct PlanRequest {
    PlanAsk ask = PlanAsk::kPlan;
    std::vector<std::unique_ptr<Cycle>> cycles;  // of one order, oldest first: the profile is made of them; or none, and
    planner::Profile profile;                    // this is used as it is (run and step count in any case)
    std::vector<std::string> members;            // texts of profiles, of which the worst is planned for, in place of both
    PlanCache cache;                             // where that is found, and where a plan that is made is kept
    CostMeter costs;                             // what the job itself showed so far
    std::string cost_cache;                      // CostMeter::cache_file()
    int64_t budget_bytes = 0;
    planner::Policy policy = planner::Policy::joint;
    bool texts = false;  // the result holds its text forms, too
};

class PlanWorker {
  public:
    struct Result {
        PlanAsk asked = PlanAsk::kPlan;
        planner::Profile profile;
        planner::JobPlan plan;     // one without instances, for a first guess: there was none
        std::string error;         // the plan could not be made
        std::string profile_text;  // reprise.profile/1
        std::string plan_text;     // reprise.plan/1
        uint64_t nanoseconds = 0;
    };

    PlanWorker(const AllocatorPort &port, PlanRequest request);
    // False when no thread could be started: it will never be done.
    bool started() const { return started_; }

    // Null while it works.
    std::unique_ptr<Result> take();

  private:
    struct Shared {
        const AllocatorPort *port = nullptr;
        PlanRequest request;
        Result result;
        std::atomic<bool> done{false};
    };
    static void *run(void *shared);
    static void work(Shared &shared);

    std::shared_ptr<Shared> shared_;
    bool started_ = false;
};

}  // namespace reprise
