#include "allocator/page_guard_probe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/base/sys.h"
#include "allocator/guard_files.h"

namespace reprise {
namespace {

constexpr size_t kScratch = 2 * kHugePageSize;

struct Scratch {
    uintptr_t raw = 0, base = 0;
    int userfaultfd = -1, pagemap = -1;

    ~Scratch() {
        // Unmapped first: closing a userfaultfd walks its mappings.
        if (raw != 0) sys::unmap(raw, kScratch + kHugePageSize);
        if (userfaultfd >= 0) sys::close(userfaultfd);
        if (pagemap >= 0) sys::close(pagemap);
    }
};

class Reason {
  public:
    explicit Reason(GuardCapabilities *out) : out_(out) { out->reason[0] = '\0'; }
    Reason &operator<<(const char *text) {
        while (*text != '\0' && used_ + 1 < sizeof out_->reason) out_->reason[used_++] = *text++;
        out_->reason[used_] = '\0';
        return *this;
    }
    Reason &operator<<(int number) {
        char digits[12] = {};
        size_t at = sizeof digits - 1;
        do {
            digits[--at] = static_cast<char>('0' + number % 10);
            number /= 10;
        } while (number > 0);
        return *this << digits + at;
    }

  private:
    GuardCapabilities *out_;
    size_t used_ = 0;
};

volatile char *page(const Scratch &s, size_t index) { return reinterpret_cast<volatile char *>(s.base + index * kPageSize); }

// The number of written pages in [first, last) of the scratch, or -errno.
long written(const Scratch &s, size_t first, size_t last, bool reset) {
    uapi::PageRegion regions[64];
    ScanRequest request;
    request.pages = {s.base + first * kPageSize, s.base + last * kPageSize};
    request.flags = uapi::kScanCheckWpAsync | (reset ? uapi::kScanWpMatching : 0);
    request.category = uapi::kPageIsWritten;
    request.regions = regions;
    request.capacity = 64;
    const long found = guard_scan(s.pagemap, request);
    if (found < 0) return found;
    long pages = 0;
    for (long i = 0; i < found; ++i) pages += static_cast<long>((regions[i].end - regions[i].start) / kPageSize);
    return pages;
}

long arm(const Scratch &s, size_t first, size_t last) {
    ScanRequest request;
    request.pages = {s.base + first * kPageSize, s.base + last * kPageSize};
    request.flags = uapi::kScanCheckWpAsync | uapi::kScanWpMatching;
    request.category = uapi::kPageIsWritten;
    return guard_scan(s.pagemap, request);
}

void explain_open(Reason &reason, const GuardOpenError &error) {
    reason << error.step << " failed (errno " << error.error << "): ";
    if (error.error == ENOSYS) {
        reason << "kernel or seccomp lacks it; use Linux >= 6.7 with userfaultfd allowed";
    } else if (error.error == EPERM || error.error == EACCES) {
        reason << "forbidden here; allow userfaultfd in the seccomp profile or give /dev/userfaultfd";
    } else if (error.error == EINVAL) {
        reason << "kernel too old; Linux >= 6.7 has it";
    } else if (error.error == EMFILE || error.error == ENFILE) {
        reason << "no free descriptors; raise ulimit -n";
    } else {
        reason << "comparing against copies instead";
    }
}

}  // namespace

bool run_guard_probe(GuardCapabilities *out) {
    *out = GuardCapabilities{};
    Reason reason(out);
    if (const char *choice = getenv("REPRISE_DIRTY"); choice != nullptr && strcmp(choice, "compare") == 0) {
        reason << "switched off by REPRISE_DIRTY=compare; unset it to track writes";
        return false;
    }
    Scratch s;
    GuardOpenError error;
    s.userfaultfd = open_userfaultfd(&error);
    if (s.userfaultfd < 0) {
        explain_open(reason, error);
        return false;
    }
    s.pagemap = open_pagemap();
    if (s.pagemap < 0) {
        reason << "/proc/self/pagemap cannot be opened (errno " << -s.pagemap << "); mount /proc in the container";
        return false;
    }
    s.raw = sys::map(kScratch + kHugePageSize, PROT_READ | PROT_WRITE, MAP_NORESERVE);
    if (s.raw == 0) {
        reason << "no memory for 6 MiB of scratch; raise ulimit -v";
        return false;
    }
    s.base = (s.raw + kHugePageSize - 1) / kHugePageSize * kHugePageSize;
    sys::advise(s.base, kHugePageSize, MADV_HUGEPAGE);
    const size_t per_block = kHugePageSize / kPageSize;
    *page(s, 0) = 1;                                              // a huge page if there are any
    for (size_t i = 0; i < 16; ++i) *page(s, per_block + i) = 1;  // 4 KiB pages; the rest of that block stays unpopulated
    if (const int r = guard_register(s.userfaultfd, {s.base, s.base + kScratch}); r < 0) {
        reason << "UFFDIO_REGISTER failed (errno " << -r << "); Linux >= 6.7 on x86-64, >= 6.10 on arm64";
        return false;
    }
    if (const long r = arm(s, 0, 2 * per_block); r < 0) {
        reason << "PAGEMAP_SCAN failed (errno " << static_cast<int>(-r) << "); Linux >= 6.7 has it";
        return false;
    }
    // Small pages: populated and not; clean after arming, seen after a write, clean again after get+reset.
    bool right = written(s, 0, 2 * per_block, false) == 0;
    *page(s, per_block + 3) = 2;
    *page(s, per_block + 100) = 2;
    right = right && written(s, per_block, 2 * per_block, true) == 2 && written(s, per_block, 2 * per_block, false) == 0;
    *page(s, per_block + 3) = 3;
    right = right && written(s, per_block, 2 * per_block, true) == 1;
    // Huge page: one write is one page.
    *page(s, 7) = 2;
    right = right && written(s, 0, per_block, true) == 1 && *page(s, per_block + 3) == 3 && *page(s, 0) == 1;
    if (!right) {
        reason << "this kernel's write tracking miscounts; update to a current stable release";
        return false;
    }
    out->write_protect_async = true;
    // A write by the kernel: eight bytes of the pagemap itself, read into an armed page.
    const auto target = const_cast<char *>(page(s, per_block + 9));
    out->kernel_writes_seen = sys::call(SYS_pread64, s.pagemap, target, 8, 0) == 8 && written(s, per_block, 2 * per_block, true) == 1;
    // A hole: a whole armed huge page dropped. Kernels before mid-2026 do not report it.
    guard_unprotect(s.userfaultfd, {s.base, s.base + kHugePageSize});
    sys::advise(s.base, kHugePageSize, MADV_DONTNEED);
    *page(s, 0) = 1;
    if (arm(s, 0, per_block) >= 0) {
        sys::advise(s.base, kHugePageSize, MADV_DONTNEED);
        out->hole_seen = written(s, 0, per_block, false) == static_cast<long>(per_block);
    }
    return true;
}

}  // namespace reprise
