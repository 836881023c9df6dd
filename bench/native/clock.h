// Time and mapped memory for the benchmark programs.
#pragma once

#include <sys/mman.h>
#include <time.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace bench {

inline uint64_t now_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
}

// Of this thread: what a busy machine does not lengthen.
inline double cpu_seconds() {
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Memory that no allocator sees, populated; on huge pages if asked.
inline char *map_memory(size_t size, bool huge) {
    constexpr size_t block = size_t{2} << 20;
    void *memory = mmap(nullptr, size + block, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        fprintf(stderr, "cannot map %zu MiB: free some memory, or give a smaller --bytes\n", size >> 20);
        exit(3);
    }
    auto address = reinterpret_cast<uintptr_t>(memory);
    char *start = static_cast<char *>(memory) + (((address + block - 1) & ~(block - 1)) - address);
    madvise(start, size, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    for (size_t i = 0; i < size; i += 4096) start[i] = 1;
    return start;
}

}  // namespace bench
