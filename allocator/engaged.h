// For interpose/ and the tables below it. One byte that says whether any block in this process is not plainly the next allocator's.
//
// free, realloc and malloc_usable_size read it first, relaxed: as long as it is 0 (every program that is not a training job) a hook is one
// load and one jump. It is raised before the first such block is handed out, and whoever can pass that block to free has synchronised with
// the thread that got it, so the load there cannot be too early. It never falls again.
#pragma once

#include <atomic>
#include <cstdint>

namespace reprise {

inline constexpr uint8_t kEngagedBoot = 1;
inline constexpr uint8_t kEngagedArena = 2;     // a block in a tracked arena exists or existed
inline constexpr uint8_t kEngagedNoted = 4;     // a block of the next allocator is listed
inline constexpr uint8_t kEngagedDeclared = 8;  // a range that we did not allocate was declared: it may be somebody's heap block

inline constinit std::atomic<uint8_t> g_engaged{0};

inline uint8_t engaged() { return g_engaged.load(std::memory_order_relaxed); }
inline void engage(uint8_t bit) {
    if ((engaged() & bit) == 0) g_engaged.fetch_or(bit, std::memory_order_relaxed);
}

}  // namespace reprise
