#include "policy/plan_cache.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>

#include "planner/plan_json.h"
#include "policy/log.h"
#include "policy/machine_cache.h"
#include "policy/text_file.h"

namespace reprise {
namespace {

// Plans of so many jobs are kept ...
constexpr size_t kMostPlans = 64;
// ... and each for so long: times that were measured once, perhaps on a bad day, do not decide for ever.
constexpr time_t kOldest = time_t{7} * 24 * 60 * 60;
// What a share of memory comes to, and what instances keep, differ a little from run to run: by one part in so many. More is another
// batch.
constexpr int64_t kSameShare = 100;
// A plan's memory may have been corrected by one part in so many.
constexpr int64_t kMostCorrected = 10;

int64_t off(int64_t a, int64_t b) { return a > b ? a - b : b - a; }

}  // namespace

PlanCache PlanCache::made(const Config &config) {
    PlanCache cache;
    if (!config.plan_cache) return cache;
    cache.prefix_ = machine_file("plan");
    // Another number when what is decided about changes, or what it costs: old plans are none then.
    cache.suffix_ = format("-3-%s-", to_string(config.policy));
    if (config.budget.bytes != 0) {
        cache.suffix_ += format("%llu", static_cast<unsigned long long>(config.budget.bytes));
    } else {
        cache.suffix_ += config.budget.automatic ? "auto" : format("%g%%", config.budget.share * 100);
    }
    return cache;
}

std::string PlanCache::path_for(uint64_t shape) const {
    return prefix_ + format("-%016llx", static_cast<unsigned long long>(shape)) + suffix_;
}

bool PlanCache::known(const planner::Profile &profile) const {
    struct stat status {};
    if (prefix_.empty() || profile.instances.empty()) return false;
    return stat(path_for(planner::shape_of(profile)).c_str(), &status) == 0 && status.st_mtime > time(nullptr) - kOldest;
}

std::optional<planner::JobPlan> PlanCache::find(planner::Profile *profile, int64_t budget_bytes) const {
    if (prefix_.empty()) return {};
    std::string text, why;
    if (!read_text_file(path_for(planner::shape_of(*profile)), &text, &why)) return {};
    const auto file = planner::read_plan(text);
    if (!file.ok()) return {};
    const planner::JobPlan &before = file.value();
    if (off(before.budget_bytes, budget_bytes) > budget_bytes / kSameShare) return {};
    auto plan = planner::follow_plan(before, *profile, budget_bytes);
    if (!plan.ok() || before.memory_bytes.size() != profile->base_bytes.size()) return {};
    const bool sound = std::all_of(before.memory_bytes.begin(), before.memory_bytes.end(),
                                   [&](int64_t bytes) { return bytes >= 0 && bytes <= before.peak_bytes; });
    if (!sound) return {};
    int64_t kept_more = 0, kept_all = 0;
    for (size_t i = 0; i < before.instances.size(); ++i) {
        const planner::PlannedInstance &then = before.instances[i];
        const int64_t keep = profile->instances[i].keep_bytes;
        kept_more += off(then.measured_keep_bytes != 0 ? then.measured_keep_bytes : then.keep_bytes, keep);
        kept_all += keep;
    }
    if (kept_more > kept_all / kSameShare) return {};
    // What the earlier run found out: what keeping takes, and what its memory was under that plan.
    for (size_t i = 0; i < before.instances.size(); ++i) {
        planner::ProfileInstance &now = profile->instances[i];
        if (before.instances[i].measured_keep_bytes == 0) continue;
        now.measured_keep_bytes = now.keep_bytes;
        now.keep_bytes = std::clamp<int64_t>(before.instances[i].keep_bytes, 0, now.keep_bytes);
    }
    plan = planner::follow_plan(before, *profile, budget_bytes);
    if (!plan.ok()) return {};
    if (off(before.peak_bytes, plan.value().peak_bytes) > before.peak_bytes / kMostCorrected) return {};
    for (size_t slot = 0; slot < profile->base_bytes.size(); ++slot) {
        int64_t &base = profile->base_bytes[slot];
        base = std::max<int64_t>(0, base + before.memory_bytes[slot] - plan.value().memory_bytes[slot]);
    }
    plan = planner::follow_plan(before, *profile, budget_bytes);
    if (!plan.ok() || plan.value().verdict != planner::Verdict::planned) return {};
    return std::move(plan.value());
}

void PlanCache::keep(const planner::JobPlan &plan) const {
    if (prefix_.empty() || plan.verdict != planner::Verdict::planned) return;
    write_machine_file(path_for(plan.shape), planner::write_plan(plan));
    prune_machine_files(prefix_, kMostPlans);
}

}  // namespace reprise
