#include "tracker/access.h"

#include <fcntl.h>
#include <sys/ioctl.h>
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
// Up to here the pages are asked for one by one (0.1 us each), which costs less than asking about the mappings that hold them; and up to
// here less than reading a list of them.
constexpr size_t kPopulateWhole = size_t{64} << 10;
constexpr size_t kPopulateRatherThanRead = size_t{4} << 20;

enum class Access { kYes, kNo, kUnknown };

bool by_text = false;

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

struct Mapping {
    AddressRange range;
    bool readable = false, writable = false;
};

// What /proc/self/maps knows, without the heap: by a question about one address (Linux 6.11, a few microseconds), else by its text.
class Mappings {
  public:
    Mappings() : file_(open("/proc/self/maps", O_RDONLY | O_CLOEXEC)) {
        Mapping here;
        answers_ = !by_text && file_ >= 0 && ask(reinterpret_cast<uintptr_t>(this), &here);
    }
    ~Mappings() {
        if (file_ >= 0) close(file_);
    }
    Mappings(const Mappings &) = delete;
    Mappings &operator=(const Mappings &) = delete;

    bool known() const { return file_ >= 0; }
    bool answers() const { return answers_; }
    // The one that holds `address`; ascending addresses only.
    bool holding(uintptr_t address, Mapping *mapping) {
        if (answers_) return ask(address, mapping);
        while (last_.range.end <= address) {
            if (!next_line()) return false;
        }
        *mapping = last_;
        return last_.range.contains(address);
    }

  private:
    // Newer than the headers of Debian 12.
    struct Query {
        uint64_t size, flags, address;
        uint64_t begin, end, permissions, page_size, offset, inode;
        uint32_t major, minor, name_size, build_id_size;
        uint64_t name, build_id;
    };
    static constexpr unsigned long kQuery = _IOWR('f', 17, Query);

    bool ask(uintptr_t address, Mapping *mapping) {
        Query query{};
        query.size = sizeof query;
        query.address = address;
        const int saved = errno;
        const bool found = ioctl(file_, kQuery, &query) == 0;
        errno = saved;
        if (found) *mapping = {{query.begin, query.end}, (query.permissions & 1) != 0, (query.permissions & 2) != 0};
        return found;
    }
    bool next_line() {
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
        last_.range.begin = strtoul(line, &line, 16);
        last_.range.end = strtoul(line + 1, &line, 16);
        last_.readable = line[1] == 'r';
        last_.writable = line[2] == 'w';
        return true;
    }

    int file_;
    bool answers_ = false;
    Mapping last_;
    size_t at_ = 0, used_ = 0;
    char text_[16384];
};

// Every byte in a mapping with the permission and, when `ends` is set, the last page of each that can be had: a file that was cut short
// lacks its end.
bool by_mappings(Mappings &mappings, AddressRange range, bool write, bool ends) {
    if (!mappings.known()) return true;
    Mapping mapping;
    for (uintptr_t at = range.begin; at < range.end; at = mapping.range.end) {
        if (!mappings.holding(at, &mapping) || !(write ? mapping.writable : mapping.readable)) return false;
        const uintptr_t last = page_floor(std::min(mapping.range.end, range.end) - 1);
        if (ends && populate({last, last + kPageSize}, write) == Access::kNo) return false;
    }
    return true;
}

bool accessible(AddressRange range, bool write) {
    if (range.empty()) return true;
    const AddressRange pages = range.pages();
    if (pages.size() > kPopulateWhole) {
        Mappings mappings;
        if (mappings.answers() || pages.size() > kPopulateRatherThanRead) return by_mappings(mappings, range, write, true);
    }
    switch (populate(pages, write)) {
        case Access::kYes:
            return true;
        case Access::kNo:
            return false;
        case Access::kUnknown:
            break;
    }
    Mappings mappings;
    return by_mappings(mappings, range, write, false);
}

}  // namespace

void access_by_text_for_test(bool yes) { by_text = yes; }

bool readable(AddressRange range) { return accessible(range, false); }
bool writable(AddressRange range) { return accessible(range, true); }

}  // namespace reprise
