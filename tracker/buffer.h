// A buffer: one range of bytes of the job's, in one generation, with the mechanism that preserves it.
#pragma once

#include <memory>
#include <string>

#include "allocator/allocator.h"
#include "tracker/mechanism.h"

namespace reprise {

struct BufferFlags {
    bool parameter = false;   // may be watched instead of preserved
    bool argument = false;    // lives for one instance; when it is gone at the replay it is skipped
    bool generator = false;   // raw generator state
    bool concurrent = false;  // other threads may write it during a replay
    bool declared = false;    // by reprise_track: never forgotten while it lives
    uint8_t element = 1;      // merge granularity when concurrent, in bytes
};

struct Buffer {
    uint64_t id = 0;
    AddressRange range;
    Generation generation = 0;
    Origin origin = Origin::kArena;
    bool own_declaration = false;  // we declared the range with the allocator, and must undeclare it
    std::string name;
    BufferFlags flags;

    std::unique_ptr<Mechanism> mechanism;
    Version newest = 0;                       // of the last capture
    uint64_t write_version = 1;               // the public version: rises at a cut when written since the last one
    bool dead = false;                        // its generation ended
    mutable uint64_t live_at = ~uint64_t{0};  // the allocator's count of endings when it was last found alive

    // What calibration learns.
    uint32_t windows = 0;  // windows in which it was captured
    uint64_t last_window = 0;
    uint32_t windows_changed = 0;  // windows in which a replay found it changed
    uint64_t last_changed_window = 0;
    bool promoted = false;  // a watched buffer that changed: preserved from now on
    bool watched_for_headroom = false;

    size_t outstanding() const { return mechanism ? mechanism->outstanding() : 0; }
};

// Is the generation that this buffer stands for still the one at its address?
inline bool still_live(const AllocatorPort &port, const Buffer &buffer) {
    if (buffer.dead) return false;
    const uint64_t endings = port.endings(buffer.origin);
    if (buffer.live_at == endings) return true;
    if (!port.is_live(buffer.range.begin, buffer.generation)) return false;
    buffer.live_at = endings;
    return true;
}

}  // namespace reprise
