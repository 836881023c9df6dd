// Placement: start, allocate, grow in place. Freeing and giving back: arena_free.cpp.
#include "allocator/arena.h"

#include "allocator/ledger.h"

namespace reprise {
namespace {

constexpr size_t kOpenStep = size_t{64} << 20;
constexpr size_t kSmallOpenStep = kHugePageSize;

constinit std::atomic<Generation> last_generation{0};

size_t round_up(size_t value, size_t step) { return (value + step - 1) / step * step; }

}  // namespace

constinit Arena arena;

Generation next_generations(uint64_t count) { return last_generation.fetch_add(count, std::memory_order_relaxed) + 1; }

bool Arena::start(size_t bytes) {
    bytes = bytes / (2 * kHugePageSize) * (2 * kHugePageSize);
    if (bytes == 0 || fault(FaultPoint::kArenaReserve)) return false;
    // One huge page more, to align the base.
    const uintptr_t raw = sys::map(bytes + kHugePageSize, PROT_NONE, MAP_NORESERVE);
    if (raw == 0) return false;
    const uintptr_t base = round_up(raw, kHugePageSize);
    if (base > raw) sys::unmap(raw, base - raw);
    if (const size_t tail = raw + kHugePageSize - base; tail > 0) sys::unmap(base + bytes, tail);
    if (!table_.start(base, bytes)) {
        sys::unmap(base, bytes);
        return false;
    }
    halves_[0].base = base;
    halves_[0].limit = halves_[1].base = base + bytes / 2;
    halves_[1].limit = base + bytes;
    for (Half &half : halves_) half.opened.store(half.base, std::memory_order_relaxed);
    // Once for the whole half: what is opened later inherits it and stays one VMA. Fails on kernels without THP: then it is just memory.
    sys::advise(halves_[1].base, bytes / 2, MADV_HUGEPAGE);
    window_begin_ms_ = sys::coarse_ms();
    base_ = base;
    size_ = bytes;
    return true;
}

bool Arena::enter(int naps) {
    if (fault(FaultPoint::kLock) || !lock_.lock_bounded(naps)) {
        contended_.fetch_add(1, std::memory_order_relaxed);
        return false;
    }
    if (deferred_.load(std::memory_order_relaxed) != 0) drain_deferred();
    return true;
}

void *Arena::place(size_t size, size_t alignment, bool *zeroed) {
    if (size < kSmallBuffer || size > size_ / 2 || alignment > size_ / 2 || (alignment & (alignment - 1)) != 0) return nullptr;
    bool clean = false;
    const ExtentId id = take(size, alignment < kPageSize ? kPageSize : alignment, &clean);
    if (id == 0) return nullptr;
    // Not live yet: nobody but us looks at these pages' entries.
    Extent &e = table_[id];
    table_.fill(id);
    e.size.store(size, std::memory_order_release);
    e.generation.store(next_generation(), std::memory_order_release);
    ledger_add(LedgerKind::kTensors, static_cast<int64_t>(size));
    if (zeroed != nullptr) *zeroed = clean;
    const uintptr_t address = e.begin.load(std::memory_order_relaxed);
    after_operation(false);
    return reinterpret_cast<void *>(address);
}

// An extent that is in no list, and whose generation is 0; 0 when there is none.
ExtentId Arena::take(size_t size, size_t alignment, bool *clean) {
    const size_t pages = round_up(size, kPageSize) / kPageSize;
    if (!enter(25)) return 0;
    const size_t half = size >= kHugePageSize ? 1 : 0;
    ExtentId id = allocate(half, pages, alignment, clean);
    if (id == 0) id = allocate(1 - half, pages, alignment, clean);
    if (id == 0) {
        lock_.unlock();
        refused_.fetch_add(1, std::memory_order_relaxed);
        return 0;
    }
    table_[id].state = ExtentState::kLive;
    const size_t live = live_pages_.load(std::memory_order_relaxed) + pages;
    live_pages_.store(live, std::memory_order_relaxed);
    if (live > window_peak_) window_peak_ = live;
    if (live > peak_pages_.load(std::memory_order_relaxed)) peak_pages_.store(live, std::memory_order_relaxed);
    lock_.unlock();
    return id;
}

void *Arena::borrow(size_t size) {
    const size_t pages = round_up(size, kPageSize) / kPageSize;
    if (size < kSmallBuffer || size > size_ / 4) return nullptr;
    if (borrowed_pages_.load(std::memory_order_relaxed) + pages > size_ / 4 / kPageSize) return nullptr;
    bool clean = false;
    const ExtentId id = take(size, kPageSize, &clean);
    if (id == 0) return nullptr;
    table_[id].borrowed.store(1, std::memory_order_relaxed);
    borrowed_pages_.fetch_add(pages, std::memory_order_relaxed);
    const uintptr_t address = table_[id].begin.load(std::memory_order_relaxed);
    after_operation(false);
    return reinterpret_cast<void *>(address);
}

ExtentId Arena::allocate(size_t half, size_t pages, size_t alignment, bool *clean) {
    Half &h = halves_[half];
    ExtentId id = h.dirty.find(table_, pages, alignment);
    if (id == 0) id = h.clean.find(table_, pages, alignment);
    if (id == 0) {
        // An aligned start is certain only with room to spare.
        if (!open_more(half, pages + alignment / kPageSize - 1)) return 0;
        id = h.clean.find(table_, pages, alignment);
        if (id == 0) return 0;
    }
    *clean = table_[id].state == ExtentState::kClean;
    return carve(id, fit_in(table_[id], pages, alignment), pages);
}

// Cuts [start, start + pages) out of the free extent `id` and returns it, no longer free; 0 when there is no record for a remainder.
ExtentId Arena::carve(ExtentId id, uintptr_t start, size_t pages) {
    const ExtentState state = table_[id].state;
    const uint32_t freed = table_[id].freed_ms;
    const size_t front = (start - table_[id].begin.load(std::memory_order_relaxed)) / kPageSize;
    const size_t back = table_[id].pages.load(std::memory_order_relaxed) - front - pages;
    detach(id);
    const ExtentId head = id;
    if (front != 0) {
        id = split(id, front);
        if (id == 0) {
            insert_free(head, state, freed);
            return 0;
        }
        table_[id].state = ExtentState::kLive;  // so that the front does not merge with it again
        insert_free(head, state, freed);
    }
    if (back != 0) {
        const ExtentId tail = split(id, pages);
        if (tail == 0) {
            insert_free(id, state, freed);
            return 0;
        }
        table_[id].state = ExtentState::kLive;
        insert_free(tail, state, freed);
    }
    table_[id].state = ExtentState::kLive;
    return id;
}

// The extent keeps its first pages; the rest becomes a new record of the same state, in no list.
ExtentId Arena::split(ExtentId id, size_t first_pages) {
    const ExtentId rest = table_.make();
    if (rest == 0) return 0;
    Extent &e = table_[id], &r = table_[rest];
    const uint32_t pages = e.pages.load(std::memory_order_relaxed);
    r.begin.store(e.begin.load(std::memory_order_relaxed) + first_pages * kPageSize, std::memory_order_release);
    r.pages.store(pages - static_cast<uint32_t>(first_pages), std::memory_order_relaxed);
    r.state = e.state;
    r.half = e.half;
    r.freed_ms = e.freed_ms;
    e.pages.store(static_cast<uint32_t>(first_pages), std::memory_order_relaxed);
    table_.set_tags(id);
    table_.set_tags(rest);
    return rest;
}

bool Arena::open_more(size_t half, size_t pages) {
    Half &h = halves_[half];
    const uintptr_t opened = h.opened.load(std::memory_order_relaxed);
    size_t need = pages * kPageSize;
    if (opened > h.base) {
        const Extent &last = table_[table_.at(opened - kPageSize)];
        if (last.state == ExtentState::kClean && last.end() == opened) {
            const size_t have = size_t{last.pages.load(std::memory_order_relaxed)} * kPageSize;
            need = need > have ? need - have : kPageSize;
        }
    }
    need = round_up(need, kSmallOpenStep);
    size_t step = small_steps_.load(std::memory_order_relaxed) ? need : round_up(need, kOpenStep);
    const size_t room = h.limit - opened;
    if (need > room) return false;
    if (step > room) step = room;
    const ExtentId id = table_.make();
    if (id == 0) return false;
    const auto open = [&](size_t bytes) {
        return table_.open_map({opened, opened + bytes}) && !fault(FaultPoint::kArenaOpen) &&
               sys::protect(opened, bytes, PROT_READ | PROT_WRITE);
    };
    // RLIMIT_DATA or strict overcommit may refuse the large step and still allow what is needed.
    if (!open(step)) {
        if (step == need || !open(need)) {
            table_.recycle(id);
            return false;
        }
        step = need;
    }
    Extent &e = table_[id];
    e.begin.store(opened, std::memory_order_release);
    e.pages.store(static_cast<uint32_t>(step / kPageSize), std::memory_order_relaxed);
    e.half = static_cast<uint8_t>(half);
    table_.set_tags(id);
    h.opened.store(opened + step, std::memory_order_release);
    insert_free(id, ExtentState::kClean, 0);
    return true;
}

bool Arena::resize(uintptr_t address, size_t size) {
    if (!is_open(address) || size == 0 || size > size_ / 2) return false;
    const ExtentId id = table_.at(address);
    Extent &e = table_[id];
    Generation generation = e.generation.load(std::memory_order_acquire);
    if (generation == 0 || e.begin.load(std::memory_order_acquire) != address) return false;
    const size_t old_size = e.size.load(std::memory_order_relaxed);
    if (size == old_size) return true;
    const size_t pages = round_up(size, kPageSize) / kPageSize;
    // A block that would not be placed here at its new size belongs to the next allocator; the caller moves it.
    if (size < kSmallBuffer) return false;
    if (!e.generation.compare_exchange_strong(generation, 0, std::memory_order_acq_rel)) return false;
    const size_t old_pages = e.pages.load(std::memory_order_relaxed);
    bool done = true;
    bool freed = false;
    if (pages != old_pages) {
        if (pages < old_pages) disarm(e);
        done = enter(25);
        if (done) {
            if (pages > old_pages) {
                done = grow(id, pages);
            } else if (const ExtentId rest = split(id, pages); rest != 0) {
                make_free(rest);
                freed = true;
            }
            lock_.unlock();
        }
        if (done) table_.fill(id);
    }
    if (done) {
        e.size.store(size, std::memory_order_release);
        ledger_add(LedgerKind::kTensors, static_cast<int64_t>(size) - static_cast<int64_t>(old_size));
        generation = next_generation();
    }
    e.generation.store(generation, std::memory_order_release);
    if (freed) after_operation(true);
    return done;
}

// Extends a block that is owned (generation 0) into the free extent behind it.
bool Arena::grow(ExtentId id, size_t pages) {
    Extent &e = table_[id];
    const uintptr_t end = e.end();
    const ExtentId next = neighbour(end, e.half);
    if (next == 0) return false;
    const ExtentState state = table_[next].state;
    const size_t have = e.pages.load(std::memory_order_relaxed), more = pages - have;
    if ((state != ExtentState::kClean && state != ExtentState::kDirty) || table_[next].pages.load(std::memory_order_relaxed) < more) {
        return false;
    }
    const ExtentId taken = carve(next, end, more);
    if (taken == 0) return false;
    merge(id, taken);
    const size_t live = live_pages_.load(std::memory_order_relaxed) + more;
    live_pages_.store(live, std::memory_order_relaxed);
    if (live > window_peak_) window_peak_ = live;
    if (live > peak_pages_.load(std::memory_order_relaxed)) peak_pages_.store(live, std::memory_order_relaxed);
    return true;
}

void Arena::mark_armed(AddressRange pages) {
    pages = pages.intersect(reservation());
    lock_.lock();
    for (uintptr_t at = pages.begin; at < pages.end && is_open(at);) {
        Extent &e = table_[table_.at(at)];
        const uintptr_t begin = e.begin.load(std::memory_order_relaxed);
        if (at < begin || at >= e.end()) {  // a stale entry inside a free extent
            at += kPageSize;
            continue;
        }
        e.armed.store(1, std::memory_order_relaxed);
        at = e.end();
    }
    lock_.unlock();
}

void Arena::clear_armed(AddressRange pages) {
    pages = pages.intersect(reservation());
    lock_.lock();
    for (uintptr_t at = pages.begin; at < pages.end && is_open(at);) {
        Extent &e = table_[table_.at(at)];
        const uintptr_t begin = e.begin.load(std::memory_order_relaxed);
        if (at < begin || at >= e.end()) {
            at += kPageSize;
            continue;
        }
        if (begin >= pages.begin && e.end() <= pages.end) e.armed.store(0, std::memory_order_relaxed);
        at = e.end();
    }
    lock_.unlock();
}

ArenaStatistics Arena::statistics() {
    ArenaStatistics s{};
    s.reserved = size_;
    for (const Half &half : halves_) s.opened += half.opened.load(std::memory_order_relaxed) - half.base;
    s.live = live_pages_.load(std::memory_order_relaxed) * kPageSize;
    s.dirty = dirty_pages_.load(std::memory_order_relaxed) * kPageSize;
    s.purged = purged_.load(std::memory_order_relaxed);
    s.contended = contended_.load(std::memory_order_relaxed);
    s.deferred = deferrals_.load(std::memory_order_relaxed);
    s.refused = refused_.load(std::memory_order_relaxed);
    return s;
}

}  // namespace reprise
