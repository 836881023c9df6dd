// The least feasible budget: the same search with all times zero. At a budget B a positive bound proves that there is no plan within B, a
// plan found within B lowers what is known to be feasible to its peak.
#include <algorithm>

#include "planner/assemble.h"
#include "planner/presolve.h"
#include "planner/search.h"

namespace reprise::planner {

namespace {

// Copies without times: what is left of a problem when only memory matters.
Core without_times(const Core &core) {
    Core out = core;
    for (CoreInstance &it : out.instances) it.time = 0;
    for (CoreElement &it : out.elements) it.capture = 0;
    for (CoreCost &it : out.costs) it.time = 0;
    return out;
}

struct PartResult {
    int64_t feasible = 0, bound = 0;
    Choice choice;
    std::vector<std::pair<int, int64_t>> binding;
};

// A plan of low peak by single moves, from several starts.
Choice low_start(const Core &core, const Fixing &fixing, Work &work) {
    Choice best;
    int64_t best_peak = INT64_MAX;
    Occupancy plan(core);
    Incumbent descent(core, work, Goal::any_plan, -1, 0);  // nothing fits: only its moves are wanted
    for (int rank = 0; rank < 3; rank++)
        for (int replay = 1; replay >= 0; replay--) {
            Choice choice;
            for (int i = 0; i < core.size(); i++) choice.replay.push_back(fixing.choice[i] >= 0 ? fixing.choice[i] : replay);
            for (int w = 0; w < core.window_count(); w++) {
                uint32_t set = fixing.mechanisms[w];
                for (int r = 0; r < rank && !decided(set); r++) set &= set - 1;
                choice.mechanism.push_back(static_cast<uint8_t>(__builtin_ctz(set)));
            }
            plan.set(choice);
            if (plan.peak() < best_peak) best_peak = plan.peak(), best = choice;
        }
    plan.set(best);
    descent.descend(plan, fixing);
    return plan.choice();
}

// `floor`: budgets below it do not interest (another part needs as much already).
PartResult smallest_of(const Core &timed, int64_t floor, uint64_t limit, uint64_t &used) {
    Core core = without_times(timed);
    Work work{0, limit};
    PartResult out;
    out.choice = low_start(core, all_open(core), work);
    used += work.used;
    uint64_t left = limit - std::min(limit, work.used);
    Occupancy plan(core);
    plan.set(out.choice);
    out.feasible = std::max(floor, plan.peak());
    out.bound = std::max(floor, *std::max_element(core.base.begin(), core.base.end()));
    for (int round = 0; out.bound < out.feasible && left > 0; round++) {
        // Mostly the first plan is the best one and a single refutation ends it; otherwise halve, but try for the end in between.
        int64_t middle = out.bound + (out.feasible - out.bound) / 2;
        int64_t budget = round % 2 == 0 ? out.feasible - 1 : middle;
        Search search(core, Goal::any_plan, budget, 0, left);
        search.run();
        used += search.work().used;
        left -= std::min(left, search.work().used);
        if (search.incumbent().found()) {
            out.choice = search.incumbent().choice();
            plan.set(out.choice);
            out.feasible = std::max(floor, plan.peak());
        } else if (search.complete()) {
            out.bound = budget + 1;
            out.binding = search.binding();
        } else {
            break;
        }
    }
    return out;
}

}  // namespace

SmallestBudget solve_smallest(const Problem &problem, const Options &options) {
    SmallestBudget out;
    std::vector<Core> cores = compile(problem);
    std::vector<Choice> choices;
    int fullest = fullest_base(problem);
    int64_t floor = fullest < 0 ? 0 : problem.base[fullest];
    out.feasible_pages = out.bound_pages = floor;
    std::vector<std::pair<int, int64_t>> binding;
    if (fullest >= 0) binding.emplace_back(fullest, 1);
    for (size_t c = 0; c < cores.size(); c++) {
        uint64_t left = options.work > out.work ? options.work - out.work : 0;
        PartResult part = smallest_of(cores[c], out.bound_pages, left / (cores.size() - c), out.work);
        choices.push_back(part.choice);
        out.feasible_pages = std::max(out.feasible_pages, part.feasible);
        if (part.bound > out.bound_pages) {
            out.bound_pages = part.bound;
            if (!part.binding.empty()) {
                binding.clear();
                for (auto [slot, weight] : part.binding) binding.emplace_back(slot + cores[c].first_slot, weight);
            }
        }
    }
    out.exact = out.feasible_pages == out.bound_pages;
    out.plan = assemble(problem, cores, choices);
    if (options.explain) out.binding = explain(problem, binding);
    return out;
}

}  // namespace reprise::planner
