#include "allocator/page_guard.h"

#include <errno.h>

#include "allocator/arena.h"
#include "allocator/guard_files.h"
#include "allocator/page_guard_probe.h"

namespace reprise {
namespace {

constexpr size_t kRegions = 256;

enum Phase : int { kUnknown, kReady, kOff };

struct Guard {
    FutexLock lock;  // opening, registering, probing; not the scans
    std::atomic<int> phase{kUnknown};
    std::atomic<int> process{0};
    std::atomic<uint64_t> reopened{0};
    GuardFile userfaultfd, pagemap;
    GuardCapabilities capabilities;  // written once, before phase leaves kUnknown
};
constinit Guard guard;

int process_id() { return static_cast<int>(sys::call(SYS_getpid)); }

// Under the lock. In a child the descriptors still speak of the parent's memory.
void check_process() {
    const int now = process_id();
    const int then = guard.process.load(std::memory_order_relaxed);
    if (then == now) return;
    if (then != 0) {
        guard.userfaultfd.drop();
        guard.pagemap.drop();
        guard.reopened.fetch_add(1, std::memory_order_relaxed);
    }
    guard.process.store(now, std::memory_order_relaxed);
}

bool available() {
    if (guard.phase.load(std::memory_order_acquire) == kUnknown) {
        guard.lock.lock();
        HeldLock held(guard.lock);
        if (guard.phase.load(std::memory_order_relaxed) == kUnknown) {
            const bool works = run_guard_probe(&guard.capabilities);
            guard.phase.store(works ? kReady : kOff, std::memory_order_release);
        }
    }
    return guard.phase.load(std::memory_order_relaxed) == kReady;
}

// Our pagemap of this very process, reopened if need be; -1.
int pagemap() {
    if (guard.process.load(std::memory_order_relaxed) == process_id()) {
        if (const int fd = guard.pagemap.checked(); fd >= 0) return fd;
    }
    guard.lock.lock();
    HeldLock held(guard.lock);
    check_process();
    if (const int fd = guard.pagemap.checked(); fd >= 0) return fd;
    if (guard.pagemap.raw() >= 0) guard.reopened.fetch_add(1, std::memory_order_relaxed);
    return guard.pagemap.adopt(open_pagemap()) ? guard.pagemap.raw() : -1;
}

bool inside_arena(AddressRange pages) { return arena.contains(pages.begin) && arena.contains(pages.end - 1); }

// Makes the range write-protectable: all of the arena at once, a foreign range by itself. False: it cannot be tracked.
bool register_range(AddressRange pages) {
    const bool ours = inside_arena(pages);
    if (!ours && !is_private_mapping(pages)) return false;
    guard.lock.lock();
    HeldLock held(guard.lock);
    check_process();
    int fd = guard.userfaultfd.checked();
    if (fd < 0) {
        if (guard.userfaultfd.raw() >= 0) guard.reopened.fetch_add(1, std::memory_order_relaxed);
        GuardOpenError error;
        if (!guard.userfaultfd.adopt(open_userfaultfd(&error))) return false;
        fd = guard.userfaultfd.raw();
    }
    int r = guard_register(fd, ours ? arena.reservation() : pages);
    if (r == -ENOTTY || r == -EINVAL || r == -EBADF) {
        // Replaced by another file with the same inode number, or between the check and the call: ours is gone.
        GuardOpenError error;
        if (!guard.userfaultfd.adopt(open_userfaultfd(&error))) return false;
        r = guard_register(guard.userfaultfd.raw(), ours ? arena.reservation() : pages);
    }
    return r == 0;
}

long scan(AddressRange pages, uint64_t flags, uint64_t category, uapi::PageRegion *regions, size_t capacity) {
    const int fd = pagemap();
    if (fd < 0) return -EBADF;
    ScanRequest request;
    request.pages = pages;
    request.flags = flags;
    request.category = category;
    request.regions = regions;
    request.capacity = capacity;
    return guard_scan(fd, request);
}

bool usable(AddressRange pages) {
    return !pages.empty() && pages.begin % kPageSize == 0 && pages.end % kPageSize == 0 &&
           (inside_arena(pages) || !pages.meets(arena.reservation()));
}

// Protects every page that is not. Scanning with WP_MATCHING and no vector: half the price of UFFDIO_WRITEPROTECT on 4 KiB pages, and
// nearly free over pages that are armed already.
long protect(AddressRange pages) { return scan(pages, uapi::kScanWpMatching | uapi::kScanCheckWpAsync, uapi::kPageIsWritten, nullptr, 0); }

bool register_and_protect(AddressRange pages) {
    guard.reopened.fetch_add(1, std::memory_order_relaxed);
    return register_range(pages) && protect(pages) >= 0;
}

}  // namespace

void page_guard_probe(GuardCapabilities *out) {
    available();
    *out = guard.capabilities;
}

GuardResult page_guard_arm(AddressRange pages) {
    if (!usable(pages) || !available()) return GuardResult::kUnavailable;
    const bool ours = inside_arena(pages);
    // Before it is armed: a free that comes in between then disarms too early, which costs faults but hides nothing.
    if (ours) arena.mark_armed(pages);
    if (!ours && !register_range(pages)) return GuardResult::kUnavailable;
    if (protect(pages) >= 0) return GuardResult::kOk;
    return register_range(pages) && protect(pages) >= 0 ? GuardResult::kOk : GuardResult::kUnavailable;
}

void page_guard_disarm_arena(AddressRange pages) {
    if (guard.phase.load(std::memory_order_acquire) != kReady || guard.process.load(std::memory_order_relaxed) != process_id()) return;
    // When the descriptor is gone so is its protection.
    if (const int fd = guard.userfaultfd.checked(); fd >= 0) guard_unprotect(fd, pages);
}

GuardResult page_guard_disarm(AddressRange pages) {
    if (!usable(pages) || !available()) return GuardResult::kUnavailable;
    if (inside_arena(pages)) {
        page_guard_disarm_arena(pages);
        arena.clear_armed(pages);
        return GuardResult::kOk;
    }
    if (guard.process.load(std::memory_order_relaxed) == process_id()) {
        if (const int fd = guard.userfaultfd.checked(); fd >= 0) guard_unregister(fd, pages);
    }
    return GuardResult::kOk;
}

GuardResult page_guard_collect(AddressRange pages, bool reset, AddressRange *runs, size_t capacity, size_t *count) {
    *count = 0;
    if (!usable(pages) || !available()) return GuardResult::kUnavailable;
    const uint64_t flags = uapi::kScanCheckWpAsync | (reset ? uapi::kScanWpMatching : 0);
    uapi::PageRegion regions[kRegions];
    size_t used = 0;
    while (used < capacity && !pages.empty()) {
        const size_t want = capacity - used < kRegions ? capacity - used : kRegions;
        const long found = scan(pages, flags, uapi::kPageIsWritten, regions, want);
        if (found < 0) {
            *count = 0;
            // Nothing is known any more. Arm anew what can be: from here on writes are seen again.
            if (reset) register_and_protect(pages);
            return GuardResult::kAllDirty;
        }
        for (size_t i = 0; i < static_cast<size_t>(found); ++i) {
            if (used > 0 && runs[used - 1].end == regions[i].start) {
                runs[used - 1].end = regions[i].end;
            } else {
                runs[used++] = {regions[i].start, regions[i].end};
            }
        }
        // Fewer than fit: complete. Otherwise on from the last region; the kernel's walk_end may be stale.
        if (static_cast<size_t>(found) < want) break;
        pages.begin = regions[want - 1].end;
    }
    *count = used;
    return GuardResult::kOk;
}

size_t page_guard_huge_blocks(AddressRange pages) {
    if (pages.empty() || pages.begin % kPageSize != 0 || pages.end % kPageSize != 0 || !available()) return 0;
    uapi::PageRegion regions[64];
    size_t blocks = 0;
    while (!pages.empty()) {
        const long found = scan(pages, 0, uapi::kPageIsHuge, regions, 64);
        if (found <= 0) break;
        for (long i = 0; i < found; ++i) {
            const uintptr_t first = (regions[i].start + kHugePageSize - 1) / kHugePageSize, last = regions[i].end / kHugePageSize;
            if (last > first) blocks += last - first;
        }
        if (found < 64) break;
        pages.begin = regions[63].end;
    }
    return blocks;
}

void page_guard_fork_lock() { guard.lock.lock(); }
void page_guard_fork_unlock() { guard.lock.unlock(); }
void page_guard_fork_child() {
    guard.lock.reset();
    check_process();
}

PageGuardFiles page_guard_files() { return {guard.userfaultfd.raw(), guard.pagemap.raw()}; }
uint64_t page_guard_reopened() { return guard.reopened.load(std::memory_order_relaxed); }
void page_guard_reset_for_test() {
    guard.lock.lock();
    guard.userfaultfd.drop();
    guard.pagemap.drop();
    guard.capabilities = GuardCapabilities{};
    guard.phase.store(kUnknown, std::memory_order_release);
    guard.lock.unlock();
}

}  // namespace reprise
