#include "allocator/base/sys.h"

namespace reprise::sys {

long read_file(const char *path, char *buffer, size_t capacity) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return fd;
    size_t used = 0;
    long result = 0;
    while (used + 1 < capacity) {
        result = call(SYS_read, fd, buffer + used, capacity - 1 - used);
        if (result == -EINTR) continue;
        if (result <= 0) break;
        used += static_cast<size_t>(result);
    }
    close(fd);
    buffer[used] = '\0';
    return result < 0 ? result : static_cast<long>(used);
}

}  // namespace reprise::sys
