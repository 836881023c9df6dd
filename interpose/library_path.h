// Where this library lies, and what lies beside it: the engine, the Python files.
//
// Called by the constructor and when the engine is opened, from any thread; not in hooks. The same folder layout serves the build tree (all
// beside each other) and an installation (lib/libreprise.so, the rest in lib/reprise/).
#pragma once

#include <cstddef>

namespace reprise {

// The folder of libreprise.so, absolute, symbolic links followed; "" when it cannot be told.
const char *library_directory();
// For the constructor: a library loaded by a relative name is looked for now, before the job changes its working directory.
void remember_relative_directory();
// <folder>/<name> or <folder>/reprise/<name>, whichever exists; false (and `into` empty) when neither does.
bool find_beside(const char *name, char *into, size_t capacity);

}  // namespace reprise
