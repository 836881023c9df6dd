// Files that one run leaves for the next on this machine: measured costs, plans. Under $XDG_CACHE_HOME/reprise, named by kernel and
// processor, because what was measured on another of either says nothing. Whole or not there; a file that cannot be read, or written, is
// one that does not exist. Any thread, but machine_file(), which reads the environment: on the job's.
#pragma once

#include <string>

namespace reprise {

// "" where there is no place for it.
std::string machine_file(const char *kind);

// Makes the folder, too.
void write_machine_file(const std::string &path, const std::string &text);

// Of the files whose path begins so, all but the youngest `most` are removed.
void prune_machine_files(const std::string &prefix, size_t most);

}  // namespace reprise
