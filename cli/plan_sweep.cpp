#include "cli/plan_sweep.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <thread>

#include "allocator/base/types.h"
#include "cli/text.h"
#include "planner/plan_json.h"

namespace reprise::cli {

using planner::JobPlan;
using planner::Policy;

namespace {

constexpr size_t kBudgets = 12;

// From the least to everything retained, evenly.
std::vector<int64_t> between(int64_t least, int64_t most) {
    constexpr auto kPage = static_cast<int64_t>(kPageSize);
    std::vector<int64_t> out = {least};
    for (size_t k = 1; k < kBudgets && most > least; k++) {
        const auto share = static_cast<int64_t>(k), last = static_cast<int64_t>(kBudgets - 1);
        const int64_t budget = share == last ? most : (least + (most - least) / last * share) / kPage * kPage;
        if (budget > out.back()) out.push_back(budget);
    }
    return out;
}

// Says how far it is, on stderr, when it takes long.
class Progress {
  public:
    void show(size_t done, size_t all) {
        const auto now = std::chrono::steady_clock::now();
        if (done == all || now - shown_ < (terminal_ ? std::chrono::seconds(1) : std::chrono::seconds(10))) return;
        shown_ = now;
        fprintf(stderr, terminal_ ? "\rreprise plan: %zu of %zu plans " : "reprise plan: %zu of %zu plans\n", done, all);
        used_ = true;
    }
    ~Progress() {
        if (used_ && terminal_) fprintf(stderr, "\r%40s\r", "");
    }

  private:
    bool terminal_ = isatty(2) == 1, used_ = false;
    std::chrono::steady_clock::time_point shown_ = std::chrono::steady_clock::now();
};

}  // namespace

std::vector<Policy> compared_with(Policy policy) {
    std::vector<Policy> out = {policy};
    for (Policy other : {Policy::joint, Policy::eager_whole, Policy::greedy, Policy::selective, Policy::whole, Policy::retain})
        if (other != policy) out.push_back(other);
    return out;
}

std::string sweep_budgets(const planner::Profile &profile, std::vector<int64_t> budgets, const std::vector<Policy> &policies, Sweep *out) {
    out->policies = policies;
    Result<JobPlan> least = planner::plan_job(profile, 0, policies.front(), planner::job_options());
    if (!least.ok()) return least.status().text();
    out->least = std::move(least.value());
    if (budgets.empty()) budgets = between(out->least.smallest_bytes, std::max(out->least.smallest_bytes, out->least.retained_bytes));
    std::sort(budgets.begin(), budgets.end());
    budgets.erase(std::unique(budgets.begin(), budgets.end()), budgets.end());
    out->budgets = budgets;
    out->plans.assign(policies.size(), std::vector<JobPlan>(budgets.size()));

    const size_t all = policies.size() * budgets.size();
    std::atomic<size_t> next{0}, done{0};
    std::mutex mutex;
    std::condition_variable ended;
    std::string problem;
    const auto work = [&] {
        for (size_t task = next++; task < all; task = next++) {
            const size_t p = task % policies.size(), b = task / policies.size();
            Result<JobPlan> plan = planner::plan_job(profile, budgets[b], policies[p], planner::job_options());
            if (plan.ok()) {
                out->plans[p][b] = std::move(plan.value());
            } else {
                const std::lock_guard<std::mutex> lock(mutex);
                if (problem.empty()) problem = plan.status().text();
            }
            if (++done == all) {
                const std::lock_guard<std::mutex> lock(mutex);
                ended.notify_all();
            }
        }
    };
    std::vector<std::thread> threads;
    for (size_t k = 0; k < std::min<size_t>(std::max(1u, std::thread::hardware_concurrency()), all); k++) threads.emplace_back(work);
    {
        Progress progress;
        std::unique_lock<std::mutex> lock(mutex);
        while (!ended.wait_for(lock, std::chrono::milliseconds(200), [&] { return done == all; })) progress.show(done, all);
    }
    for (std::thread &thread : threads) thread.join();
    return problem;
}

uint64_t replayed(const JobPlan &plan) {
    return static_cast<uint64_t>(std::count_if(plan.instances.begin(), plan.instances.end(), [](const auto &it) { return it.replay; }));
}

bool fits(const JobPlan &plan) { return plan.verdict == planner::Verdict::planned; }

Json sweep_json(const planner::Profile &profile, const Sweep &sweep, bool whole_plans) {
    Json out = {{"schema", "reprise.sweep/1"},
                {"run", profile.run},
                {"step", profile.step},
                {"forwards", profile.instances.size()},
                {"shape", format("%016llx", static_cast<unsigned long long>(sweep.least.shape))},
                {"retained_bytes", sweep.least.retained_bytes},
                {"smallest_bytes", sweep.least.smallest_bytes},
                {"smallest_bound_bytes", sweep.least.smallest_bound_bytes},
                {"smallest_binding", sweep.least.binding},
                {"unseen_bytes", profile.unseen_bytes},
                {"policies", Json::array()},
                {"budgets", Json::array()}};
    for (Policy policy : sweep.policies) out["policies"].push_back(planner::policy_name(policy));
    for (size_t b = 0; b < sweep.budgets.size(); b++) {
        Json entry = {{"budget_bytes", sweep.budgets[b]}, {"plans", Json::object()}};
        for (size_t p = 0; p < sweep.policies.size(); p++) {
            const JobPlan &plan = sweep.plan(p, b);
            Json &one = entry["plans"][planner::policy_name(sweep.policies[p])];
            one = {{"verdict", planner::verdict_name(plan.verdict)},
                   {"proof", planner::proof_name(plan.proof)},
                   {"added_ns", plan.added_ns},
                   {"bound_ns", plan.bound_ns},
                   {"peak_bytes", plan.peak_bytes},
                   {"retained", plan.instances.size() - replayed(plan)},
                   {"replayed", replayed(plan)},
                   {"work", plan.work}};
            if (p == 0) one["binding"] = plan.binding;
            if (p == 0 && whole_plans) one["plan"] = Json::parse(planner::write_plan(plan), nullptr, false);
        }
        out["budgets"].push_back(std::move(entry));
    }
    return out;
}

}  // namespace reprise::cli
