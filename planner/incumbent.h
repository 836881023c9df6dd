// The best plan known of one component, what a bound must exceed to be cut off by it, and the heuristics that look for better ones.
#pragma once

#include "planner/core.h"
#include "planner/lagrangian.h"
#include "planner/occupancy.h"

namespace reprise::planner {

// What the search is for.
enum class Goal : uint8_t {
    least_time,  // the plan of least time
    any_plan,    // any plan at all (times are all zero): the first one ends it, a positive bound refutes it
};

class Incumbent {
  public:
    Incumbent(const Core &core, Work &work, Goal goal, int64_t budget, uint32_t tolerance_ppm);

    static constexpr int64_t kNone = INT64_MAX / 4;
    bool found() const { return found_; }
    int64_t time() const { return time_; }  // kNone before the first plan, unless limit_time() was called
    const Choice &choice() const { return choice_; }
    // A subtree whose (scaled) bound is above this holds nothing worth looking for.
    int64_t cutoff() const;
    // What is proven when everything else was cut off: no plan takes less.
    int64_t proven() const { return time_ - slack(); }
    bool enough() const { return found_ && (goal_ == Goal::any_plan || time_ == 0); }
    bool feasibility() const { return goal_ == Goal::any_plan; }

    // Only plans that take less are of interest.
    void limit_time(int64_t time) { time_ = time; }
    // Keeps the plan if it fits and is better.
    void offer(const Occupancy &plan);

    // Greedy: from this plan replays what weighs least (`weight`, per instance) where the budget is exceeded, then retains again what fits.
    void repair(Occupancy &plan, const std::vector<int64_t> &weight, const Fixing &fixing);
    // Moves single decisions that lower the peak, for a job in which hardly anything fits.
    void descend(Occupancy &plan, const Fixing &fixing);

  private:
    int64_t slack() const { return time_ / 1'000'000 * tolerance_ + time_ % 1'000'000 * tolerance_ / 1'000'000; }
    int replay_one(const Occupancy &plan, const std::vector<int> &order, int slot, const Fixing &fixing);

    const Core &core_;
    Work &work_;
    Goal goal_;
    int64_t budget_;
    int64_t tolerance_;
    bool found_ = false;
    int64_t time_ = kNone;
    Choice choice_;
};

}  // namespace reprise::planner
