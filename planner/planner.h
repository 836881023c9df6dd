// The joint planner's door: which instances to retain and which to replay, and by which mechanism each buffer is preserved, so that memory
// stays within the budget in every slot and the added time is least. Called by policy (on a thread of its own, beside the job), by the
// command line, tests and benchmarks. Functions only read their arguments and share nothing: any number of threads may call them.
//
// The same problem gives the same answer on every machine and in every order of instances, windows, readers, mechanisms and elements:
// limits count work, never seconds, and ranks of one job must not differ. Ties go to the least peak, then to the order of names. No
// exception leaves.
#pragma once

#include <cstdint>

#include "allocator/base/status.h"
#include "planner/model.h"

namespace reprise::planner {

struct Options {
    // Steps of work, of the order of a nanosecond each on a machine of 2020. Reached: the best plan found, its bound, Proof::none.
    uint64_t work = 250'000'000;
    // Enough to know the least time to this many millionths; 0: exactly.
    uint32_t tolerance_ppm = 0;
    // Among plans of the least time prefer the least peak, for at most this share (in percent) of the work that the plan itself took.
    uint32_t least_peak_percent = 100;
    // Explain which slots bind (a few evaluations more).
    bool explain = true;
};

enum class Policy : uint8_t {
    joint,        // the planner itself
    retain,       // everything retained
    whole,        // everything replayed, whole copies
    selective,    // everything replayed, only what was overwritten
    fixed,        // everything replayed, regions declared once
    eager_whole,  // the planner without selective mechanisms
    greedy,       // most time saved per page first
};

// nullptr for a value that is none.
const char *policy_name(Policy policy);
const char *proof_name(Proof proof);
const char *verdict_name(Verdict verdict);

// Whether the numbers make sense; the sentence names the first instance, window or slot that does not.
Status validate(const Problem &problem);

// The plan of least added time within problem.budget_pages.
Result<Answer> solve(const Problem &problem, const Options &options = {}) noexcept;

// The plan of a policy: the planner, or one of the baselines it is measured against. Baselines that only apply a rule have Proof::none, and
// the verdict infeasible when the rule's plan does not fit.
Result<Answer> solve(const Problem &problem, Policy policy, const Options &options = {}) noexcept;

// The least budget for which there is a plan at all; problem.budget_pages is ignored.
Result<SmallestBudget> smallest_budget(const Problem &problem, const Options &options = {}) noexcept;

// Peak, time and memory per slot of a given plan.
struct Evaluation {
    int64_t time_ns = 0;
    int64_t peak_pages = 0;
    int32_t peak_slot = 0;
    std::vector<int64_t> memory;
};
Result<Evaluation> evaluate(const Problem &problem, const Plan &plan) noexcept;

}  // namespace reprise::planner
