// Files that are there whole or not at all: pages, plans, pictures. A browser, or a job that starts meanwhile, never sees half of one. Used
// by report and plan; one thread.
#pragma once

#include <string>

namespace reprise::cli {

// Writes beside the path and renames; "-" is standard output. "" when it was written, else why not.
std::string write_whole(const std::string &path, const std::string &text);

}  // namespace reprise::cli
