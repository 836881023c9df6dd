#include "policy/planning.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "planner/plan_json.h"
#include "policy/clock.h"
#include "policy/log.h"
#include "policy/text_file.h"

namespace reprise {
namespace {

// The first cycles allocate what later ones find there (optimizer state, caches) and calibrate.
constexpr uint64_t kWarmUp = 2;
// Cycles of one order that make a profile: times are medians of them.
constexpr size_t kAlike = 3;
// ... and that show whether a plan from a file fits.
constexpr size_t kAlikePinned = 2;
// Times that a buffer which begins to change has the job measured again.
constexpr size_t kMostRemeasured = 16;
// Steps that may make one cycle together.
constexpr size_t kMostParts = 4;
// Cycles that an earlier run's plan is looked for: steps that alternate are known to be one cycle only after some.
constexpr unsigned kMostGuesses = 4 * kMostParts;
// A job that has not settled after so many is told so.
constexpr unsigned kUnsettled = 32;
// The budget less this is planned for: what the ledger is told late (allocator/heap_table.h), and noise.
constexpr uint64_t kMargin = uint64_t{1} << 20;
constexpr uint64_t kMarginShare = 1000;
uint64_t margin_of(uint64_t budget) { return std::min(budget / 4, kMargin + budget / kMarginShare); }

// A budget that can be given: what is planned for, its margin, and whole MiB.
uint64_t mib_with_margin(int64_t planned) {
    constexpr uint64_t kMiB = uint64_t{1} << 20;
    uint64_t budget = (static_cast<uint64_t>(planned) / kMiB + 1) * kMiB;
    while (budget - margin_of(budget) < static_cast<uint64_t>(planned)) budget += kMiB;
    return budget / kMiB;
}

// What the ledger sees of this process.
uint64_t seen_bytes(const AllocatorPort &port) {
    uint64_t bytes = 0;
    for (uint32_t kind = 0; kind < static_cast<uint32_t>(LedgerKind::kCount); ++kind)
        bytes += port.ledger_live(static_cast<LedgerKind>(kind));
    return bytes;
}

planner::Policy planner_policy(Policy policy) {
    switch (policy) {
        case Policy::kRetain:
            return planner::Policy::retain;
        case Policy::kWhole:
            return planner::Policy::whole;
        case Policy::kSelective:
            return planner::Policy::selective;
        case Policy::kFixed:
            return planner::Policy::fixed;
        case Policy::kEagerWhole:
            return planner::Policy::eager_whole;
        case Policy::kGreedy:
            return planner::Policy::greedy;
        default:
            return planner::Policy::joint;
    }
}

}  // namespace

AdoptedPlan::AdoptedPlan(planner::JobPlan made, planner::Profile from, uint64_t cycle_order)
    : plan(std::move(made)), profile(std::move(from)), order(cycle_order), by_instance(profile.instances.size()) {
    for (size_t i = 0; i < profile.instances.size(); ++i) {
        std::vector<int32_t> &ordinals = by_segment[profile.instances[i].segment];
        const auto at = static_cast<size_t>(profile.instances[i].ordinal);
        if (ordinals.size() <= at) ordinals.resize(at + 1, -1);
        ordinals[at] = static_cast<int32_t>(i);
    }
    std::unordered_map<std::string, uint64_t> ids;
    for (const planner::ProfileBuffer &buffer : profile.buffers) ids[buffer.name] = buffer.id;
    for (const planner::PlannedWindow &window : plan.windows) {
        const uint64_t id = ids[window.buffer];
        changing.insert(id);
        for (size_t r = 0; r < window.readers.size(); ++r) {
            const auto reader = static_cast<size_t>(window.readers[r]);
            if (reader >= by_instance.size()) continue;
            if (window.kind == planner::Kind::selective) held.insert(id);
            by_instance[reader][id] = {window.kind, r < window.unchanged.size() && window.unchanged[r] != 0};
        }
    }
    for (const planner::ProfileBuffer &buffer : profile.buffers) {
        auto replayed = [&](int32_t i) { return plan.instances[static_cast<size_t>(i)].replay; };
        if (std::none_of(buffer.users.begin(), buffer.users.end(), replayed)) {
            idle.insert(buffer.id);
        } else if (!changing.contains(buffer.id)) {
            held.insert(buffer.id);
        }
    }
    most_from = plan.memory_bytes;
    for (size_t slot = most_from.size(); slot-- > 1;) most_from[slot - 1] = std::max(most_from[slot - 1], most_from[slot]);
    most_next = plan.memory_bytes;
    std::vector<bool> comes(most_next.size() + 1, true);
    for (size_t i = 0; i < profile.instances.size(); ++i) {
        if (plan.instances[i].replay) continue;
        for (int32_t event : {profile.instances[i].replay_begin, profile.instances[i].replay_end}) {
            if (static_cast<size_t>(event) < comes.size()) comes[static_cast<size_t>(event)] = false;
        }
    }
    for (size_t slot = most_next.size(); slot-- > 1;) {
        if (!comes[slot]) most_next[slot - 1] = std::max(most_next[slot - 1], most_next[slot]);
    }
}

int32_t AdoptedPlan::find(const std::string &segment, int32_t ordinal) const {
    auto found = by_segment.find(segment);
    if (found == by_segment.end() || static_cast<size_t>(ordinal) >= found->second.size()) return -1;
    return found->second[static_cast<size_t>(ordinal)];
}

int32_t AdoptedPlan::event_of(int32_t instance, EventKind kind) const {
    const planner::ProfileInstance &of = profile.instances[static_cast<size_t>(instance)];
    switch (kind) {
        case EventKind::kForwardBegin:
            return of.forward_begin;
        case EventKind::kForwardEnd:
            return of.forward_end;
        case EventKind::kReplayBegin:
            return of.replay_begin;
        case EventKind::kReplayEnd:
            break;
    }
    return of.replay_end;
}

Planning::Planning(const AllocatorPort &port, const Config &config, RecordFile &records)
    : port_(port), config_(config), records_(records), on_(config.plans()), policy_(planner_policy(config.policy)) {
    if (!on_) return;
    read_pinned();
    if (config.plan.empty()) cache_ = PlanCache::made(config);
    begin_cycle({});
}

void Planning::read_pinned() {
    if (config_.plan.empty()) return;
    std::string text, why;
    if (!read_text_file(config_.plan, &text, &why)) {
        log_line(LogLevel::kError,
                 format("REPRISE_PLAN=%s cannot be read (%s): this run makes its own plan", config_.plan.c_str(), why.c_str()));
        return;
    }
    auto plan = planner::read_plan(text);
    if (plan.ok()) {
        pinned_ = std::move(plan.value());
    } else {
        log_line(LogLevel::kError,
                 format("REPRISE_PLAN=%s is not a plan (%s): this run makes its own", config_.plan.c_str(), plan.status().text()));
    }
}

void Planning::begin_cycle(OwnBytes own) {
    ++number_;
    cycle_ = std::make_unique<Cycle>(port_, own);
    last_event_ = -1;
    since_last_event_ = needed_since_ = 0;
    deviation_ = 0;
    seen_.clear();
    part_begin_ = 0;
    retained_ = denied_ = 0;
    denied_planned_.clear();
}

// ---- events ---------------------------------------------------------------------------------------------------------------------------

int32_t Planning::planned_next(const std::string &segment) const {
    if (grouped_) return planned_in_group(segment);
    if (cycle_->too_long()) return -1;  // forwards are not counted any more
    return adopted_ ? adopted_->find(segment, cycle_->next_ordinal(segment)) : -1;
}

// With a plan: what it says, while there is room for it at every event still to come.
Planning::Grant Planning::grant(const std::string &segment, const char *replay_only) const {
    if (replay_only != nullptr) return Grant::kReplay;
    if (must_replay_.contains(segment) && !committed_) return Grant::kReplay;
    if (config_.policy == Policy::kRetain) return Grant::kRetain;
    const int32_t planned = planned_next(segment);
    if (planned < 0 || adopted_->plan.instances[static_cast<size_t>(planned)].replay) return Grant::kReplay;
    if (grouped_) return Grant::kRetain;  // what is short here alone must not be decided here alone
    const int32_t event = adopted_->event_of(planned, EventKind::kForwardBegin);
    const int64_t most = adopted_->most_from[static_cast<size_t>(event)] + std::max<int64_t>(0, more_than_planned());
    // A plan that is over the budget anyway is the one of least memory: it is followed as far as it goes.
    const int64_t room = std::max(static_cast<int64_t>(budget_), adopted_->plan.peak_bytes);
    return most <= room || !denying_needs_less(planned) ? Grant::kRetain : Grant::kDenied;
}

// Replayed after all, it needs room for its replay. (What is preserved for that would be shared by all that are denied: not counted.)
bool Planning::denying_needs_less(int32_t instance) const {
    const planner::ProfileInstance &of = adopted_->profile.instances[static_cast<size_t>(instance)];
    const auto &memory = adopted_->plan.memory_bytes;
    int64_t most = 0, most_denied = 0;
    for (auto slot = of.forward_begin; slot < static_cast<int32_t>(memory.size()); ++slot) {
        const int64_t planned = memory[static_cast<size_t>(slot)];
        most = std::max(most, planned);
        int64_t denied = planned;
        if (of.forward_end <= slot && slot < of.replay_end) denied -= of.keep_bytes;
        if (of.replay_begin <= slot && slot < of.replay_end) denied += of.transient_bytes;
        most_denied = std::max(most_denied, denied);
    }
    return most_denied < most;
}

// How much more memory than planned is in use. Before the first slot of a cycle has been seen: as in the one before, and what the job has
// taken since.
int64_t Planning::more_than_planned() const {
    if (!cycle_->events().empty()) return deviation_;
    return first_deviation_ + static_cast<int64_t>(cycle_->job_bytes()) - static_cast<int64_t>(first_job_);
}

bool Planning::would_retain(const std::string &segment, const char *replay_only) const {
    return grant(segment, replay_only) == Grant::kRetain;
}

bool Planning::forward_begins(Instance &instance, const char *replay_only) {
    const std::string &segment = instance.segment->name;
    const Grant granted = grant(segment, replay_only);
    if (auto found = must_replay_.find(segment); found != must_replay_.end() && replay_only == nullptr) replay_only = found->second.c_str();
    if (granted == Grant::kDenied) ++denied_, ++counts_.denied;
    if (granted == Grant::kRetain) ++retained_, ++counts_.retained;
    instance.planned = planned_next(segment);
    if (granted == Grant::kDenied) denied_planned_.push_back(instance.planned);
    ++forwards_[segment];
    instance.cycle = number_;
    if (cycle_->too_long()) return granted == Grant::kRetain;
    instance.in_cycle =
        cycle_->forward_begins(instance, replay_only != nullptr ? planner::Freedom::replay : planner::Freedom::open, replay_only);
    cycle_->instance(instance.in_cycle).retained = granted == Grant::kRetain;
    return granted == Grant::kRetain;
}

void Planning::must_replay(const Instance &instance, const char *why) {
    if (instance.cycle == number_ && instance.in_cycle >= 0) {
        CycleInstance &seen = cycle_->instance(instance.in_cycle);
        seen.freedom = planner::Freedom::replay;
        seen.why = why;
    }
    must_replay_.emplace(instance.segment->name, why);
}

void Planning::event(EventKind kind, const Instance &instance, uint64_t job_ns, uint64_t own_ns) {
    if (instance.cycle != number_ || instance.in_cycle < 0 || cycle_->too_long()) return;
    if (cycle_->events().empty()) {
        first_job_ = cycle_->job_bytes();
        if (adopted_) counts_.peak_bytes = std::max(counts_.peak_bytes, cycle_->most_before());
    }
    cycle_->event(kind, instance.in_cycle, job_ns, own_ns);
    if (adopted_) follow(kind, instance);
}

void Planning::uses(const Instance &instance, const Buffer &buffer) {
    if (instance.cycle == number_ && instance.in_cycle >= 0) cycle_->uses(instance.in_cycle, buffer);
}

void Planning::changed(const Instance &instance, const Buffer &buffer) {
    if (!adopted_ || instance.planned < 0 || adopted_->changing.contains(buffer.id)) return;
    // Memory that is allocated anew in every step has no name of its own: it is asked about once per segment and size.
    const std::string key = buffer.has_name() ? buffer.name : format("%s %zu", instance.segment->name.c_str(), buffer.range.size());
    if (remeasured_for_.size() >= kMostRemeasured || !remeasured_for_.insert(key).second) return;
    remeasure_ = format("buffer '%s' of segment '%s' changes between forward and replay, which it did not when the plan was made",
                        buffer.name.c_str(), instance.segment->name.c_str());
}

std::optional<PlannedBuffer> Planning::how(const Instance &instance, const Buffer &buffer) const {
    if (!adopted_ || instance.planned < 0) return {};
    const auto &buffers = adopted_->by_instance[static_cast<size_t>(instance.planned)];
    auto found = buffers.find(buffer.id);
    if (found == buffers.end()) return {};
    return found->second;
}

bool Planning::short_of_room(uint64_t spare_bytes) const {
    if (budget_ == 0 || spare_bytes == 0) return false;
    auto most = static_cast<int64_t>(cycle_->live_bytes() - std::min(cycle_->live_bytes(), spare_bytes));
    auto room = static_cast<int64_t>(budget_);
    if (adopted_) {
        // The plan's own peak, not the budget: what is there beyond it would be taken for a plan that is wrong. At the next event it is
        // asked again.
        room = std::min(room, adopted_->plan.peak_bytes);
        if (last_event_ >= 0 && static_cast<size_t>(last_event_) < adopted_->most_next.size())
            most = std::max(most, adopted_->most_next[static_cast<size_t>(last_event_)] + std::max<int64_t>(0, deviation_));
    }
    return most + static_cast<int64_t>(spare_bytes) > room;
}

// ---- boundaries -----------------------------------------------------------------------------------------------------------------------

bool Planning::came_round() const {
    if (cycle_->empty()) return false;
    return !adopted_ || cycle_->instances().size() >= adopted_->profile.instances.size() || cycle_->too_long();
}

void Planning::boundary(uint64_t step, OwnBytes own) {
    cycle_->enter();
    if (cycle_->empty()) return cycle_->leave(own);
    if (round_goes_on()) return cycle_->leave(own);
    ++counts_.cycles;
    if (adopted_) {
        compare_cycle(step);
    } else if (cycle_->too_long()) {
        log_line(LogLevel::kWarn, "one cycle of this job has too many segments to plan for: all are replayed");
        alike_.clear();
        unsettled_ = kUnsettled;
    } else {
        settle(step);
    }
    take_result();
    begin_cycle(own);
}

// Where the steps of a job alternate, no two in a row are alike, but every period_ of them are. The next plan's boundaries are found while
// there is no plan; with one, they stay.
bool Planning::round_goes_on() {
    parts_.push_back(cycle_->order(part_begin_));
    if (parts_.size() > 2 * kMostParts) parts_.pop_front();
    part_begin_ = cycle_->instances().size();
    if (++part_ < period_ && !cycle_->too_long()) return true;
    part_ = 0;
    if (adopted_ || worker_) return false;
    auto repeats = [&](size_t period) {
        if (parts_.size() < 2 * period) return false;
        for (size_t i = parts_.size() - period; i < parts_.size(); ++i) {
            if (parts_[i] != parts_[i - period]) return false;
        }
        return true;
    };
    size_t found = 1;
    while (found <= kMostParts && !repeats(found)) ++found;
    if (found <= kMostParts && found != period_) {
        period_ = found;
        alike_.clear();
    }
    return false;
}

bool Planning::counts_on_pages() const {
    return adopted_ != nullptr || (!child_ && unsettled_ < kUnsettled && said_error_.empty() && !cycle_->too_long());
}

void Planning::settle(uint64_t step) {
    if (counts_.cycles <= kWarmUp || worker_ || !offer_.empty() || config_.policy == Policy::kRetain) return;
    const uint64_t order = cycle_->order();
    if (order != alike_order_) alike_.clear();
    alike_order_ = order;
    alike_.push_back(std::move(cycle_));
    if (guess(step)) return;
    const size_t wanted = pinned_ ? kAlikePinned : kAlike;
    if (alike_.size() < wanted) {
        if (++unsettled_ == kUnsettled) {
            log_line(
                LogLevel::kWarn,
                format("no plan yet: %u steps in a row did not run the same segments in the same order; all are replayed", kUnsettled));
        }
        return;
    }
    unsettled_ = 0;
    std::vector<std::unique_ptr<Cycle>> cycles;
    for (auto &cycle : alike_) cycles.push_back(std::move(cycle));
    alike_.clear();
    per_cycle_.clear();
    for (const CycleInstance &instance : cycles.back()->instances()) ++per_cycle_[instance.segment];
    if (pinned_ && pin(cycles, order)) return;  // else: a plan of its own, or the ranks'
    PlanRequest request;
    request.cycles = std::move(cycles);
    if (grouped_) request.ask = PlanAsk::kProfile;
    measured_at(step, request.profile);
    send(std::move(request), order);
}

// The plan of an earlier run of this job is adopted after its first cycle, if there is one. Ranks would have to agree on it: they measure.
bool Planning::guess(uint64_t step) {
    if (guesses_ == kMostGuesses || grouped_ || child_ || counts_.plans != 0 || alike_.size() != 1) return false;
    ++guesses_;
    if (!cache_.known(alike_.back()->profile())) return false;
    guesses_ = kMostGuesses;
    PlanRequest request;
    request.ask = PlanAsk::kFirstGuess;
    request.cycles.push_back(std::move(alike_.back()));
    alike_.clear();
    measured_at(step, request.profile);
    send(std::move(request), alike_order_);
    return true;
}

void Planning::measured_at(uint64_t step, planner::Profile &profile) const {
    profile.run = records_.run();
    profile.step = step;
}

void Planning::send(PlanRequest request, uint64_t order) {
    if (child_) return;
    if (budget_ == 0) budget_ = resolve_budget();
    request.profile.unseen_bytes = static_cast<int64_t>(unseen_bytes(port_));
    request.costs = costs_;
    request.cost_cache = CostMeter::cache_file();
    request.budget_bytes = static_cast<int64_t>(budget_ - margin_of(budget_));
    request.policy = policy_;
    if (request.ask != PlanAsk::kProfile && request.members.empty()) request.cache = cache_;
    request.texts = records_.wanted() || !config_.save_plan.empty();
    worker_ = std::make_unique<PlanWorker>(port_, std::move(request));
    worker_order_ = order;
    if (worker_->started()) return;
    worker_.reset();
    if (std::exchange(said_no_thread_, true)) return;
    log_line(LogLevel::kError,
             "the planner's thread could not be started (are too many threads running? see `ulimit -u`): segments are "
             "replayed until it can");
}

void Planning::take_result() {
    if (!worker_) return;
    std::unique_ptr<PlanWorker::Result> result = worker_->take();
    if (!result) return;
    worker_.reset();
    counts_.planning_ns += result->nanoseconds;
    if (!result->error.empty()) {
        if (std::exchange(said_error_, result->error) != result->error)
            log_line(LogLevel::kError, format("no plan could be made (%s): all segments are replayed", result->error.c_str()));
        return;
    }
    if (result->asked == PlanAsk::kFirstGuess) {
        if (result->plan.instances.empty() || grouped_) return;  // it is measured, then
        log_line(LogLevel::kInfo, "an earlier run's plan for this job is the first guess (REPRISE_PLAN_CACHE=off: none)");
    }
    if (result->asked == PlanAsk::kProfile) return offer(std::move(result->profile), std::move(result->profile_text));
    if (grouped_) {  // the text form knows no ids
        for (planner::ProfileBuffer &buffer : result->profile.buffers) {
            auto mine = std::find_if(own_profile_.buffers.begin(), own_profile_.buffers.end(),
                                     [&](const auto &b) { return b.name == buffer.name; });
            if (mine != own_profile_.buffers.end()) buffer.id = mine->id;
        }
    }
    if (result->plan.verdict != planner::Verdict::planned) {
        say_infeasible(result->plan);
        if (!refusal_.empty() || result->plan.instances.empty()) return;
    }
    if (records_.wanted()) {
        records_.write_line(result->profile_text);
        records_.write_line(result->plan_text);
    }
    if (!config_.save_plan.empty()) {
        std::string why;
        if (!write_text_file(config_.save_plan, result->plan_text, &why) && !std::exchange(said_not_saved_, true)) {
            log_line(LogLevel::kError,
                     format("the plan cannot be written to REPRISE_SAVE_PLAN=%s (%s)", config_.save_plan.c_str(), why.c_str()));
        }
    }
    adopt(std::move(result->plan), std::move(result->profile), worker_order_);
}

void Planning::adopt(planner::JobPlan plan, planner::Profile profile, uint64_t order) {
    ++counts_.plans;
    counts_.peak_bytes = 0;
    strange_cycles_ = 0;
    newly_adopted_ = true;
    first_deviation_ = 0;
    first_under_plan_ = true;
    adopted_ = std::make_unique<AdoptedPlan>(std::move(plan), std::move(profile), order);
    const planner::JobPlan &now = adopted_->plan;
    const auto retained = std::count_if(now.instances.begin(), now.instances.end(), [](const auto &i) { return !i.replay; });
    log_line(LogLevel::kInfo,
             format("plan for a budget of %s: %zd of %zu segments retained, %.2f ms added per step (at least %.2f), peak %s (proof: %s)",
                    human_bytes(budget_).c_str(), static_cast<ssize_t>(retained), now.instances.size(),
                    static_cast<double>(now.added_ns) / 1e6, static_cast<double>(now.bound_ns) / 1e6,
                    human_bytes(static_cast<uint64_t>(now.peak_bytes)).c_str(), planner::proof_name(now.proof)));
}

// The plan of REPRISE_PLAN, if it fits this job. Asked once.
bool Planning::pin(const std::vector<std::unique_ptr<Cycle>> &cycles, uint64_t order) {
    planner::Profile profile = cycles.back()->profile();
    planner::JobPlan plan = std::move(*pinned_);
    pinned_.reset();
    std::vector<std::string> different = planner::differences(plan, profile);
    if (different.empty() && plan.memory_bytes.size() != profile.base_bytes.size()) {
        different.push_back(
            format("the plan has the memory of %zu events, the job has %zu", plan.memory_bytes.size(), profile.base_bytes.size()));
    }
    if (different.empty() && grouped_) {  // followed if it fits all ranks
        const std::string text = planner::write_plan(plan);
        offered_pinned_ = kernels::digest(text.data(), text.size());
        pinned_ = std::move(plan);
        return false;
    }
    if (different.empty()) {
        const auto planned_for = static_cast<uint64_t>(std::max(plan.budget_bytes, plan.peak_bytes));
        if (budget_ == 0) budget_ = config_.budget.automatic ? planned_for : resolve_budget();
        if (static_cast<uint64_t>(plan.peak_bytes) > budget_) {
            log_line(LogLevel::kWarn,
                     format("REPRISE_PLAN=%s needs %s, more than the budget of %s: it is followed all the same", config_.plan.c_str(),
                            human_bytes(static_cast<uint64_t>(plan.peak_bytes)).c_str(), human_bytes(budget_).c_str()));
        }
        follows_pinned_ = true;
        adopt(std::move(plan), std::move(profile), order);
        return true;
    }
    std::string text;
    for (const std::string &difference : different) text += "\n  " + difference;
    log_line(LogLevel::kError, format("REPRISE_PLAN=%s is a plan for another job: this run makes its own. The differences:%s",
                                      config_.plan.c_str(), text.c_str()));
    return false;
}

void Planning::say_infeasible(const planner::JobPlan &plan) {
    const auto enough = static_cast<unsigned long long>(mib_with_margin(plan.smallest_bytes));
    std::string text = format("this job does not fit into the budget of %s: ", human_bytes(budget_).c_str());
    const auto least = static_cast<unsigned long long>(mib_with_margin(plan.smallest_bound_bytes));
    if (least >= enough) {  // proven to the MiB
        text += format("the smallest budget with a plan is %lluMiB", enough);
    } else {
        text += format("the smallest budget with a plan is at most %lluMiB (and at least %lluMiB)", enough, least);
    }
    text += format(". Give REPRISE_BUDGET=%lluMiB, or make the batch smaller", enough);
    // A job that runs under a plan is not ended by a later one.
    if (config_.on_infeasible == OnInfeasible::kFail && !adopted_) refusal_ = text;
    if (std::exchange(said_infeasible_, true)) return;
    if (refusal_.empty()) text += ". It runs on with the least memory that it can";
    for (const std::string &sentence : plan.binding) text += "\n  " + sentence;
    log_line(LogLevel::kError, text);
}

void Planning::measure_again(const std::string &why) {
    log_line(follows_pinned_ ? LogLevel::kWarn : LogLevel::kInfo, "the plan is dropped and the job measured again: " + why);
    follows_pinned_ = false;
    worker_.reset();  // what it makes is for the job as it was
    adopted_.reset();
    remeasure_.clear();
    alike_.clear();
    strange_cycles_ = corrections_ = right_ = 0;
}

// The child goes on with what the plan says, on its own; a plan in the making is the parent's.
void Planning::fork_child(OwnBytes own) {
    if (!on_) return;
    child_ = true;  // single-threaded inside: it makes no plans of its own
    part_ = 0;
    worker_.release();  // NOLINT(bugprone-unused-return-value): its thread is not in this process
    alike_.clear();
    begin_cycle(own);
}

uint64_t unseen_bytes(const AllocatorPort &port) {
    std::string text, why;
    unsigned long long pages = 0, resident = 0;
    if (!read_text_file("/proc/self/statm", &text, &why) || sscanf(text.c_str(), "%llu %llu", &pages, &resident) != 2) return 0;
    const uint64_t seen = seen_bytes(port);
    const uint64_t bytes = resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    return bytes > seen ? bytes - seen : 0;
}

// A share is of what this process may have at most, less what the ledger does not see of it.
uint64_t Planning::resolve_budget() const {
    if (config_.budget.bytes != 0) return config_.budget.bytes;
    const uint64_t unseen = unseen_bytes(port_);
    const uint64_t seen = seen_bytes(port_);
    uint64_t most = machine_memory();
    if (const uint64_t group = port_.group_headroom(); group != ~uint64_t{0}) most = std::min(most, group + seen + unseen);
    if (config_.budget.share > 0) {
        const auto share = static_cast<uint64_t>(config_.budget.share * static_cast<double>(most));
        return share > unseen ? share - unseen : 1;
    }
    // auto: nine tenths of what could be had now.
    return (port_.headroom() + seen) / 10 * 9;
}

}  // namespace reprise
