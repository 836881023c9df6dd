// From what was seen of a buffer to the windows and mechanisms that the planner decides about. Called by the cost model once per buffer;
// pure functions. All bytes are exact: a page that several readers need from the same version is one element, however many they are.
//
// A mechanism that is not here (device copies, intents, a copy-on-write mapping) is a table that the caller adds to Window::mechanisms
// itself.
#pragma once

#include <cstdint>
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

// Calibrated on this machine, refined in the job. Picoseconds per page, because arming costs less than a nanosecond.
struct MechanismCosts {
    int64_t copy_ps = 190'000;              // per page copied: captures, and each of load and put-back
    int64_t copy_fixed_ns = 2'000;          // per capture
    int64_t small_ns = 4'000;               // load and put-back of a small buffer
    int64_t arm_ps = 500;                   // per page watched, once per window
    int64_t delta_ps = 1'000'000;           // per page at its first write: fault and before-image
    int64_t selective_load_ps = 1'000'000;  // per page that differs: load and put-back
    int64_t predicted_ps = 350'000;         // per predicted page, copied at the forward
    int64_t miss_ns = 30'000;               // per page that the prediction missed
    int64_t small_pages = 32;               // below that a buffer is always copied
};

// A shadow is filled once in a job and then follows the buffer: it costs no fill per cycle, but looking for what was written and a copy of
// every written page. Of a buffer with several windows each pays for what was written since the window before it (the first one also for
// what came after the last), so that all of them together pay once. The shadow's memory outside its window is not in the table: a table
// holds what depends on decisions within it. Whoever plans a cycle adds it (plan_job).
//
// A before-image exists from the cut after its write on; a whole copy serves every reader of its version, so that readers between which
// nothing was written share one.
//
// Appends the buffer's windows: one for every connected stretch of time in which a user is outstanding. A user that sees no change is a
// reader, too, where another one does: at its forward nobody knows yet, so that it holds what the others hold; its replay loads nothing. A
// buffer that never changes between a forward and its replay has no window.
void append_windows(const std::vector<Instance> &instances, const BufferHistory &history, const MechanismCosts &costs,
                    std::vector<Window> &windows);

}  // namespace reprise::planner
