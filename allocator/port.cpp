// The observing half of allocator.h: the table of functions that crosses to the engine.
#include "allocator/allocator.h"
#include "allocator/arena.h"
#include "allocator/declared_ranges.h"
#include "allocator/endings.h"
#include "allocator/headroom.h"
#include "allocator/heap_table.h"
#include "allocator/ledger.h"
#include "allocator/page_guard.h"

namespace reprise {
namespace {

BlockInfo arena_block(AddressRange range, Generation generation) { return {range, generation, Origin::kArena, arena.is_huge(range.begin)}; }

// The live block of an allocator (not a declaration) that holds the address.
bool find_block(uintptr_t address, BlockInfo *out) {
    AddressRange range;
    Generation generation;
    if (arena.contains(address)) {
        if (!arena.find(address, &range, &generation)) return false;
        *out = arena_block(range, generation);
        return true;
    }
    HeapEntry entry;
    if (!heap_table.find(address, &entry)) return false;
    *out = {{entry.begin, entry.begin + entry.size}, entry.generation, Origin::kHeap, false};
    return true;
}

bool find(uintptr_t address, BlockInfo *out) {
    if (find_block(address, out)) return true;
    AddressRange range;
    Generation generation;
    if (!declared_ranges.find(address, &range, &generation)) return false;
    *out = {range, generation, Origin::kDeclared, false};
    return true;
}

bool is_live(uintptr_t address, Generation generation) {
    if (generation == 0) return false;
    BlockInfo block;
    if (find_block(address, &block) && block.generation == generation) return true;
    return declared_ranges.is_live(address, generation);
}

// In-place heap sort by address: no memory, no recursion.
void sort_blocks(BlockInfo *blocks, size_t count) {
    const auto sift = [&](size_t at, size_t end) {
        for (;;) {
            size_t child = 2 * at + 1;
            if (child >= end) return;
            if (child + 1 < end && blocks[child].range.begin < blocks[child + 1].range.begin) ++child;
            if (blocks[at].range.begin >= blocks[child].range.begin) return;
            const BlockInfo t = blocks[at];
            blocks[at] = blocks[child];
            blocks[child] = t;
            at = child;
        }
    };
    for (size_t i = count / 2; i-- > 0;) sift(i, count);
    for (size_t end = count; end-- > 1;) {
        const BlockInfo t = blocks[0];
        blocks[0] = blocks[end];
        blocks[end] = t;
        sift(0, end);
    }
}

bool visit_sorted(BlockInfo *blocks, size_t count, bool (*visit)(void *, const BlockInfo *), void *context) {
    sort_blocks(blocks, count);
    for (size_t i = 0; i < count; ++i) {
        if (!visit(context, &blocks[i])) return false;
    }
    return true;
}

// Copies first and visits afterwards: no lock is held while `visit` runs, and it may allocate and free.
void for_each(bool (*visit)(void *context, const BlockInfo *block), void *context) {
    const ExtentId limit = arena.table().limit();
    size_t bytes = page_ceil(limit * sizeof(BlockInfo));
    uintptr_t memory = sys::map(bytes, PROT_READ | PROT_WRITE, MAP_NORESERVE);
    if (memory != 0) {
        auto *blocks = reinterpret_cast<BlockInfo *>(memory);
        size_t count = 0;
        for (ExtentId id = 1; id < limit; ++id) {
            AddressRange range;
            Generation generation;
            if (arena.table().read(id, &range, &generation)) blocks[count++] = arena_block(range, generation);
        }
        const bool more = visit_sorted(blocks, count, visit, context);
        sys::unmap(memory, bytes);
        if (!more) return;
    }
    // Entries are widened in place, from the back, into BlockInfo: room for both.
    const size_t capacity = heap_table.count() + 1024;
    const size_t entry_bytes = page_ceil(capacity * sizeof(HeapEntry));
    bytes = entry_bytes + page_ceil(capacity * sizeof(BlockInfo));
    memory = sys::map(bytes, PROT_READ | PROT_WRITE, MAP_NORESERVE);
    if (memory == 0) return;
    auto *entries = reinterpret_cast<HeapEntry *>(memory);
    auto *blocks = reinterpret_cast<BlockInfo *>(memory + entry_bytes);
    size_t count = heap_table.copy(entries, capacity);
    if (count > capacity) count = capacity;
    for (size_t i = 0; i < count; ++i) {
        blocks[i] = {{entries[i].begin, entries[i].begin + entries[i].size}, entries[i].generation, Origin::kHeap, false};
    }
    visit_sorted(blocks, count, visit, context);
    sys::unmap(memory, bytes);
}

Generation declare(AddressRange range) {
    if (range.empty()) return 0;
    BlockInfo block;
    // Nothing to remember then: the block's own life is the declaration's.
    if (find_block(range.begin, &block) && block.range.contains(range)) return block.generation;
    return declared_ranges.add(range);
}

void undeclare(uintptr_t address, Generation generation) { declared_ranges.remove(address, generation); }
void trim() {
    arena.trim();
    headroom_changed();
}

void *borrow(size_t size) { return arena.borrow(size); }
void give_back(void *address) { arena.give_back(reinterpret_cast<uintptr_t>(address)); }

uint64_t live_bytes(LedgerKind kind) {
    if (kind != LedgerKind::kHeapTensors) return ledger_live(kind);
    const int64_t bytes = ledger_told(kind) + heap_table.untold_bytes();
    return bytes > 0 ? static_cast<uint64_t>(bytes) : 0;
}

constinit const AllocatorPort port{
    kAllocatorPortAbi,
    sizeof(AllocatorPort),
    find,
    is_live,
    endings,
    for_each,
    declare,
    undeclare,
    page_guard_probe,
    page_guard_arm,
    page_guard_disarm,
    page_guard_collect,
    page_guard_huge_blocks,
    ledger_add,
    live_bytes,
    ledger_peak,
    ledger_peak_of,
    headroom,
    group_headroom,
    trim,
    ledger_take_peak,
    borrow,
    give_back,
};

}  // namespace

const AllocatorPort *allocator_port() { return &port; }

}  // namespace reprise
