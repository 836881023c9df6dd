// The functions behind our hooks: the next definitions of the malloc and mmap families after this library.
//
// Used by the hooks from any thread at any time, also while the loader relocates other libraries. Each pointer starts at a function that
// resolves all of them and goes on, so the hot path is one load and one jump and there is no "not ready" branch. Resolution is idempotent:
// threads that race store the same values. Other rings take `const Next &` as a parameter, so that tests can hand in their own.
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include <atomic>

namespace reprise {

// A function pointer that is read relaxed by everybody and stored by resolution alone.
template <class Signature>
class NextFunction {
  public:
    constexpr NextFunction() : pointer_(nullptr) {}
    constexpr NextFunction(Signature *pointer) : pointer_(pointer) {}
    Signature *get() const { return pointer_.load(std::memory_order_relaxed); }
    void set(Signature *pointer) { pointer_.store(pointer, std::memory_order_release); }
    template <class... Arguments>
    auto operator()(Arguments... arguments) const {
        return get()(arguments...);
    }

  private:
    std::atomic<Signature *> pointer_;
};

struct Next {
    NextFunction<void *(size_t)> malloc;
    NextFunction<void *(size_t, size_t)> calloc;
    NextFunction<void *(void *, size_t)> realloc;
    NextFunction<void(void *)> free;
    NextFunction<int(void **, size_t, size_t)> posix_memalign;
    NextFunction<void *(size_t, size_t)> aligned_alloc;
    NextFunction<void *(size_t, size_t)> memalign;
    NextFunction<void *(size_t)> valloc;
    NextFunction<void *(size_t)> pvalloc;
    NextFunction<size_t(void *)> malloc_usable_size;
    NextFunction<void *(void *, size_t, int, int, int, off_t)> mmap;
    NextFunction<void *(void *, size_t, int, int, int, off64_t)> mmap64;
    NextFunction<int(void *, size_t)> munmap;
    NextFunction<void *(void *, size_t, size_t, int, ...)> mremap;
    NextFunction<int(void *, size_t, int)> madvise;
    NextFunction<int(int)> mlockall;
    NextFunction<int()> munlockall;
};

extern Next g_next;

// Resolves everything now (the constructor calls it; otherwise the first hook does).
void resolve_next();

}  // namespace reprise
