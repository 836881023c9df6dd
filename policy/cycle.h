// One cycle of the job as it happens: every begin and end of a forward or a replay, what memory and time lay between, which buffers were
// seen written. Called by the engine at these events, under its mutex; made into a planner::Profile, on the planner's thread, when the
// cycle has ended.
//
// Memory is read before and after our own work in an event, so that the job's own bytes in the slot between two events are told apart from
// ours: the planner decides about ours, and what is kept for reuse is given back before it stands in the way.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "allocator/allocator.h"
#include "planner/profile.h"
#include "policy/instance.h"
#include "tracker/page_runs.h"

namespace reprise {

enum class EventKind : uint8_t { kForwardBegin, kForwardEnd, kReplayBegin, kReplayEnd };

// What Reprise holds, and how much of it could go at once: kept for reuse, or for buffers that no outstanding instance needs.
struct OwnBytes {
    uint64_t all = 0, spare = 0;
};

struct CycleEvent {
    uint64_t job_bytes = 0;  // the job's own when it came
    // Of the slot that follows:
    uint64_t most_bytes = 0;      // everything
    uint64_t most_needed = 0;     // ... less what could have gone
    uint64_t most_job_bytes = 0;  // the job's own
};

struct CycleInstance {
    std::string segment;
    int32_t ordinal = 0;                   // among the forwards of that segment in this cycle
    int32_t events[4] = {-1, -1, -1, -1};  // by EventKind; of several replays the first begin and the last end
    planner::Freedom freedom = planner::Freedom::open;
    std::string why;
    bool retained = false;
    uint64_t forward_ns = 0, replay_ns = 0;  // the job's own
    uint64_t overhead_ns = 0;                // ours
};

struct CycleBuffer {
    uint64_t id = 0;
    std::string name;
    int64_t bytes = 0;
    int64_t own_bytes = 0;  // that we hold for it whether it changes or not: a shadow, the copy of a small buffer
    bool selective = true;
    std::vector<int32_t> users;
    std::vector<planner::BufferWrite> writes;
};

class Cycle {
  public:
    Cycle(const AllocatorPort &port, OwnBytes own);

    // A cycle that never ends is given up, not remembered for ever.
    static constexpr size_t kMostEvents = 200'000;
    bool too_long() const { return events_.size() >= kMostEvents; }

    // Around all work of ours that may change what we hold: before it, and after it with what we hold then.
    void enter();
    void leave(OwnBytes own);
    // Of what could go at the last of these, some has gone: it was not needed up to now.
    void let_go(OwnBytes own);
    // Within it: what happens. A forward that begins is a new instance, whose number is returned.
    int32_t forward_begins(const Instance &instance, planner::Freedom freedom, const char *why);
    void event(EventKind kind, int32_t instance, uint64_t job_ns, uint64_t own_ns);
    void uses(int32_t instance, const Buffer &buffer);
    // Found written at the event that comes next.
    void wrote(const Buffer &buffer, const PageRuns &runs);

    CycleInstance &instance(int32_t index) { return instances_[static_cast<size_t>(index)]; }
    const std::vector<CycleInstance> &instances() const { return instances_; }
    const std::vector<CycleEvent> &events() const { return events_; }
    bool empty() const { return instances_.empty(); }
    // The slot before the event that came last.
    const CycleEvent *last_slot() const { return events_.size() < 2 ? nullptr : &events_[events_.size() - 2]; }
    // Of everything, now: at the last enter() or leave().
    uint64_t live_bytes() const { return live_; }
    // Of everything, between the beginning of the cycle and its first event.
    uint64_t most_before() const { return before_; }
    // The job's own, at the last enter().
    uint64_t job_bytes() const { return entered_job_; }
    int32_t next_ordinal(const std::string &segment) const;

    // The job's own bytes at the end of a forward, less those at its beginning. 0 when one of them has not come.
    int64_t left_by_forward(const CycleInstance &instance) const;

    // A digest of segments and the order of their forwards, from a forward on; equal cycles can take the same plan.
    uint64_t order(size_t from = 0) const;
    // What the planner needs; instances that were not replayed are left out. Run, step and costs are the caller's.
    planner::Profile profile() const;

  private:
    void profile_base(planner::Profile &profile, const std::vector<int32_t> &kept) const;

    const AllocatorPort &port_;
    uint64_t live_ = 0;
    OwnBytes own_;  // as of the last leave()
    uint64_t entered_job_ = 0;
    uint64_t before_ = 0;
    std::vector<CycleEvent> events_;
    std::vector<CycleInstance> instances_;
    std::vector<CycleBuffer> buffers_;
    std::unordered_map<uint64_t, size_t> buffer_at_;     // id -> index
    std::unordered_map<std::string, int32_t> ordinals_;  // segment -> forwards so far
    std::unordered_map<std::string, int32_t> names_;     // buffers by name so far
};

}  // namespace reprise
