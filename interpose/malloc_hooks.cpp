// The outer ring of the malloc family: the exported names, the hot-path test, the caller's class, nothing else.
//
// Runs in every process that the preload reaches, from any thread, before the constructor too. Each hook is defined under a hidden name and
// exported as an alias, so that its address is ours whoever else defines malloc (interposed.cpp compares them). A small block of an
// untracked program costs one compare, one load and one jump.
#include <errno.h>
#include <stddef.h>

#include "allocator/engaged.h"
#include "interpose/attach.h"
#include "interpose/caller.h"
#include "interpose/next.h"
#include "interpose/wrap_alloc.h"

using namespace reprise;

#define REPRISE_HOOK(name) __attribute__((visibility("default"), alias("reprise_hook_" #name)))
// The address that the hook returns to, and the stack above it: both only mean the caller inside the hook itself.
#define REPRISE_CALLER() classify_caller(__builtin_return_address(0), static_cast<const void *const *>(__builtin_dwarf_cfa()))

namespace {

// After a tensor library has allocated: where Python could not run our sitecustomize, this is the first sign that it should.
inline void after(CallerClass caller) {
    if ((caller & kCallerTensorLibrary) != 0) note_tensor_allocation();
}

}  // namespace

extern "C" {

void *reprise_hook_malloc(size_t size) {
    if (size < kSmallestOwn) [[likely]]
        return g_next.malloc(size);
    return wrap_malloc(g_next, size, REPRISE_CALLER());
}

void *reprise_hook_calloc(size_t count, size_t size) {
    size_t total = 0;
    if (__builtin_mul_overflow(count, size, &total) || total < kSmallestOwn) [[likely]]
        return g_next.calloc(count, size);
    return wrap_calloc(g_next, count, size, REPRISE_CALLER());
}

void *reprise_hook_realloc(void *block, size_t size) {
    if (size < kSmallestOwn && engaged() == 0) [[likely]]
        return g_next.realloc(block, size);
    return wrap_realloc(g_next, block, size, size < kSmallestOwn ? kCallerOther : REPRISE_CALLER());
}

void *reprise_hook_reallocarray(void *block, size_t count, size_t size) {
    size_t total = 0;
    if (__builtin_mul_overflow(count, size, &total)) {
        errno = ENOMEM;
        return nullptr;
    }
    if (total < kSmallestOwn && engaged() == 0) return g_next.realloc(block, total);
    return wrap_realloc(g_next, block, total, total < kSmallestOwn ? kCallerOther : REPRISE_CALLER());
}

void reprise_hook_free(void *block) {
    if (block == nullptr) return;
    if (engaged() == 0) [[likely]]
        return g_next.free(block);
    wrap_free(g_next, block);
}

int reprise_hook_posix_memalign(void **out, size_t alignment, size_t size) {
    const CallerClass caller = REPRISE_CALLER();
    const int result = wrap_posix_memalign(g_next, out, alignment, size, caller);
    after(caller);
    return result;
}

void *reprise_hook_aligned_alloc(size_t alignment, size_t size) {
    const CallerClass caller = REPRISE_CALLER();
    void *block = wrap_aligned_alloc(g_next, alignment, size, caller);
    after(caller);
    return block;
}

void *reprise_hook_memalign(size_t alignment, size_t size) {
    const CallerClass caller = REPRISE_CALLER();
    void *block = wrap_memalign(g_next, alignment, size, caller);
    after(caller);
    return block;
}

void *reprise_hook_valloc(size_t size) { return wrap_valloc(g_next, size, REPRISE_CALLER()); }
void *reprise_hook_pvalloc(size_t size) { return wrap_pvalloc(g_next, size, REPRISE_CALLER()); }

size_t reprise_hook_malloc_usable_size(void *block) {
    if (engaged() == 0) [[likely]]
        return g_next.malloc_usable_size(block);
    return wrap_malloc_usable_size(g_next, block);
}

REPRISE_HOOK(malloc) void *malloc(size_t size);
REPRISE_HOOK(calloc) void *calloc(size_t count, size_t size);
REPRISE_HOOK(realloc) void *realloc(void *block, size_t size);
REPRISE_HOOK(reallocarray) void *reallocarray(void *block, size_t count, size_t size);
REPRISE_HOOK(free) void free(void *block);
REPRISE_HOOK(free) void cfree(void *block);  // gone from the headers, still called by old binaries
REPRISE_HOOK(posix_memalign) int posix_memalign(void **out, size_t alignment, size_t size);
REPRISE_HOOK(aligned_alloc) void *aligned_alloc(size_t alignment, size_t size);
REPRISE_HOOK(memalign) void *memalign(size_t alignment, size_t size);
REPRISE_HOOK(valloc) void *valloc(size_t size);
REPRISE_HOOK(pvalloc) void *pvalloc(size_t size);
REPRISE_HOOK(malloc_usable_size) size_t malloc_usable_size(void *block);

}  // extern "C"
