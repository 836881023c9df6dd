// A buffer: one range of bytes of the job's, in one generation, with the mechanism that preserves it.
#pragma once

#include <memory>
#include <string>

#include "allocator/allocator.h"
#include "tracker/access.h"
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
    bool own_declaration = false;         // we declared the range with the allocator, and must undeclare it
    bool may_fault = false;               // the job may take its memory away without our seeing it: looked at before every access
    mutable bool found_writable = false;  // for those that may not
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
    bool held_by_plan = false;  // the plan counts what is held for it while no version is outstanding, too
    size_t idle_bytes = 0;      // as counted by the registry
    bool promoted = false;      // a watched buffer that changed: preserved from now on
    bool watched_for_headroom = false;
    bool expect_unchanged = false;  // since its last capture, says the plan: then comparing first is worth it

    // Else it is called by its address.
    bool has_name() const { return name.rfind("0x", 0) != 0; }
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

// Can its bytes be read now?
inline bool can_read(const Buffer &buffer) { return !buffer.may_fault || readable(buffer.range); }

// Can these bytes of it be written now?
inline bool can_write(const Buffer &buffer, AddressRange bytes) {
    if (buffer.origin != Origin::kDeclared || buffer.found_writable) return true;
    if (buffer.may_fault) return writable(bytes);
    return buffer.found_writable = writable(buffer.range);
}

Status cannot_read(const Buffer &buffer);
Status cannot_write(const Buffer &buffer);

}  // namespace reprise
