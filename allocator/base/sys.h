// System calls of the allocator: straight to the kernel, errno untouched, failure as -errno.
//
// Used by every file of the allocator, from any thread, inside malloc. Not libc's wrappers for mmap and friends, because the preload
// replaces exactly those names: calling them here would enter our own hooks.
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstddef>
#include <type_traits>

namespace reprise::sys {

template <class T>
long word(T value) {
    if constexpr (std::is_pointer_v<T>) {
        return reinterpret_cast<long>(value);
    } else if constexpr (std::is_null_pointer_v<T>) {
        return 0;
    } else {
        return static_cast<long>(value);
    }
}

// The kernel's answer, or -errno. The caller's errno is kept: a hook must show exactly what the real call would have shown.
template <class... Arguments>
long call(long number, Arguments... arguments) {
    const int saved = errno;
    long result = ::syscall(number, word(arguments)...);
    if (result == -1) {
        result = -errno;
        errno = saved;
    }
    return result;
}

// Fresh private anonymous memory, or 0.
inline uintptr_t map(size_t size, int protection, int extra_flags = 0) {
    const long r = call(SYS_mmap, nullptr, size, protection, MAP_PRIVATE | MAP_ANONYMOUS | extra_flags, -1, 0);
    return r < 0 && r > -4096 ? 0 : static_cast<uintptr_t>(r);
}
inline void unmap(uintptr_t begin, size_t size) { call(SYS_munmap, begin, size); }
inline bool protect(uintptr_t begin, size_t size, int protection) { return call(SYS_mprotect, begin, size, protection) == 0; }
inline long advise(uintptr_t begin, size_t size, int advice) { return call(SYS_madvise, begin, size, advice); }
inline int open(const char *path, int flags) { return static_cast<int>(call(SYS_openat, AT_FDCWD, path, flags, 0)); }
inline void close(int fd) { call(SYS_close, fd); }

// Milliseconds of a clock that costs a few nanoseconds to read and ticks every few milliseconds.
inline uint32_t coarse_ms() {
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return static_cast<uint32_t>(static_cast<uint64_t>(t.tv_sec) * 1000 + static_cast<uint64_t>(t.tv_nsec) / 1000000);
}

// The whole of a small (virtual) file, zero-terminated and cut at capacity - 1; -errno on failure.
long read_file(const char *path, char *buffer, size_t capacity);

}  // namespace reprise::sys
