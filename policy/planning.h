// From measured cycles to decisions: when the job has settled, its profile goes to the planner's thread; the plan that comes back is
// adopted at a boundary of the job, decides about every forward that begins, and is compared with what memory was really used. Called by
// the engine alone, under its mutex; only the planner's own thread runs without it.
//
//     settling   everything is replayed (the least-memory way to run) and measured, until three cycles in a row were alike
//     planning   the same, while the planner's thread works
//     planned    decisions from the plan; a RETAIN only while the ledger has room for it at every event still to come
//
// A plan that turns out wrong by more than a hundredth is made again from corrected numbers; one whose job has changed (other segments,
// other buffers that change) is dropped, and the job is measured again.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "planner/profile.h"
#include "policy/config.h"
#include "policy/cost_meter.h"
#include "policy/cycle.h"
#include "policy/plan_worker.h"
#include "policy/rank_group.h"
#include "policy/records.h"

namespace reprise {

// How a plan preserves one buffer for one instance.
struct PlannedBuffer {
    planner::Kind kind = planner::Kind::selective;
    bool unchanged = false;  // since the reader before
};

// A plan in force, with what is looked up at every event.
struct AdoptedPlan {
    AdoptedPlan(planner::JobPlan made, planner::Profile from, uint64_t cycle_order);

    // The instance with this key; -1: there was none when the plan was made.
    int32_t find(const std::string &segment, int32_t ordinal) const;
    int32_t event_of(int32_t instance, EventKind kind) const;

    planner::JobPlan plan;
    planner::Profile profile;
    uint64_t order = 0;                                                    // Cycle::order() of the cycles it is for
    std::unordered_map<std::string, std::vector<int32_t>> by_segment;      // segment -> instance, by ordinal
    std::vector<std::unordered_map<uint64_t, PlannedBuffer>> by_instance;  // buffer id -> how
    std::set<uint64_t> changing;                                           // ids of buffers that have a window
    std::set<uint64_t> idle;                                               // ids of buffers that no replayed instance uses
    std::set<uint64_t> held;                                               // ids of those for which something is held all the time
    std::vector<int64_t> most_from;                                        // per slot: the most from it on
    std::vector<int64_t> most_next;                                        // ... and until the next event that comes under this plan
};

struct PlanningCounts {
    uint64_t cycles = 0, plans = 0;
    uint64_t retained = 0, denied = 0;  // forwards
    uint64_t peak_bytes = 0;            // of the ledger since a plan is in force
    uint64_t planning_ns = 0;           // of the planner's thread
};

class Planning {
  public:
    Planning(const AllocatorPort &port, const Config &config, RecordFile &records);

    // Whether there is anything to plan at all: else nothing below may be called.
    bool on() const { return on_; }

    // ---- events: enter, what happens, leave
    // ----------------------------------------------------------------------------------------------
    void enter() { cycle_->enter(); }
    void leave(OwnBytes own) { cycle_->leave(own); }
    void let_go(OwnBytes own) { cycle_->let_go(own); }
    // Decides: true to retain. `replay_only`: why the job leaves no choice, or nullptr.
    bool forward_begins(Instance &instance, const char *replay_only);
    // What it would decide about this segment's next forward.
    bool would_retain(const std::string &segment, const char *replay_only) const;
    // It turned out that the job leaves no choice about this segment's instances: never retained from here on.
    void must_replay(const Instance &instance, const char *why);
    // Is there a plan, or is one still to be expected, that has to fit what captures and replays do?
    bool counts_on_pages() const;
    void event(EventKind kind, const Instance &instance, uint64_t job_ns, uint64_t own_ns);
    void uses(const Instance &instance, const Buffer &buffer);
    // Only a cycle that a profile may be made of needs it.
    void wrote(const Buffer &buffer, const PageRuns &runs) {
        if (!adopted_) cycle_->wrote(buffer, runs);
    }
    // A replay found the buffer changed.
    void changed(const Instance &instance, const Buffer &buffer);

    // ---- what a plan says
    // ---------------------------------------------------------------------------------------------------------------- How to preserve a
    // buffer for this instance; nothing: as without a plan.
    std::optional<PlannedBuffer> how(const Instance &instance, const Buffer &buffer) const;
    // Whether so many bytes that could go at once would stand in the way of what is still to come.
    bool short_of_room(uint64_t spare_bytes) const;
    CostMeter &costs() { return costs_; }

    // ---- boundaries
    // ---------------------------------------------------------------------------------------------------------------------- For programs
    // that never step: has the cycle come round, now that nothing is outstanding?
    bool came_round() const;
    // The job has come round: no instance of the cycle is outstanding. A plan that is ready is adopted here.
    void boundary(uint64_t step, OwnBytes own);
    // Not empty when there is no plan within the budget and the user asked to fail then.
    const std::string &refusal() const { return refusal_; }
    // One stage of the ranks' agreement (include/reprise/detail/engine_abi.h); an empty text: not yet, or not taken.
    std::string exchange(uint32_t stage, const std::vector<std::string_view> &texts);
    void fork_child(OwnBytes own);

    const PlanningCounts &counts() const { return counts_; }
    const AdoptedPlan *adopted() const { return adopted_.get(); }
    // Once after a plan was adopted.
    bool newly_adopted() { return std::exchange(newly_adopted_, false); }
    uint64_t budget_bytes() const { return budget_; }

  private:
    struct Seen {  // slots [begin, end) of the plan, between two events that happened
        int32_t begin = 0, end = 0;
        int64_t actual = 0, needed = 0;  // the most bytes; less what could have gone
    };
    enum class Grant : uint8_t { kReplay, kDenied, kRetain };
    Grant grant(const std::string &segment, const char *replay_only) const;
    int32_t planned_next(const std::string &segment) const;
    int64_t more_than_planned() const;
    bool denying_needs_less(int32_t instance) const;
    void begin_cycle(OwnBytes own);
    bool round_goes_on();
    void settle(uint64_t step);
    bool guess(uint64_t step);
    void measured_at(uint64_t step, planner::Profile &profile) const;
    void send(PlanRequest request, uint64_t order);
    // planning_ranks.cpp
    void join_group();
    void offer(planner::Profile profile, std::string text);
    bool read_offers(const std::vector<std::string_view> &texts);
    std::string planned_counts();
    bool read_planned_counts(const std::vector<std::string_view> &texts);
    int32_t planned_in_group(const std::string &segment) const;

    void take_result();
    void adopt(planner::JobPlan plan, planner::Profile profile, uint64_t order);
    bool pin(const std::vector<std::unique_ptr<Cycle>> &cycles, uint64_t order);
    void read_pinned();
    void follow(EventKind kind, const Instance &instance);
    void compare_cycle(uint64_t step);
    int64_t planned_in(const Seen &seen) const;
    void correct();
    void measure_again(const std::string &why);
    void record_timeline(uint64_t step);
    uint64_t resolve_budget() const;
    void say_infeasible(const planner::JobPlan &plan);

    const AllocatorPort &port_;
    const Config &config_;
    RecordFile &records_;
    bool on_ = false;
    uint64_t budget_ = 0;  // bytes; known when the first plan is asked for
    planner::Policy policy_ = planner::Policy::joint;

    uint64_t number_ = 0;  // of the running cycle
    std::unique_ptr<Cycle> cycle_;
    std::deque<std::unique_ptr<Cycle>> alike_;  // the last ones, of one order
    uint64_t alike_order_ = 0;
    unsigned unsettled_ = 0;  // cycles since it was last settled
    // Steps that alternate (two optimizers, gradient accumulation of several lengths): so many make one cycle.
    size_t period_ = 1, part_ = 0;
    size_t part_begin_ = 0;       // the first forward of the running part
    std::deque<uint64_t> parts_;  // orders of the last parts

    std::unique_ptr<PlanWorker> worker_;
    uint64_t worker_order_ = 0;
    std::unique_ptr<AdoptedPlan> adopted_;
    bool newly_adopted_ = false, first_under_plan_ = false;
    PlanCache cache_;
    unsigned guesses_ = 0;  // times that an earlier run's plan was looked for
    std::optional<planner::JobPlan> pinned_;
    bool follows_pinned_ = false;                               // what REPRISE_PLAN says is not made better
    std::unordered_map<std::string, std::string> must_replay_;  // segment -> why
    // Of ranks that decide alike.
    bool grouped_ = false, committed_ = false;
    std::string offer_;             // "" until this rank has measured
    uint64_t offered_pinned_ = 0;   // digest of pinned_, when it fits this rank
    planner::Profile own_profile_;  // what was offered: with the ids of this process's buffers
    std::vector<size_t> members_;   // ranks that run the same segments
    ForwardCounts forwards_;        // of every segment, from the beginning
    ForwardCounts per_cycle_;       // of every segment in one cycle: alike on all members
    ForwardCounts group_switch_;    // at which the plan begins

    bool child_ = false;  // of a fork
    std::string refusal_;
    std::string remeasure_;  // why, when the job has changed
    std::set<std::string> remeasured_for_;
    uint64_t strange_order_ = 0;
    unsigned strange_cycles_ = 0, corrections_ = 0, right_ = 0;  // in a row
    bool said_infeasible_ = false, said_no_thread_ = false, said_not_saved_ = false;
    std::string said_error_;  // why no plan could be made, when it was said last

    // Of the running cycle, against the plan.
    int32_t last_event_ = -1;
    uint64_t since_last_event_ = 0, needed_since_ = 0;  // the most bytes since it; less what could have gone
    int64_t deviation_ = 0;                             // needed less planned, in the slots seen last
    // The job's own bytes when a cycle's first forward began, and what the slots after it had more than planned, in the cycle seen last.
    uint64_t first_job_ = 0;
    int64_t first_deviation_ = 0;
    std::vector<Seen> seen_;
    uint64_t retained_ = 0, denied_ = 0;
    std::vector<int32_t> denied_planned_;  // which
    uint64_t order_recorded_ = 0;

    CostMeter costs_;
    PlanningCounts counts_;
};

// Resident memory of this process that the ledger does not see: the job's heap, libraries, workspaces.
uint64_t unseen_bytes(const AllocatorPort &port);

}  // namespace reprise
