#include "interpose/caller.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

#include <atomic>

#include <initializer_list>

#include "interpose/environment.h"
#include "interpose/module.h"
#include "interpose/raw_log.h"

namespace reprise {
namespace {

// Torch's tensors come from libc10; JAX's from jaxlib's common library, in older ones from xla_extension.
constexpr const char *kDefaultTrack = "libc10.so*:libjax_common.so*:xla_extension.so*";
constexpr size_t kCacheSize = 1024;  // modules; a process with more re-reads a symbol table now and then

// identity (60 bits) | class (4 bits); 0 is empty.
constinit std::atomic<uint64_t> g_cache[kCacheSize] = {};
constinit std::atomic<bool> g_tensor_library_seen{false};

const char *basename_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash == nullptr ? path : slash + 1;
}

// One element of REPRISE_TRACK: a glob of base names, or of whole names when it holds a slash.
bool element_matches(const char *begin, const char *end, const char *name) {
    const bool whole = memchr(begin, '/', static_cast<size_t>(end - begin)) != nullptr;
    return glob_match(begin, end, whole ? name : basename_of(name));
}

bool list_matches(const char *list, const char *name) {
    for (const char *at = list; *at != '\0';) {
        const char *end = at + strcspn(at, ":,");
        if (end != at && element_matches(at, end, name)) return true;
        at = *end == '\0' ? end : end + 1;
    }
    return false;
}

// REPRISE_TRACK replaces the default list; with a leading '+' it is added to it.
bool is_tensor_library(const char *name) {
    const char *track = environment("REPRISE_TRACK");
    if (track == nullptr) return list_matches(kDefaultTrack, name);
    if (track[0] == '+') return list_matches(track + 1, name) || list_matches(kDefaultTrack, name);
    return list_matches(track, name);
}

bool starts_with(const char *text, const char *prefix) { return strncmp(text, prefix, strlen(prefix)) == 0; }

CallerClass decide(const Module &module) {
    char executable[PATH_MAX];
    const char *name = module.name;
    if (name[0] == '\0') {
        const ssize_t length = readlink("/proc/self/exe", executable, sizeof executable - 1);
        executable[length > 0 ? length : 0] = '\0';
        name = executable;
    }
    const char *base = basename_of(name);
    // Our own libraries and the Python extension import the API to serve others: what they allocate is bookkeeping.
    if (starts_with(base, "libreprise") || starts_with(base, "_reprise")) return kCallerOther;
    if (starts_with(base, "libstdc++.so") || starts_with(base, "libc++.so") || starts_with(base, "libc++abi.so")) return kCallerForwarder;
    CallerClass result = kCallerOther;
    if (is_tensor_library(name)) result |= kCallerTensorLibrary;
    if (module_imports(module, "reprise_segment_begin")) result |= kCallerImporter;
    if (result != kCallerOther) LogLine(LogLevel::kDebug) << "tracking allocations of " << name;
    return result;
}

CallerClass class_of_module(const Module &module) {
    const uint64_t identity = module.identity & ~uint64_t{15};
    std::atomic<uint64_t> &slot = g_cache[(module.identity >> 32) % kCacheSize];
    const uint64_t cached = slot.load(std::memory_order_relaxed);
    if ((cached & ~uint64_t{15}) == identity) [[likely]]
        return static_cast<CallerClass>(cached & 15);
    if (!environment_ready()) return kCallerOther;  // too early to know REPRISE_TRACK: do not remember
    const CallerClass decided = decide(module);
    if ((decided & kCallerTensorLibrary) != 0) g_tensor_library_seen.store(true, std::memory_order_relaxed);
    slot.store(identity | decided, std::memory_order_relaxed);
    return decided;
}

#if defined(__x86_64__)
// Does a call instruction end right before `address`?  e8 rel32, or ff /2 with a 2, 3, 4, 6 or 7 byte encoding.
bool follows_call(uintptr_t address) {
    const auto *at = reinterpret_cast<const unsigned char *>(address);
    if (at[-5] == 0xe8) return true;
    for (int length : {2, 3, 6, 7})
        if (at[-length] == 0xff && (at[1 - length] & 0x38) == 0x10) return true;
    return false;
}
#endif

// The caller of operator new: its return address is within a few words above ours (operator new saves one to three registers). A word
// counts when it points behind a call instruction in code of a module other than the runtime, so a saved register is not mistaken for it
// unless it holds a return address too. Other processors: C++ programs declare their buffers, or allocate with malloc.
CallerClass look_through([[maybe_unused]] const void *const *frame, [[maybe_unused]] const Module &runtime) {
#if defined(__x86_64__)
    constexpr int kWords = 12;
    for (int i = 0; i < kWords; ++i) {
        const auto word = reinterpret_cast<uintptr_t>(frame[i]);
        if (word >= runtime.begin && word < runtime.end) continue;  // operator new[] calling operator new, or its own saved pointers
        Module module;
        if (!find_module(frame[i], &module) || !module_code_contains(module, word) || !follows_call(word)) continue;
        return class_of_module(module) & kCallerImporter;
    }
#endif
    return kCallerOther;
}

}  // namespace

bool tensor_library_seen() { return g_tensor_library_seen.load(std::memory_order_relaxed); }

CallerClass classify_caller(const void *return_address, const void *const *frame) {
    Module module;
    if (!find_module(return_address, &module)) return kCallerOther;
    const CallerClass direct = class_of_module(module);
    if ((direct & kCallerForwarder) == 0) [[likely]]
        return direct;
    return frame == nullptr ? kCallerOther : look_through(frame, module);
}

}  // namespace reprise
