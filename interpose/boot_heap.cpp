#include "interpose/boot_heap.h"

#include <errno.h>
#include <string.h>

#include <atomic>
#include <cstdint>

#include "allocator/engaged.h"

namespace reprise {
namespace {

constexpr size_t kHeapSize = size_t{64} << 10;
constexpr size_t kHeader = 16;  // holds the size, keeps blocks 16-byte aligned
alignas(4096) constinit char g_heap[kHeapSize] = {};
constinit std::atomic<size_t> g_used{0};

}  // namespace

void *boot_allocate(size_t size, size_t alignment) {
    if (alignment < kHeader) alignment = kHeader;
    if (size > kHeapSize || alignment > kHeapSize || (alignment & (alignment - 1)) != 0) {
        errno = ENOMEM;
        return nullptr;
    }
    size_t used = g_used.load(std::memory_order_relaxed);
    size_t begin = 0;
    size_t end = 0;
    do {
        begin = (used + kHeader + alignment - 1) & ~(alignment - 1);
        end = begin + ((size + kHeader - 1) & ~(kHeader - 1));
        if (end > kHeapSize) {
            errno = ENOMEM;
            return nullptr;
        }
    } while (!g_used.compare_exchange_weak(used, end, std::memory_order_relaxed));
    memcpy(g_heap + begin - kHeader, &size, sizeof size);
    engage(kEngagedBoot);
    return g_heap + begin;
}

void *boot_reallocate(void *block, size_t size) {
    void *moved = boot_allocate(size, kHeader);
    if (moved != nullptr && block != nullptr) {
        const size_t old = boot_size(block);
        memcpy(moved, block, old < size ? old : size);
    }
    return moved;
}

bool in_boot_heap(const void *address) {
    const auto at = reinterpret_cast<uintptr_t>(address);
    const auto begin = reinterpret_cast<uintptr_t>(&g_heap[0]);
    return at - begin < kHeapSize;
}

size_t boot_size(const void *block) {
    if (!in_boot_heap(block)) return 0;
    size_t size = 0;
    memcpy(&size, static_cast<const char *>(block) - kHeader, sizeof size);
    return size;
}

}  // namespace reprise
