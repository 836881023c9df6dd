// The placement half of allocator.h: start, and the functions that hooks call.
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "allocator/allocator.h"
#include "allocator/arena.h"
#include "allocator/base/fault.h"
#include "allocator/declared_ranges.h"
#include "allocator/endings.h"
#include "allocator/heap_table.h"
#include "allocator/page_guard.h"

namespace reprise {

constinit EndingCount g_endings[3];

namespace {

enum : int { kNew, kStarting, kStarted, kFailed };
constinit std::atomic<int> state{kNew};

constexpr uint64_t kMiB = uint64_t{1} << 20, kGiB = uint64_t{1} << 30;
constexpr uint64_t kLeast = 64 * kMiB;  // below this arenas are more trouble than use
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr uint64_t kMost = 16 * kGiB;  // sanitizers own most of the address space
#else
constexpr uint64_t kMost = uint64_t{1} << 40;
#endif

bool started() { return state.load(std::memory_order_acquire) == kStarted; }

// "64GiB", "512MiB", "1000000"; false when it is not a size.
bool parse_bytes(const char *text, uint64_t *out) {
    uint64_t value = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; ++at) {
        if (value > uint64_t{1} << 56) return false;
        value = value * 10 + static_cast<uint64_t>(*at - '0');
    }
    if (at == text) return false;
    int shift = 0;
    switch (*at) {
        case 'K':
        case 'k':
            shift = 10;
            break;
        case 'M':
        case 'm':
            shift = 20;
            break;
        case 'G':
        case 'g':
            shift = 30;
            break;
        case 'T':
        case 't':
            shift = 40;
            break;
        case '\0':
        case 'B':
        case 'b':
            break;
        default:
            return false;
    }
    if (shift != 0) ++at;
    if (shift != 0 && *at == 'i') ++at;
    if (*at == 'B' || *at == 'b') ++at;
    if (*at != '\0' || value > (~uint64_t{0} >> shift)) return false;
    *out = value << shift;
    return true;
}

// How much address space to ask for first.
struct LimitRule {
    decltype(RLIMIT_AS) resource;
    uint64_t least;
};

uint64_t wanted() {
    uint64_t bytes = 0;
    if (const char *text = getenv("REPRISE_ARENA"); text != nullptr && parse_bytes(text, &bytes)) return bytes < kMost ? bytes : kMost;
    // Address space is a budget under RLIMIT_AS: what we reserve the job cannot have. Under RLIMIT_MEMLOCK it is one too once the job calls
    // mlockall, which counts reservations; but below this size no process with a framework in it could lock itself with or without us.
    constexpr uint64_t kWorthLocking = uint64_t{1} << 30;
    uint64_t used = 0;
    char text[64];
    if (sys::read_file("/proc/self/statm", text, sizeof text) > 0) used = strtoull(text, nullptr, 10) * kPageSize;
    uint64_t bytes_allowed = kMost;
    for (auto [resource, least] : {LimitRule{RLIMIT_AS, 0}, LimitRule{RLIMIT_MEMLOCK, kWorthLocking}}) {
        rlimit limit{};
        if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur < least) continue;
        const uint64_t left = limit.rlim_cur > used ? limit.rlim_cur - used : 0;
        if (left / 8 < bytes_allowed) bytes_allowed = left / 8;
    }
    return bytes_allowed;
}

}  // namespace

bool allocator_start() {
    int expected = kNew;
    if (!state.compare_exchange_strong(expected, kStarting, std::memory_order_acq_rel)) return expected == kStarted;
    const int saved = errno;
    fault_configure(getenv("REPRISE_FAULT"));
    bool done = false;
    for (uint64_t bytes = wanted(); bytes >= kLeast && !done; bytes /= 4) done = arena.start(bytes);
    state.store(done ? kStarted : kFailed, std::memory_order_release);
    errno = saved;
    return done;
}

void *place(size_t size, size_t alignment, bool *zeroed) {
    if (zeroed != nullptr) *zeroed = false;
    return started() ? arena.place(size, alignment, zeroed) : nullptr;
}
bool in_arena(const void *address) { return arena.contains(reinterpret_cast<uintptr_t>(address)); }
size_t block_size(const void *address) {
    AddressRange range;
    Generation generation;
    const auto at = reinterpret_cast<uintptr_t>(address);
    return arena.find(at, &range, &generation) && range.begin == at ? range.size() : 0;
}
bool release_block(void *address) {
    const bool released = arena.release(reinterpret_cast<uintptr_t>(address));
    if (released) note_ending(Origin::kArena);
    return released;
}
bool resize_in_place(void *address, size_t size) {
    const bool resized = arena.resize(reinterpret_cast<uintptr_t>(address), size);
    if (resized) note_ending(Origin::kArena);
    return resized;
}

void note_heap(const void *address, size_t size) { heap_table.note(reinterpret_cast<uintptr_t>(address), size); }
void forget_heap(const void *address) { heap_table.forget(reinterpret_cast<uintptr_t>(address)); }
HeapRecord take_heap(const void *address) {
    const HeapEntry e = heap_table.forget(reinterpret_cast<uintptr_t>(address));
    return {e.size, e.generation};
}
void restore_heap(const void *address, HeapRecord record) {
    if (record.generation != 0) heap_table.restore({reinterpret_cast<uintptr_t>(address), record.size, record.generation});
}

void end_mapping(AddressRange range) { declared_ranges.end(range); }
void note_memory_locked(bool future) { arena.note_memory_locked(future); }

// One order everywhere: guard, declared ranges, arena, heap shards. (The guard marks extents without holding its own lock.)
void allocator_fork_prepare() {
    page_guard_fork_lock();
    declared_ranges.fork_lock();
    arena.fork_lock();
    heap_table.fork_lock();
}
void allocator_fork_parent() {
    heap_table.fork_unlock();
    arena.fork_unlock();
    declared_ranges.fork_unlock();
    page_guard_fork_unlock();
}
void allocator_fork_child() {
    heap_table.fork_reset();
    arena.fork_reset();
    declared_ranges.fork_reset();
    page_guard_fork_child();
}

}  // namespace reprise
