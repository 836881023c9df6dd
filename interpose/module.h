// The loaded module that holds an address, and the two things we read in it: does its code hold an address, does it import a symbol.
//
// Called by caller.cpp inside malloc, and at start and exit. Lock-free where glibc has _dl_find_object (2.35); before that from ranges that
// are remembered out of dl_iterate_phdr, whose lock is recursive and is taken only for a module not seen before.
#pragma once

#include <cstddef>
#include <cstdint>

namespace reprise {

struct Module {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    const char *name = "";          // as the loader knows it; "" for the executable
    const void *dynamic = nullptr;  // its dynamic section
    uintptr_t base = 0;             // load bias
    uint64_t identity = 0;          // differs for another module in the same place
};

// False when no module holds it (generated code, stack, heap).
bool find_module(const void *address, Module *out);

// Is `address` at least 8 bytes inside an executable segment of `module`?
bool module_code_contains(const Module &module, uintptr_t address);

// Does the dynamic symbol table of `module` hold `symbol` undefined?
bool module_imports(const Module &module, const char *symbol);

// Does the main executable import the API?
bool executable_imports(const char *symbol);

}  // namespace reprise
