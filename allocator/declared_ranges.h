// Ranges that somebody declared and that no allocator of ours knows: numpy arrays, file mappings, shared memory, static arrays.
//
// Declared and undeclared by the tracker; ended from any thread by the mmap-family hooks (munmap, mremap, MAP_FIXED, MADV_DONTNEED) and, as
// somebody may declare a piece of another allocator's block, by every free. A few thousand at most, in one plain array under a lock. In
// front of it a count per page (by its number, modulo the table's size) says "nothing here" to a free in a load or two: the generators of a
// framework are declared ranges, so that every job has some, and frees are what jobs do most.
#pragma once

#include <atomic>

#include "allocator/base/futex_lock.h"
#include "allocator/base/spin_lock.h"
#include "allocator/base/types.h"
#include "allocator/meta_mapping.h"

namespace reprise {

class DeclaredRanges {
  public:
    Generation add(AddressRange range);  // 0: the table is full
    bool remove(uintptr_t begin, Generation generation);
    // Ends every declaration that meets the range.
    void end(AddressRange range) {
        if (count_.load(std::memory_order_relaxed) != 0 && may_meet(range)) end_slow(range);
    }
    // A declared range that holds the address: the smallest when there are several.
    bool find(uintptr_t address, AddressRange *range, Generation *generation);
    bool is_live(uintptr_t address, Generation generation);
    size_t count() const { return count_.load(std::memory_order_relaxed); }

    void fork_lock() { lock_.lock(); }
    void fork_unlock() { lock_.unlock(); }
    void fork_reset() {
        lock_.reset();
        pending_lock_.reset();
    }

  private:
    struct Entry {
        AddressRange range;
        Generation generation;
    };
    static constexpr size_t kMost = size_t{1} << 20, kStep = 64 * kPageSize;

    static constexpr size_t kMostPending = 64, kFilterSlots = 4096, kFewPages = 16;

    // Ranges of more than a few pages are not in the filter: their hull is.
    static size_t pages_of(AddressRange range) { return range.empty() ? 0 : (range.end - 1) / kPageSize - range.begin / kPageSize + 1; }
    static size_t slot_of(uintptr_t address) { return address / kPageSize % kFilterSlots; }
    bool may_meet(AddressRange range) const {
        if (range.begin < large_high_.load(std::memory_order_relaxed) && range.end > large_low_.load(std::memory_order_relaxed))
            return true;
        if (pages_of(range) > kFewPages) return true;
        for (uintptr_t page = page_floor(range.begin); page < range.end; page += kPageSize) {
            if (filter_[slot_of(page)].load(std::memory_order_relaxed) != 0) return true;
        }
        return false;
    }
    void list(AddressRange range, int by);
    void erase(size_t index, size_t count);

    // Never inlined: its copy of the range in memory would be made in every free (two words written, then read as one, which the processor
    // cannot forward: 8 ns each).
    __attribute__((noinline)) void end_slow(AddressRange range);
    void end_locked(AddressRange range);
    void end_later(AddressRange range);
    void settle() {
        if (pending_.load(std::memory_order_acquire) != 0 || end_all_.load(std::memory_order_acquire)) settle_slow();
    }
    void settle_slow();
    Entry *entries() const { return reinterpret_cast<Entry *>(memory_.base()); }

    FutexLock lock_;
    std::atomic<size_t> count_{0};
    // Hulls of all entries, and of the large ones; they only ever grow while there are any entries.
    std::atomic<uintptr_t> low_{~uintptr_t{0}}, high_{0};
    std::atomic<uintptr_t> large_low_{~uintptr_t{0}}, large_high_{0};
    std::atomic<uint16_t> filter_[kFilterSlots];  // entries of few pages that have bytes in such a page; stuck at the top
    // Ranges whose hook could not get the lock: whoever gets it next ends them first. One more than fit ends all declarations: losing
    // some is safe, keeping a dead one is not.
    SpinLock pending_lock_;
    std::atomic<size_t> pending_{0};
    std::atomic<bool> end_all_{false};
    AddressRange pending_ranges_[kMostPending];
    size_t opened_ = 0;
    MetaMapping memory_;
};

extern DeclaredRanges declared_ranges;

}  // namespace reprise
