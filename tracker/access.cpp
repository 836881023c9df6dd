#include "tracker/access.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace reprise {
namespace {

// Newer than the headers of Debian 11.
constexpr int kPopulateRead = 22, kPopulateWrite = 23;
// Up to here the pages are asked for one by one, which costs less than finding the mappings that hold them.
constexpr size_t kPopulateWhole = size_t{8} << 20;

enum class Access { kYes, kNo, kUnknown };

// Not libc's madvise: under the preload that name is a hook of ours.
Access populate(AddressRange pages, bool write) {
    const int saved = errno;
    long result = 0;
    do {
        result = syscall(SYS_madvise, pages.begin, pages.size(), write ? kPopulateWrite : kPopulateRead);
    } while (result != 0 && errno == EINTR);
    const int error = result == 0 ? 0 : errno;
    errno = saved;
    if (error == 0) return Access::kYes;
    // EINVAL: no permission, a mapping of a device, or a kernel that does not know the advice.
    return error == EFAULT || error == ENOMEM || error == EHWPOISON ? Access::kNo : Access::kUnknown;
}

// The lines of /proc/self/maps, one after the other, without the heap.
class Mappings {
  public:
    Mappings() : file_(open("/proc/self/maps", O_RDONLY | O_CLOEXEC)) {}
    ~Mappings() {
        if (file_ >= 0) close(file_);
    }
    Mappings(const Mappings &) = delete;
    Mappings &operator=(const Mappings &) = delete;

    bool readable() const { return file_ >= 0; }
    bool next(AddressRange *range, const char **permissions) {
        char *end = nullptr;
        while ((end = static_cast<char *>(memchr(text_ + at_, '\n', used_ - at_))) == nullptr) {
            memmove(text_, text_ + at_, used_ - at_);
            used_ -= at_;
            at_ = 0;
            const ssize_t length = used_ < sizeof text_ ? read(file_, text_ + used_, sizeof text_ - used_) : 0;
            if (length <= 0) return false;
            used_ += static_cast<size_t>(length);
        }
        char *line = text_ + at_;
        at_ = static_cast<size_t>(end - text_) + 1;
        range->begin = strtoul(line, &line, 16);
        range->end = strtoul(line + 1, &line, 16);
        *permissions = line + 1;
        return true;
    }

  private:
    int file_;
    size_t at_ = 0, used_ = 0;
    char text_[16384];
};

// Every byte in a mapping with the permission and, when `ends` is set, the last page of each that can be had: a file that was cut short
// lacks its end.
bool by_mappings(AddressRange range, bool write, bool ends) {
    Mappings mappings;
    if (!mappings.readable()) return true;
    uintptr_t at = range.begin;
    AddressRange mapping;
    const char *permissions = nullptr;
    while (mappings.next(&mapping, &permissions)) {
        if (mapping.end <= at) continue;
        if (mapping.begin > at || permissions[write ? 1 : 0] == '-') return false;
        const uintptr_t last = page_floor(std::min(mapping.end, range.end) - 1);
        if (ends && populate({last, last + kPageSize}, write) == Access::kNo) return false;
        at = mapping.end;
        if (at >= range.end) return true;
    }
    return false;
}

bool accessible(AddressRange range, bool write) {
    if (range.empty()) return true;
    const AddressRange pages = range.pages();
    if (pages.size() > kPopulateWhole) return by_mappings(range, write, true);
    switch (populate(pages, write)) {
        case Access::kYes:
            return true;
        case Access::kNo:
            return false;
        case Access::kUnknown:
            break;
    }
    return by_mappings(range, write, false);
}

}  // namespace

bool readable(AddressRange range) { return accessible(range, false); }
bool writable(AddressRange range) { return accessible(range, true); }

}  // namespace reprise
