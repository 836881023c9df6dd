// Blocks that live with the next allocator and are tracked all the same: small tensors, mostly.
//
// Noted and forgotten by hooks, from any thread, inside malloc and free; looked up by the tracker, also by an address inside a block. 32
// shards, each an open-addressing table in a mapping of its own under a lock that hooks only take with a bound: a note that fails leaves
// the block untracked (counted), never wrong; a forget that would fail waits, for a stale record would be wrong.
//
// A block is filed under its level (granule = smallest of 256 B, 1 KiB, 4 KiB, ... that is not smaller than it) and the granule in which it
// begins. A granule holds few blocks of its level, and the block around an address begins in the address's granule or the one before: one
// insertion per block whatever its size, and two probes per level in use to find it. A filter in front of it answers "never noted" in one
// load.
#pragma once

#include <atomic>

#include "allocator/base/futex_lock.h"
#include "allocator/base/spin_lock.h"
#include "allocator/base/types.h"

namespace reprise {

struct HeapEntry {
    uintptr_t begin = 0;  // 0: free slot
    uint64_t size = 0;
    Generation generation = 0;
};

class HeapTable {
  public:
    void note(uintptr_t begin, size_t size);
    // Cheap when the address was never noted. The entry that was removed, generation 0 when there was none.
    HeapEntry forget(uintptr_t begin) {
        // First test: nothing was ever noted in this process. Second: nothing that hashes like this address.
        if (levels_.load(std::memory_order_relaxed) == 0) return {};
        if (filter_[slot_of(begin)].count.load(std::memory_order_relaxed) == 0) return {};
        return remove(begin);
    }
    // Puts back what forget() returned: same generation.
    void restore(const HeapEntry &entry);
    // The block that holds `address`.
    bool find(uintptr_t address, HeapEntry *out);

    size_t count() const;  // entries, roughly: the sum over shards that others may be changing
    // Bytes noted that the ledger has not been told yet (it is told in steps, see kLedgerStep).
    int64_t untold_bytes() const;
    uint64_t untracked() const { return untracked_.load(std::memory_order_relaxed); }
    // Copies at most `capacity` entries to `out`, shard by shard; returns how many there were.
    size_t copy(HeapEntry *out, size_t capacity);

    void fork_lock();
    void fork_unlock();
    void fork_reset();

  private:
    static constexpr size_t kShards = 32, kFirstCapacity = 256, kFilterBits = 16;
    static constexpr unsigned kLevels = 21, kFirstBits = 8;

    // Telling the ledger costs two atomic operations; a shard saves them up. Its peak is off by 32 x 16 KiB at most.
    static constexpr int64_t kLedgerStep = 16 << 10;
    static constexpr uint32_t kGenerations = 256;  // taken from the common counter at once, for the same reason

    struct alignas(64) Shard {
        SpinLock lock;
        std::atomic<uint32_t> used{0};
        std::atomic<int64_t> untold{0};
        Generation next_generation = 0, last_generation = 0;
        size_t capacity = 0;  // a power of two
        HeapEntry *entries = nullptr;
    };
    struct Slot {
        std::atomic<uint16_t> count{0};
        std::atomic<uint8_t> level{0};  // of the last block noted here: where forget() looks first
    };

    static size_t slot_of(uintptr_t begin) { return (begin >> 4) * 0x9e3779b97f4a7c15u >> (64 - kFilterBits); }
    static unsigned level_of(size_t size);
    static uint64_t hash(unsigned level, uintptr_t granule);
    static uint64_t hash(const HeapEntry &e);
    static bool grow(Shard &shard);
    static void erase(Shard &shard, size_t index);
    static void account(Shard &shard, int64_t bytes);
    bool insert(const HeapEntry &entry);
    HeapEntry remove(uintptr_t begin);
    bool remove_at(unsigned level, uintptr_t begin, HeapEntry *out);
    bool find_in(unsigned level, uintptr_t granule, uintptr_t address, HeapEntry *out);

    Shard shards_[kShards];
    Slot filter_[size_t{1} << kFilterBits];
    std::atomic<uint32_t> levels_{0};  // bit per level ever used
    std::atomic<uint64_t> untracked_{0};
};

extern HeapTable heap_table;

}  // namespace reprise
