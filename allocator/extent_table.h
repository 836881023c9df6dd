// What is where in the arenas: one record per extent, and a page map from any arena page to its record.
//
// Writers hold the arena's lock (or own the extent, see below); find() takes no lock: page map entry -> record, two dependent loads. The
// generation of a record doubles as its sequence lock: it is 0 while the record changes and never takes the same value twice, so a
// reader that sees the same non-zero generation before and after reading the fields has read one life of the block. Page map entries
// of free extents may be stale; that is harmless, because a record only answers for addresses that it holds. What must be right: the
// first and last entry of every extent (boundary tags, for coalescing) and every entry of a live one.
//
// Ownership: whoever changes `generation` from g to 0 by compare-exchange owns the extent until it is live or free again. That makes
// a double free lose the race instead of corrupting the table. For extents that the engine has borrowed, which have no generation, and
// whose map entries may be stale as those of free ones, `borrowed` is what changes from 1 to 0.
#pragma once

#include <atomic>

#include "allocator/base/types.h"
#include "allocator/meta_mapping.h"

namespace reprise {

using ExtentId = uint32_t;  // 0: none

enum class ExtentState : uint8_t { kUnused, kLive, kDirty, kClean, kPurging };

struct alignas(64) Extent {
    std::atomic<Generation> generation{0};  // 0 unless live
    std::atomic<uintptr_t> begin{0};
    std::atomic<uint64_t> size{0};             // the bytes that were asked for
    std::atomic<uint32_t> pages{0};            // the pages that it occupies
    std::atomic<uint8_t> armed{0};             // some page may be write-protected by the page guard
    std::atomic<uint8_t> borrowed{0};          // the engine's: in no list, and not live
    ExtentState state = ExtentState::kUnused;  // from here on: under the arena's lock
    uint8_t half = 0;
    bool map_filled = false;  // every page's map entry names this record
    ExtentId bin_prev = 0,
             bin_next = 0;  // free: neighbours in the bin. bin_next also links the deferred list and the list of unused records
    ExtentId age_prev = 0, age_next = 0;  // dirty: neighbours in the age list
    uint32_t freed_ms = 0;

    uintptr_t end() const { return begin.load(std::memory_order_relaxed) + size_t{pages.load(std::memory_order_relaxed)} * kPageSize; }
};
static_assert(sizeof(Extent) == 64);

class ExtentTable {
  public:
    // For an arena of `arena_size` bytes at `arena_base`; metadata is about 0.2 % of the address space, and resident only where used.
    bool start(uintptr_t arena_base, size_t arena_size);
    void stop();

    // The page map of [begin, end) becomes usable.
    bool open_map(AddressRange pages);

    ExtentId make();  // an unused record; 0 when there is none
    void recycle(ExtentId id);
    Extent &operator[](ExtentId id) { return extents_[id]; }
    // One more than the highest id ever made.
    ExtentId limit() const { return used_.load(std::memory_order_acquire); }

    ExtentId at(uintptr_t address) const { return map_entry(address).load(std::memory_order_relaxed); }
    void set_tags(ExtentId id);  // first and last page
    void fill(ExtentId id);      // every page
    // Reads one life of record `id`; false when it is not live.
    bool read(ExtentId id, AddressRange *range, Generation *generation) const;
    // The live extent that holds `address`, which must lie in the opened part of the arena.
    bool find(uintptr_t address, AddressRange *range, Generation *generation) const {
        return read(at(address), range, generation) && range->contains(address);
    }

  private:
    std::atomic<uint32_t> &map_entry(uintptr_t address) const { return map_[(address - arena_base_) / kPageSize]; }

    std::atomic<uint32_t> *map_ = nullptr;
    Extent *extents_ = nullptr;
    uintptr_t arena_base_ = 0;
    std::atomic<uint32_t> used_{1};
    ExtentId opened_ = 0, capacity_ = 0, unused_ = 0;
    MetaMapping map_memory_, extent_memory_;
};

}  // namespace reprise
