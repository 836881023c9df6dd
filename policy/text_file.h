// Whole small files: a plan, a number of the kernel's. Any thread; no exception but std::bad_alloc.
#pragma once

#include <string>

namespace reprise {

// False, and why in words, when it cannot be read or is larger than 256 MiB.
bool read_text_file(const std::string &path, std::string *text, std::string *why);
// All or nothing: written beside it and renamed, so that a reader (another rank, another job) never sees half a file.
bool write_text_file(const std::string &path, const std::string &text, std::string *why);

}  // namespace reprise
