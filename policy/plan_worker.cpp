#include "policy/plan_worker.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "planner/plan_json.h"
#include "planner/profile_json.h"
#include "policy/clock.h"
#include "policy/rank_group.h"

namespace reprise {
namespace {

int64_t middle(std::vector<int64_t> &values) {
    std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2), values.end());
    return values[values.size() / 2];
}

// Memory as in the last cycle, or the most in any where they are event for event the same; times are medians.
planner::Profile profile_of(const std::vector<std::unique_ptr<Cycle>> &cycles, const planner::Profile &about) {
    std::vector<planner::Profile> all;
    for (const auto &cycle : cycles) all.push_back(cycle->profile());
    planner::Profile profile = std::move(all.back());
    all.pop_back();
    profile.run = about.run;
    profile.step = about.step;
    profile.unseen_bytes = about.unseen_bytes;
    std::erase_if(all, [&](const planner::Profile &other) { return other.instances.size() != profile.instances.size(); });
    profile.cycles = static_cast<uint32_t>(all.size()) + 1;
    for (const planner::Profile &other : all) {
        if (other.base_bytes.size() != profile.base_bytes.size()) continue;
        for (size_t slot = 0; slot < profile.base_bytes.size(); ++slot) {
            profile.base_bytes[slot] = std::max(profile.base_bytes[slot], other.base_bytes[slot]);
        }
    }
    auto median = [&](size_t i, int64_t planner::ProfileInstance::*member) {
        std::vector<int64_t> values{profile.instances[i].*member};
        for (const planner::Profile &other : all) values.push_back(other.instances[i].*member);
        profile.instances[i].*member = middle(values);
    };
    for (size_t i = 0; i < profile.instances.size(); ++i) {
        median(i, &planner::ProfileInstance::forward_ns);
        median(i, &planner::ProfileInstance::replay_ns);
        median(i, &planner::ProfileInstance::overhead_ns);
    }
    return profile;
}

bool merge(const std::vector<std::string> &texts, planner::Profile *profile, std::string *why) {
    std::vector<planner::Profile> members;
    for (const std::string &text : texts) {
        auto member = planner::read_profile(text);
        if (!member.ok()) {
            *why = member.status().text();
            return false;
        }
        members.push_back(std::move(member.value()));
    }
    const std::string run = profile->run;
    const uint64_t step = profile->step;
    if (worst_of(members, profile, why)) {
        profile->run = run;
        profile->step = step;
        return true;
    }
    *why = "the ranks do not measure the same events: " + *why;
    return false;
}

}  // namespace

PlanWorker::PlanWorker(const AllocatorPort &port, PlanRequest request) : shared_(std::make_shared<Shared>()) {
    shared_->port = &port;
    shared_->request = std::move(request);
    auto *held = new std::shared_ptr<Shared>(shared_);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread{};
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    started_ = pthread_create(&thread, &attributes, run, held) == 0;
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (!started_) delete held;
}

void *PlanWorker::run(void *held) {
    const std::unique_ptr<std::shared_ptr<Shared>> mine(static_cast<std::shared_ptr<Shared> *>(held));
    Shared &shared = **mine;
    try {
        work(shared);
    } catch (const std::exception &error) {
        shared.result.error = error.what();
    }
    shared.done.store(true, std::memory_order_release);
    return nullptr;
}

void PlanWorker::work(Shared &shared) {
    const uint64_t began = now_ns();
    PlanRequest &request = shared.request;
    Result &result = shared.result;
    result.asked = request.ask;
    planner::Profile &profile = request.profile;
    if (!request.cycles.empty()) profile = profile_of(request.cycles, profile);
    request.cycles.clear();
    if (request.members.empty()) {
        profile.costs = request.costs.refine(CostMeter::measure(*shared.port, request.costs.watches(), request.cost_cache));
    } else if (!merge(request.members, &profile, &result.error)) {
        return;
    }
    switch (request.ask) {
        case PlanAsk::kProfile:
            result.profile_text = planner::write_profile(profile);
            break;
        case PlanAsk::kFirstGuess:
            if (auto found = request.cache.find(&profile, request.budget_bytes)) result.plan = std::move(*found);
            break;
        case PlanAsk::kPlan:
            if (auto plan = planner::plan_job(profile, request.budget_bytes, request.policy, planner::job_options()); plan.ok()) {
                result.plan = std::move(plan.value());
                request.cache.keep(result.plan);
            } else {
                result.error = plan.status().text();
            }
            break;
    }
    if (request.texts && !result.plan.instances.empty()) {
        result.profile_text = planner::write_profile(profile);
        result.plan_text = planner::write_plan(result.plan, profile.run, profile.step);
    }
    result.profile = std::move(profile);
    result.nanoseconds = elapsed_ns(began);
}

std::unique_ptr<PlanWorker::Result> PlanWorker::take() {
    if (!shared_->done.load(std::memory_order_acquire)) return nullptr;
    return std::make_unique<Result>(std::move(shared_->result));
}

}  // namespace reprise
