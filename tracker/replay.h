// One replay of one instance, over all buffers of its scope: finds D, loads the forward's bytes, and puts the present back.
//
//     prepare   generations checked, D found; nothing in the job has changed yet, so a failure here is a clean rejection
//     load      the present of every piece is saved, then the forward's bytes are written
//     finish    strays are found and undone, the present is written back, buffers freed meanwhile are left alone
//
// Under the engine's mutex; the replayed code itself runs between load and finish, without it.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "kernels/kernels.h"
#include "tracker/buffer.h"
#include "tracker/image_pool.h"

namespace reprise {

// A buffer at a version: one line of a contract.
struct ScopeEntry {
    Buffer *buffer = nullptr;
    Version version = 0;
    bool optional = false;  // not rejected when it is gone at the replay (arguments, learned scope)
};

struct Stray {
    const Buffer *buffer = nullptr;
    AddressRange range;  // the first run
    uint64_t bytes = 0;
    uint64_t runs = 0;
};

struct ReplayOutcome {
    uint64_t bytes_put_back = 0;
    uint64_t gated_kept = 0;      // buffers
    uint64_t gated_conflict = 0;  // buffers
    uint64_t merged_elements = 0;
    std::vector<Stray> strays;                // divergences
    std::vector<Stray> possible;              // the same, found by a source that cannot tell who wrote: warnings
    std::vector<const Buffer *> unreachable;  // made unreadable or read-only during the replay: not put back
};

// Bytes of D by what they were loaded from.
struct LoadedBytes {
    uint64_t copies = 0;  // whole copies
    uint64_t pages = 0;   // pages of a shadow that nobody captured since: writing them took no fault
    uint64_t other = 0;
};

class Replay {
  public:
    struct Options {
        bool gated = false;
        bool deep = false;          // look for strays everywhere, whatever it costs
        bool forward_open = false;  // its F has not ended: what F will have written is not known yet, so no write is a divergence
        bool audit = false;         // nothing will be loaded: what could not be is a finding, not a failure
        bool note_written = false;  // for for_each_written()
    };

    Replay(const AllocatorPort &port, ImagePool &pool) : port_(port), pool_(pool) {}
    // A Replay may be used again after finish(), with other options: its vectors keep their memory.
    void set_options(Options options) { options_ = options; }

    Status prepare(std::span<const ScopeEntry> scope);
    Status load();
    ReplayOutcome finish();

    uint64_t bytes_changed() const { return bytes_changed_; }
    LoadedBytes bytes_by_kind() const;
    bool loaded() const { return loaded_; }
    // D, ascending and disjoint.
    std::vector<AddressRange> ranges() const;
    // Do the bytes this replay loads meet any of these buffers?
    bool meets(std::span<const ScopeEntry> scope) const;
    // Visits every buffer with changed bytes.
    template <class Fn>
    void for_each_changed(Fn fn) const {
        for (const Item &item : items()) {
            const uint64_t bytes = item.lost ? item.buffer->range.size() : total_size(item.view.pieces);
            if (bytes != 0) fn(*item.buffer, bytes, item.view.pieces);
        }
    }

    // Visits every buffer that was found written since its newest capture, with the pages.
    template <class Fn>
    void for_each_written(Fn fn) const {
        for (const Item &item : items()) {
            if (!item.view.since_capture.empty()) fn(*item.buffer, item.view.since_capture);
        }
    }

  private:
    struct Item {
        Buffer *buffer = nullptr;
        ReplayView view;
        bool alive = true;  // at the end of the replay
        bool lost = false;  // audit: changed, and could not have been loaded
    };
    bool live(const Item &item) const { return still_live(port_, *item.buffer); }
    bool can_write_pieces(const Item &item) const;
    bool scopes_may_alias() const;
    std::vector<Piece> judge_strays(Item &item, ReplayOutcome &outcome);
    void find_strays_in_pieces(const Item &item, std::vector<Piece> &out) const;

    const AllocatorPort &port_;
    ImagePool &pool_;
    Options options_;
    std::span<Item> items() { return {items_.data(), count_}; }
    std::span<const Item> items() const { return {items_.data(), count_}; }

    std::vector<Item> items_;  // of which `count_` are used: buffers that exist
    size_t count_ = 0;
    std::vector<kernels::SwapItem> swaps_;
    std::vector<kernels::CopyItem> copies_;
    Image present_;  // the pieces' present bytes, one after the other
    uint64_t bytes_changed_ = 0;
    bool loaded_ = false;
};

}  // namespace reprise
