// Freeing, merging, and giving memory back.
#include "allocator/arena.h"
#include "allocator/ledger.h"
#include "allocator/page_guard.h"

namespace reprise {
namespace {

constexpr uint32_t kCheckMs = 100;                                   // how often the age of free extents is looked at
constexpr size_t kPurgeChunkPages = (size_t{32} << 20) / kPageSize;  // given back in one step
constexpr int kPurgeSteps = 4;                                       // steps that one operation of the job pays for, at most
constexpr size_t kSlackPages = (size_t{4} << 20) / kPageSize;

bool after(uint32_t now, uint32_t moment) { return static_cast<int32_t>(now - moment) >= 0; }

}  // namespace

bool Arena::release(uintptr_t address) {
    if (!is_open(address)) return false;
    const ExtentId id = table_.at(address);
    Extent &e = table_[id];
    Generation generation = e.generation.load(std::memory_order_acquire);
    if (generation == 0 || e.begin.load(std::memory_order_acquire) != address) return false;
    const size_t size = e.size.load(std::memory_order_relaxed);
    if (!e.generation.compare_exchange_strong(generation, 0, std::memory_order_acq_rel)) return false;  // somebody else freed it
    ledger_add(LedgerKind::kTensors, -static_cast<int64_t>(size));
    disarm(e);
    free_or_defer(id);
    return true;
}

bool Arena::give_back(uintptr_t address) {
    if (!is_open(address)) return false;
    const ExtentId id = table_.at(address);
    Extent &e = table_[id];
    if (e.begin.load(std::memory_order_acquire) != address || e.borrowed.exchange(0, std::memory_order_acq_rel) == 0) return false;
    borrowed_pages_.fetch_sub(e.pages.load(std::memory_order_relaxed), std::memory_order_relaxed);
    free_or_defer(id);
    return true;
}

// For contention the extent is put aside; the next holder of the lock frees it.
void Arena::free_or_defer(ExtentId id) {
    if (enter(1)) {
        make_free(id);
        lock_.unlock();
        return after_operation(true);
    }
    defer(id);
    deferrals_.fetch_add(1, std::memory_order_relaxed);
}

void Arena::defer(ExtentId id) {
    ExtentId head = deferred_.load(std::memory_order_relaxed);
    do {
        table_[id].bin_next = head;
    } while (!deferred_.compare_exchange_weak(head, id, std::memory_order_release, std::memory_order_relaxed));
}

void Arena::disarm(Extent &extent) {
    if (extent.armed.load(std::memory_order_relaxed) == 0) return;
    extent.armed.store(0, std::memory_order_relaxed);
    page_guard_disarm_arena({extent.begin.load(std::memory_order_relaxed), extent.end()});
}

void Arena::drain_deferred() {
    ExtentId id = deferred_.exchange(0, std::memory_order_acquire);
    while (id != 0) {
        const ExtentId next = table_[id].bin_next;
        table_[id].bin_next = 0;
        if (table_[id].state == ExtentState::kPurging) {
            insert_free(id, ExtentState::kClean, 0);
        } else if (table_[id].state == ExtentState::kUnused) {
            insert_free(id, ExtentState::kDirty, sys::coarse_ms());
        } else {
            make_free(id);
        }
        id = next;
    }
}

void Arena::make_free(ExtentId id) {
    live_pages_.store(live_pages_.load(std::memory_order_relaxed) - table_[id].pages.load(std::memory_order_relaxed),
                      std::memory_order_relaxed);
    insert_free(id, ExtentState::kDirty, sys::coarse_ms());
}

// The extent that has a boundary at `address` (its first page when it begins there, its last page when asked for address - 1 page).
ExtentId Arena::neighbour(uintptr_t address, size_t half) {
    const Half &h = halves_[half];
    return address >= h.base && address < h.opened.load(std::memory_order_relaxed) ? table_.at(address) : 0;
}

ExtentId Arena::merge(ExtentId left, ExtentId right) {
    Extent &l = table_[left];
    l.pages.store(l.pages.load(std::memory_order_relaxed) + table_[right].pages.load(std::memory_order_relaxed), std::memory_order_relaxed);
    l.map_filled = false;
    table_.recycle(right);
    table_.set_tags(left);
    return left;
}

// Puts an extent that is in no list among the free ones, merged with neighbours of the same state. A dirty one is as young as `freed_ms`.
ExtentId Arena::insert_free(ExtentId id, ExtentState state, uint32_t freed_ms) {
    Extent *e = &table_[id];
    const size_t half = e->half;
    if (const ExtentId left = neighbour(e->begin.load(std::memory_order_relaxed) - kPageSize, half);
        left != 0 && table_[left].state == state) {
        if (after(table_[left].freed_ms, freed_ms)) freed_ms = table_[left].freed_ms;
        detach(left);
        id = merge(left, id);
        e = &table_[id];
    }
    if (const ExtentId right = neighbour(e->end(), half); right != 0 && table_[right].state == state) {
        if (after(table_[right].freed_ms, freed_ms)) freed_ms = table_[right].freed_ms;
        detach(right);
        merge(id, right);
    }
    e->state = state;
    e->freed_ms = freed_ms;
    if (state == ExtentState::kClean) {
        halves_[half].clean.insert(table_, id);
        return id;
    }
    halves_[half].dirty.insert(table_, id);
    dirty_pages_.store(dirty_pages_.load(std::memory_order_relaxed) + e->pages.load(std::memory_order_relaxed), std::memory_order_relaxed);
    // Nearly always the youngest of all; the remainder of an older extent looks a few places further.
    ExtentId younger = 0, older = age_newest_;
    for (int i = 0; i < 16 && older != 0 && !after(freed_ms, table_[older].freed_ms); ++i) {
        younger = older;
        older = table_[older].age_next;
    }
    e->age_prev = younger;
    e->age_next = older;
    (younger != 0 ? table_[younger].age_next : age_newest_) = id;
    (older != 0 ? table_[older].age_prev : age_oldest_) = id;
    return id;
}

// Takes a free extent out of its lists.
void Arena::detach(ExtentId id) {
    Extent &e = table_[id];
    Half &h = halves_[e.half];
    if (e.state == ExtentState::kClean) {
        h.clean.remove(table_, id);
        return;
    }
    h.dirty.remove(table_, id);
    dirty_pages_.store(dirty_pages_.load(std::memory_order_relaxed) - e.pages.load(std::memory_order_relaxed), std::memory_order_relaxed);
    (e.age_prev != 0 ? table_[e.age_prev].age_next : age_newest_) = e.age_next;
    (e.age_next != 0 ? table_[e.age_next].age_prev : age_oldest_) = e.age_prev;
    e.age_prev = e.age_next = 0;
}

bool Arena::over_budget() const {
    const size_t peak = peak_pages_.load(std::memory_order_relaxed), dirty = dirty_pages_.load(std::memory_order_relaxed);
    return dirty != 0 && live_pages_.load(std::memory_order_relaxed) + dirty > peak + peak / 16 + kSlackPages;
}

void Arena::after_operation(bool freed) {
    const uint32_t now = sys::coarse_ms();
    uint32_t due = next_check_ms_.load(std::memory_order_relaxed);
    if (after(now, due) && next_check_ms_.compare_exchange_strong(due, now + kCheckMs, std::memory_order_relaxed)) {
        for (int i = 0; i < kPurgeSteps && purge_one(now, false, kPurgeChunkPages) != 0; ++i) {
        }
    }
    if (!freed) return;
    for (int i = 0; i < kPurgeSteps && over_budget() && purge_one(now, true, kPurgeChunkPages) != 0; ++i) {
    }
}

// Gives back (a piece of) the oldest dirty extent; 0 when there is none, or none old enough. Not under the lock while the kernel works.
size_t Arena::purge_one(uint32_t now, bool whatever_age, size_t most_pages) {
    if (!lock_.lock_bounded(0)) return 0;
    const uint32_t decay = decay_ms_.load(std::memory_order_relaxed);
    if (now - window_begin_ms_ > decay && after(now, window_begin_ms_)) {
        // The peak that dirty memory is held against: the highest of this window and the last.
        peak_pages_.store(window_peak_, std::memory_order_relaxed);
        window_peak_ = live_pages_.load(std::memory_order_relaxed);
        window_begin_ms_ = now;
    }
    ExtentId id = age_oldest_;
    if (id == 0 || (!whatever_age && !after(now, table_[id].freed_ms + decay))) {
        lock_.unlock();
        return 0;
    }
    detach(id);
    const size_t have = table_[id].pages.load(std::memory_order_relaxed);
    if (have > most_pages) {
        if (const ExtentId tail = split(id, have - most_pages); tail != 0) {
            table_[tail].state = ExtentState::kPurging;
            insert_free(id, ExtentState::kDirty, table_[id].freed_ms);
            id = tail;
        }
    }
    Extent &e = table_[id];
    e.state = ExtentState::kPurging;
    const AddressRange range{e.begin.load(std::memory_order_relaxed), e.end()};
    lock_.unlock();

    const bool gone = sys::advise(range.begin, range.size(), MADV_DONTNEED) == 0;
    if (gone) purged_.fetch_add(range.size(), std::memory_order_relaxed);

    if (lock_.lock_bounded()) {
        // Locked memory (mlock) cannot be dropped: it stays dirty, as the youngest, and is tried again when it has aged once more.
        insert_free(id, gone ? ExtentState::kClean : ExtentState::kDirty, now);
        lock_.unlock();
        return gone ? range.size() / kPageSize : 0;
    }
    if (!gone) e.state = ExtentState::kUnused;  // tells drain_deferred(); not kDirty, or a neighbour would merge with it
    defer(id);
    return range.size() / kPageSize;
}

void Arena::trim() {
    if (size_ == 0) return;
    lock_.lock();
    if (deferred_.load(std::memory_order_relaxed) != 0) drain_deferred();
    lock_.unlock();
    const uint32_t now = sys::coarse_ms();
    while (purge_one(now, true, ~size_t{0}) != 0) {
    }
}

}  // namespace reprise
