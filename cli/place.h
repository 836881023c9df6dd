// Where the parts of this installation are: the preload, its engine, the Python package. Found relative to the command itself, so that a
// build folder and a prefix that was moved both work; a path that is given (--library, REPRISE_LIBRARY) wins. One thread.
#pragma once

#include <string>
#include <vector>

namespace reprise::cli {

struct Place {
    std::string library;             // absolute path of libreprise.so, "" when there is none
    std::vector<std::string> tried;  // where it was looked for
    std::string problem;             // why there is none: a sentence with the remedy
};

// `given`: what --library says, "" for nothing.
Place find_library(const std::string &given);

// A file that belongs to the library at `library`: beside it, or in reprise/ below it. "" when it is in neither.
std::string find_beside(const std::string &library, const std::string &name);

// A name in the folder for temporary files, for mkstemp and mkdtemp: "$TMPDIR/reprise-WHAT-XXXXXX".
std::string temporary_pattern(const char *what);

// The command's own file, with links resolved.
std::string own_executable();
std::string folder_of(const std::string &path);
std::string absolute(const std::string &path);

}  // namespace reprise::cli
