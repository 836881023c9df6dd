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
uint64_t HeapTable::hash(const HeapEntry &e) {
    const unsigned level = level_of(e.size);
    return hash(level, e.begin >> (kFirstBits + 2 * level));
}

// The shard is chosen by the hash's top bits, the place in it by bits from the middle.
namespace {
size_t place_of(uint64_t hash, size_t capacity) { return (hash >> 20) & (capacity - 1); }
size_t shard_of(uint64_t hash) { return hash >> 59; }
}  // namespace

bool HeapTable::grow(Shard &shard) {
    const size_t capacity = shard.capacity == 0 ? kFirstCapacity : shard.capacity * 2;
    const uintptr_t memory = sys::map(page_ceil(capacity * sizeof(HeapEntry)), PROT_READ | PROT_WRITE);
    if (memory == 0) return false;
    auto *entries = reinterpret_cast<HeapEntry *>(memory);
    for (size_t i = 0; i < shard.capacity; ++i) {
        const HeapEntry &e = shard.entries[i];
        if (e.begin == 0) continue;
        size_t at = place_of(hash(e), capacity);
        while (entries[at].begin != 0) at = (at + 1) & (capacity - 1);
        entries[at] = e;
    }
    if (shard.entries != nullptr) sys::unmap(reinterpret_cast<uintptr_t>(shard.entries), page_ceil(shard.capacity * sizeof(HeapEntry)));
    shard.entries = entries;
    shard.capacity = capacity;
    return true;
}

// Takes out entries[index] and moves later ones of the cluster up, so that no tombstones are needed.
void HeapTable::erase(Shard &shard, size_t index) {
    const size_t mask = shard.capacity - 1;
    size_t hole = index;
    for (size_t at = (hole + 1) & mask; shard.entries[at].begin != 0; at = (at + 1) & mask) {
        const size_t home = place_of(hash(shard.entries[at]), shard.capacity);
        if (((at - home) & mask) >= ((at - hole) & mask)) {
            shard.entries[hole] = shard.entries[at];
            hole = at;
        }
    }
    shard.entries[hole] = HeapEntry{};
    shard.used.store(shard.used.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
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
    const uint64_t h = hash(entry);
    Shard &shard = shards_[shard_of(h)];
    if (fault(FaultPoint::kHeapTable) || !shard.lock.lock_bounded()) return false;
    HeldLock held(shard.lock);
    const uint32_t used = shard.used.load(std::memory_order_relaxed);
    if (used * size_t{10} >= shard.capacity * 7 && !grow(shard) && used + 1 >= shard.capacity) return false;
    size_t at = place_of(h, shard.capacity);
    while (shard.entries[at].begin != 0) at = (at + 1) & (shard.capacity - 1);
    shard.entries[at] = entry;
    if (entry.generation == 0) {
        if (shard.next_generation == shard.last_generation) {
            shard.next_generation = next_generations(kGenerations);
            shard.last_generation = shard.next_generation + kGenerations;
        }
        shard.entries[at].generation = shard.next_generation++;
    }
    shard.used.store(used + 1, std::memory_order_relaxed);
    account(shard, static_cast<int64_t>(entry.size));
    return true;
}

void HeapTable::note(uintptr_t begin, size_t size) {
    if (begin == 0 || size == 0) return;
    forget(begin);  // a free that we did not see: the old record ends here
    restore({begin, size, 0});
}

void HeapTable::restore(const HeapEntry &entry) {
    if (!insert(entry)) {
        untracked_.fetch_add(1, std::memory_order_relaxed);
        return;
    }
    const unsigned level = level_of(entry.size);
    Slot &slot = filter_[slot_of(entry.begin)];
    slot.level.store(static_cast<uint8_t>(level), std::memory_order_relaxed);
    slot.count.fetch_add(1, std::memory_order_relaxed);
    if ((levels_.load(std::memory_order_relaxed) >> level & 1) == 0) levels_.fetch_or(1u << level, std::memory_order_relaxed);
}

bool HeapTable::remove_at(unsigned level, uintptr_t begin, HeapEntry *out) {
    const uint64_t h = hash(level, begin >> (kFirstBits + 2 * level));
    Shard &shard = shards_[shard_of(h)];
    shard.lock.lock();
    HeldLock held(shard.lock);
    if (shard.capacity == 0) return false;
    for (size_t at = place_of(h, shard.capacity); shard.entries[at].begin != 0; at = (at + 1) & (shard.capacity - 1)) {
        if (shard.entries[at].begin != begin) continue;
        *out = shard.entries[at];
        erase(shard, at);
        account(shard, -static_cast<int64_t>(out->size));
        return true;
    }
    return false;
}

HeapEntry HeapTable::remove(uintptr_t begin) {
    Slot &slot = filter_[slot_of(begin)];
    HeapEntry entry;
    const unsigned guess = slot.level.load(std::memory_order_relaxed);
    bool found = remove_at(guess, begin, &entry);
    uint32_t levels = levels_.load(std::memory_order_relaxed) & ~(1u << guess);
    for (; !found && levels != 0; levels &= levels - 1) found = remove_at(static_cast<unsigned>(__builtin_ctz(levels)), begin, &entry);
    if (!found) return {};
    slot.count.fetch_sub(1, std::memory_order_relaxed);
    note_ending(Origin::kHeap);
    return entry;
}

bool HeapTable::find_in(unsigned level, uintptr_t granule, uintptr_t address, HeapEntry *out) {
    const uint64_t h = hash(level, granule);
    Shard &shard = shards_[shard_of(h)];
    shard.lock.lock();
    HeldLock held(shard.lock);
    if (shard.capacity == 0) return false;
    for (size_t at = place_of(h, shard.capacity); shard.entries[at].begin != 0; at = (at + 1) & (shard.capacity - 1)) {
        const HeapEntry &e = shard.entries[at];
        if (address - e.begin < e.size) {
            *out = e;
            return true;
        }
    }
    return false;
}

bool HeapTable::find(uintptr_t address, HeapEntry *out) {
    const uint32_t levels = levels_.load(std::memory_order_acquire);
    if (levels == 0) return false;
    // Mostly asked for the first byte of a block.
    const Slot &slot = filter_[slot_of(address)];
    if (slot.count.load(std::memory_order_relaxed) != 0) {
        const unsigned level = slot.level.load(std::memory_order_relaxed);
        if (find_in(level, address >> (kFirstBits + 2 * level), address, out)) return true;
    }
    for (uint32_t rest = levels; rest != 0; rest &= rest - 1) {
        const auto level = static_cast<unsigned>(__builtin_ctz(rest));
        const uintptr_t granule = address >> (kFirstBits + 2 * level);
        if (find_in(level, granule, address, out) || find_in(level, granule - 1, address, out)) return true;
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
        for (size_t i = 0; i < shard.capacity; ++i) {
            if (shard.entries[i].begin == 0) continue;
            if (total < capacity) out[total] = shard.entries[i];
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
    for (Shard &shard : shards_) shard.lock.reset();
}

}  // namespace reprise
