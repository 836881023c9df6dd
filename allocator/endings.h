// How many generations of each origin have ended in this process: frees of tracked blocks, resizes, unmapped declarations. Somebody who
// found a block alive and sees the same number again knows that it still is, without looking it up. Written by hooks (one increment),
// read by the tracker.
#pragma once

#include <atomic>
#include <cstdint>

#include "allocator/allocator.h"

namespace reprise {

struct alignas(64) EndingCount {
    std::atomic<uint64_t> value{0};
};
extern EndingCount g_endings[3];  // by Origin

// After the generation is gone from its table.
inline void note_ending(Origin origin) { g_endings[static_cast<int>(origin)].value.fetch_add(1, std::memory_order_release); }
inline uint64_t endings(Origin origin) { return g_endings[static_cast<int>(origin)].value.load(std::memory_order_acquire); }

}  // namespace reprise
