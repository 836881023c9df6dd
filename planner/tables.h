// From what was seen of a buffer to the windows and mechanisms that the planner decides about. Called by the cost model once per buffer;
// pure functions. All bytes are exact: a page that several readers need from the same version is one element, however many they are.
//
// A mechanism that is not here (device copies, intents, a copy-on-write mapping) is a table that the caller adds to Window::mechanisms
// itself.
#pragma once

#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "planner/model.h"

namespace reprise::planner {

// Half-open run of pages within the buffer.
struct PageRun {
    int64_t begin = 0, end = 0;
};

// One stretch of writing, as far as a tracker can tell it apart: everything written between two cuts.
struct BufferWrite {
    int32_t slot = 0;  // in which it happened
    std::vector<PageRun> pages;
};

struct BufferHistory {
    std::string name;
    int64_t pages = 0;
    std::vector<int32_t> users;       // instances whose scope holds it
    std::vector<BufferWrite> writes;  // in any order; several in one slot count as one
    // How good a prediction of the written pages is: pages predicted beyond those written, and written ones missed, in millionths.
    int64_t over_predicted_ppm = 100'000, missed_ppm = 0;
    bool predictable = true;  // false: no prediction is offered
    bool selective = true;    // false: what was written cannot be told, so that the buffer is only ever copied
};

// Calibrated on this machine, refined in the job. Picoseconds per page, because looking at one takes but a few nanoseconds.
struct MechanismCosts {
    int64_t copy_ps = 190'000;         // per page of a whole copy: its capture
    int64_t copy_load_ps = 570'000;    // per page of one that differs: the present saved, load and put-back
    int64_t compare_ps = 150'000;      // per page compared with a copy
    int64_t copy_fixed_ns = 2'000;     // per capture
    int64_t small_ns = 4'000;          // load and put-back of a small buffer
    int64_t look_ps = 500;             // per page of a shadow's buffer, at each capture and twice at a replay
    int64_t look_fixed_ns = 10'000;    // per capture that finds pages written: they are watched again, and other processors told
    int64_t fault_ps = 700'000;        // per page at its first write since a capture, and watching it again
    int64_t page_copy_ps = 250'000;    // per page copied alone: a shadow brought up to date, a before-image saved
    int64_t page_load_ps = 1'000'000;  // per page that differs: the present saved, load and put-back
    int64_t predicted_ps = 350'000;    // per predicted page, copied at the forward
    int64_t miss_ns = 30'000;          // per page that the prediction missed
    int64_t small_pages = 32;          // below that a buffer is always copied
};

// All of them by the names that they have in profiles, in the order in which those are written.
struct NamedCost {
    const char *name;
    int64_t MechanismCosts::*value;
};
inline constexpr NamedCost kCosts[] = {{"copy_ps", &MechanismCosts::copy_ps},
                                       {"copy_load_ps", &MechanismCosts::copy_load_ps},
                                       {"compare_ps", &MechanismCosts::compare_ps},
                                       {"copy_fixed_ns", &MechanismCosts::copy_fixed_ns},
                                       {"small_ns", &MechanismCosts::small_ns},
                                       {"look_ps", &MechanismCosts::look_ps},
                                       {"look_fixed_ns", &MechanismCosts::look_fixed_ns},
                                       {"fault_ps", &MechanismCosts::fault_ps},
                                       {"page_copy_ps", &MechanismCosts::page_copy_ps},
                                       {"page_load_ps", &MechanismCosts::page_load_ps},
                                       {"predicted_ps", &MechanismCosts::predicted_ps},
                                       {"miss_ns", &MechanismCosts::miss_ns},
                                       {"small_pages", &MechanismCosts::small_pages}};
static_assert(sizeof(MechanismCosts) == std::size(kCosts) * sizeof(int64_t), "a cost has no name");

// Those that a machine's calibration measures (the others are what they are everywhere), in the order of its file: another order is another
// format of it.
inline constexpr int64_t MechanismCosts::*kMeasuredCosts[] = {
    &MechanismCosts::copy_ps,       &MechanismCosts::copy_load_ps, &MechanismCosts::compare_ps,   &MechanismCosts::look_ps,
    &MechanismCosts::look_fixed_ns, &MechanismCosts::fault_ps,     &MechanismCosts::page_copy_ps, &MechanismCosts::page_load_ps};

// A shadow is filled once in a job and then follows the buffer: it costs no fill per cycle, but each capture looks for what was written
// since the one before it, and every page found so took a fault and takes a copy. That is paid in the window of the capture which finds
// it (what is written after a cycle's last forward, in its first window), so that all windows together pay once. The shadow's memory
// outside its window is not in the table: a table holds what depends on decisions within it. Whoever plans a cycle adds it (plan_job).
//
// A before-image exists from the cut after its write on, and costs a copy where a capture follows while it is needed: until then the
// shadow is the before-image. Such a page is watched again, and the first load of it takes another fault. A whole copy serves every reader
// of its version, so that readers between which nothing was written share one: the later ones compare.
//
// Appends the buffer's windows: one for every connected stretch of time in which a user is outstanding. A user that sees no change is a
// reader, too, where another one does: at its forward nobody knows yet, so that it holds what the others hold; its replay loads nothing. A
// buffer that never changes between a forward and its replay has no window.
void append_windows(const std::vector<Instance> &instances, const BufferHistory &history, const MechanismCosts &costs,
                    std::vector<Window> &windows);

}  // namespace reprise::planner
