#include "tests/planner/evaluator.h"

#include <algorithm>

namespace reprise::planner::test {

Checked check_plan(const Problem &problem, const Plan &plan) {
    Checked out;
    auto on_grid = [&](int64_t ns) { return (ns + problem.grid_ns - 1) / problem.grid_ns * problem.grid_ns; };
    for (size_t t = 0; t < problem.base.size(); t++) {
        auto slot = static_cast<int32_t>(t);
        int64_t memory = problem.base[t];
        for (size_t i = 0; i < problem.instances.size(); i++) {
            const Instance &it = problem.instances[i];
            if (!plan.replay[i] && it.forward_end <= slot && slot < it.replay_end) memory += it.keep_pages;
            if (plan.replay[i] && it.replay_begin <= slot && slot < it.replay_end) memory += it.transient_pages;
        }
        for (size_t w = 0; w < problem.windows.size(); w++) {
            const Window &window = problem.windows[w];
            const Mechanism &mechanism = window.mechanisms[static_cast<size_t>(plan.mechanism[w])];
            for (size_t k = 0; k < window.readers.size(); k++) {
                const Instance &it = problem.instances[static_cast<size_t>(window.readers[k])];
                if (plan.replay[static_cast<size_t>(window.readers[k])] && it.replay_begin <= slot && slot < it.replay_end)
                    memory += mechanism.readers[k].pages;
            }
            for (const Element &element : mechanism.elements)
                for (const Use &use : element.uses)
                    if (plan.replay[static_cast<size_t>(use.instance)] && use.begin <= slot && slot < use.end) {
                        memory += element.pages;
                        break;
                    }
        }
        out.memory.push_back(memory);
        out.peak = std::max(out.peak, memory);
    }
    for (size_t i = 0; i < problem.instances.size(); i++)
        if (plan.replay[i]) out.time += on_grid(problem.instances[i].replay_ns);
    for (size_t w = 0; w < problem.windows.size(); w++) {
        const Window &window = problem.windows[w];
        const Mechanism &mechanism = window.mechanisms[static_cast<size_t>(plan.mechanism[w])];
        for (size_t k = 0; k < window.readers.size(); k++)
            if (plan.replay[static_cast<size_t>(window.readers[k])]) out.time += on_grid(mechanism.readers[k].ns);
        for (const Element &element : mechanism.elements)
            if (std::any_of(element.uses.begin(), element.uses.end(),
                            [&](const Use &use) { return plan.replay[static_cast<size_t>(use.instance)]; }))
                out.time += on_grid(element.capture_ns);
    }
    return out;
}

int64_t plan_count(const Problem &problem, int64_t limit) {
    int64_t count = 1;
    auto times = [&](int64_t factor) { count = count > limit / factor ? limit : count * factor; };
    for (const Instance &it : problem.instances)
        if (it.freedom == Freedom::open) times(2);
    for (const Window &window : problem.windows) times(static_cast<int64_t>(window.mechanisms.size()));
    return std::min(count, limit);
}

Best try_all(const Problem &problem) {
    Best best;
    best.smallest_peak = INT64_MAX;
    size_t n = problem.instances.size();
    Plan plan{std::vector<uint8_t>(n, 0), std::vector<int32_t>(problem.windows.size(), 0)};
    for (uint64_t x = 0; x < uint64_t{1} << n; x++) {
        bool allowed = true;
        for (size_t i = 0; i < n; i++) {
            plan.replay[i] = x >> i & 1;
            Freedom freedom = problem.instances[i].freedom;
            allowed = allowed && (freedom == Freedom::open || (freedom == Freedom::replay) == (plan.replay[i] == 1));
        }
        if (!allowed) continue;
        std::fill(plan.mechanism.begin(), plan.mechanism.end(), 0);
        while (true) {
            Checked checked = check_plan(problem, plan);
            best.smallest_peak = std::min(best.smallest_peak, checked.peak);
            if (checked.peak <= problem.budget_pages) {
                if (!best.feasible || checked.time < best.time || (checked.time == best.time && checked.peak < best.peak)) {
                    best.time = checked.time;
                    best.peak = checked.peak;
                }
                best.feasible = true;
            }
            size_t w = 0;
            for (; w < plan.mechanism.size(); w++) {
                if (++plan.mechanism[w] < static_cast<int32_t>(problem.windows[w].mechanisms.size())) break;
                plan.mechanism[w] = 0;
            }
            if (w == plan.mechanism.size()) break;
        }
    }
    return best;
}

}  // namespace reprise::planner::test
