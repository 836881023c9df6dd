#include "interpose/wrap_alloc.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/allocator.h"
#include "allocator/engaged.h"
#include "interpose/boot_heap.h"
#include "interpose/raw_log.h"
#include "interpose/start.h"

namespace reprise {
namespace {

class KeepErrno {
  public:
    KeepErrno() : saved_(errno) {}
    ~KeepErrno() { errno = saved_; }
    KeepErrno(const KeepErrno &) = delete;
    KeepErrno &operator=(const KeepErrno &) = delete;

  private:
    int saved_;
};

constexpr size_t kMallocAlignment = 16;
constexpr bool is_power_of_two(size_t n) { return n != 0 && (n & (n - 1)) == 0; }

// A tensor library's plain mallocs are its bookkeeping; its aligned allocations are tensors. An importer's are all its own state.
bool plain_is_tracked(CallerClass caller, size_t size) { return (caller & kCallerImporter) != 0 && size >= kSmallestOwn; }
bool aligned_is_tracked(CallerClass caller, size_t size) {
    return ((caller & kCallerTensorLibrary) != 0 && size != 0) || plain_is_tracked(caller, size);
}

// A block in an arena, or nullptr when the next allocator should serve it.
void *try_place(size_t size, size_t alignment, bool *zeroed) {
    if (size < kSmallBuffer || size > PTRDIFF_MAX) return nullptr;
    KeepErrno keep;
    ensure_allocator_started();
    engage(kEngagedArena);
    return place(size, alignment, zeroed);
}

// Lists a block that the next allocator gave.
void note(void *block, size_t size) {
    if (block == nullptr) return;
    KeepErrno keep;
    ensure_allocator_started();
    engage(kEngagedNoted);
    note_heap(block, size);
}

// Was `block` listed? Its size then. Only asked of blocks outside the arenas.
size_t noted_size(const void *block) {
    if ((engaged() & kEngagedNoted) == 0) return 0;
    BlockInfo info;
    const auto address = reinterpret_cast<uintptr_t>(block);
    if (!allocator_port()->find(address, &info) || info.origin != Origin::kHeap || info.range.begin != address) return 0;
    return info.range.size();
}

// Cold: the program is wrong, and glibc would end it here too.
[[noreturn]] __attribute__((noinline, cold)) void bad_pointer(const char *call) {
    LogLine(LogLevel::kError) << call
                              << " of a pointer into a tracked arena at which no live block begins: freed twice, or never allocated";
    abort();
}

// The bytes of a block of the next allocator, when somebody declared memory that we did not allocate; else nothing.
AddressRange heap_range(const Next &next, void *block) {
    if ((engaged() & kEngagedDeclared) == 0) return {};
    return range_of(block, next.malloc_usable_size(block));
}

// A declared block is freed or moved: its generation ends, as it would with munmap.
void end_declarations_in(AddressRange range) {
    if (!range.empty()) end_mapping(range);
}

void release(const Next &next, void *block, const char *call) {
    if ((engaged() & kEngagedBoot) != 0 && in_boot_heap(block)) return;
    if ((engaged() & kEngagedArena) != 0 && in_arena(block)) {
        KeepErrno keep;
        if (!release_block(block)) bad_pointer(call);
        return;
    }
    if ((engaged() & (kEngagedNoted | kEngagedDeclared)) != 0) {
        KeepErrno keep;
        forget_heap(block);  // before the real free: afterwards the address may be somebody else's
        end_declarations_in(heap_range(next, block));
    }
    next.free(block);
}

// A new home of `size` bytes for the content of `block`; the old one is released only when there is a new one.
void *move(const Next &next, void *block, size_t old_size, size_t size, bool tracked) {
    bool zeroed = false;
    void *moved = tracked ? try_place(size, kMallocAlignment, &zeroed) : nullptr;
    if (moved == nullptr) {
        moved = next.malloc(size);
        if (moved == nullptr) return nullptr;
        if (tracked) note(moved, size);
    }
    memcpy(moved, block, old_size < size ? old_size : size);
    release(next, block, "realloc");
    return moved;
}

void *reallocate_arena(const Next &next, void *block, size_t size) {
    const size_t old_size = block_size(block);
    if (old_size == 0) bad_pointer("realloc");
    if (size == 0) {  // glibc frees and returns NULL
        release(next, block, "realloc");
        return nullptr;
    }
    {
        KeepErrno keep;
        if (size >= kSmallBuffer && size <= PTRDIFF_MAX && resize_in_place(block, size)) return block;
    }
    return move(next, block, old_size, size, true);
}

// A listed block is never given to the real realloc when it has to move: that frees the old address before we could forget it, and a record
// that another thread has made for it meanwhile would be lost.
void *reallocate_noted(const Next &next, void *block, size_t old_size, size_t size) {
    const bool stays = size <= old_size && size > old_size / 2;
    if (stays || size == 0) {
        KeepErrno keep;
        forget_heap(block);
    }
    if (size == 0) return next.realloc(block, 0);
    if (stays) {
        note(block, size);
        return block;
    }
    return move(next, block, old_size, size, true);
}

}  // namespace

void *wrap_malloc(const Next &next, size_t size, CallerClass caller) {
    if (!plain_is_tracked(caller, size)) return next.malloc(size);
    bool zeroed = false;
    if (void *placed = try_place(size, kMallocAlignment, &zeroed)) return placed;
    void *block = next.malloc(size);
    note(block, size);
    return block;
}

void *wrap_calloc(const Next &next, size_t count, size_t size, CallerClass caller) {
    size_t total = 0;
    if (__builtin_mul_overflow(count, size, &total) || !plain_is_tracked(caller, total)) return next.calloc(count, size);
    bool zeroed = false;
    if (void *placed = try_place(total, kMallocAlignment, &zeroed)) {
        if (!zeroed) memset(placed, 0, total);
        return placed;
    }
    void *block = next.calloc(count, size);
    note(block, total);
    return block;
}

void *wrap_realloc(const Next &next, void *block, size_t size, CallerClass caller) {
    if (block == nullptr) return wrap_malloc(next, size, caller);
    if ((engaged() & kEngagedBoot) != 0 && in_boot_heap(block))
        return move(next, block, boot_size(block), size, plain_is_tracked(caller, size));
    if ((engaged() & kEngagedArena) != 0 && in_arena(block)) return reallocate_arena(next, block, size);
    if (const size_t old_size = noted_size(block)) return reallocate_noted(next, block, old_size, size);
    const AddressRange old = heap_range(next, block);
    void *moved = next.realloc(block, size);
    if ((moved != nullptr || size == 0) && (moved != block || size < old.size())) {
        KeepErrno keep;
        end_declarations_in(old);
    }
    if (moved == nullptr || !plain_is_tracked(caller, size)) return moved;
    // An importer grows a block that was too small (or not its own) before. What lies behind the old content is not copied: it is unknown
    // to us how long that was, but it is less than what the block holds now.
    bool zeroed = false;
    if (void *placed = try_place(size, kMallocAlignment, &zeroed)) {
        memcpy(placed, moved, size);
        next.free(moved);
        return placed;
    }
    note(moved, size);
    return moved;
}

void wrap_free(const Next &next, void *block) {
    if (block == nullptr) return;
    release(next, block, "free");
}

int wrap_posix_memalign(const Next &next, void **out, size_t alignment, size_t size, CallerClass caller) {
    if (!aligned_is_tracked(caller, size) || !is_power_of_two(alignment) || alignment < sizeof(void *))
        return next.posix_memalign(out, alignment, size);
    bool zeroed = false;
    if (void *placed = try_place(size, alignment, &zeroed)) {
        *out = placed;
        return 0;
    }
    const int result = next.posix_memalign(out, alignment, size);
    if (result == 0) note(*out, size);
    return result;
}

namespace {

template <class Real>
void *allocate_aligned(size_t size, size_t alignment, CallerClass caller, Real real) {
    if (!aligned_is_tracked(caller, size) || !is_power_of_two(alignment)) return real();
    bool zeroed = false;
    if (void *placed = try_place(size, alignment, &zeroed)) return placed;
    void *block = real();
    note(block, size);
    return block;
}

}  // namespace

void *wrap_aligned_alloc(const Next &next, size_t alignment, size_t size, CallerClass caller) {
    return allocate_aligned(size, alignment, caller, [&] { return next.aligned_alloc(alignment, size); });
}
void *wrap_memalign(const Next &next, size_t alignment, size_t size, CallerClass caller) {
    return allocate_aligned(size, alignment, caller, [&] { return next.memalign(alignment, size); });
}
void *wrap_valloc(const Next &next, size_t size, CallerClass caller) {
    return allocate_aligned(size, kPageSize, caller, [&] { return next.valloc(size); });
}
void *wrap_pvalloc(const Next &next, size_t size, CallerClass caller) {
    const size_t rounded = size > PTRDIFF_MAX ? size : page_ceil(size);
    return allocate_aligned(rounded, kPageSize, caller, [&] { return next.pvalloc(size); });
}

size_t wrap_malloc_usable_size(const Next &next, void *block) {
    if (block == nullptr) return 0;
    if ((engaged() & kEngagedBoot) != 0 && in_boot_heap(block)) return boot_size(block);
    if ((engaged() & kEngagedArena) != 0 && in_arena(block)) return block_size(block);
    return next.malloc_usable_size(block);
}

}  // namespace reprise
