// Who called an allocation function: decides whether the block is a tensor, the job's own state, or nobody's business.
//
// Called by the hooks, from any thread, inside malloc. A return address is turned into its module by _dl_find_object (lock-free,
// glibc 2.35; behind it, on older ones, dl_iterate_phdr with remembered ranges), the module into a class by a cache of single atomic words:
// a hit takes no lock and writes nothing. The class of a module is decided once, from its name and its symbol table, and both are read in
// place.
#pragma once

#include <cstddef>
#include <cstdint>

namespace reprise {

// Allocations below this are never tracked on behalf of an importer of the API.
inline constexpr size_t kSmallestOwn = 4096;

using CallerClass = uint8_t;
inline constexpr CallerClass kCallerOther = 0;
// Named by REPRISE_TRACK: its aligned allocations, of any size, are tensors.
inline constexpr CallerClass kCallerTensorLibrary = 1;
// Imports reprise_segment_begin: its allocations of kSmallestOwn and more are state of the job.
inline constexpr CallerClass kCallerImporter = 2;
// The C++ runtime: `new` of an importer reaches malloc from here, so whoever called `new` counts.
inline constexpr CallerClass kCallerForwarder = 4;

// `return_address`: of the hook. `frame`: the address of the stack slot that follows it (the caller's frame), to look through a forwarder;
// nullptr: do not.
CallerClass classify_caller(const void *return_address, const void *const *frame);

// True once any module was classed as a tensor library (told by its calls): for what is said at exit.
bool tensor_library_seen();

}  // namespace reprise
