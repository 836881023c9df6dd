#include "cli/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace reprise::cli {

std::string write_whole(const std::string &path, const std::string &text) {
    if (path == "-") {
        fwrite(text.data(), 1, text.size(), stdout);
        return "";
    }
    const std::string part = path + ".part-" + std::to_string(getpid());
    const int file = open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file < 0) return strerror(errno);
    size_t done = 0;
    while (done < text.size()) {
        const ssize_t written = write(file, text.data() + done, text.size() - done);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) break;
        done += static_cast<size_t>(written);
    }
    const int error = errno;
    const bool closed = close(file) == 0;
    if (done == text.size() && closed && rename(part.c_str(), path.c_str()) == 0) return "";
    const std::string problem = strerror(done < text.size() ? error : errno);
    unlink(part.c_str());
    return problem;
}

}  // namespace reprise::cli
