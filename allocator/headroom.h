// How many more bytes may become resident before somebody runs out: the machine, or a control group (v1 or v2, any level up to the root).
//
// Asked by the tracker before it makes a shadow or a pool: at a cgroup's limit a prefaulted pool is a kill, not an ENOMEM. A dozen small
// file reads (~100 us), so the answer is kept for 10 ms. No malloc, from any thread.
#pragma once

#include <cstdint>

namespace reprise {

uint64_t headroom();

// What headroom() reads, without the cache and with every path below `root` ("" for the real files; tests give a made-up tree).
uint64_t headroom_below(const char *root);

}  // namespace reprise
