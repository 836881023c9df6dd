// Opens libreprise_parallel.so (oneTBB, a private copy) beside this engine and hands its loop to the kernels. Without it everything runs on
// one thread.
#pragma once

namespace reprise {

// Safe to call more than once. Returns how many threads copies may use.
unsigned open_parallel_plugin();

}  // namespace reprise
