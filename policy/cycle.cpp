#include "policy/cycle.h"

#include <algorithm>
#include <utility>

#include "policy/clock.h"
#include "policy/log.h"

namespace reprise {

namespace {

// Written at random, a large buffer has a run per page, in every capture: neighbours are joined until so many are left. A page too many in
// a profile is memory planned for and not needed; the record of pages must not become the larger part.
constexpr size_t kMostRuns = 4096;

std::vector<planner::PageRun> as_pages(const PageRuns &runs) {
    std::vector<planner::PageRun> pages;
    for (int64_t gap = 0;; gap = 2 * gap + 1) {
        pages.clear();
        for (PageRun run : runs) {
            if (!pages.empty() && run.first - pages.back().end <= gap) {
                pages.back().end = std::max<int64_t>(pages.back().end, run.end());
            } else {
                pages.push_back({run.first, run.end()});
            }
        }
        if (pages.size() <= kMostRuns) return pages;
    }
}

// A peak in a slot, of which so much could have gone.
void saw(CycleEvent &slot, uint64_t peak, uint64_t spare) {
    slot.most_bytes = std::max(slot.most_bytes, peak);
    slot.most_needed = std::max(slot.most_needed, peak - std::min(peak, spare));
}

}  // namespace

Cycle::Cycle(const AllocatorPort &port, OwnBytes own) : port_(port), own_(own) {
    // The first event may come in the same piece of work of ours, which entered the cycle before.
    live_ = port_.ledger_take_peak().live;
    entered_job_ = live_ - std::min(live_, own_.all);
}

void Cycle::enter() {
    const LedgerReading now = port_.ledger_take_peak();
    live_ = now.live;
    entered_job_ = now.live - std::min(now.live, own_.all);
    if (events_.empty()) {
        before_ = std::max(before_, now.peak);
        return;
    }
    CycleEvent &last = events_.back();
    saw(last, now.peak, own_.spare);
    last.most_job_bytes = std::max(last.most_job_bytes, now.peak - std::min(now.peak, own_.all));
}

void Cycle::leave(OwnBytes own) {
    const LedgerReading now = port_.ledger_take_peak();
    live_ = now.live;
    const uint64_t spare = std::min(own_.spare, own.spare);  // all the time in between
    own_ = own;
    if (!events_.empty()) saw(events_.back(), now.peak, spare);
}

void Cycle::let_go(OwnBytes own) {
    const LedgerReading now = port_.ledger_take_peak();
    live_ = now.live;
    const uint64_t spare = std::exchange(own_, own).spare;
    if (!events_.empty()) saw(events_.back(), now.peak, spare);
}

int32_t Cycle::next_ordinal(const std::string &segment) const {
    auto found = ordinals_.find(segment);
    return found == ordinals_.end() ? 0 : found->second;
}

int32_t Cycle::forward_begins(const Instance &instance, planner::Freedom freedom, const char *why) {
    CycleInstance &added = instances_.emplace_back();
    added.segment = instance.segment->name;
    added.ordinal = ordinals_[added.segment]++;
    added.freedom = freedom;
    if (why != nullptr) added.why = why;
    return static_cast<int32_t>(instances_.size()) - 1;
}

void Cycle::event(EventKind kind, int32_t index, uint64_t job_ns, uint64_t own_ns) {
    CycleInstance &instance = instances_[static_cast<size_t>(index)];
    int32_t &at = instance.events[static_cast<size_t>(kind)];
    // Of several replays the first begin and the last end: what is kept for one is kept for all.
    if (at < 0 || kind != EventKind::kReplayBegin) at = static_cast<int32_t>(events_.size());
    auto add = [](uint64_t &sum, uint64_t ns) { sum = std::min(sum + std::min(ns, kMostElapsedNs), kMostElapsedNs); };
    if (kind == EventKind::kForwardEnd) add(instance.forward_ns, job_ns);
    if (kind == EventKind::kReplayEnd) add(instance.replay_ns, job_ns);
    add(instance.overhead_ns, own_ns);
    events_.push_back({entered_job_, 0, 0, entered_job_});
}

void Cycle::uses(int32_t index, const Buffer &buffer) {
    auto [found, added] = buffer_at_.try_emplace(buffer.id, buffers_.size());
    if (added) {
        CycleBuffer &made = buffers_.emplace_back();
        // An address says nothing in another run: what has no name of its own is told apart by size, and by who came first.
        const std::string name = buffer.has_name() ? buffer.name : format("unnamed+%zu", buffer.range.size());
        const int32_t same = names_[name]++;
        made.id = buffer.id;
        made.name = same == 0 ? name : format("%s#%d", name.c_str(), same + 1);
        made.bytes = static_cast<int64_t>(buffer.range.size());
    }
    CycleBuffer &used = buffers_[found->second];
    if (used.users.empty() || used.users.back() != index) used.users.push_back(index);
    const MechanismKind kind = buffer.mechanism ? buffer.mechanism->kind() : MechanismKind::kNone;
    if (kind == MechanismKind::kShadow || kind == MechanismKind::kSmall) used.own_bytes = used.bytes;
    if (kind == MechanismKind::kWhole) used.selective = false;
}

void Cycle::wrote(const Buffer &buffer, const PageRuns &runs) {
    auto found = buffer_at_.find(buffer.id);
    if (found == buffer_at_.end() || runs.empty() || events_.empty() || too_long())
        return;  // before the first event: nobody outstanding saw it
    planner::BufferWrite write;
    write.slot = static_cast<int32_t>(events_.size()) - 1;
    write.pages = as_pages(runs);
    buffers_[found->second].writes.push_back(std::move(write));
}

uint64_t Cycle::order(size_t from) const {
    std::string text;
    for (size_t i = from; i < instances_.size(); ++i) text += instances_[i].segment + '\n';
    return kernels::digest(text.data(), text.size());
}

int64_t Cycle::left_by_forward(const CycleInstance &instance) const {
    if (instance.events[0] < 0 || instance.events[1] < 0) return 0;
    auto job_at = [&](EventKind kind) {
        return static_cast<int64_t>(events_[static_cast<size_t>(instance.events[static_cast<size_t>(kind)])].job_bytes);
    };
    return job_at(EventKind::kForwardEnd) - job_at(EventKind::kForwardBegin);
}

planner::Profile Cycle::profile() const {
    planner::Profile profile;
    std::vector<int32_t> number(instances_.size(), -1);
    std::vector<int32_t> kept;
    for (size_t i = 0; i < instances_.size(); ++i) {
        const CycleInstance &seen = instances_[i];
        if (*std::min_element(std::begin(seen.events), std::end(seen.events)) < 0) continue;
        if (seen.events[3] < seen.events[1]) continue;  // replayed within its own forward: nothing is decided about it
        number[i] = static_cast<int32_t>(kept.size());
        kept.push_back(static_cast<int32_t>(i));
        planner::ProfileInstance &made = profile.instances.emplace_back();
        made.segment = seen.segment;
        made.ordinal = seen.ordinal;
        made.forward_begin = seen.events[0], made.forward_end = seen.events[1];
        made.replay_begin = seen.events[2], made.replay_end = seen.events[3];
        made.forward_ns = static_cast<int64_t>(seen.forward_ns);
        made.replay_ns = static_cast<int64_t>(seen.replay_ns);
        made.overhead_ns = static_cast<int64_t>(seen.overhead_ns);
        made.freedom = seen.freedom;
        made.why = seen.why;
        if (made.replay_begin < made.forward_end) {  // replayed while its forward was open: nothing could be kept for it
            made.freedom = planner::Freedom::replay;
            made.why = "replayed while its forward was still open";
        }
    }
    for (const CycleBuffer &seen : buffers_) {
        planner::ProfileBuffer made{seen.name, seen.bytes, {}, seen.writes, seen.selective, seen.own_bytes, seen.id};
        for (int32_t user : seen.users) {
            if (number[static_cast<size_t>(user)] >= 0) made.users.push_back(number[static_cast<size_t>(user)]);
        }
        if (!made.users.empty()) profile.buffers.push_back(std::move(made));
    }
    profile_base(profile, kept);
    return profile;
}

// The job's own bytes per slot, less what its instances recompute: they are charged for that themselves.
void Cycle::profile_base(planner::Profile &profile, const std::vector<int32_t> &kept) const {
    std::vector<int64_t> &base = profile.base_bytes;
    for (const CycleEvent &event : events_) base.push_back(static_cast<int64_t>(event.most_job_bytes));
    std::vector<bool> taken(base.size());
    auto job_at = [&](int32_t event) { return static_cast<int64_t>(events_[static_cast<size_t>(event)].job_bytes); };
    for (size_t i = 0; i < kept.size(); ++i) {
        planner::ProfileInstance &instance = profile.instances[i];
        const int64_t before = job_at(instance.replay_begin);
        instance.keep_bytes = std::max<int64_t>(0, job_at(instance.replay_end) - before);
        if (instance.freedom == planner::Freedom::replay) continue;  // there is nothing to choose: it stays in the base
        for (auto slot = static_cast<size_t>(instance.replay_begin); slot < static_cast<size_t>(instance.replay_end); ++slot) {
            instance.transient_bytes = std::max(instance.transient_bytes, base[slot] - before);
            if (!taken[slot]) base[slot] = std::min(base[slot], before);
            taken[slot] = true;
        }
        instance.transient_bytes = std::max(instance.transient_bytes, instance.keep_bytes);
    }
    // A forward whose activations are kept needs as much beside them as its replay does.
    for (const planner::ProfileInstance &instance : profile.instances) {
        if (instance.freedom != planner::Freedom::open) continue;
        const int64_t least = job_at(instance.forward_begin) + instance.transient_bytes;
        for (auto slot = static_cast<size_t>(instance.forward_begin); slot < static_cast<size_t>(instance.forward_end); ++slot) {
            base[slot] = std::max(base[slot], least);
        }
    }
}

}  // namespace reprise
