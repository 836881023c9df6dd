// A small heap in static memory for allocations made while the next allocator is being looked up.
//
// Used by next.cc alone to allocate, by the wrap ring to recognise its blocks. Any thread, lock-free. Blocks are never reused: there are a
// few dozen bytes of them on the C libraries that need any (dlsym of old glibc callocs its error state), and reuse would need a lock.
#pragma once

#include <cstddef>

namespace reprise {

void *boot_allocate(size_t size, size_t alignment);  // zeroed; nullptr with ENOMEM when full
void *boot_reallocate(void *block, size_t size);
bool in_boot_heap(const void *address);
size_t boot_size(const void *block);

}  // namespace reprise
