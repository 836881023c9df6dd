#include "allocator/guard_files.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "allocator/base/fault.h"
#include "allocator/base/sys.h"

namespace reprise {
namespace {

constexpr int kHighDescriptor = 900;  // above what jobs use, below the usual limit of 1024

long control(int fd, unsigned long request, void *argument) { return sys::call(SYS_ioctl, fd, request, argument); }

bool stat_of(int fd, struct stat *out) {
    const int saved = errno;
    const bool ok = ::fstat(fd, out) == 0;
    errno = saved;
    return ok;
}

// Reads one hexadecimal number; stops behind it.
uint64_t read_hex(const char **text) {
    uint64_t value = 0;
    for (;; ++*text) {
        const char c = **text;
        if (c >= '0' && c <= '9') {
            value = value * 16 + static_cast<uint64_t>(c - '0');
        } else if (c >= 'a' && c <= 'f') {
            value = value * 16 + static_cast<uint64_t>(c - 'a' + 10);
        } else {
            return value;
        }
    }
}

// The answer from the text of /proc/self/maps, for kernels without PROCMAP_QUERY. hugetlb is found out by guard_register().
bool is_private_by_text(int fd, AddressRange pages) {
    char buffer[4096];
    size_t used = 0;
    uintptr_t covered = pages.begin;
    bool skipping = false;  // inside the tail of a line longer than the buffer
    for (;;) {
        const long got = sys::call(SYS_read, fd, buffer + used, sizeof buffer - 1 - used);
        if (got == -EINTR) continue;
        if (got <= 0) return false;
        used += static_cast<size_t>(got);
        buffer[used] = '\0';
        size_t at = 0;
        for (size_t end = 0; end < used; ++end) {
            if (buffer[end] != '\n') continue;
            const char *text = buffer + at;
            at = end + 1;
            if (skipping) {
                skipping = false;
                continue;
            }
            const uint64_t begin = read_hex(&text);
            ++text;
            const uint64_t stop = read_hex(&text);
            if (stop <= covered) continue;
            if (begin > covered || text[4] != 'p') return false;
            covered = stop;
            if (covered >= pages.end) return true;
        }
        if (at == 0 && used == sizeof buffer - 1) {
            // A line longer than the buffer: its head decides, but it was read whole as far as we need it only if it fits; give up safely.
            return false;
        }
        for (size_t i = at; i < used; ++i) buffer[i - at] = buffer[i];
        used -= at;
    }
}

}  // namespace

bool GuardFile::adopt(int fd) {
    if (fd < 0) return false;
    long high = sys::call(SYS_fcntl, fd, F_DUPFD_CLOEXEC, kHighDescriptor);
    if (high < 0) high = sys::call(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 200);
    if (high >= 0) {
        sys::close(fd);
        fd = static_cast<int>(high);
    }
    struct stat s {};
    if (!stat_of(fd, &s)) {
        sys::close(fd);
        return false;
    }
    device_.store(s.st_dev, std::memory_order_relaxed);
    inode_.store(s.st_ino, std::memory_order_relaxed);
    fd_.store(fd, std::memory_order_release);
    return true;
}

int GuardFile::checked() const {
    const int fd = fd_.load(std::memory_order_acquire);
    if (fd < 0) return -1;
    struct stat s {};
    return stat_of(fd, &s) && s.st_dev == device_.load(std::memory_order_relaxed) && s.st_ino == inode_.load(std::memory_order_relaxed)
               ? fd
               : -1;
}

void GuardFile::drop() {
    const int fd = checked();
    fd_.store(-1, std::memory_order_release);
    if (fd < 0) return;
    // Older kernels give all anonymous files one inode: look at the kind before closing what may be the job's eventfd.
    char path[40] = "/proc/self/fd/", target[40] = {};
    char digits[12];
    size_t n = 0;
    for (int v = fd; v > 0; v /= 10) digits[n++] = static_cast<char>('0' + v % 10);
    size_t length = 14;
    while (n > 0) path[length++] = digits[--n];
    const long got = sys::call(SYS_readlinkat, AT_FDCWD, path, target, sizeof target - 1);
    const auto has = [&](const char *word) {
        for (const char *t = target; *t != '\0'; ++t) {
            const char *a = t, *b = word;
            while (*b != '\0' && *a == *b) ++a, ++b;
            if (*b == '\0') return true;
        }
        return false;
    };
    if (got > 0 && (has("userfaultfd") || has("pagemap"))) sys::close(fd);
}

int open_userfaultfd(GuardOpenError *error) {
    if (fault(FaultPoint::kGuardOpen)) {
        *error = {"userfaultfd", EPERM};
        return -1;
    }
    int fd = -1;
    if (const int device = sys::open("/dev/userfaultfd", O_RDWR | O_CLOEXEC); device >= 0) {
        fd = static_cast<int>(sys::call(SYS_ioctl, device, uapi::kUserfaultfdNew, O_CLOEXEC | O_NONBLOCK));
        sys::close(device);
    }
    if (fd < 0) fd = static_cast<int>(sys::call(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK));
    if (fd < 0) fd = static_cast<int>(sys::call(SYS_userfaultfd, static_cast<unsigned>(O_CLOEXEC | O_NONBLOCK) | uapi::kUserModeOnly));
    if (fd < 0) {
        *error = {"userfaultfd", -fd};
        return -1;
    }
    uffdio_api api{};
    api.api = UFFD_API;
    api.features = uapi::kFeaturePagefaultFlagWp | uapi::kFeatureWpUnpopulated | uapi::kFeatureWpAsync;
    if (const long r = control(fd, UFFDIO_API, &api); r < 0) {
        sys::close(fd);
        *error = {"UFFDIO_API with WP_ASYNC", static_cast<int>(-r)};
        return -1;
    }
    return fd;
}

int open_pagemap() { return sys::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC); }

long guard_scan(int pagemap, const ScanRequest &request) {
    if ((request.flags & uapi::kScanCheckWpAsync) != 0 && fault(FaultPoint::kGuardScanEperm)) return -EPERM;
    for (;;) {
        uapi::ScanArgument a{};
        a.size = sizeof a;
        a.flags = request.flags;
        a.start = request.pages.begin;
        a.end = request.pages.end;
        a.vec = reinterpret_cast<uint64_t>(request.regions);
        a.vec_len = request.capacity;
        a.category_mask = request.category;
        a.return_mask = request.regions != nullptr ? request.category : 0;
        const long r = control(pagemap, uapi::kPagemapScan, &a);
        if (r != -EINTR) return r;
    }
}

int guard_register(int userfaultfd, AddressRange pages) {
    if (fault(FaultPoint::kGuardRegister)) return -ENOMEM;
    uffdio_register r{};
    r.range.start = pages.begin;
    r.range.len = pages.size();
    r.mode = UFFDIO_REGISTER_MODE_WP;
    if (const long failed = control(userfaultfd, UFFDIO_REGISTER, &r); failed < 0) return static_cast<int>(failed);
    if ((r.ioctls & uapi::kRangeHasZeropage) == 0) {
        guard_unregister(userfaultfd, pages);
        return -ENOTSUP;
    }
    return 0;
}

void guard_unregister(int userfaultfd, AddressRange pages) {
    uffdio_range r{};
    r.start = pages.begin;
    r.len = pages.size();
    control(userfaultfd, UFFDIO_UNREGISTER, &r);
}

int guard_unprotect(int userfaultfd, AddressRange pages) {
    for (;;) {
        uffdio_writeprotect w{};
        w.range.start = pages.begin;
        w.range.len = pages.size();
        const long r = control(userfaultfd, UFFDIO_WRITEPROTECT, &w);
        if (r != -EAGAIN && r != -EINTR) return static_cast<int>(r);
    }
}

bool is_private_mapping(AddressRange pages) {
    const int fd = sys::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    bool result = true;
    for (uintptr_t at = pages.begin; at < pages.end;) {
        uapi::ProcmapQuery q{};
        q.size = sizeof q;
        q.query_flags = uapi::kVmaCoveringOrNext;
        q.query_addr = at;
        const long r = control(fd, uapi::kProcmapQuery, &q);
        if (r == -ENOTTY || r == -EINVAL) {
            result = is_private_by_text(fd, {at, pages.end});
            break;
        }
        if (r < 0 || q.vma_start > at || (q.vma_flags & uapi::kVmaShared) != 0 || q.vma_page_size > kPageSize) {
            result = false;
            break;
        }
        at = q.vma_end;
    }
    sys::close(fd);
    return result;
}

}  // namespace reprise
