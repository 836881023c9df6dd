#include "allocator/declared_ranges.h"

#include <algorithm>

#include "allocator/base/fault.h"
#include "allocator/endings.h"
#include "allocator/engaged.h"

#include "allocator/arena.h"

namespace reprise {

constinit DeclaredRanges declared_ranges;

namespace {

void set_hull(std::atomic<uintptr_t> &low, std::atomic<uintptr_t> &high, AddressRange hull) {
    low.store(hull.begin, std::memory_order_relaxed);
    high.store(hull.end, std::memory_order_relaxed);
}
void grow_hull(std::atomic<uintptr_t> &low, std::atomic<uintptr_t> &high, AddressRange range) {
    set_hull(low, high,
             {std::min(low.load(std::memory_order_relaxed), range.begin), std::max(high.load(std::memory_order_relaxed), range.end)});
}

}  // namespace

void DeclaredRanges::list(AddressRange range, int by) {
    if (pages_of(range) > kFewPages) return;
    for (uintptr_t page = page_floor(range.begin); page < range.end; page += kPageSize) {
        std::atomic<uint16_t> &slot = filter_[slot_of(page)];
        const uint16_t count = slot.load(std::memory_order_relaxed);
        if (count != UINT16_MAX) slot.store(static_cast<uint16_t>(count + by), std::memory_order_relaxed);
    }
}

// Of `count` entries; the last one takes its place.
void DeclaredRanges::erase(size_t index, size_t count) {
    list(entries()[index].range, -1);
    entries()[index] = entries()[count - 1];
}

void DeclaredRanges::end_later(AddressRange range) {
    if (pending_lock_.lock_bounded()) {
        HeldLock held(pending_lock_);
        const size_t pending = pending_.load(std::memory_order_relaxed);
        if (pending < kMostPending) {
            pending_ranges_[pending] = range;
            pending_.store(pending + 1, std::memory_order_release);
            return;
        }
    }
    end_all_.store(true, std::memory_order_release);
}

void DeclaredRanges::settle_slow() {
    AddressRange ranges[kMostPending];
    pending_lock_.lock();
    const size_t pending = pending_.exchange(0, std::memory_order_acquire);
    std::copy_n(pending_ranges_, pending, ranges);
    pending_lock_.unlock();
    if (end_all_.exchange(false, std::memory_order_acquire)) end_locked({0, ~uintptr_t{0}});
    for (size_t i = 0; i < pending; ++i) end_locked(ranges[i]);
    note_ending(Origin::kDeclared);
}

Generation DeclaredRanges::add(AddressRange range) {
    if (range.empty()) return 0;
    lock_.lock();
    HeldLock held(lock_);
    settle();
    const size_t count = count_.load(std::memory_order_relaxed);
    if (memory_.base() == 0 && !memory_.reserve(kMost * sizeof(Entry))) return 0;
    if ((count + 1) * sizeof(Entry) > opened_) {
        if (!memory_.open(opened_, opened_ + kStep)) return 0;
        opened_ += kStep;
    }
    if (count == 0) {
        set_hull(low_, high_, {~uintptr_t{0}, 0});
        set_hull(large_low_, large_high_, {~uintptr_t{0}, 0});
    }
    grow_hull(low_, high_, range);
    if (pages_of(range) > kFewPages) grow_hull(large_low_, large_high_, range);
    list(range, 1);
    engage(kEngagedDeclared);
    const Generation generation = next_generation();
    entries()[count] = {range, generation};
    count_.store(count + 1, std::memory_order_release);
    return generation;
}

bool DeclaredRanges::remove(uintptr_t begin, Generation generation) {
    lock_.lock();
    HeldLock held(lock_);
    settle();
    const size_t count = count_.load(std::memory_order_relaxed);
    for (size_t i = 0; i < count; ++i) {
        if (entries()[i].generation != generation || entries()[i].range.begin != begin) continue;
        erase(i, count);
        count_.store(count - 1, std::memory_order_relaxed);
        note_ending(Origin::kDeclared);
        return true;
    }
    return false;
}

void DeclaredRanges::end_slow(AddressRange range) {
    if (range.end <= low_.load(std::memory_order_relaxed) || range.begin >= high_.load(std::memory_order_relaxed)) return;
    if (fault(FaultPoint::kLock) || !lock_.lock_bounded()) {
        end_later(range);
        note_ending(Origin::kDeclared);
        return;
    }
    HeldLock held(lock_);
    settle();
    end_locked(range);
    note_ending(Origin::kDeclared);
}

void DeclaredRanges::end_locked(AddressRange range) {
    size_t count = count_.load(std::memory_order_relaxed);
    for (size_t i = 0; i < count;) {
        if (entries()[i].range.meets(range)) {
            erase(i, count--);
        } else {
            ++i;
        }
    }
    count_.store(count, std::memory_order_relaxed);
}

bool DeclaredRanges::find(uintptr_t address, AddressRange *range, Generation *generation) {
    if (count_.load(std::memory_order_acquire) == 0) return false;
    lock_.lock();
    HeldLock held(lock_);
    settle();
    const Entry *best = nullptr;
    for (size_t i = 0; i < count_.load(std::memory_order_relaxed); ++i) {
        const Entry &e = entries()[i];
        if (e.range.contains(address) && (best == nullptr || e.range.size() < best->range.size())) best = &e;
    }
    if (best == nullptr) return false;
    *range = best->range;
    *generation = best->generation;
    return true;
}

bool DeclaredRanges::is_live(uintptr_t address, Generation generation) {
    if (count_.load(std::memory_order_acquire) == 0) return false;
    lock_.lock();
    HeldLock held(lock_);
    settle();
    for (size_t i = 0; i < count_.load(std::memory_order_relaxed); ++i) {
        if (entries()[i].generation == generation) return entries()[i].range.contains(address);
    }
    return false;
}

}  // namespace reprise
