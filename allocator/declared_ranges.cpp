#include "allocator/declared_ranges.h"

#include <algorithm>

#include "allocator/base/fault.h"
#include "allocator/endings.h"
#include "allocator/engaged.h"

#include "allocator/arena.h"

namespace reprise {

constinit DeclaredRanges declared_ranges;

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
    if (end_all_.exchange(false, std::memory_order_acquire)) count_.store(0, std::memory_order_relaxed);
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
    if (count == 0 || range.begin < low_.load(std::memory_order_relaxed)) low_.store(range.begin, std::memory_order_relaxed);
    if (count == 0 || range.end > high_.load(std::memory_order_relaxed)) high_.store(range.end, std::memory_order_relaxed);
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
        entries()[i] = entries()[count - 1];
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
            entries()[i] = entries()[--count];
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
