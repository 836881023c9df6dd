#include <algorithm>
#include <new>

#include "planner/assemble.h"
#include "planner/search.h"

namespace reprise::planner {

namespace {

void count(Counters &sum, const Counters &part) {
    sum.evaluations += part.evaluations;
    sum.programs += part.programs;
    sum.labels += part.labels;
    sum.nodes += part.nodes;
    sum.most_events = std::max(sum.most_events, part.most_events);
    sum.dominated += part.dominated;
}

// The most pages in use in the part's own slots.
int64_t peak_of(const Core &core, const Choice &choice) {
    Occupancy plan(core);
    plan.set(choice);
    return plan.peak();
}

// Equally fast plans of lower peak than `answer`'s, until there is provably none. The parts share no slot: the peak is that of the fullest,
// and only a part that reaches it needs another plan. false: the work ran out first.
bool lower_peak(const Problem &problem, const std::vector<Core> &cores, std::vector<Choice> &choices, const std::vector<int64_t> &times,
                const std::vector<std::vector<std::pair<int, int64_t>>> &multipliers, uint64_t allowance, Answer &answer) {
    int64_t floor = problem.base.empty() ? 0 : problem.base[fullest_base(problem)];
    std::vector<int64_t> peaks;
    for (size_t c = 0; c < cores.size(); c++) peaks.push_back(peak_of(cores[c], choices[c]));
    while (true) {
        int64_t peak = floor;
        size_t highest = cores.size();
        for (size_t c = 0; c < cores.size(); c++)
            if (peaks[c] > peak) peak = peaks[c], highest = c;
        if (highest == cores.size()) return true;  // the base memory alone is the peak
        if (allowance == 0) return false;
        Search search(cores[highest], Goal::least_time, peak - 1, 0, allowance);
        search.limit_time(times[highest] + 1);
        search.warm_start(multipliers[highest]);
        search.run();
        answer.work += search.work().used;
        count(answer.counters, search.counters());
        allowance -= std::min(allowance, search.work().used);
        if (!search.incumbent().found()) return search.complete();
        choices[highest] = search.incumbent().choice();
        peaks[highest] = peak_of(cores[highest], choices[highest]);
    }
}

void solve_parts(const Problem &problem, const std::vector<Core> &cores, const Options &options, Answer &answer) {
    std::vector<Choice> choices;
    std::vector<int64_t> times;
    std::vector<std::pair<int, int64_t>> weights;
    std::vector<std::vector<std::pair<int, int64_t>>> multipliers;
    int64_t bound = 0, time = 0;
    bool complete = true, planned = true, infeasible = false;
    for (size_t c = 0; c < cores.size(); c++) {
        uint64_t left = options.work > answer.work ? options.work - answer.work : 0;
        Search search(cores[c], Goal::least_time, problem.budget_pages, options.tolerance_ppm, left / (cores.size() - c));
        search.run();
        answer.work += search.work().used;
        count(answer.counters, search.counters());
        complete = complete && search.complete();
        for (auto [slot, weight] : search.binding()) weights.emplace_back(slot + cores[c].first_slot, weight);
        if (!search.incumbent().found()) {
            planned = false;
            infeasible = infeasible || search.complete();
            continue;
        }
        choices.push_back(search.incumbent().choice());
        times.push_back(search.incumbent().time());
        multipliers.push_back(search.binding());
        time += search.incumbent().time();
        bound += search.bound();
    }
    answer.counters.components = static_cast<uint32_t>(cores.size());
    if (!planned) {
        answer.verdict = infeasible ? Verdict::infeasible : Verdict::undecided;
        return;
    }
    answer.verdict = Verdict::planned;
    answer.bound_ns = bound * problem.grid_ns;
    answer.proof = bound >= time ? Proof::exact : complete ? Proof::eps : Proof::none;
    if (answer.proof == Proof::exact && options.least_peak_percent > 0)
        answer.least_peak =
            lower_peak(problem, cores, choices, times, multipliers, answer.work * options.least_peak_percent / 100 + 5'000'000, answer);
    report(problem, assemble(problem, cores, choices), answer);
    if (options.explain) answer.binding = explain(problem, weights);
}

}  // namespace

Answer solve_joint(const Problem &problem, const Options &options) {
    Answer answer;
    int fullest = fullest_base(problem);
    if (fullest >= 0 && problem.base[fullest] > problem.budget_pages) {
        answer.verdict = Verdict::infeasible;
    } else {
        solve_parts(problem, compile(problem), options, answer);
    }
    if (answer.verdict != Verdict::planned) {
        answer.smallest = solve_smallest(problem, options);
        answer.work += answer.smallest.work;
        // The two searches look differently: what one found the other may have missed.
        if (answer.verdict == Verdict::undecided && answer.smallest.bound_pages > problem.budget_pages)
            answer.verdict = Verdict::infeasible;
        if (answer.verdict == Verdict::undecided && answer.smallest.feasible_pages <= problem.budget_pages) {
            answer.verdict = Verdict::planned;
            report(problem, answer.smallest.plan, answer);
        }
        answer.binding = answer.smallest.binding;
    }
    return answer;
}

namespace {

// Runs `work` so that no exception leaves.
template <class T, class Function>
Result<T> guarded(const Problem &problem, Function function) noexcept {
    try {
        Status status = validate(problem);
        if (!status.ok()) return status;
        return function();
    } catch (const std::bad_alloc &) {
        return Status::error(REPRISE_OUT_OF_MEMORY,
                             "the planner ran out of memory for %zu instances: plan with fewer, or a smaller work limit",
                             problem.instances.size());
    } catch (...) {
        return Status::error(REPRISE_INTERNAL, "the planner met an unexpected exception; please report the plan's input");
    }
}

}  // namespace

Result<Answer> solve(const Problem &problem, const Options &options) noexcept {
    return guarded<Answer>(problem, [&] { return solve_joint(problem, options); });
}

Result<Answer> solve(const Problem &problem, Policy policy, const Options &options) noexcept {
    if (policy_name(policy) == nullptr)
        return Status::error(REPRISE_INVALID_ARGUMENT, "no policy has the number %d", static_cast<int>(policy));
    return guarded<Answer>(problem,
                           [&] { return policy == Policy::joint ? solve_joint(problem, options) : solve_rule(problem, policy, options); });
}

Result<SmallestBudget> smallest_budget(const Problem &problem, const Options &options) noexcept {
    return guarded<SmallestBudget>(problem, [&] { return solve_smallest(problem, options); });
}

Result<Evaluation> evaluate(const Problem &problem, const Plan &plan) noexcept {
    return guarded<Evaluation>(problem, [&]() -> Result<Evaluation> {
        if (plan.replay.size() != problem.instances.size() || plan.mechanism.size() != problem.windows.size())
            return Status::error(REPRISE_INVALID_ARGUMENT, "the plan decides about %zu instances and %zu windows, the job has %zu and %zu",
                                 plan.replay.size(), plan.mechanism.size(), problem.instances.size(), problem.windows.size());
        for (size_t w = 0; w < plan.mechanism.size(); w++)
            if (plan.mechanism[w] < 0 || plan.mechanism[w] >= static_cast<int32_t>(problem.windows[w].mechanisms.size()))
                return Status::error(REPRISE_INVALID_ARGUMENT, "the plan gives window %s mechanism %d, it has %zu",
                                     problem.windows[w].name.c_str(), plan.mechanism[w], problem.windows[w].mechanisms.size());
        return measure(problem, plan).exact;
    });
}

const char *policy_name(Policy policy) {
    switch (policy) {
        case Policy::joint:
            return "joint";
        case Policy::retain:
            return "retain";
        case Policy::whole:
            return "whole";
        case Policy::selective:
            return "selective";
        case Policy::fixed:
            return "fixed";
        case Policy::eager_whole:
            return "eager-whole";
        case Policy::greedy:
            return "greedy";
    }
    return nullptr;
}

const char *proof_name(Proof proof) { return proof == Proof::exact ? "exact" : proof == Proof::eps ? "eps" : "none"; }

const char *verdict_name(Verdict verdict) {
    return verdict == Verdict::planned ? "planned" : verdict == Verdict::infeasible ? "infeasible" : "undecided";
}

}  // namespace reprise::planner
