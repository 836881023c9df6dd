#include "interpose/interposed.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#include <atomic>

#include "interpose/environment.h"
#include "interpose/module.h"
#include "interpose/raw_log.h"

extern "C" {
void *reprise_hook_malloc(size_t size);
int reprise_hook_posix_memalign(void **out, size_t alignment, size_t size);
void *reprise_hook_aligned_alloc(size_t alignment, size_t size);
size_t reprise_hook_malloc_usable_size(void *block);
}

namespace reprise {
namespace {

constinit std::atomic<int> g_interposed{-1};
constinit std::atomic<bool> g_checked{false};

const char *basename_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash == nullptr ? path : slash + 1;
}

// Does the program allocate with us? An executable that is not position-independent and takes malloc's address (Debian's python3) answers
// for it with a stub of its own, which leads to us all the same. It takes the address of what Python calls through pointers, not of these;
// an executable with an allocator of its own defines them too.
bool is_ours() {
    const void *winner = dlsym(RTLD_DEFAULT, "malloc");
    if (winner == reinterpret_cast<void *>(&reprise_hook_malloc)) return true;
    Module module;
    return find_module(winner, &module) && module.name[0] == '\0' &&
           dlsym(RTLD_DEFAULT, "posix_memalign") == reinterpret_cast<void *>(&reprise_hook_posix_memalign) &&
           dlsym(RTLD_DEFAULT, "aligned_alloc") == reinterpret_cast<void *>(&reprise_hook_aligned_alloc) &&
           dlsym(RTLD_DEFAULT, "malloc_usable_size") == reinterpret_cast<void *>(&reprise_hook_malloc_usable_size);
}

}  // namespace

bool interposed() {
    int known = g_interposed.load(std::memory_order_relaxed);
    if (known < 0) {
        known = is_ours() ? 1 : 0;
        g_interposed.store(known, std::memory_order_relaxed);
    }
    return known != 0;
}

void check_interposed_once() {
    if (interposed() || g_checked.exchange(true)) return;
    Module winner;
    const bool found = find_module(dlsym(RTLD_DEFAULT, "malloc"), &winner);
    if (found && strncmp(basename_of(winner.name), "libc.so", 7) == 0) {
        // Loaded at run time: explicit mode, as intended by whoever loads us so.
        LogLine(LogLevel::kInfo) << "not preloaded: only buffers declared by reprise_track are protected";
        return;
    }
    if (found && winner.name[0] != '\0') {
        LogLine(LogLevel::kWarn) << basename_of(winner.name)
                                 << " comes before libreprise.so and hides the allocations: only declared buffers are "
                                 << "protected. Put libreprise.so first: LD_PRELOAD=libreprise.so:" << winner.name;
        return;
    }
    LogLine(LogLevel::kWarn)
        << "the program brings its own malloc, which hides the allocations: only buffers declared by reprise_track are protected; "
           "link the program without it for more";
}

}  // namespace reprise
