#include "allocator/heap_table.h"

#include "allocator/endings.h"

#include "allocator/arena.h"
#include "allocator/base/fault.h"
#include "allocator/ledger.h"

namespace reprise {

constinit HeapTable heap_table;

unsigned HeapTable::level_of(size_t size) {
    if (size <= size_t{1} << kFirstBits) return 0;
    const unsigned bits = 64 - static_cast<unsigned>(__builtin_clzll(size - 1));
    const unsigned level = (bits - kFirstBits + 1) / 2;
    return level < kLevels ? level : kLevels - 1;
}

uint64_t HeapTable::hash(unsigned level, uintptr_t granule) {
    uint64_t h = (granule + level * uint64_t{0x632be59bd9b4e019}) * 0x9e3779b97f4a7c15u;
    h ^= h >> 32;
    return h * 0xd6e8feb86659fd93u;
}
// The shard is chosen by the hash's top bits, the place in it by bits from the middle.
namespace {
size_t place_of(uint64_t hash, size_t capacity) { return (hash >> 20) & (capacity - 1); }
size_t shard_of(uint64_t hash) { return hash >> 59; }
}  // namespace

class HeapTable::Change {
  public:
    explicit Change(Shard &shard) : shard_(shard) { step(std::memory_order_relaxed); }
    ~Change() { step(std::memory_order_release); }
    Change(const Change &) = delete;
    Change &operator=(const Change &) = delete;

  private:
    void step(std::memory_order order) { shard_.sequence.store(shard_.sequence.load(std::memory_order_relaxed) + 1, order); }
    Shard &shard_;
};

bool HeapTable::grow(Shard &shard) {
    const Table old = shard.table();
    const size_t capacity = old ? old.capacity() * 2 : kFirstCapacity;
    const uintptr_t memory = sys::map(page_ceil(capacity * sizeof(Cell)), PROT_READ | PROT_WRITE);
    if (memory == 0) return false;
    const Table table(memory, capacity);
    for (size_t i = 0; i < old.capacity(); ++i) {
        const HeapEntry e = old[i].get();
        if (e.begin == 0) continue;
        size_t at = place_of(old[i].hash, capacity);
        while (table[at].where() != 0) at = (at + 1) & table.mask();
        table[at].set(e, old[i].hash);
    }
    {
        Change change(shard);
        shard.table_word.store(table.word(), std::memory_order_release);
    }
    // Readers that are still in it find nothing there any more, and a new sequence number.
    if (old) sys::advise(old.memory(), page_ceil(old.capacity() * sizeof(Cell)), MADV_DONTNEED);
    return true;
}

// Takes out table[index] and moves later ones of the cluster up, so that no tombstones are needed.
void HeapTable::erase(Shard &shard, size_t index) {
    const Table table = shard.table();
    const size_t mask = table.mask();
    {
        Change change(shard);
        size_t hole = index;
        for (size_t at = (hole + 1) & mask; table[at].where() != 0; at = (at + 1) & mask) {
            const uint64_t hash = table[at].hash;
            const size_t home = place_of(hash, table.capacity());
            if (((at - home) & mask) >= ((at - hole) & mask)) {
                table[hole].set(table[at].get(), hash);
                hole = at;
            }
        }
        table[hole].set({}, 0);
    }
    shard.used.store(shard.used.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
}

void HeapTable::count_granule(uint64_t hash, int by) {
    std::atomic<uint16_t> &count = granule(hash);
    const uint16_t now = count.load(std::memory_order_relaxed);
    if (now != UINT16_MAX) count.store(static_cast<uint16_t>(now + by), std::memory_order_release);
}

void HeapTable::account(Shard &shard, int64_t bytes) {
    int64_t untold = shard.untold.load(std::memory_order_relaxed) + bytes;
    if (untold > kLedgerStep || untold < -kLedgerStep) {
        ledger_add(LedgerKind::kHeapTensors, untold);
        untold = 0;
    }
    shard.untold.store(untold, std::memory_order_relaxed);
}

// An entry without a generation gets a new one.
bool HeapTable::insert(const HeapEntry &entry) {
    const unsigned level = level_of(entry.size);
    const uint64_t h = hash(level, entry.begin >> (kFirstBits + 2 * level));
    Shard &shard = shards_[shard_of(h)];
    if (fault(FaultPoint::kHeapTable) || !shard.lock.lock_bounded()) return false;
    HeldLock held(shard.lock);
    const uint32_t used = shard.used.load(std::memory_order_relaxed);
    if (used * size_t{10} >= shard.table().capacity() * 7 && !grow(shard) && used + 1 >= shard.table().capacity()) return false;
    HeapEntry made = entry;
    if (made.generation == 0) {
        if (shard.next_generation == shard.last_generation) {
            shard.next_generation = next_generations(kGenerations);
            shard.last_generation = shard.next_generation + kGenerations;
        }
        made.generation = shard.next_generation++;
    }
    const Table table = shard.table();
    size_t at = place_of(h, table.capacity());
    while (table[at].where() != 0) at = (at + 1) & table.mask();
    table[at].set(made, h);  // no change to readers: the cell was free, and is not free only once it is whole
    count_granule(h, 1);
    shard.used.store(used + 1, std::memory_order_relaxed);
    account(shard, static_cast<int64_t>(entry.size));
    return true;
}

void HeapTable::note(uintptr_t begin, size_t size) {
    if (begin == 0 || size == 0) return;
    forget(begin);  // a free that we did not see: the old record ends here
    restore({begin, size, 0});
}

void HeapTable::count_slot(size_t slot, int by) {
    uint8_t count = filter_[slot].load(std::memory_order_relaxed);
    while (count != UINT8_MAX && !filter_[slot].compare_exchange_weak(count, static_cast<uint8_t>(count + by), std::memory_order_relaxed,
                                                                      std::memory_order_relaxed)) {
    }
}

void HeapTable::restore(const HeapEntry &entry) {
    if (!insert(entry)) {
        untracked_.fetch_add(1, std::memory_order_relaxed);
        return;
    }
    const unsigned level = level_of(entry.size);
    const size_t slot = slot_of(entry.begin);
    levels_at_[slot].store(static_cast<uint8_t>(level), std::memory_order_relaxed);
    count_slot(slot, 1);
    const auto offset = static_cast<uint8_t>(1u << offset_of(entry.begin));
    if ((offsets_.load(std::memory_order_relaxed) & offset) == 0) offsets_.fetch_or(offset, std::memory_order_relaxed);
    if ((levels_.load(std::memory_order_relaxed) >> level & 1) == 0) levels_.fetch_or(1u << level, std::memory_order_relaxed);
}

bool HeapTable::remove_at(unsigned level, uintptr_t begin, HeapEntry *out) {
    const uint64_t h = hash(level, begin >> (kFirstBits + 2 * level));
    if (!may_hold(h)) return false;
    Shard &shard = shards_[shard_of(h)];
    shard.lock.lock();
    HeldLock held(shard.lock);
    const Table table = shard.table();
    if (!table) return false;
    for (size_t at = place_of(h, table.capacity()); table[at].where() != 0; at = (at + 1) & table.mask()) {
        if (table[at].where() != begin) continue;
        *out = table[at].get();
        count_granule(table[at].hash, -1);  // its own: it may be filed under another level and stand in this one's way
        erase(shard, at);
        account(shard, -static_cast<int64_t>(out->size));
        return true;
    }
    return false;
}

HeapEntry HeapTable::remove(uintptr_t begin) {
    const size_t slot = slot_of(begin);
    HeapEntry entry;
    const unsigned guess = levels_at_[slot].load(std::memory_order_relaxed);
    bool found = remove_at(guess, begin, &entry);
    uint32_t levels = levels_.load(std::memory_order_relaxed) & ~(1u << guess);
    for (; !found && levels != 0; levels &= levels - 1) found = remove_at(static_cast<unsigned>(__builtin_ctz(levels)), begin, &entry);
    if (!found) return {};
    count_slot(slot, -1);
    note_ending(Origin::kHeap);
    return entry;
}

HeapTable::Seen HeapTable::search(Table table, uint64_t hash, uintptr_t address, HeapEntry *out, size_t *index) {
    if (!table) return Seen::kNothing;
    const size_t capacity = table.capacity();
    size_t at = place_of(hash, capacity);
    for (size_t probes = 0; probes < capacity; ++probes, at = (at + 1) & (capacity - 1)) {
        const uintptr_t begin = table[at].where();
        if (begin == 0) return Seen::kNothing;
        const HeapEntry e = table[at].get();
        if (address - e.begin >= e.size) continue;
        *out = e;
        *index = at;
        return Seen::kBlock;
    }
    return Seen::kChange;  // no free entry: only a table in motion looks like that
}

bool HeapTable::find_in(uint64_t hash, uintptr_t address, HeapEntry *out) {
    constexpr int kTries = 8;
    const size_t number = shard_of(hash);
    Shard &shard = shards_[number];
    for (int i = 0; i < kTries; ++i) {
        const uint64_t before = shard.sequence.load(std::memory_order_acquire);
        if ((before & 1) != 0) continue;
        HeapEntry e;
        size_t index = 0;
        const Seen seen = search(shard.table(), hash, address, &e, &index);
        if (seen == Seen::kChange || shard.sequence.load(std::memory_order_relaxed) != before) continue;
        if (seen == Seen::kNothing) return false;
        *out = e;
        hint(address).store(static_cast<uint32_t>(index * kShards + number), std::memory_order_relaxed);
        return true;
    }
    return find_locked(shard, hash, address, out);
}

bool HeapTable::find_locked(Shard &shard, uint64_t hash, uintptr_t address, HeapEntry *out) {
    shard.lock.lock();
    HeldLock held(shard.lock);
    size_t index = 0;
    return search(shard.table(), hash, address, out, &index) == Seen::kBlock;
}

// Whatever the hint says, the answer is right: a record that holds the address, seen whole.
bool HeapTable::find_hinted(uint32_t hint, uintptr_t address, HeapEntry *out) {
    Shard &shard = shards_[hint % kShards];
    const size_t index = hint / kShards;
    const uint64_t before = shard.sequence.load(std::memory_order_acquire);
    const Table table = shard.table();
    if ((before & 1) != 0 || index >= table.capacity()) return false;
    const HeapEntry e = table[index].get();
    if (e.begin == 0 || address - e.begin >= e.size || shard.sequence.load(std::memory_order_relaxed) != before) return false;
    *out = e;
    return true;
}

bool HeapTable::find(uintptr_t address, HeapEntry *out) {
    const uint32_t levels = levels_.load(std::memory_order_acquire);
    if (levels == 0) return false;
    if (find_hinted(hint(address).load(std::memory_order_relaxed), address, out)) return true;
    // Mostly asked for the first byte of a block.
    const size_t slot = slot_of(address);
    if (filter_[slot].load(std::memory_order_relaxed) != 0) {
        const unsigned level = levels_at_[slot].load(std::memory_order_relaxed);
        const uint64_t h = hash(level, address >> (kFirstBits + 2 * level));
        if (may_hold(h) && find_in(h, address, out)) return true;
    }
    for (uint32_t rest = levels; rest != 0; rest &= rest - 1) {
        const auto level = static_cast<unsigned>(__builtin_ctz(rest));
        const uintptr_t granule = address >> (kFirstBits + 2 * level);
        const uint64_t here = hash(level, granule), before = hash(level, granule - 1);
        if (may_hold(here) && find_in(here, address, out)) return true;
        if (may_hold(before) && find_in(before, address, out)) return true;
    }
    return false;
}

size_t HeapTable::count() const {
    size_t total = 0;
    for (const Shard &shard : shards_) total += shard.used.load(std::memory_order_relaxed);
    return total;
}

int64_t HeapTable::untold_bytes() const {
    int64_t total = 0;
    for (const Shard &shard : shards_) total += shard.untold.load(std::memory_order_relaxed);
    return total;
}

size_t HeapTable::copy(HeapEntry *out, size_t capacity) {
    size_t total = 0;
    for (Shard &shard : shards_) {
        shard.lock.lock();
        HeldLock held(shard.lock);
        const Table table = shard.table();
        for (size_t i = 0; i < table.capacity(); ++i) {
            const HeapEntry e = table[i].get();
            if (e.begin == 0) continue;
            if (total < capacity) out[total] = e;
            ++total;
        }
    }
    return total;
}

void HeapTable::fork_lock() {
    for (Shard &shard : shards_) shard.lock.lock();
}
void HeapTable::fork_unlock() {
    for (Shard &shard : shards_) shard.lock.unlock();
}
void HeapTable::fork_reset() {
    for (Shard &shard : shards_) {
        // Even in any case: a child of a fork without the handlers may have been made in the middle of a change.
        shard.sequence.store((shard.sequence.load(std::memory_order_relaxed) + 1) & ~uint64_t{1}, std::memory_order_relaxed);
        shard.lock.reset();
    }
}

}  // namespace reprise
