// What the environment asks for. Read once, when the engine opens; a value that does not parse is said (which variable, what it may be) and
// its default is used, so that a typing error never takes a job down.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace reprise {

enum class Policy : uint8_t {
    kSelective,   // everything is replayed; preserved is what was overwritten
    kWhole,       // everything is replayed; buffers are copied whole
    kJoint,       // the planner decides, within the budget
    kEagerWhole,  // the planner without selective mechanisms
    kGreedy,      // most time saved per byte first
    kFixed,       // everything is replayed, every buffer by the first mechanism it can have: there are no declared regions yet
    kRetain,      // nothing is replayed that need not be
    kAudit,
    kOff
};
enum class Verify : uint8_t { kOff, kDigest, kBytes };
enum class OnReject : uint8_t { kFail, kWarn };
enum class OnInfeasible : uint8_t { kLeast, kFail };
enum class LogLevel : uint8_t { kOff, kError, kWarn, kInfo, kDebug };

const char *to_string(Policy policy);

// REPRISE_BUDGET: one of the three, or none.
struct Budget {
    uint64_t bytes = 0;      // of what the ledger sees
    double share = 0;        // of what this process may have at most, in (0, 1]
    bool automatic = false;  // of what is free when the plan is made
    bool given() const { return bytes != 0 || share > 0 || automatic; }
};

struct Config {
    Policy policy = Policy::kSelective;
    Verify verify = Verify::kOff;
    OnReject on_reject = OnReject::kFail;
    LogLevel log = LogLevel::kWarn;
    OnInfeasible on_infeasible = OnInfeasible::kLeast;
    Budget budget;
    std::string plan;         // path of the plan to follow, "" for none
    std::string save_plan;    // path for the plan that was made, "" for none
    std::string records;      // path, "" for none
    std::string report;       // path of the statistics written at exit, "" for none
    bool plan_cache = false;  // the plan of an earlier run is the first guess, and this run's is kept for the next
    bool force_compare = false;
    bool require = false;
    uint64_t busy_timeout_ms = 30000;
    std::vector<std::string> complaints;  // one sentence per value that did not parse

    // Is the job to be measured and planned for? Else every segment is replayed, at no cost for planning.
    bool plans() const;

    // `lookup(name)` is getenv; tests pass their own.
    static Config from_environment(const char *(*lookup)(const char *name));
};

// "44GiB", "512M", "1.5g", "1073741824", "80%", "auto". False when it does not parse or is zero.
bool parse_budget(const std::string &text, Budget *budget);

// All memory of the machine, in bytes.
uint64_t machine_memory();

}  // namespace reprise
