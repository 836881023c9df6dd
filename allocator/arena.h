// The tracked arenas: one reservation of address space in two halves, one with 4 KiB pages (extents below 2 MiB), one where whole 2 MiB
// blocks become huge pages. Extents are packed page by page in both, so nothing is rounded up to a huge page.
//
// Called by interpose/ through the placement functions of allocator.h, by any thread, inside malloc. One bounded lock for placement;
// lookups take none. A free that cannot get the lock puts its extent on a lock-free list that the next holder empties.
//
// Resident memory. Freed extents stay resident ("dirty") for reuse and are reused before fresh ones; they become "clean" (given back, read
// as zero) when they have been idle for kDecayMs, or at once when live + dirty exceeds the recent peak of live bytes by 6 % and 4 MiB. So a
// training loop, which returns to the same peak every step, refaults nothing, and a job whose need shrank gives memory back. Dirty and
// clean neighbours are not merged, so "clean" stays a truth that calloc can use. Purging happens outside the lock, in bounded pieces, on
// the threads that allocate and free: there is no thread of ours in the job.
#pragma once

#include "allocator/base/futex_lock.h"
#include "allocator/extent_bins.h"
#include "allocator/extent_table.h"

namespace reprise {

// Names for lives of blocks, unique in the process; the first of `count` consecutive ones.
Generation next_generations(uint64_t count);
inline Generation next_generation() { return next_generations(1); }

struct ArenaStatistics {
    size_t reserved, opened, live, dirty;  // bytes
    uint64_t purged, contended, deferred, refused;
};

class Arena {
  public:
    static constexpr uint32_t kDecayMs = 5000;

    bool start(size_t bytes);  // address space to reserve; a multiple of 4 MiB
    void *place(size_t size, size_t alignment, bool *zeroed);
    bool release(uintptr_t address);
    // Memory for the engine itself, of which the table says nothing: no block lives there. At most a quarter of the reservation: where
    // address space is short it is the job's.
    void *borrow(size_t size);
    bool give_back(uintptr_t address);
    bool resize(uintptr_t address, size_t size);
    void trim();
    void note_memory_locked(bool future) { small_steps_.store(future, std::memory_order_relaxed); }

    bool contains(uintptr_t address) const { return address - base_ < size_; }
    bool is_huge(uintptr_t address) const { return address >= halves_[1].base; }
    // Contained, and its page map is readable.
    bool is_open(uintptr_t address) const {
        if (!contains(address)) return false;
        return address < halves_[is_huge(address)].opened.load(std::memory_order_acquire);
    }
    bool find(uintptr_t address, AddressRange *range, Generation *generation) const {
        return is_open(address) && table_.find(address, range, generation);
    }
    const ExtentTable &table() const { return table_; }
    AddressRange reservation() const { return {base_, base_ + size_}; }
    // Marks the live extents that meet these pages as armed, so that their free disarms them.
    void mark_armed(AddressRange pages);
    void clear_armed(AddressRange pages);

    ArenaStatistics statistics();
    void set_decay_ms(uint32_t ms) { decay_ms_.store(ms, std::memory_order_relaxed); }  // tests

    void fork_lock() { lock_.lock(); }
    void fork_unlock() { lock_.unlock(); }
    void fork_reset() { lock_.reset(); }

  private:
    struct Half {
        uintptr_t base = 0, limit = 0;
        std::atomic<uintptr_t> opened{0};
        ExtentBins dirty, clean;
    };

    // arena.cpp, all under lock_
    ExtentId allocate(size_t half, size_t pages, size_t alignment, bool *clean);
    ExtentId carve(ExtentId id, uintptr_t start, size_t pages);
    ExtentId split(ExtentId id, size_t first_pages);
    bool open_more(size_t half, size_t pages);
    void drain_deferred();
    bool grow(ExtentId id, size_t pages);
    bool enter(int naps);
    // arena_free.cpp
    ExtentId insert_free(ExtentId id, ExtentState state, uint32_t now);
    void detach(ExtentId id);
    ExtentId merge(ExtentId left, ExtentId right);
    ExtentId neighbour(uintptr_t address, size_t half);
    void make_free(ExtentId id);
    void disarm(Extent &extent);
    // These take the lock themselves.
    ExtentId take(size_t size, size_t alignment, bool *clean);
    void free_or_defer(ExtentId id);
    void defer(ExtentId id);           // without it: the next holder empties the list
    void after_operation(bool freed);  // only when there is something to give back
    size_t purge_one(uint32_t now, bool whatever_age, size_t most_pages);
    size_t dirty_budget_pages(uint32_t now);
    bool over_budget() const;

    uintptr_t base_ = 0;
    size_t size_ = 0;
    FutexLock lock_;
    Half halves_[2];
    ExtentTable table_;
    std::atomic<ExtentId> deferred_{0};
    ExtentId age_newest_ = 0, age_oldest_ = 0;
    std::atomic<size_t> live_pages_{0}, dirty_pages_{0}, peak_pages_{0}, borrowed_pages_{0};
    size_t window_peak_ = 0;
    uint32_t window_begin_ms_ = 0;
    std::atomic<uint32_t> next_check_ms_{0}, decay_ms_{kDecayMs};
    std::atomic<bool> small_steps_{false};
    std::atomic<uint64_t> purged_{0}, contended_{0}, deferrals_{0}, refused_{0};
};

// The process's arena; started by allocator_start().
extern Arena arena;

}  // namespace reprise
