// The plan in force against what happens.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "planner/profile_json.h"
#include "policy/log.h"
#include "policy/planning.h"

namespace reprise {
namespace {

// A plan whose peak is off by more than one part in so many is made again ...
constexpr int64_t kTolerance = 100;
// ... at most so many times in a row.
constexpr unsigned kMostCorrections = 5;
// ... of which only the first lower what the plan counts on: memory that comes and goes with the decisions themselves would have them
// swing.
constexpr unsigned kDownwards = 2;
// Cycles in a row that were as planned, before a job counts as one whose memory does not vary.
constexpr unsigned kAtRest = 16;
// Cycles of another order, alike, before the plan is dropped for them.
constexpr unsigned kStrangeCycles = 2;

}  // namespace

// Events of retained instances' replays never come, so what is seen are stretches of one slot or more.
void Planning::follow(EventKind kind, const Instance &instance) {
    if (const CycleEvent *slot = cycle_->last_slot()) {
        since_last_event_ = std::max(since_last_event_, slot->most_bytes);
        needed_since_ = std::max(needed_since_, slot->most_needed);
        counts_.peak_bytes = std::max(counts_.peak_bytes, slot->most_bytes);
    }
    if (instance.planned < 0) return;
    const int32_t event = adopted_->event_of(instance.planned, kind);
    if (last_event_ >= 0 && event > last_event_ && static_cast<size_t>(event) <= adopted_->plan.memory_bytes.size()) {
        const Seen &seen =
            seen_.emplace_back(Seen{last_event_, event, static_cast<int64_t>(since_last_event_), static_cast<int64_t>(needed_since_)});
        deviation_ = seen.needed - planned_in(seen);
        if (seen_.size() == 1) first_deviation_ = deviation_;
    }
    last_event_ = event;
    since_last_event_ = needed_since_ = 0;
}

int64_t Planning::planned_in(const Seen &seen) const {
    const auto &memory = adopted_->plan.memory_bytes;
    return *std::max_element(memory.begin() + seen.begin, memory.begin() + seen.end);
}

void Planning::compare_cycle(uint64_t step) {
    if (last_event_ >= 0 && !cycle_->events().empty()) {  // the stretch after the last event
        since_last_event_ = std::max(since_last_event_, cycle_->events().back().most_bytes);
        needed_since_ = std::max(needed_since_, cycle_->events().back().most_needed);
        counts_.peak_bytes = std::max(counts_.peak_bytes, since_last_event_);
        const auto slots = static_cast<int32_t>(adopted_->plan.memory_bytes.size());
        if (last_event_ < slots) {
            seen_.push_back({last_event_, slots, static_cast<int64_t>(since_last_event_), static_cast<int64_t>(needed_since_)});
        }
    }
    if (records_.wanted()) record_timeline(step);
    if (grouped_) return;  // a rank does not change its mind alone
    const uint64_t order = cycle_->order();
    if (order != adopted_->order) {
        strange_cycles_ = order == strange_order_ ? strange_cycles_ + 1 : 1;
        strange_order_ = order;
        if (strange_cycles_ >= kStrangeCycles) {
            std::string why = format("other segments run than those it was made for (%zu forwards instead of %zu)",
                                     cycle_->instances().size(), adopted_->profile.instances.size());
            for (const CycleInstance &instance : cycle_->instances()) {
                if (adopted_->find(instance.segment, instance.ordinal) >= 0) continue;
                why += format(", first '%s' (number %d)", instance.segment.c_str(), instance.ordinal + 1);
                break;
            }
            measure_again(why);
        }
        return;
    }
    strange_cycles_ = 0;
    if (!remeasure_.empty()) return measure_again(remeasure_);
    // In its first cycle what the plan before it held goes, and what this one holds comes: neither is this plan's memory.
    if (std::exchange(first_under_plan_, false)) {
        first_deviation_ = 0;
        return;
    }
    if (worker_ || policy_ == planner::Policy::retain || seen_.empty()) return;
    int64_t needed = 0, planned = 0;
    for (const Seen &seen : seen_) {
        // What could have gone and has not, though there was no room for it, was in the way all the same.
        needed = std::max(needed, seen.actual > static_cast<int64_t>(budget_) ? seen.actual : seen.needed);
        planned = std::max(planned, planned_in(seen));
    }
    const int64_t off = needed > planned ? needed - planned : planned - needed;
    if (off * kTolerance <= planned && denied_ == 0) {
        if (++right_ >= kAtRest) corrections_ = 0;
        return;
    }
    right_ = 0;
    if (corrections_ >= kMostCorrections) return;
    if (++corrections_ == kMostCorrections) {
        const double percent = 100.0 * static_cast<double>(off) / static_cast<double>(planned);
        log_line(LogLevel::kWarn,
                 follows_pinned_
                     ? format("this job's peak is off that of REPRISE_PLAN by %.1f %%, %u times in a row: forwards are retained only while "
                              "there is room; have the plan made again (REPRISE_SAVE_PLAN)",
                              percent, corrections_)
                     : format("the plan's peak is off by %.1f %% after %u corrections: this job's memory varies from step to step; "
                              "forwards are retained only while there is room",
                              percent, corrections_));
    }
    if (!follows_pinned_) correct();
}

// The same problem with the memory that was really used. What was denied was not kept as planned, but recomputed.
void Planning::correct() {
    planner::Profile profile = adopted_->profile;
    std::vector<int64_t> instead(profile.base_bytes.size());
    auto add = [&](int32_t begin, int32_t end, int64_t bytes) {
        for (int32_t slot = begin; slot < end; ++slot) instead[static_cast<size_t>(slot)] += bytes;
    };
    for (int32_t denied : denied_planned_) {
        const planner::ProfileInstance &of = profile.instances[static_cast<size_t>(denied)];
        add(of.forward_end, of.replay_end, -of.keep_bytes);
        add(of.replay_begin, of.replay_end, of.transient_bytes);
    }
    // What is kept of an instance is measured in its replay, which may still hold at its end what its backward does not need (a program
    // that frees its scratch after the segment). A forward that was retained left that and its results, and the results may have to be kept
    // as well: it bounds what was measured, and says no more.
    for (const CycleInstance &seen : cycle_->instances()) {
        const int32_t planned = adopted_->find(seen.segment, seen.ordinal);
        if (planned < 0 || !seen.retained || seen.events[static_cast<size_t>(EventKind::kForwardEnd)] < 0) continue;
        planner::ProfileInstance &of = profile.instances[static_cast<size_t>(planned)];
        const int64_t keep = std::clamp<int64_t>(cycle_->left_by_forward(seen), 0, of.keep_bytes);
        if (keep == of.keep_bytes) continue;
        add(of.forward_end, of.replay_end, keep - of.keep_bytes);
        if (of.measured_keep_bytes == 0) of.measured_keep_bytes = of.keep_bytes;
        of.keep_bytes = keep;
    }
    for (const Seen &seen : seen_) {
        const auto end = std::min(static_cast<size_t>(seen.end), profile.base_bytes.size());
        int64_t planned = 0;
        for (auto slot = static_cast<size_t>(seen.begin); slot < end; ++slot)
            planned = std::max(planned, adopted_->plan.memory_bytes[slot] + instead[slot]);
        const int64_t more = seen.needed - planned;
        if (more < 0 && corrections_ > kDownwards) continue;
        for (auto slot = static_cast<size_t>(seen.begin); slot < end; ++slot)
            profile.base_bytes[slot] = std::max<int64_t>(0, profile.base_bytes[slot] + more);
    }
    PlanRequest request;
    request.profile = std::move(profile);
    send(std::move(request), adopted_->order);
}

void Planning::record_timeline(uint64_t step) {
    nlohmann::json line = {
        {"schema", "reprise.timeline/1"}, {"run", records_.run()}, {"step", step}, {"cycle", counts_.cycles}, {"budget", budget_},
        {"retained", retained_},          {"denied", denied_}};
    line["shape"] = format("%016llx", static_cast<unsigned long long>(adopted_->order));
    if (order_recorded_ != adopted_->order) {
        order_recorded_ = adopted_->order;
        line["events"] = nlohmann::json(planner::events_of(adopted_->profile));
    }
    const auto &memory = adopted_->plan.memory_bytes;
    line["planned"] = memory;
    std::vector<int64_t> actual(memory.size(), -1);
    for (const Seen &seen : seen_) {
        auto most = std::max_element(memory.begin() + seen.begin, memory.begin() + seen.end);
        actual[static_cast<size_t>(most - memory.begin())] = seen.actual;
    }
    line["actual"] = actual;
    records_.write(line);
}

}  // namespace reprise
