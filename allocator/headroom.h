// How many more bytes may become resident before somebody runs out: the machine, or a control group (v1 or v2, any level up to the root).
//
// Asked by the tracker before it makes a shadow or a pool: at a cgroup's limit a prefaulted pool is a kill, not an ENOMEM. A dozen small
// file reads (~100 us), so the answer is kept for 10 ms. No malloc, from any thread.
#pragma once

#include <cstdint>

namespace reprise {

struct Headroom {
    uint64_t machine;  // MemAvailable
    uint64_t group;    // the tightest control group; ~0 when none limits
};
Headroom headroom_parts();
uint64_t headroom();  // the lesser of both
uint64_t group_headroom();
// Memory was given back: what was read before is out of date.
void headroom_changed();

// What headroom() reads, without the cache and with every path below `root` ("" for the real files; tests give a made-up tree).
Headroom headroom_parts_below(const char *root);
uint64_t headroom_below(const char *root);

}  // namespace reprise
