// The middle ring: what each allocation call does in a world of two kinds of block. No symbol of libc is named here: the real functions
// come as a parameter, the caller's class too, so tests drive this ring with functions of their own.
//
// Called by malloc_hooks.cpp, from any thread. Rules (each has a test): errno and the result are the real call's; a record ends before the
// real free and begins after the real allocation; a failed realloc leaves the block and its record; nothing here allocates, locks or logs
// on a path that a correct program takes.
#pragma once

#include <cstddef>

#include "interpose/caller.h"
#include "interpose/next.h"

namespace reprise {

void *wrap_malloc(const Next &next, size_t size, CallerClass caller);
void *wrap_calloc(const Next &next, size_t count, size_t size, CallerClass caller);
void *wrap_realloc(const Next &next, void *block, size_t size, CallerClass caller);
void wrap_free(const Next &next, void *block);
int wrap_posix_memalign(const Next &next, void **out, size_t alignment, size_t size, CallerClass caller);
void *wrap_aligned_alloc(const Next &next, size_t alignment, size_t size, CallerClass caller);
void *wrap_memalign(const Next &next, size_t alignment, size_t size, CallerClass caller);
void *wrap_valloc(const Next &next, size_t size, CallerClass caller);
void *wrap_pvalloc(const Next &next, size_t size, CallerClass caller);
size_t wrap_malloc_usable_size(const Next &next, void *block);

}  // namespace reprise
