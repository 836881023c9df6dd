// Starts the allocator at the first block that it has to know, and never before: a program with no tensors pays nothing.
//
// Called by the wrap ring and by engine.cpp, from any thread.
#pragma once

namespace reprise {

// When it cannot reserve its arenas, that is said once and every block goes to the next allocator.
void ensure_allocator_started();
// Has anything been tracked in this process (so that forks and unmappings have to be told)?
bool allocator_in_use();

}  // namespace reprise
