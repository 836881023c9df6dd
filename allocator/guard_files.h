// The page guard's two descriptors, kept safe from the job, and the kernel calls on them.
//
// Used by page_guard*.cpp only. A descriptor is remembered with its device and inode: a job that daemonises closes or reuses numbers that
// it does not know, and what stands there afterwards is its own.
#pragma once

#include <atomic>

#include "allocator/base/futex_lock.h"
#include "allocator/base/types.h"
#include "allocator/uapi.h"

namespace reprise {

class GuardFile {
  public:
    // Takes over `fd` (moved to a high number, close-on-exec); false when fd < 0.
    bool adopt(int fd);
    // The descriptor if it is still our file, else -1.
    int checked() const;
    // Closes it if it is still ours and forgets it.
    void drop();
    int raw() const { return fd_.load(std::memory_order_relaxed); }

  private:
    std::atomic<int> fd_{-1};
    std::atomic<uint64_t> device_{0}, inode_{0};
};

struct ScanRequest {
    AddressRange pages;
    uint64_t flags = 0;     // uapi::kScan*
    uint64_t category = 0;  // uapi::kPageIs*
    uapi::PageRegion *regions = nullptr;
    size_t capacity = 0;
};

// Which call of opening failed, for the message.
struct GuardOpenError {
    const char *step = nullptr;
    int error = 0;
};

// userfaultfd with the write-protect features on: /dev/userfaultfd, the system call, the system call in user-mode-only form. -1 and *error.
int open_userfaultfd(GuardOpenError *error);
int open_pagemap();

// Regions found, or -errno.
long guard_scan(int pagemap, const ScanRequest &request);
// 0 or -errno; -ENOTSUP (and unregistered again) for hugetlb.
int guard_register(int userfaultfd, AddressRange pages);
void guard_unregister(int userfaultfd, AddressRange pages);
int guard_unprotect(int userfaultfd, AddressRange pages);

// Is every page of the range mapped, private and not hugetlb?
bool is_private_mapping(AddressRange pages);

}  // namespace reprise
