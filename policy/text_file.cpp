#include "policy/text_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "allocator/base/quiet_signals.h"

namespace reprise {
namespace {

constexpr size_t kMost = size_t{256} << 20;

// A regular file that is there, or nothing yet, can be replaced. What a name leads to otherwise (a pipe, a device, a descriptor) is
// written.
bool replaceable(const std::string &path) {
    struct stat status {};
    if (path.rfind("/dev/", 0) == 0 || path.rfind("/proc/", 0) == 0) return false;
    return stat(path.c_str(), &status) != 0 || S_ISREG(status.st_mode);
}

// The file behind a symbolic link, which stays one.
std::string behind_links(const std::string &path) {
    char *real = realpath(path.c_str(), nullptr);
    std::string result = real != nullptr ? real : path;
    std::free(real);
    return result;
}

bool write_all(int file, const std::string &text) {
    for (size_t at = 0; at < text.size();) {
        const ssize_t written = write(file, text.data() + at, text.size() - at);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return false;
        at += static_cast<size_t>(written);
    }
    return true;
}

}  // namespace

bool read_text_file(const std::string &path, std::string *text, std::string *why) {
    text->clear();
    // Never waits: a pipe without a writer is an empty file.
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file < 0) {
        *why = strerror(errno);
        return false;
    }
    char part[65536];
    ssize_t got = 0;
    while ((got = read(file, part, sizeof part)) > 0) {
        text->append(part, static_cast<size_t>(got));
        if (text->size() > kMost) break;
    }
    const int error = got < 0 ? errno : 0;
    close(file);
    if (error != 0) *why = strerror(error);
    if (text->size() > kMost) *why = "it is larger than 256 MiB";
    return error == 0 && text->size() <= kMost;
}

bool write_text_file(const std::string &path, const std::string &text, std::string *why) {
    const QuietSignals quiet;  // a file-size limit must not end the job
    const bool in_place = !replaceable(path);
    const std::string target = in_place ? path : behind_links(path);
    // Of its own, also where processes of several containers share a folder.
    std::string draft = target + ".draft-XXXXXX";
    const int file =
        in_place ? open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY) : mkostemp(draft.data(), O_CLOEXEC);
    bool done = file >= 0 && (in_place || fchmod(file, 0644) == 0) && write_all(file, text);
    int error = done ? 0 : errno;
    if (file >= 0) close(file);
    if (done && !in_place && rename(draft.c_str(), target.c_str()) != 0) error = errno, done = false;
    if (done) return true;
    *why = strerror(error);
    if (file >= 0 && !in_place) unlink(draft.c_str());
    return false;
}

}  // namespace reprise
