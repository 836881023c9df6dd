// The search over one component: bound, heuristics, fixing, label programs, and branching where these overflow. One object per component
// and budget; it reads the core and owns everything else.
#pragma once

#include "planner/core.h"
#include "planner/cuts.h"
#include "planner/incumbent.h"
#include "planner/label_program.h"
#include "planner/lagrangian.h"
#include "planner/planner.h"

namespace reprise::planner {

class Search {
  public:
    Search(const Core &core, Goal goal, int64_t budget, uint32_t tolerance_ppm, uint64_t work_limit);

    // Starts from this plan too; must be called before run().
    void suggest(const Choice &choice);
    // Plans of at least this time are of no interest (for the least peak among equally fast plans).
    void limit_time(int64_t time) { incumbent_.limit_time(time); }
    // Multipliers of a search that differs little: (slot, value).
    void warm_start(const std::vector<std::pair<int, int64_t>> &multipliers) { warm_ = multipliers; }
    void run();

    bool complete() const { return complete_; }  // everything was either looked at or cut off
    const Incumbent &incumbent() const { return incumbent_; }
    int64_t bound() const;  // no plan takes less (unscaled); meaningless for Goal::any_plan
    const Work &work() const { return work_; }
    const Counters &counters() const { return counters_; }
    // The best multipliers at the root: (slot, weight). What binds.
    const std::vector<std::pair<int, int64_t>> &binding() const { return binding_; }

  private:
    struct Multipliers {
        std::vector<int> slots;
        std::vector<int64_t> values;
    };

    // ascent.cpp
    int64_t ascend(std::vector<int64_t> &multipliers, const Fixing &fixing, int steps, bool grow, double step_size, Relaxed &out);
    int64_t climb(std::vector<int64_t> &multipliers, const Fixing &fixing, int steps, Relaxed &out);
    void evaluate_at(std::vector<double> &point, const Fixing &fixing, std::vector<int64_t> &at, Relaxed &out);
    int64_t keep_best(const std::vector<int64_t> &best, const Fixing &fixing, std::vector<int64_t> &multipliers, Relaxed &out);
    void meet(const Choice &choice);
    struct Plane {
        double value;
        std::vector<double> slope;
        std::vector<int64_t> usage;
    };
    Plane plane_of(const Choice &choice, const std::vector<int64_t> &at);
    void charge_fees(const std::vector<int64_t> &multipliers, const Fixing &fixing, Relaxed &relaxed);
    void pick_variant(const std::vector<int64_t> &multipliers, const Fixing &fixing, const Relaxed &relaxed);
    std::vector<int> exceeded(const std::vector<double> &usage) const;
    bool grow_from_plan(const Fixing &fixing, std::vector<double> &point, std::vector<int64_t> &best, const Relaxed &relaxed, bool repair);

    // cut_ascent.cpp
    void cut(std::vector<int64_t> &multipliers, const Fixing &fixing, Relaxed &relaxed);
    void find_cuts(const std::vector<double> &mix);
    std::vector<double> slope_with_cuts(const Relaxed &relaxed);
    void hold(const std::vector<int64_t> &cut_multipliers);

    // improve.cpp
    struct Part {
        std::vector<int> instances, windows;
    };
    Fixing around(const std::vector<int> &instances, const std::vector<int> &windows, const Fixing &fixing) const;
    std::vector<Part> parts(const Relaxed &relaxed, const Fixing &fixing) const;
    void improve(std::vector<int64_t> &multipliers, const Fixing &fixing, const Relaxed &root, uint64_t allowance);

    // search.cpp
    void node(Multipliers start, Fixing fixing, int64_t known_bound, int depth);
    bool reduce(std::vector<int64_t> &multipliers, Fixing &fixing, Relaxed &relaxed);
    void drop_idle_slots(std::vector<int64_t> &multipliers, const Fixing &fixing, Relaxed &relaxed);
    enum class Outcome : uint8_t { closed, open, stopped };
    Outcome beams(std::vector<int64_t> &multipliers, Fixing &fixing, Relaxed &relaxed, int first_round, int last_round, size_t width,
                  int64_t &bound);
    Outcome root(std::vector<int64_t> &multipliers, Fixing &fixing, Relaxed &relaxed, int64_t &bound);
    Outcome refine(std::vector<int64_t> &multipliers, Fixing &fixing, Relaxed &relaxed, int64_t &bound);
    Outcome programs(std::vector<int64_t> &multipliers, Fixing &fixing, Relaxed &relaxed, int64_t &bound);
    void branch(const std::vector<int64_t> &multipliers, const Fixing &fixing, const Relaxed &relaxed, int64_t bound, int depth);
    // How far the bound is from the best plan, as a part of its time.
    double gap(int64_t bound) const {
        auto time = static_cast<double>(incumbent_.time());
        return incumbent_.found() && time > 0 ? 1.0 - static_cast<double>(bound) / (time * (1 << kShift)) : 1.0;
    }
    bool refuted(const Relaxed &relaxed) const { return relaxed.bound > incumbent_.cutoff(); }
    LabelResult label(const std::vector<int64_t> &multipliers, const Fixing &fixing, const Relaxed &relaxed, size_t width, bool strict);
    void activate(const std::vector<int> &slots, std::vector<int64_t> &multipliers);
    std::vector<int64_t> aligned(const Multipliers &from) const;
    void give_up(int64_t bound) { open_bound_ = std::min(open_bound_, bound), complete_ = false; }

    const Core &core_;
    Work work_;
    int64_t budget_;
    Counters counters_;
    Incumbent incumbent_;
    Lagrangian lagrangian_;
    Occupancy plan_;
    std::vector<Cut> cuts_;
    bool complete_ = true;
    int64_t open_bound_ = INT64_MAX;  // least (scaled) bound of what was left open
    std::vector<std::pair<int, int64_t>> warm_;
    std::vector<std::pair<int, int64_t>> binding_;
};

}  // namespace reprise::planner
