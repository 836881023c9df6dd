#include "cli/place.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

#include "cli/text.h"

namespace reprise::cli {
namespace {

constexpr char kLibrary[] = "libreprise.so";

std::string resolved(const std::string &path) {
    char buffer[PATH_MAX];
    return realpath(path.c_str(), buffer) != nullptr ? buffer : "";
}

bool readable_file(const std::string &path) {
    struct stat status {};
    return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && access(path.c_str(), R_OK) == 0;
}

}  // namespace

std::string own_executable() { return resolved("/proc/self/exe"); }

std::string folder_of(const std::string &path) {
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) return ".";
    return slash == 0 ? "/" : path.substr(0, slash);
}

std::string absolute(const std::string &path) {
    if (path.empty() || path.front() == '/') return path;
    char buffer[PATH_MAX];
    return getcwd(buffer, sizeof buffer) != nullptr ? std::string(buffer) + "/" + path : path;
}

Place find_library(const std::string &given) {
    Place place;
    const char *named = getenv("REPRISE_LIBRARY");
    const std::string wanted = !given.empty() ? given : named != nullptr ? named : "";
    if (!wanted.empty()) {
        place.tried.push_back(wanted);
        if (readable_file(wanted)) {
            place.library = resolved(wanted);
        } else {
            errno = 0;
            access(wanted.c_str(), R_OK);
            place.problem = "'" + printable(wanted) + "' is not a file that can be read (" +
                            (errno != 0 ? strerror(errno) : "not a regular file") + "): give " +
                            (!given.empty() ? "--library" : "REPRISE_LIBRARY") + " the path of " + kLibrary;
        }
    } else {
        const std::string here = folder_of(own_executable());
        // bin/ of a build folder and of a prefix; REPRISE_RELATIVE_LIBDIR is the way from one to the other that was configured.
        for (const char *way : {"", "/..", "/" REPRISE_RELATIVE_LIBDIR, "/../lib", "/../lib64"}) {
            const std::string path = here + way + "/" + kLibrary;
            place.tried.push_back(path);
            if (readable_file(path)) {
                place.library = resolved(path);
                break;
            }
        }
        if (place.library.empty()) {
            std::string list;
            for (const std::string &path : place.tried) list += (list.empty() ? "" : ", ") + path;
            place.problem = std::string(kLibrary) + " is not where this command expects it (looked at " + list +
                            "): install both together, or name it with --library or REPRISE_LIBRARY";
        }
    }
    if (place.library.find_first_of(" :\t\n") != std::string::npos) {
        place.problem = "'" + printable(place.library) +
                        "' has a space or a colon in its path, which LD_PRELOAD cannot hold: move it, or name a " +
                        "link to it without them in a folder without them";
        place.library.clear();
    }
    return place;
}

std::string find_beside(const std::string &library, const std::string &name) {
    for (const char *way : {"/", "/reprise/"}) {
        const std::string path = folder_of(library) + way + name;
        if (access(path.c_str(), R_OK) == 0) return path;
    }
    return "";
}

std::string temporary_pattern(const char *what) {
    const char *folder = getenv("TMPDIR");
    return std::string(folder != nullptr && *folder != 0 ? folder : "/tmp") + "/reprise-" + what + "-XXXXXX";
}

}  // namespace reprise::cli
