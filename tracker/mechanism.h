// A mechanism: one way of preserving one buffer so that a replay can see an earlier version of it. Called under the engine's mutex.
//
// Versions are numbers of the buffer's own, rising by one at every capture. A version is outstanding from its capture to its release;
// its bytes must be recoverable all that time, whatever is captured, loaded or put back in between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "allocator/base/status.h"
#include "allocator/base/types.h"
#include "tracker/page_runs.h"

namespace reprise {

using Version = uint32_t;

enum class MechanismKind : uint8_t { kNone, kSmall, kWhole, kShadow, kWatch };
const char *to_string(MechanismKind kind);

struct CaptureCost {
    uint64_t copied = 0;        // bytes copied from the job's memory
    uint64_t first_fill = 0;    // of these, into a shadow or pool used for the first time
    bool written = false;       // the bytes are not (or may not be) those of the capture before
    PageRuns *pages = nullptr;  // where the pages written since then go, if the caller wants them and it can be told
    bool planned = false;       // somebody plans with these pages: what a mechanism would do to adapt itself is not in his plan
};

// A run of live bytes that differs (or may differ) from a version, and where that version's bytes are.
struct Piece {
    uintptr_t live = 0;
    const std::byte *image = nullptr;
    size_t size = 0;
    bool stray_checked = false;  // neither written by F nor copied blindly: a replay that leaves other bytes here has diverged
    AddressRange range() const { return {live, live + size}; }
};

inline uint64_t total_size(const std::vector<Piece> &pieces) {
    uint64_t bytes = 0;
    for (const Piece &piece : pieces) bytes += piece.size;
    return bytes;
}

// What a mechanism remembers between changed() and the end of a replay.
struct ReplayView {
    Version version = 0;
    Version version_at_begin = 0;  // the newest version when the replay began
    uint64_t moves_at_begin = 0;   // how often images had moved by then
    std::vector<Piece> pieces;     // D, ascending
    PageBits loaded;               // pages of D (page-granular mechanisms)
    PageBits clean_before;         // pages of D that equalled the newest version before the load
    bool note_written = false;     // asks for:
    PageRuns since_capture;        // pages written since the newest capture, as far as can be told
    bool deep = false;             // look for strays also where that costs a comparison of everything

    void clear() {
        pieces.clear();  // keeps its memory: a Replay is used again and again
        loaded = {};
        clean_before = {};
        since_capture.clear();
    }
};

class Mechanism {
  public:
    virtual ~Mechanism() = default;

    virtual MechanismKind kind() const = 0;

    // The bytes as they are now become `version`. A failure (no memory) leaves older versions intact and `version` not outstanding.
    virtual Status capture(Version version, CaptureCost &cost) = 0;
    // The forward that captured `version` has ended: learn what it wrote.
    virtual void forward_ended(Version version) = 0;
    // Fills view.pieces with D. An error says why `version` cannot be loaded.
    virtual Status changed(Version version, ReplayView &view) = 0;
    // A forward nested in the replay, or the release of another instance meanwhile, may have moved images: finds those of view.pieces
    // again. Pieces may be cut differently, but cover the same bytes in the same order.
    virtual void refresh(ReplayView & /*view*/) const {}
    // After the replay: runs outside D whose bytes are no longer the version's. Images as in changed().
    virtual void strays(const ReplayView &view, std::vector<Piece> &out) = 0;
    // The present bytes of D, and the images of the strays unless they were kept, have been written back.
    virtual void put_back(const ReplayView & /*view*/, const std::vector<Piece> & /*restored_strays*/) {}
    // Did the forward of `version` write this buffer at all? False where it cannot be known.
    virtual bool forward_wrote(Version version) const = 0;
    virtual void release(Version version) = 0;

    // Was anything written since the last capture? For version counters at a cut; never misses a write that changed bytes.
    virtual void written_since_capture(std::vector<AddressRange> &runs) = 0;
    // The writer says that it is about to write these bytes.
    virtual void write_intent(AddressRange /*bytes*/) {}
    // Stops watching the live bytes. When the buffer is dead they must not be touched any more.
    virtual void detach() {}

    // Is a difference at the end of a replay proof of a write during it? False where writes are only compared for: then it is a warning.
    virtual bool sees_writes_exactly() const { return true; }

    virtual size_t outstanding() const = 0;
    // Bytes of images that it keeps though no version is outstanding: a shadow, the copy that the next capture is compared with.
    virtual size_t idle_bytes() const { return 0; }
};

}  // namespace reprise
