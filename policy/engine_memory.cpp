// The engine's own small memory: operator new and delete of this library (hidden, so of nobody else), from a private copy of mimalloc.
// The engine never enters the job's malloc: not its hooks, not its locks, not its statistics. Where the copy is missing, glibc's own
// allocator serves.
#include <dlfcn.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>

extern "C" {
void *__libc_malloc(size_t);            // NOLINT: glibc's names
void *__libc_memalign(size_t, size_t);  // NOLINT
void __libc_free(void *);               // NOLINT
}

namespace {

struct Functions {
    void *(*allocate)(size_t size);
    void *(*allocate_aligned)(size_t size, size_t alignment);
    void (*free)(void *block);
};

void *libc_aligned(size_t size, size_t alignment) { return __libc_memalign(alignment, size); }

constexpr Functions kLibc = {__libc_malloc, libc_aligned, __libc_free};
Functions mimalloc_functions;
std::atomic<const Functions *> functions{nullptr};

// The first allocation decides, once and for all: a block must be freed by the allocator that made it.
const Functions *choose() {
    const Functions *chosen = &kLibc;
    Dl_info here{};
    char path[4096];
    if (dladdr(reinterpret_cast<void *>(&choose), &here) != 0 && here.dli_fname != nullptr) {
        const char *slash = strrchr(here.dli_fname, '/');
        const size_t folder = slash != nullptr ? static_cast<size_t>(slash - here.dli_fname) + 1 : 0;
        static constexpr char kName[] = "reprise-private/libreprise_mimalloc.so.2";
        if (folder + sizeof kName < sizeof path) {
            memcpy(path, here.dli_fname, folder);
            memcpy(path + folder, kName, sizeof kName);
            if (void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
                mimalloc_functions.allocate = reinterpret_cast<void *(*)(size_t)>(dlsym(library, "mi_malloc"));
                mimalloc_functions.allocate_aligned = reinterpret_cast<void *(*)(size_t, size_t)>(dlsym(library, "mi_malloc_aligned"));
                mimalloc_functions.free = reinterpret_cast<void (*)(void *)>(dlsym(library, "mi_free"));
                if (mimalloc_functions.allocate != nullptr && mimalloc_functions.allocate_aligned != nullptr &&
                    mimalloc_functions.free != nullptr) {
                    chosen = &mimalloc_functions;
                }
            }
        }
    }
    const Functions *expected = nullptr;
    return functions.compare_exchange_strong(expected, chosen) ? chosen : expected;
}

const Functions &chosen() {
    const Functions *now = functions.load(std::memory_order_acquire);
    return now != nullptr ? *now : *choose();
}

}  // namespace

void *operator new(size_t size, const std::nothrow_t &) noexcept { return chosen().allocate(size != 0 ? size : 1); }
void *operator new(size_t size, std::align_val_t alignment, const std::nothrow_t &) noexcept {
    return chosen().allocate_aligned(size != 0 ? size : 1, static_cast<size_t>(alignment));
}
void *operator new(size_t size) {
    if (void *block = operator new(size, std::nothrow)) return block;
    throw std::bad_alloc();
}
void *operator new(size_t size, std::align_val_t alignment) {
    if (void *block = operator new(size, alignment, std::nothrow)) return block;
    throw std::bad_alloc();
}
void *operator new[](size_t size) { return operator new(size); }
void *operator new[](size_t size, std::align_val_t alignment) { return operator new(size, alignment); }
void *operator new[](size_t size, const std::nothrow_t &tag) noexcept { return operator new(size, tag); }
void *operator new[](size_t size, std::align_val_t alignment, const std::nothrow_t &tag) noexcept {
    return operator new(size, alignment, tag);
}
void operator delete(void *block) noexcept {
    if (block != nullptr) chosen().free(block);
}
void operator delete(void *block, size_t) noexcept { operator delete(block); }
void operator delete(void *block, std::align_val_t) noexcept { operator delete(block); }
void operator delete(void *block, size_t, std::align_val_t) noexcept { operator delete(block); }
void operator delete(void *block, const std::nothrow_t &) noexcept { operator delete(block); }
void operator delete(void *block, std::align_val_t, const std::nothrow_t &) noexcept { operator delete(block); }
void operator delete[](void *block) noexcept { operator delete(block); }
void operator delete[](void *block, size_t) noexcept { operator delete(block); }
void operator delete[](void *block, std::align_val_t) noexcept { operator delete(block); }
void operator delete[](void *block, size_t, std::align_val_t) noexcept { operator delete(block); }
void operator delete[](void *block, const std::nothrow_t &) noexcept { operator delete(block); }
void operator delete[](void *block, std::align_val_t, const std::nothrow_t &) noexcept { operator delete(block); }
