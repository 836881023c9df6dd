// Judges a record file line by line: are types and values those of docs/formats.md, does every record refer to a contract that was written
// before it, do counters only rise, do contract digests come out again, do sums agree? Shares no code with what writes the files, the
// digest function apart. Used by verify, on one thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/records.h"
#include "cli/summary.h"

namespace reprise::cli {

class Check {
  public:
    void line(const Line &line);
    void end();                       // after the last line
    void report(const Json &report);  // after end(): its sums against the records of its run
    void violation(uint64_t line, const std::string &text) { violations_.push_back({line, text}); }

    const std::vector<Problem> &violations() const { return violations_; }
    const std::vector<Problem> &notes() const { return notes_; }
    uint64_t records() const { return records_; }
    uint64_t contracts() const { return contracts_; }
    uint64_t digests() const { return digests_; }
    uint64_t plans() const { return plans_; }  // profiles, plans and timelines
    uint64_t runs() const { return runs_.size(); }

  private:
    struct Contract {
        std::map<std::string, uint64_t> mechanisms;
        uint64_t bytes = 0;      // of all buffers
        bool arguments = false;  // whose sizes may differ from instance to instance
    };
    struct Instance {
        std::string segment;
        uint64_t replay = 0;
    };
    struct SegmentSums {
        uint64_t executed = 0, on_changed_state = 0;
    };
    struct Run {
        uint64_t last_step = 0;
        std::map<std::string, Contract> contracts;  // segment + digest
        std::map<uint64_t, Instance> instances;
        std::map<std::string, SegmentSums> segments;
        uint64_t rejections = 0, divergences = 0, bytes_put_back = 0, audited_changed = 0;
    };

    // Cycles against their plans.
    struct Planning {
        std::map<std::string, size_t> shapes;  // whose events were written
        uint64_t cycles = 0, off = 0, worst_line = 0;
        double worst = 0;
    };

    // check_plans.cpp
    void check_profile(uint64_t line, const Json &json);
    void check_plan(uint64_t line, const Json &json);
    void check_timeline(uint64_t line, const Json &json);
    void end_planning();

    void check_record(uint64_t line, const Json &json);
    void check_audit(uint64_t line, const Json &json);
    void check_counters(uint64_t line, const Json &json, Run &run);
    void check_contract(uint64_t line, const Json &json);
    void check_against_contract(uint64_t line, const Json &json, const Run &run);
    bool digest_agrees(const Json &json) const;

    std::vector<Problem> violations_, notes_;
    std::map<std::string, Run> runs_;
    std::vector<uint64_t> torn_;
    std::map<std::string, Planning> planning_;
    uint64_t records_ = 0, contracts_ = 0, digests_ = 0, plans_ = 0;
};

}  // namespace reprise::cli
