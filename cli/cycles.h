// What a record file says about planning: profiles, plans adopted, and the memory of each cycle, per run. What is kept does not grow with
// the number of cycles. Filled by Summary; used by inspect and report; one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cli/records.h"

namespace reprise::cli {

struct CyclePoint {
    uint64_t step = 0, cycle = 0;
    int64_t budget = 0, planned = 0, actual = 0;  // peaks
    uint64_t retained = 0, denied = 0;
};

struct AdoptedPlan {
    uint64_t step = 0;
    std::string policy, verdict, proof;
    int64_t budget = 0, peak = 0, added_ns = 0;
    uint64_t retained = 0, replayed = 0;
};

struct RunCycles {
    static constexpr size_t kPoints = 2000, kPlans = 50, kShapes = 8;

    Json profile, plan, timeline;  // the latest; null when there is none
    Json events;                   // of the latest timeline: [F or B, segment, ordinal, begin or end] per event, or null
    uint64_t profiles = 0, plans = 0, timelines = 0;
    std::vector<AdoptedPlan> history;  // the newest ones
    std::vector<CyclePoint> points;    // thinned: the highest of each stretch stays
    uint64_t stride = 1;
    int64_t highest = 0, worst_ppm = 0;  // of all cycles: the peak, and how far one was from its plan
    uint64_t over_budget = 0;            // cycles beyond their budget

  private:
    friend class Cycles;
    std::map<std::string, Json> shapes_;
};

class Cycles {
  public:
    // Any line: a plan without a run belongs to the run that wrote last.
    void add(const Line &line);
    const std::map<std::string, RunCycles> &runs() const { return runs_; }
    bool empty() const { return runs_.empty(); }
    // The run that wrote the latest plan or timeline; nullptr when there is none.
    const RunCycles *latest() const;
    const std::string &latest_run() const { return latest_; }

  private:
    void add_plan(const Json &json, RunCycles &run, uint64_t step);
    void add_timeline(const Json &json, RunCycles &run);

    std::map<std::string, RunCycles> runs_;
    std::string current_, latest_;
    uint64_t step_ = 0;
};

// The highest number in an array, 0 when there is none. What is no number does not count.
int64_t highest_in(const Json &array);
// Signed: timelines say -1 for what nobody saw.
int64_t signed_of(const Json &value);
int64_t signed_field(const Json &json, const char *field);
// "the forward of 'block.7' has ended", "" when it is nobody's.
std::string event_words(const Json &events, size_t number);

}  // namespace reprise::cli
