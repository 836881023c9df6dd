// What a record file and its reports say, added up per segment and buffer. Filled line by line, so that a file may be larger than memory:
// what is kept grows with segments and buffers, not with lines. Used by inspect, audit and report.
#pragma once

#include <map>
#include <set>

#include "cli/cycles.h"
#include "cli/records.h"

namespace reprise::cli {

struct Problem {
    uint64_t line = 0;
    std::string text;
};

// A buffer that a segment would have replayed on changed state (audit).
struct Finding {
    uint64_t replays = 0, bytes = 0, least = ~uint64_t{0}, most = 0;
};

struct Stray {
    uint64_t replays = 0, bytes = 0, runs = 0;
};

struct Segment {
    std::map<std::string, uint64_t> outcomes;
    std::map<std::string, uint64_t> mechanisms;  // of the latest record
    std::map<std::string, uint64_t> reasons;     // sentence -> how often, at most kReasons different ones
    uint64_t more_reasons = 0;
    uint64_t records = 0, on_changed_state = 0, bytes_changed = 0, bytes_put_back = 0, nanoseconds = 0, longest_ns = 0;
    uint64_t contracts = 0;
    uint64_t forwards = 0, replays = 0;       // from the report
    Json contract;                            // the latest
    std::map<std::string, Finding> findings;  // buffer -> audit
    std::map<std::string, Stray> strays;      // buffer -> written though the forward had not

    uint64_t outcome(const char *name) const {
        const auto found = outcomes.find(name);
        return found == outcomes.end() ? 0 : found->second;
    }
};

// One point of the memory timeline.
struct MemoryPoint {
    uint64_t step = 0, held = 0, tracked = 0;
};

struct Summary {
    static constexpr size_t kProblems = 100, kReasons = 20, kPoints = 4000;

    std::map<std::string, Segment> segments;
    std::set<std::string> runs, policies;
    std::vector<Problem> problems;
    uint64_t more_problems = 0;
    uint64_t records = 0, contracts = 0, last_step = 0;
    std::vector<Json> reports;
    Cycles cycles;                    // profiles, plans, timelines
    std::vector<MemoryPoint> memory;  // thinned: when there are too many, every second one goes and the stride doubles
    uint64_t memory_stride = 1, memory_seen = 0;

    bool empty() const { return segments.empty() && cycles.empty(); }
    void add(const Line &line);
    uint64_t total(const char *outcome) const;

  private:
    void add_record(const Json &json);
    void add_report(const Json &json);
    void add_memory(const MemoryPoint &point);
};

// Reads a file into it; "" or why not.
std::string summarise(const std::string &path, Summary &summary);

// "match 12, rejection 1" for people.
std::string outcomes_text(const std::map<std::string, uint64_t> &counts);

// What to do about a rejection, divergence or finding, as a sentence.
std::string remedy_for(const std::string &outcome, const std::string &reason);

}  // namespace reprise::cli
