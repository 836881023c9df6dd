// Blocks that live with the next allocator and are tracked all the same: small tensors, mostly.
//
// Noted and forgotten by hooks, from any thread, inside malloc and free; looked up by the tracker, also by an address inside a block. 32
// shards, each an open-addressing table in a mapping of its own under a lock that hooks only take with a bound: a note that fails leaves
// the block untracked (counted), never wrong; a forget that would fail waits, for a stale record would be wrong.
//
// A block is filed under its level (granule = smallest of 256 B, 1 KiB, 4 KiB, ... that is not smaller than it) and the granule in which it
// begins. A granule holds few blocks of its level, and the block around an address begins in the address's granule or the one before: one
// insertion per block whatever its size, and two granules per level in use to look at. A counter per hashed granule, kept under the
// shard's lock, says which of them hold nothing: of a dozen, one or two are left to probe. The same addresses are asked for again and
// again: a hint per hashed address says where the answer was last, and the record there is asked whether it still is (hint -> record: two
// loads). A filter by first address in front of all this answers "never noted" in one load.
//
// Look-ups take no lock: the shard's sequence number is odd while an entry changes, and a reader that sees the same even number before and
// after has seen the table as it was. After a few tries it takes the lock like everybody else (the writer may be asleep). A table that was
// outgrown gives its memory back but keeps its addresses, for a reader may still be in it.
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
        // First test: nothing was ever noted in this process, or only blocks that begin elsewhere in a cache line: aligned blocks are at
        // its beginning, and three of four plain ones are not. Second: nothing that hashes like this address.
        if ((offsets_.load(std::memory_order_relaxed) >> offset_of(begin) & 1) == 0) return {};
        if (filter_[slot_of(begin)].load(std::memory_order_relaxed) == 0) return {};
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
    static constexpr size_t kShards = 32, kFirstCapacity = 256, kFilterBits = 16, kGranuleBits = 16, kHintBits = 16;
    static constexpr unsigned kLevels = 21, kFirstBits = 8;

    // Telling the ledger costs two atomic operations; a shard saves them up. Its peak is off by 32 x 16 KiB at most.
    static constexpr int64_t kLedgerStep = 16 << 10;
    static constexpr uint32_t kGenerations = 256;  // taken from the common counter at once, for the same reason

    // What is read without the lock: entries as atomics, address and capacity of the table in one word.
    struct Cell {
        std::atomic<uintptr_t> begin{0};
        std::atomic<uint64_t> size{0};
        std::atomic<Generation> generation{0};
        uint64_t hash = 0;  // under the lock; fills the cell up to half a cache line, so that none straddles two

        // Acquire and release, so that they stay between the two looks at, and the two changes of, the sequence number.
        uintptr_t where() const { return begin.load(std::memory_order_acquire); }
        HeapEntry get() const { return {where(), size.load(std::memory_order_acquire), generation.load(std::memory_order_acquire)}; }
        void set(const HeapEntry &e, uint64_t h) {
            hash = h;
            size.store(e.size, std::memory_order_release);
            generation.store(e.generation, std::memory_order_release);
            begin.store(e.begin, std::memory_order_release);
        }
    };
    class Table {
      public:
        Table() = default;
        explicit Table(uintptr_t word) : word_(word) {}
        Table(uintptr_t memory, size_t capacity) : word_(memory | static_cast<unsigned>(__builtin_ctzll(capacity))) {}

        uintptr_t word() const { return word_; }
        size_t capacity() const { return word_ == 0 ? 0 : size_t{1} << (word_ & (kPageSize - 1)); }
        size_t mask() const { return capacity() - 1; }
        uintptr_t memory() const { return page_floor(word_); }
        Cell &operator[](size_t index) const { return reinterpret_cast<Cell *>(memory())[index]; }
        explicit operator bool() const { return word_ != 0; }

      private:
        uintptr_t word_ = 0;
    };

    struct alignas(64) Shard {
        SpinLock lock;
        std::atomic<uint64_t> sequence{0};
        std::atomic<uint32_t> used{0};
        std::atomic<int64_t> untold{0};
        Generation next_generation = 0, last_generation = 0;
        std::atomic<uintptr_t> table_word{0};

        Table table() const { return Table(table_word.load(std::memory_order_acquire)); }
    };
    class Change;  // the shard's sequence number is odd while it lives

    // By page, hashed, and the cache line in the page. What a program allocates and frees by turns lies in few pages, and a page's slots
    // are one cache line: scattered over the whole filter they were cold at every free.
    static size_t slot_of(uintptr_t begin) {
        return (begin / kPageSize * 0x9e3779b97f4a7c15u >> (64 - kFilterBits + 6)) << 6 | (begin >> 6 & 63);
    }
    static unsigned offset_of(uintptr_t begin) { return begin >> 4 & 3; }
    static unsigned level_of(size_t size);
    static uint64_t hash(unsigned level, uintptr_t granule);
    static bool grow(Shard &shard);
    static void erase(Shard &shard, size_t index);
    static void account(Shard &shard, int64_t bytes);
    bool insert(const HeapEntry &entry);
    HeapEntry remove(uintptr_t begin);
    bool remove_at(unsigned level, uintptr_t begin, HeapEntry *out);
    bool find_hinted(uint32_t hint, uintptr_t address, HeapEntry *out);
    bool find_in(uint64_t hash, uintptr_t address, HeapEntry *out);
    bool find_locked(Shard &shard, uint64_t hash, uintptr_t address, HeapEntry *out);
    enum class Seen { kNothing, kBlock, kChange };
    static Seen search(Table table, uint64_t hash, uintptr_t address, HeapEntry *out, size_t *index);
    std::atomic<uint32_t> &hint(uintptr_t address) { return hints_[address * 0x9e3779b97f4a7c15u >> (64 - kHintBits)]; }
    // How many blocks are filed under granules that hash like this one. Changed under the lock of the shard that the hash belongs to, so
    // plain loads and stores do; stuck at the top.
    std::atomic<uint16_t> &granule(uint64_t hash) { return granules_[hash >> (64 - kGranuleBits)]; }
    void count_granule(uint64_t hash, int by);
    bool may_hold(uint64_t hash) { return granule(hash).load(std::memory_order_acquire) != 0; }

    Shard shards_[kShards];
    std::atomic<uint16_t> granules_[size_t{1} << kGranuleBits];
    std::atomic<uint32_t> hints_[size_t{1} << kHintBits];  // index * kShards + shard; written by readers, believed by nobody
    void count_slot(size_t slot, int by);
    // How many blocks that hash alike are noted, stuck at the top; and the level of the last of them, where forget() looks first.
    alignas(64) std::atomic<uint8_t> filter_[size_t{1} << kFilterBits];
    std::atomic<uint8_t> levels_at_[size_t{1} << kFilterBits];
    std::atomic<uint32_t> levels_{0};  // bit per level ever used
    std::atomic<uint8_t> offsets_{0};  // bit per offset in a cache line, in steps of 16 bytes, at which a block ever began
    std::atomic<uint64_t> untracked_{0};
};

extern HeapTable heap_table;

}  // namespace reprise
