// One profile, one budget, one policy: the plan in the job's terms.
//
// The solver's windows end where their readers do, a shadow does not: once filled it lives on, so that no cycle pays for filling it. The
// problem without that memory is a relaxation (the same time, never more memory): its bound and its infeasibility hold for the job, and so
// does its plan when that fits with the shadows counted everywhere. Otherwise a few sets of buffers are tried that have a shadow all the
// time (in the base) while the others are copied whole; each of these is a problem for the solver again, and its plan is what it says.
#include "planner/plan_job.h"

#include <algorithm>
#include <map>
#include <new>
#include <numeric>

#include "planner/assemble.h"

namespace reprise::planner {

std::vector<uint8_t> shadows_used(const JobModel &model, const Plan &plan) {
    std::vector<uint8_t> used(model.kept_shadow.size(), 0);
    for (size_t w = 0; w < model.problem.windows.size(); w++) {
        const Window &window = model.problem.windows[w];
        if (window.mechanisms[static_cast<size_t>(plan.mechanism[w])].kind != Kind::selective) continue;
        for (int32_t reader : window.readers)
            if (plan.replay[static_cast<size_t>(reader)]) used[static_cast<size_t>(model.buffer_of[w])] = 1;
    }
    return used;
}

namespace {

// The problem in which the shadows of these buffers are there all the time, and no other buffer has one.
Problem with_shadows(const JobModel &model, const std::vector<uint8_t> &kept) {
    Problem out = model.problem;
    int64_t pages = 0;
    for (size_t b = 0; b < kept.size(); b++)
        if (kept[b]) pages += model.kept_shadow[b];
    for (int64_t &base : out.base) base += pages;
    for (size_t w = 0; w < out.windows.size(); w++) {
        std::vector<Mechanism> &mechanisms = out.windows[w].mechanisms;
        const bool keeps = kept[static_cast<size_t>(model.buffer_of[w])] != 0;
        // Selective mechanisms stand last: the numbers of the others stay what they are.
        while (!keeps && mechanisms.size() > 1 && mechanisms.back().kind == Kind::selective) mechanisms.pop_back();
        if (!keeps) continue;  // what is held for unchanged buffers, and counts where it is
        for (Mechanism &mechanism : mechanisms)
            if (mechanism.kind == Kind::selective) mechanism.elements[0].pages = 0;
    }
    return out;
}

struct Candidate {
    Plan plan;
    Evaluation truth;
    int64_t objective_ns = 0;
};

class JobPlanner {
  public:
    JobPlanner(const Profile &profile, int64_t budget_bytes, Policy policy, const Options &options)
        : profile_(profile), policy_(policy), options_(options), model_(model_of(profile, budget_bytes)) {}

    Result<JobPlan> plan() {
        JobPlan out;
        out.policy = policy_;
        out.shape = shape_of(profile_);
        out.budget_bytes = bytes_of(model_.problem.budget_pages);
        Result<Answer> retained = solve(model_.problem, Policy::retain, options_);
        if (!retained.ok()) return retained.status();
        Result<Evaluation> everything = evaluate_job(model_, retained.value().plan);
        if (!everything.ok()) return everything.status();
        out.retained_bytes = bytes_of(everything.value().peak_pages);
        Result<Answer> answer = solve(model_.problem, policy_, options_);
        if (!answer.ok()) return answer.status();
        work_ += answer.value().work;
        Status status = searches() ? search(answer.value(), out) : rule(answer.value(), out);
        if (!status.ok()) return status;
        fill(out);
        return out;
    }

    // Another profile's decisions in this one's numbers.
    Result<JobPlan> follow(const JobPlan &decisions) {
        Plan plan;
        for (size_t i = 0; i < profile_.instances.size(); i++) {
            const bool replay = decisions.instances[i].replay;
            if (!replay && profile_.instances[i].freedom == Freedom::replay)
                return Status::error(REPRISE_INVALID_ARGUMENT, "'%s' can only be replayed", profile_.instances[i].segment.c_str());
            plan.replay.push_back(replay ? 1 : 0);
        }
        std::map<std::string, std::vector<Kind>> kinds;  // of a buffer's windows, in their order
        for (const PlannedWindow &window : decisions.windows) kinds[window.buffer].push_back(window.kind);
        std::map<std::string, size_t> taken;
        for (size_t w = 0; w < model_.problem.windows.size(); w++) {
            const std::vector<Mechanism> &mechanisms = model_.problem.windows[w].mechanisms;
            auto chosen = mechanisms.begin();
            if (!model_.unchanged[w]) {
                const std::string &buffer = profile_.buffers[static_cast<size_t>(model_.buffer_of[w])].name;
                const size_t number = taken[buffer]++;
                const std::vector<Kind> &planned = kinds[buffer];
                chosen = std::find_if(mechanisms.begin(), mechanisms.end(),
                                      [&](const Mechanism &it) { return number < planned.size() && it.kind == planned[number]; });
            }
            if (chosen == mechanisms.end())
                return Status::error(REPRISE_INVALID_ARGUMENT, "'%s' is not in the plan", model_.problem.windows[w].name.c_str());
            plan.mechanism.push_back(static_cast<int32_t>(chosen - mechanisms.begin()));
        }
        if (Status status = consider(plan, best_); !status.ok()) return status;
        JobPlan out;
        out.policy = policy_;
        out.shape = decisions.shape;  // there were no differences
        out.budget_bytes = bytes_of(budget());
        out.verdict = best_.truth.peak_pages <= budget() ? Verdict::planned : Verdict::undecided;
        out.retained_bytes = decisions.retained_bytes;
        fill(out);
        return out;
    }

  private:
    // Policies that look for a plan within the budget; the others have one plan whatever the budget is.
    bool searches() const { return policy_ == Policy::joint || policy_ == Policy::eager_whole || policy_ == Policy::greedy; }
    int64_t budget() const { return model_.problem.budget_pages; }

    Status consider(const Plan &plan, Candidate &out) const {
        Result<Evaluation> truth = evaluate_job(model_, plan);
        if (!truth.ok()) return truth.status();
        out.plan = plan;
        out.truth = std::move(truth.value());
        out.objective_ns = measure(model_.problem, plan).grid_time_ns;
        return {};
    }

    Status rule(const Answer &answer, JobPlan &out) {
        if (Status status = consider(answer.plan, best_); !status.ok()) return status;
        const int64_t peak = best_.truth.peak_pages;
        out.verdict = peak <= budget() ? Verdict::planned : Verdict::infeasible;
        out.smallest_bytes = out.smallest_bound_bytes = bytes_of(peak);
        return {};
    }

    // The better of two: one that fits, then the faster, then the lower; of those that do not fit the lower, then the faster.
    bool better(const Candidate &a, const Candidate &b) const {
        const bool a_fits = a.truth.peak_pages <= budget(), b_fits = b.truth.peak_pages <= budget();
        if (a_fits != b_fits) return a_fits;
        auto key = [&](const Candidate &it) {
            return a_fits ? std::pair{it.objective_ns, it.truth.peak_pages} : std::pair{it.truth.peak_pages, it.objective_ns};
        };
        return key(a) < key(b);
    }

    // Keeps the answer's plan if it is better than what there is.
    Status offer(const Answer &answer, bool &improved) {
        const bool planned = answer.verdict == Verdict::planned || !answer.plan.replay.empty();
        const Plan &plan = planned ? answer.plan : answer.smallest.plan;
        improved = false;
        if (plan.replay.size() != model_.problem.instances.size()) return {};
        Candidate candidate;
        if (Status status = consider(plan, candidate); !status.ok()) return status;
        if (any_ && !better(candidate, best_)) return {};
        best_ = std::move(candidate);
        any_ = improved = true;
        return {};
    }

    Status try_shadows(const std::vector<uint8_t> &kept, bool &improved) {
        improved = false;
        Options options = options_;
        options.work /= 4;
        options.explain = false;
        Result<Answer> answer = solve(with_shadows(model_, kept), policy_, options);
        if (!answer.ok()) return {};  // memory beyond the planner's range: no candidate
        work_ += answer.value().work;
        return offer(answer.value(), improved);
    }

    // Sets of buffers with a shadow: the ones the relaxation wants, none, and the former without single ones, largest first.
    Status repair(const std::vector<uint8_t> &wanted) {
        constexpr size_t kMostTries = 8;
        bool improved = false;
        std::vector<uint8_t> kept = wanted;
        if (Status status = try_shadows(kept, improved); !status.ok()) return status;
        if (Status status = try_shadows(std::vector<uint8_t>(wanted.size(), 0), improved); !status.ok()) return status;
        std::vector<size_t> order;
        for (size_t b = 0; b < wanted.size(); b++)
            if (wanted[b]) order.push_back(b);
        if (order.size() < 2) return {};
        std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return model_.kept_shadow[a] > model_.kept_shadow[b]; });
        for (size_t k = 0; k < order.size() && k < kMostTries; k++) {
            std::vector<uint8_t> without = kept;
            without[order[k]] = 0;
            if (Status status = try_shadows(without, improved); !status.ok()) return status;
            if (improved) kept = std::move(without);
        }
        return {};
    }

    Status search(const Answer &answer, JobPlan &out) {
        bool improved = false;
        if (Status status = offer(answer, improved); !status.ok()) return status;
        const bool planned = answer.verdict == Verdict::planned;
        const int64_t hoped = planned ? budget() : answer.smallest.feasible_pages;
        if (any_ && best_.truth.peak_pages > hoped)
            if (Status status = repair(shadows_used(model_, best_.plan)); !status.ok()) return status;
        if (!any_) return Status::error(REPRISE_INTERNAL, "the planner found no plan at all for %zu instances", profile_.instances.size());
        const bool fits = best_.truth.peak_pages <= budget();
        out.verdict = fits ? Verdict::planned : answer.verdict == Verdict::infeasible ? Verdict::infeasible : Verdict::undecided;
        binding_ = planned ? answer.binding : answer.smallest.binding;
        if (policy_ == Policy::greedy) return greedy_end(fits, out);
        if (fits && planned) {
            out.bound_ns = std::min(answer.bound_ns, best_.objective_ns);
            const int64_t gap = best_.objective_ns - out.bound_ns;
            const bool within = gap <= best_.objective_ns / 1'000'000 * options_.tolerance_ppm;
            out.proof = gap == 0 ? Proof::exact : within ? Proof::eps : Proof::none;
        }
        return smallest(answer, fits, out);
    }

    // A rule again, which has no smaller plan than the one with which it begins.
    Status greedy_end(bool fits, JobPlan &out) {
        out.verdict = fits ? Verdict::planned : Verdict::infeasible;
        if (!fits) out.smallest_bytes = out.smallest_bound_bytes = bytes_of(best_.truth.peak_pages);
        return {};
    }

    Status smallest(const Answer &answer, bool fits, JobPlan &out) {
        if (answer.verdict != Verdict::planned) {
            out.smallest_bytes = bytes_of(best_.truth.peak_pages);
            out.smallest_bound_bytes = bytes_of(std::min(answer.smallest.bound_pages, best_.truth.peak_pages));
            return {};
        }
        constexpr uint64_t kCheap = 20'000'000;
        if (fits && (!options_.explain || policy_ != Policy::joint || profile_.instances.size() > 400)) return {};
        Options options = options_;
        if (fits) options.work = std::min(options.work, kCheap);
        Result<SmallestBudget> least = smallest_budget(model_.problem, options);
        if (!least.ok()) return {};
        work_ += least.value().work;
        Candidate candidate;
        if (Status status = consider(least.value().plan, candidate); !status.ok()) return status;
        int64_t found = std::min(candidate.truth.peak_pages, best_.truth.peak_pages);
        if (!fits && found == candidate.truth.peak_pages) best_ = std::move(candidate);
        if (!fits) binding_ = least.value().binding;
        out.smallest_bytes = bytes_of(found);
        out.smallest_bound_bytes = bytes_of(std::min(found, least.value().bound_pages));
        if (!fits && found <= budget()) out.verdict = Verdict::planned;
        return {};
    }

    bool written_between(const ProfileBuffer &buffer, int32_t begin, int32_t end) const {
        return std::any_of(buffer.writes.begin(), buffer.writes.end(), [&](const BufferWrite &write) {
            if (write.slot < begin || write.slot >= end) return false;
            return std::any_of(write.pages.begin(), write.pages.end(),
                               [&](const PageRun &run) { return run.begin < run.end && run.begin < pages_up(buffer.bytes); });
        });
    }

    void fill(JobPlan &out) {
        const Plan &plan = best_.plan;
        out.added_ns = best_.objective_ns;
        out.peak_bytes = bytes_of(best_.truth.peak_pages);
        out.peak_slot = best_.truth.peak_slot;
        out.work = work_;
        for (int64_t pages : best_.truth.memory) out.memory_bytes.push_back(bytes_of(pages));
        for (size_t i = 0; i < profile_.instances.size(); i++) {
            const ProfileInstance &it = profile_.instances[i];
            out.instances.push_back(
                {it.segment, it.ordinal, plan.replay[i] != 0, it.keep_bytes, it.replay_ns + it.overhead_ns, "", it.measured_keep_bytes});
        }
        auto forward = [&](int32_t i) { return profile_.instances[static_cast<size_t>(i)].forward_begin; };
        for (size_t w = 0; w < model_.problem.windows.size(); w++) {
            if (model_.unchanged[w]) continue;
            const Window &window = model_.problem.windows[w];
            const Mechanism &mechanism = window.mechanisms[static_cast<size_t>(plan.mechanism[w])];
            const ProfileBuffer &buffer = profile_.buffers[static_cast<size_t>(model_.buffer_of[w])];
            PlannedWindow &planned = out.windows.emplace_back();
            planned.buffer = buffer.name;
            planned.bytes = buffer.bytes;
            planned.kind = mechanism.kind;
            planned.mechanism = mechanism.name;
            for (int32_t reader : window.readers)
                if (plan.replay[static_cast<size_t>(reader)]) planned.readers.push_back(reader);
            std::sort(planned.readers.begin(), planned.readers.end(), [&](int32_t a, int32_t b) { return forward(a) < forward(b); });
            for (size_t k = 0; k < planned.readers.size(); k++)
                planned.unchanged.push_back(k > 0 &&
                                            !written_between(buffer, forward(planned.readers[k - 1]), forward(planned.readers[k])));
        }
        explain_plan(profile_, model_, plan, binding_, out);
    }

    const Profile &profile_;
    Policy policy_;
    Options options_;
    JobModel model_;
    Candidate best_;
    bool any_ = false;
    std::vector<Binding> binding_;
    uint64_t work_ = 0;
};

}  // namespace

Result<Evaluation> evaluate_job(const JobModel &model, const Plan &plan) {
    Result<Evaluation> out = evaluate(model.problem, plan);
    if (!out.ok()) return out;
    Evaluation &truth = out.value();
    std::vector<uint8_t> kept = shadows_used(model, plan);
    std::vector<int64_t> missing(truth.memory.size(), 0);
    for (size_t b = 0; b < kept.size(); b++)
        if (kept[b])
            for (int64_t &pages : missing) pages += model.kept_shadow[b];
    // Where the solver has counted a shadow, it is there already. Windows of one buffer do not overlap.
    std::vector<int64_t> change(missing.size() + 1, 0);
    std::vector<std::pair<int32_t, int32_t>> alive;
    for (size_t w = 0; w < model.problem.windows.size(); w++) {
        const Window &window = model.problem.windows[w];
        const Mechanism &mechanism = window.mechanisms[static_cast<size_t>(plan.mechanism[w])];
        if (mechanism.kind != Kind::selective) continue;
        alive.clear();
        for (const Use &use : mechanism.elements[0].uses)
            if (plan.replay[static_cast<size_t>(use.instance)]) alive.emplace_back(use.begin, use.end);
        std::sort(alive.begin(), alive.end());
        int32_t covered = 0;
        for (auto [begin, end] : alive) {
            begin = std::max(begin, covered);
            if (begin >= end) continue;
            change[static_cast<size_t>(begin)] -= mechanism.elements[0].pages;
            change[static_cast<size_t>(end)] += mechanism.elements[0].pages;
            covered = end;
        }
    }
    std::partial_sum(change.begin(), change.end(), change.begin());
    for (size_t t = 0; t < missing.size(); t++) missing[t] += change[t];
    for (size_t t = 0; t < missing.size(); t++) {
        truth.memory[t] += missing[t];
        if (t == 0 || truth.memory[t] > truth.peak_pages) {
            truth.peak_pages = truth.memory[t];
            truth.peak_slot = static_cast<int32_t>(t);
        }
    }
    return out;
}

namespace {

// No exception leaves.
template <class Make>
Result<JobPlan> guarded(const Profile &profile, Make make) noexcept {
    try {
        if (Status status = validate(profile); !status.ok()) return status;
        return make();
    } catch (const std::bad_alloc &) {
        return Status::error(REPRISE_OUT_OF_MEMORY, "there is not enough memory to plan %zu instances", profile.instances.size());
    } catch (...) {
        return Status::error(REPRISE_INTERNAL, "planning met an unexpected exception; please report the profile");
    }
}

}  // namespace

Result<JobPlan> plan_job(const Profile &profile, int64_t budget_bytes, Policy policy, const Options &options) noexcept {
    return guarded(profile, [&]() -> Result<JobPlan> {
        if (policy_name(policy) == nullptr)
            return Status::error(REPRISE_INVALID_ARGUMENT, "no policy has the number %d", static_cast<int>(policy));
        return JobPlanner(profile, budget_bytes, policy, options).plan();
    });
}

Result<JobPlan> follow_plan(const JobPlan &decisions, const Profile &profile, int64_t budget_bytes) noexcept {
    return guarded(profile, [&]() -> Result<JobPlan> {
        if (const auto different = differences(decisions, profile, 1); !different.empty())
            return Status::error(REPRISE_INVALID_ARGUMENT, "%s", different.front().c_str());
        return JobPlanner(profile, budget_bytes, decisions.policy, job_options()).follow(decisions);
    });
}

}  // namespace reprise::planner
