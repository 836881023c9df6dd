// One independent part of a problem in canonical order, laid out flat for the solver: instances by their first event, windows by name,
// times in units of the grid. Made by compile() from a Problem, immutable afterwards.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/model.h"

namespace reprise::planner {

struct CoreInstance {
    int forward_begin, forward_end, replay_begin, replay_end;
    int64_t keep, time, transient;
    Freedom freedom;
    int window_begin, window_end;  // into Core::windows_of
};
struct CoreElement {
    int64_t pages, capture;
    int window, mechanism;  // mechanism: index within the window
    int use_begin, use_end;
};
struct CoreUse {
    int instance, begin, end;
};
// One use seen from its reader.
struct ReaderUse {
    int element, begin, end;
};
struct CoreCost {
    int64_t time, pages;
};
struct CoreMechanism {
    int element_begin, element_end;
    int cost_begin;        // CoreCost per reader
    int reader_use_begin;  // reader k's uses: reader_uses[reader_offsets[reader_use_begin + k] .. [.. + k + 1])
    Kind kind;
};
struct CoreWindow {
    int reader_begin, reader_end;
    int mechanism_begin, mechanism_count;
    int size() const { return reader_end - reader_begin; }
};
// A window that an instance reads, and the instance's place among its readers.
struct WindowOf {
    int window, place;
};

struct Core {
    int slots = 0;
    int64_t budget = 0;
    std::vector<int64_t> base;
    std::vector<CoreInstance> instances;
    std::vector<CoreWindow> windows;
    std::vector<CoreMechanism> mechanisms;
    std::vector<CoreElement> elements;
    std::vector<CoreUse> uses;           // by element, then by instance
    std::vector<CoreUse> uses_by_begin;  // by element, then by begin
    std::vector<CoreCost> costs;
    std::vector<int> reader_offsets;
    std::vector<ReaderUse> reader_uses;
    std::vector<int> readers;  // instances, by window
    std::vector<WindowOf> windows_of;
    int64_t most_pages = 1;  // more than anything that can be alive in a slot, all mechanisms together

    // Where each thing came from, in the caller's numbers.
    int first_slot = 0;
    std::vector<int32_t> instance_source, window_source;
    std::vector<std::vector<int32_t>> mechanism_source;

    int size() const { return static_cast<int>(instances.size()); }
    int window_count() const { return static_cast<int>(windows.size()); }
    const CoreMechanism &mechanism(int window, int m) const { return mechanisms[windows[window].mechanism_begin + m]; }
    const CoreCost &cost(int window, int m, int place) const { return costs[mechanism(window, m).cost_begin + place]; }
};

// The independent parts: the time line is cut wherever no instance is outstanding. `problem` must be valid.
std::vector<Core> compile(const Problem &problem);

// Inside the solver: per instance 0 or 1, per window a mechanism.
struct Choice {
    std::vector<uint8_t> replay;
    std::vector<uint8_t> mechanism;
};

// What is still open: per instance -1, or what it is fixed to; per window the set of mechanisms left.
struct Fixing {
    std::vector<int8_t> choice;
    std::vector<uint32_t> mechanisms;
};
inline bool decided(uint32_t mask) { return (mask & (mask - 1)) == 0; }

// Work done, and when to stop: the only clock of the solver.
struct Work {
    uint64_t used = 0;
    uint64_t limit = UINT64_MAX;
    bool spent() const { return used >= limit; }
};

}  // namespace reprise::planner
