// Ranges that somebody declared and that no allocator of ours knows: numpy arrays, file mappings, shared memory, static arrays.
//
// Declared and undeclared by the tracker; ended by the mmap-family hooks (munmap, mremap, MAP_FIXED, MADV_DONTNEED), from any thread. A few
// thousand at most, in one plain array under a lock: a hook costs one load while there are none, and a comparison with the hull of
// all of them before it looks at any.
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
        if (count_.load(std::memory_order_relaxed) != 0) end_slow(range);
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

    static constexpr size_t kMostPending = 64;

    void end_slow(AddressRange range);
    void end_locked(AddressRange range);
    void end_later(AddressRange range);
    void settle() {
        if (pending_.load(std::memory_order_acquire) != 0 || end_all_.load(std::memory_order_acquire)) settle_slow();
    }
    void settle_slow();
    Entry *entries() const { return reinterpret_cast<Entry *>(memory_.base()); }

    FutexLock lock_;
    std::atomic<size_t> count_{0};
    // Contains every entry; only ever grows while there are any.
    std::atomic<uintptr_t> low_{~uintptr_t{0}}, high_{0};
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
