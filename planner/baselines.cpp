// What the planner is measured against: rules without a search, and the planner without its selective mechanisms. Also policies of a job.
#include <algorithm>
#include <numeric>

#include "planner/assemble.h"

namespace reprise::planner {

namespace {

// The first mechanism of this kind; where a window has none of it, its first.
int32_t of_kind(const Window &window, Kind kind) {
    for (size_t m = 0; m < window.mechanisms.size(); m++)
        if (window.mechanisms[m].kind == kind) return static_cast<int32_t>(m);
    return 0;
}

Plan uniform(const Problem &problem, bool replay, Kind kind) {
    Plan plan;
    for (const Instance &it : problem.instances)
        plan.replay.push_back(it.freedom == Freedom::open ? replay : it.freedom == Freedom::replay);
    for (const Window &window : problem.windows) plan.mechanism.push_back(of_kind(window, kind));
    return plan;
}

// From the rule's plan of least memory: retain in the order of time saved per page and slot, whatever fits.
Plan greedy(const Problem &problem, Answer &answer) {
    Plan plan;
    int64_t least = INT64_MAX;
    for (Kind kind : {Kind::whole, Kind::selective, Kind::regions}) {
        Plan candidate = uniform(problem, true, kind);
        Measured measured = measure(problem, candidate);
        if (measured.exact.peak_pages < least) least = measured.exact.peak_pages, plan = std::move(candidate);
    }
    std::vector<size_t> order(problem.instances.size());
    std::iota(order.begin(), order.end(), size_t{0});
    auto value = [&](size_t i) {
        const Instance &it = problem.instances[i];
        return static_cast<double>(it.replay_ns) / static_cast<double>(it.keep_pages + 1);
    };
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
        double x = value(a), y = value(b);
        return x != y ? x > y : problem.instances[a].forward_begin < problem.instances[b].forward_begin;
    });
    for (size_t i : order) {
        if (problem.instances[i].freedom != Freedom::open) continue;
        plan.replay[i] = 0;
        if (measure(problem, plan).exact.peak_pages > problem.budget_pages) plan.replay[i] = 1;
    }
    answer.work += problem.instances.size() * problem.base.size();
    return plan;
}

// The problem with whole copies only.
Problem whole_only(const Problem &problem, std::vector<std::vector<int32_t>> &source) {
    Problem out = problem;
    for (Window &window : out.windows) {
        std::vector<Mechanism> kept;
        std::vector<int32_t> from;
        for (size_t m = 0; m < window.mechanisms.size(); m++)
            if (window.mechanisms[m].kind == Kind::whole || window.mechanisms[m].kind == Kind::small) {
                kept.push_back(window.mechanisms[m]);
                from.push_back(static_cast<int32_t>(m));
            }
        if (kept.empty()) {
            kept.push_back(window.mechanisms[0]);
            from.push_back(0);
        }
        window.mechanisms = std::move(kept);
        source.push_back(std::move(from));
    }
    return out;
}

}  // namespace

Answer solve_rule(const Problem &problem, Policy policy, const Options &options) {
    Answer answer;
    if (policy == Policy::eager_whole) {
        std::vector<std::vector<int32_t>> source;
        answer = solve_joint(whole_only(problem, source), options);
        auto back = [&](Plan &plan) {
            for (size_t w = 0; w < plan.mechanism.size(); w++) plan.mechanism[w] = source[w][plan.mechanism[w]];
        };
        back(answer.plan);
        back(answer.smallest.plan);
        return answer;
    }
    Plan plan;
    switch (policy) {
        case Policy::retain:
            plan = uniform(problem, false, Kind::whole);
            break;
        case Policy::selective:
            plan = uniform(problem, true, Kind::selective);
            break;
        case Policy::fixed:
            // Where no window offers regions (a job does not predict any yet), each one's first mechanism: this is whole then.
            plan = uniform(problem, true, Kind::regions);
            break;
        case Policy::greedy:
            plan = greedy(problem, answer);
            break;
        default:
            plan = uniform(problem, true, Kind::whole);
            break;
    }
    for (size_t w = 0; w < problem.windows.size(); w++) {
        bool used = false;
        for (int32_t reader : problem.windows[w].readers) used = used || plan.replay[reader];
        if (!used) plan.mechanism[w] = 0;
    }
    report(problem, std::move(plan), answer);
    answer.verdict = answer.peak_pages <= problem.budget_pages ? Verdict::planned : Verdict::infeasible;
    return answer;
}

}  // namespace reprise::planner
