// The page guard: finds which pages were written since they were armed (userfaultfd WP_ASYNC and PAGEMAP_SCAN).
//
// Armed, collected and probed by the tracker through the port, at cuts, from any thread; disarmed also by release_block, inside free().
// Opened at the first use only: a job without segments has no userfaultfd. Whole reservation registered at once, opened or not: one
// VMA per half whatever is armed in it; mappings of the job's own ("foreign") are registered range by range and unregistered on disarm.
//
// What can go wrong, and what is done: descriptors closed, replaced (close_range, dup2) or inherited by a child are noticed by device,
// inode and process id before every use, and reopened; a file of somebody else's is never used and never closed. Lost registrations (EPERM
// with PM_SCAN_CHECK_WPASYNC) mean that everything may have been written: kAllDirty, registered and armed anew. A scan never relies on
// walk_end (stale on 6.18 above 512 regions) and re-arms only by get+reset, which is atomic per page. hugetlb is refused: a reset there
// can deadlock the kernel for good before mid-2026. Shared mappings are refused: writes through another mapping would not be seen.
#pragma once

#include "allocator/allocator.h"

namespace reprise {

void page_guard_probe(GuardCapabilities *out);
GuardResult page_guard_arm(AddressRange pages);
GuardResult page_guard_disarm(AddressRange pages);
GuardResult page_guard_collect(AddressRange pages, bool reset, AddressRange *runs, size_t capacity, size_t *count);
size_t page_guard_huge_blocks(AddressRange pages);

// From free(): the pages of one extent. Never opens anything.
void page_guard_disarm_arena(AddressRange pages);

void page_guard_fork_lock();
void page_guard_fork_unlock();
void page_guard_fork_child();

// Tests.
struct PageGuardFiles {
    int userfaultfd, pagemap;  // -1: not open
};
PageGuardFiles page_guard_files();
uint64_t page_guard_reopened();    // how often lost descriptors or registrations were replaced
void page_guard_reset_for_test();  // closes, and probes again at the next use

}  // namespace reprise
