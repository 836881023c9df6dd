// Mappings that go away, move or are overwritten end the generations of the ranges declared in them.
//
// Runs in every process, from any thread, possibly inside malloc of the next allocator: nothing here uses thread-local storage, allocates
// or logs. The record ends before the real call, because afterwards the address may already be somebody else's; where the call then fails,
// a declaration has ended for nothing, which costs a rejected replay and never a wrong one. Calls that cannot succeed go straight through.
#include <stdarg.h>
#include <stdint.h>
#include <sys/mman.h>

#include "allocator/allocator.h"
#include "interpose/next.h"
#include "interpose/start.h"

using namespace reprise;

#define REPRISE_HOOK(name) __attribute__((visibility("default"), alias("reprise_hook_" #name)))

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

namespace {

void end_range(const void *address, size_t size) {
    if (!allocator_in_use()) [[likely]]
        return;
    const auto begin = reinterpret_cast<uintptr_t>(address);
    if (size == 0 || begin % kPageSize != 0 || begin + size < begin) return;  // the real call refuses it
    end_mapping({begin, page_ceil(begin + size)});
}

bool replaces(int flags) { return (flags & MAP_FIXED) != 0 && (flags & MAP_FIXED_NOREPLACE) != MAP_FIXED_NOREPLACE; }

bool discards(int advice) {
    return advice == MADV_DONTNEED || advice == MADV_FREE || advice == MADV_REMOVE || advice == MADV_DONTNEED_LOCKED ||
           advice == MADV_GUARD_INSTALL;
}

}  // namespace

extern "C" {

void *reprise_hook_mmap(void *address, size_t size, int protection, int flags, int descriptor, off_t offset) {
    if (replaces(flags)) end_range(address, size);
    return g_next.mmap(address, size, protection, flags, descriptor, offset);
}

void *reprise_hook_mmap64(void *address, size_t size, int protection, int flags, int descriptor, off64_t offset) {
    if (replaces(flags)) end_range(address, size);
    return g_next.mmap64(address, size, protection, flags, descriptor, offset);
}

int reprise_hook_munmap(void *address, size_t size) {
    end_range(address, size);
    return g_next.munmap(address, size);
}

void *reprise_hook_mremap(void *address, size_t old_size, size_t new_size, int flags, ...) {
    void *target = nullptr;
    if ((flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)) != 0) {
        va_list list;
        va_start(list, flags);
        target = va_arg(list, void *);
        va_end(list);
    }
    if ((flags & MREMAP_FIXED) != 0) end_range(target, new_size);
    if ((flags & MREMAP_MAYMOVE) == 0 && new_size < old_size) {
        end_range(static_cast<char *>(address) + page_ceil(new_size), page_ceil(old_size) - page_ceil(new_size));
    } else if ((flags & MREMAP_MAYMOVE) != 0) {
        end_range(address, old_size);
    }
    return g_next.mremap(address, old_size, new_size, flags, target);
}

int reprise_hook_madvise(void *address, size_t size, int advice) {
    if (discards(advice)) end_range(address, size);
    return g_next.madvise(address, size, advice);
}

int reprise_hook_mlockall(int flags) {
    const int result = g_next.mlockall(flags);
    if (result == 0) note_memory_locked((flags & MCL_FUTURE) != 0);
    return result;
}

int reprise_hook_munlockall() {
    const int result = g_next.munlockall();
    if (result == 0) note_memory_locked(false);
    return result;
}

REPRISE_HOOK(mmap) void *mmap(void *address, size_t size, int protection, int flags, int descriptor, off_t offset);
REPRISE_HOOK(mmap64) void *mmap64(void *address, size_t size, int protection, int flags, int descriptor, off64_t offset);
REPRISE_HOOK(munmap) int munmap(void *address, size_t size);
REPRISE_HOOK(mremap) void *mremap(void *address, size_t old_size, size_t new_size, int flags, ...);
REPRISE_HOOK(madvise) int madvise(void *address, size_t size, int advice);
REPRISE_HOOK(mlockall) int mlockall(int flags);
REPRISE_HOOK(munlockall) int munlockall();

}  // extern "C"
