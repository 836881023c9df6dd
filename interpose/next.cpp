#include "interpose/next.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "interpose/boot_heap.h"

// glibc's own names, for a process in which RTLD_NEXT finds nothing behind us.
extern "C" {
__attribute__((weak)) void *__libc_malloc(size_t size);
__attribute__((weak)) void *__libc_calloc(size_t count, size_t size);
__attribute__((weak)) void *__libc_realloc(void *block, size_t size);
__attribute__((weak)) void __libc_free(void *block);
__attribute__((weak)) void *__libc_memalign(size_t alignment, size_t size);
__attribute__((weak)) void *__libc_valloc(size_t size);
__attribute__((weak)) void *__libc_pvalloc(size_t size);
}

namespace reprise {
namespace {

// This thread is inside resolve_next: dlsym of some libc versions allocates, and those blocks come from the boot heap.
thread_local constinit bool t_resolving = false;

void *first_malloc(size_t size) {
    if (t_resolving) return boot_allocate(size, alignof(max_align_t));
    resolve_next();
    return g_next.malloc(size);
}
void *first_calloc(size_t count, size_t size) {
    if (t_resolving) {
        size_t total = 0;
        if (__builtin_mul_overflow(count, size, &total)) {
            errno = ENOMEM;
            return nullptr;
        }
        return boot_allocate(total, alignof(max_align_t));  // the boot heap is never reused, so it still reads as zero
    }
    resolve_next();
    return g_next.calloc(count, size);
}
void *first_realloc(void *block, size_t size) {
    if (t_resolving) return boot_reallocate(block, size);
    resolve_next();
    return g_next.realloc(block, size);
}
void first_free(void *block) {
    if (t_resolving) return;  // a boot block: those are never reused
    resolve_next();
    g_next.free(block);
}
int first_posix_memalign(void **out, size_t alignment, size_t size) {
    if (t_resolving) {
        void *block = boot_allocate(size, alignment);
        if (block == nullptr) return ENOMEM;
        *out = block;
        return 0;
    }
    resolve_next();
    return g_next.posix_memalign(out, alignment, size);
}
void *first_aligned_alloc(size_t alignment, size_t size) {
    if (t_resolving) return boot_allocate(size, alignment);
    resolve_next();
    return g_next.aligned_alloc(alignment, size);
}
void *first_memalign(size_t alignment, size_t size) {
    if (t_resolving) return boot_allocate(size, alignment);
    resolve_next();
    return g_next.memalign(alignment, size);
}
void *first_valloc(size_t size) {
    if (t_resolving) return boot_allocate(size, 4096);
    resolve_next();
    return g_next.valloc(size);
}
void *first_pvalloc(size_t size) {
    if (t_resolving) return boot_allocate(size, 4096);
    resolve_next();
    return g_next.pvalloc(size);
}
size_t first_malloc_usable_size(void *block) {
    if (t_resolving) return boot_size(block);
    resolve_next();
    return g_next.malloc_usable_size(block);
}

void *raw_pointer(long result) { return reinterpret_cast<void *>(result); }
void *first_mmap(void *address, size_t size, int protection, int flags, int descriptor, off_t offset) {
    if (t_resolving) return raw_pointer(syscall(SYS_mmap, address, size, protection, flags, descriptor, offset));
    resolve_next();
    return g_next.mmap(address, size, protection, flags, descriptor, offset);
}
void *first_mmap64(void *address, size_t size, int protection, int flags, int descriptor, off64_t offset) {
    if (t_resolving) return raw_pointer(syscall(SYS_mmap, address, size, protection, flags, descriptor, offset));
    resolve_next();
    return g_next.mmap64(address, size, protection, flags, descriptor, offset);
}
int first_munmap(void *address, size_t size) {
    if (t_resolving) return static_cast<int>(syscall(SYS_munmap, address, size));
    resolve_next();
    return g_next.munmap(address, size);
}
void *first_mremap(void *address, size_t old_size, size_t new_size, int flags, ...) {
    void *target = nullptr;
    if ((flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)) != 0) {
        va_list list;
        va_start(list, flags);
        target = va_arg(list, void *);
        va_end(list);
    }
    if (t_resolving) return raw_pointer(syscall(SYS_mremap, address, old_size, new_size, flags, target));
    resolve_next();
    return g_next.mremap(address, old_size, new_size, flags, target);
}
int first_madvise(void *address, size_t size, int advice) {
    if (t_resolving) return static_cast<int>(syscall(SYS_madvise, address, size, advice));
    resolve_next();
    return g_next.madvise(address, size, advice);
}
int first_mlockall(int flags) {
    resolve_next();
    return g_next.mlockall(flags);
}
int first_munlockall() {
    resolve_next();
    return g_next.munlockall();
}

// Keeps what is there when nothing is found: a first_* function that cannot resolve would call itself for ever, so each has a fallback.
template <class Signature>
Signature *find(const char *name, Signature *fallback) {
    void *found = dlsym(RTLD_NEXT, name);
    return found != nullptr ? reinterpret_cast<Signature *>(found) : fallback;
}

int missing_posix_memalign(void **out, size_t alignment, size_t size) {
    if (alignment < sizeof(void *) || (alignment & (alignment - 1)) != 0) return EINVAL;
    const int saved = errno;
    void *block = g_next.memalign(alignment, size);
    errno = saved;
    if (block == nullptr) return ENOMEM;
    *out = block;
    return 0;
}
size_t missing_usable_size(void *) { return 0; }
void *missing_mmap(void *address, size_t size, int protection, int flags, int descriptor, off_t offset) {
    return raw_pointer(syscall(SYS_mmap, address, size, protection, flags, descriptor, offset));
}
int missing_munmap(void *address, size_t size) { return static_cast<int>(syscall(SYS_munmap, address, size)); }
void *missing_mremap(void *address, size_t old_size, size_t new_size, int flags, ...) {
    va_list list;
    va_start(list, flags);
    void *target = va_arg(list, void *);
    va_end(list);
    return raw_pointer(syscall(SYS_mremap, address, old_size, new_size, flags, target));
}
int missing_madvise(void *address, size_t size, int advice) { return static_cast<int>(syscall(SYS_madvise, address, size, advice)); }
int missing_mlockall(int flags) { return static_cast<int>(syscall(SYS_mlockall, flags)); }
int missing_munlockall() { return static_cast<int>(syscall(SYS_munlockall)); }

}  // namespace

constinit Next g_next = {
    .malloc = first_malloc,
    .calloc = first_calloc,
    .realloc = first_realloc,
    .free = first_free,
    .posix_memalign = first_posix_memalign,
    .aligned_alloc = first_aligned_alloc,
    .memalign = first_memalign,
    .valloc = first_valloc,
    .pvalloc = first_pvalloc,
    .malloc_usable_size = first_malloc_usable_size,
    .mmap = first_mmap,
    .mmap64 = first_mmap64,
    .munmap = first_munmap,
    .mremap = first_mremap,
    .madvise = first_madvise,
    .mlockall = first_mlockall,
    .munlockall = first_munlockall,
};

void resolve_next() {
    if (t_resolving) return;
    const int saved = errno;
    t_resolving = true;
    // All are looked up before any is published: a block that dlsym allocates meanwhile is then always a boot block.
    auto *found_malloc = find<void *(size_t)>("malloc", __libc_malloc);
    auto *found_calloc = find<void *(size_t, size_t)>("calloc", __libc_calloc);
    auto *found_realloc = find<void *(void *, size_t)>("realloc", __libc_realloc);
    auto *found_free = find<void(void *)>("free", __libc_free);
    auto *found_posix_memalign = find<int(void **, size_t, size_t)>("posix_memalign", missing_posix_memalign);
    auto *found_aligned_alloc = find<void *(size_t, size_t)>("aligned_alloc", __libc_memalign);
    auto *found_memalign = find<void *(size_t, size_t)>("memalign", __libc_memalign);
    auto *found_valloc = find<void *(size_t)>("valloc", __libc_valloc);
    auto *found_pvalloc = find<void *(size_t)>("pvalloc", __libc_pvalloc);
    auto *found_usable_size = find<size_t(void *)>("malloc_usable_size", missing_usable_size);
    auto *found_mmap = find<void *(void *, size_t, int, int, int, off_t)>("mmap", missing_mmap);
    auto *found_mmap64 = find<void *(void *, size_t, int, int, int, off64_t)>("mmap64", missing_mmap);
    auto *found_munmap = find<int(void *, size_t)>("munmap", missing_munmap);
    auto *found_mremap = find<void *(void *, size_t, size_t, int, ...)>("mremap", missing_mremap);
    auto *found_madvise = find<int(void *, size_t, int)>("madvise", missing_madvise);
    auto *found_mlockall = find<int(int)>("mlockall", missing_mlockall);
    auto *found_munlockall = find<int()>("munlockall", missing_munlockall);
    t_resolving = false;
    // free first and malloc last, so that nobody gets a real block while free still believes that it resolves.
    g_next.free.set(found_free);
    g_next.realloc.set(found_realloc);
    g_next.malloc_usable_size.set(found_usable_size);
    g_next.mmap.set(found_mmap);
    g_next.mmap64.set(found_mmap64);
    g_next.munmap.set(found_munmap);
    g_next.mremap.set(found_mremap);
    g_next.madvise.set(found_madvise);
    g_next.mlockall.set(found_mlockall);
    g_next.munlockall.set(found_munlockall);
    g_next.posix_memalign.set(found_posix_memalign);
    g_next.aligned_alloc.set(found_aligned_alloc);
    g_next.memalign.set(found_memalign);
    g_next.valloc.set(found_valloc);
    g_next.pvalloc.set(found_pvalloc);
    g_next.calloc.set(found_calloc);
    g_next.malloc.set(found_malloc);
    errno = saved;
}

}  // namespace reprise
