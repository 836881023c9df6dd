// The joint planner's problem and answer, as data. Filled by the cost model (policy), by tests and by benchmarks; plain values, so any
// thread.
//
// Memory is counted in whole pages, time in whole nanoseconds. A job's order of events (begin and end of every forward and every replay) is
// numbered 0, 1, 2, ...; slot t lasts from event t to event t + 1, and memory is constant in it. Any nesting or interleaving is just an
// order. What is shared between segments is data too: a mechanism is a table of elements, and an element is paid for once however many
// replays use it. The solver knows no mechanism by name, so a new one needs a table and no code (docs/planner.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace reprise::planner {

// The element must be alive in slots [begin, end) if `instance` is replayed with this mechanism.
struct Use {
    int32_t instance = 0;
    int32_t begin = 0;
    int32_t end = 0;
    friend auto operator<=>(const Use &, const Use &) = default;
};

// Bytes that several replays share: alive in a slot when any replayed user needs it there; captured once if any user is replayed.
struct Element {
    int64_t pages = 0;
    int64_t capture_ns = 0;
    std::vector<Use> uses;  // at most one per instance
};

// What one reader's replay costs with a mechanism: load and put-back, and memory while it runs.
struct ReaderCost {
    int64_t ns = 0;
    int64_t pages = 0;
};

// What kind of thing a mechanism is: the baselines restrict themselves to one kind (where a window has none of it, to its first mechanism).
enum class Kind : uint8_t {
    small,      // always copied: the only mechanism of its window
    whole,      // a copy of the whole buffer
    selective,  // only what was overwritten
    regions,    // regions declared or predicted beforehand
};

struct Mechanism {
    std::string name;
    Kind kind = Kind::whole;
    std::vector<Element> elements;
    std::vector<ReaderCost> readers;  // as Window::readers
};

// One buffer in one stretch of the time line in which some reader of it is outstanding. All its readers use the same mechanism, because a
// way of tracking belongs to the mapping. Readers are the instances that something is preserved for (tables.h: all users, once one of them
// sees it change between forward and replay).
struct Window {
    std::string name;
    std::vector<int32_t> readers;
    std::vector<Mechanism> mechanisms;  // at most kMostMechanisms
};
inline constexpr int kMostMechanisms = 15;

enum class Freedom : uint8_t { open, retain, replay };  // retain and replay: the job leaves no choice

// One forward execution of a segment. Retained: keep_pages in slots [forward_end, replay_end). Replayed: replay_ns, and transient_pages
// (the recomputed activations and what the replay itself needs) in [replay_begin, replay_end).
struct Instance {
    std::string name;
    int32_t forward_begin = 0, forward_end = 0, replay_begin = 0, replay_end = 0;  // events
    int64_t keep_pages = 0;
    int64_t replay_ns = 0;
    int64_t transient_pages = 0;
    Freedom freedom = Freedom::open;
};

struct Problem {
    std::vector<int64_t> base;  // per slot: the most pages in use that the planner does not decide about
    std::vector<Instance> instances;
    std::vector<Window> windows;
    int64_t budget_pages = 0;
    int64_t grid_ns = 1;  // times are rounded up to multiples of it: a proof to the nanosecond of numbers with 1 % noise is worth nothing
};

struct Plan {
    std::vector<uint8_t> replay;     // per instance: 0 retained, 1 replayed
    std::vector<int32_t> mechanism;  // per window: index into its mechanisms (0 where no reader is replayed)
};

enum class Proof : uint8_t { none, eps, exact };  // eps: within Options::tolerance_ppm of the least possible
enum class Verdict : uint8_t { planned, infeasible, undecided };

// A slot whose budget limits the plan, and what lives there.
struct Binding {
    int32_t slot = 0;
    double weight = 0;               // its share of all multipliers: 1 when it alone binds
    int64_t base_pages = 0;          // out of the planner's reach
    std::vector<int32_t> instances;  // whose retained or transient memory lives there, largest first
    std::vector<int32_t> windows;    // whose preserved memory may live there, largest first
};

struct Counters {
    uint64_t evaluations = 0;  // of the Lagrangian
    uint64_t programs = 0;     // label programs run
    uint64_t labels = 0;
    uint64_t nodes = 0;
    uint32_t components = 0;
    uint32_t most_events = 0;  // binding events at a time
    uint32_t dominated = 0;    // mechanisms dropped beforehand
};

// Every budget below bound_pages is infeasible; `plan` needs feasible_pages.
struct SmallestBudget {
    int64_t feasible_pages = 0;
    int64_t bound_pages = 0;
    bool exact = false;
    Plan plan;
    std::vector<Binding> binding;
    uint64_t work = 0;
};

struct Answer {
    Verdict verdict = Verdict::undecided;
    Plan plan;                 // verdict planned
    int64_t objective_ns = 0;  // added time of the plan, on the grid
    int64_t bound_ns = 0;      // no plan takes less, on the grid
    int64_t time_ns = 0;       // added time of the plan, off the grid
    Proof proof = Proof::none;
    bool least_peak = false;  // proven: no plan of this objective has a lower peak
    int64_t peak_pages = 0;
    int32_t peak_slot = 0;
    std::vector<int64_t> memory;   // per slot, all pages
    std::vector<Binding> binding;  // what keeps the plan from being faster, heaviest first
    SmallestBudget smallest;       // verdict infeasible or undecided
    uint64_t work = 0;
    Counters counters;
};

}  // namespace reprise::planner
