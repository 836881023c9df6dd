// Opens libreprise_engine.so once and keeps its table.
//
// Called by api.cpp and the exit and fork handlers, from any thread, never from a hook. Opened RTLD_LOCAL at the first call that needs it
// and never earlier, so that a process without segments never loads oneTBB or a C++ runtime for our sake. The lock here is one that no hook
// takes: dlopen allocates, and those allocations run through our hooks.
#pragma once

#include "allocator/allocator.h"
#include "reprise/detail/engine_abi.h"

// What libreprise_engine.so exports. 0: *table is set; anything else: it cannot work here (its reason is on stderr).
extern "C" typedef int (*reprise_engine_open_function)(const reprise::AllocatorPort *port, const reprise_engine_table **table);

namespace reprise {

// The table when the engine is open already, else nullptr.
const reprise_engine_table *engine_if_open();
// The table, opening the engine first; nullptr when that failed, now or before: engine_failure() says why.
const reprise_engine_table *engine();
// The calling thread's reason for the last nullptr of engine(); "" when there was none. Static text.
const char *engine_failure();
void clear_engine_failure();
void set_failure(const char *static_text);

// For the fork handlers: nobody is opening the engine while a child is made.
void engine_fork_prepare();
void engine_fork_parent();
void engine_fork_child();

}  // namespace reprise
