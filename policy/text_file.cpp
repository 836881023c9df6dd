#include "policy/text_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "allocator/base/quiet_signals.h"

namespace reprise {
namespace {

constexpr size_t kMost = size_t{256} << 20;

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
    const std::string draft = path + ".draft-" + std::to_string(getpid());
    const int file = open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    bool done = file >= 0;
    for (size_t at = 0; done && at < text.size();) {
        const ssize_t written = write(file, text.data() + at, text.size() - at);
        done = written > 0;
        if (done) at += static_cast<size_t>(written);
    }
    int error = done ? 0 : errno;
    if (file >= 0) close(file);
    if (done && rename(draft.c_str(), path.c_str()) != 0) error = errno, done = false;
    if (done) return true;
    *why = strerror(error);
    if (file >= 0) unlink(draft.c_str());
    return false;
}

}  // namespace reprise
