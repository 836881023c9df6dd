// Finds out by doing whether this kernel can track writes: on scratch pages of its own, in about a millisecond, once per process.
//
// Called by the page guard at its first use. Version numbers prove nothing: backports, seccomp filters and locked-down containers decide.
#pragma once

#include "allocator/allocator.h"

namespace reprise {

// Fills *out; its reason says which step failed and what to do. True when writes can be tracked.
bool run_guard_probe(GuardCapabilities *out);

}  // namespace reprise
