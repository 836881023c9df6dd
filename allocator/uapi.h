// Kernel interfaces newer than the headers that we build with: userfaultfd features, PAGEMAP_SCAN (6.7), PROCMAP_QUERY (6.11).
//
// Used by the page guard. Plain copies of the kernel's ABI under our own names; whether the running kernel knows them is found by doing.
#pragma once

#include <linux/ioctl.h>
#include <linux/userfaultfd.h>
#include <stdint.h>

namespace reprise::uapi {

inline constexpr uint64_t kFeaturePagefaultFlagWp = uint64_t{1} << 0;
inline constexpr uint64_t kFeatureWpUnpopulated = uint64_t{1} << 13;
inline constexpr uint64_t kFeatureWpAsync = uint64_t{1} << 15;
inline constexpr unsigned kUserModeOnly = 1;                       // flag of userfaultfd(2)
inline constexpr unsigned long kUserfaultfdNew = _IO(0xAA, 0x00);  // ioctl of /dev/userfaultfd
inline constexpr uint64_t kRangeHasZeropage = uint64_t{1} << 4;    // UFFDIO_REGISTER's answer for everything but hugetlb

struct PageRegion {
    uint64_t start, end, categories;
};
struct ScanArgument {
    uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
    uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
inline constexpr unsigned long kPagemapScan = _IOWR('f', 16, ScanArgument);
inline constexpr uint64_t kPageIsWritten = 1 << 1, kPageIsHuge = 1 << 6;
inline constexpr uint64_t kScanWpMatching = 1 << 0, kScanCheckWpAsync = 1 << 1;

struct ProcmapQuery {
    uint64_t size, query_flags, query_addr, vma_start, vma_end, vma_flags, vma_page_size, vma_offset, inode;
    uint32_t dev_major, dev_minor, vma_name_size, build_id_size;
    uint64_t vma_name_addr, build_id_addr;
};
inline constexpr unsigned long kProcmapQuery = _IOWR('f', 17, ProcmapQuery);
inline constexpr uint64_t kVmaShared = 8, kVmaCoveringOrNext = 0x10;

}  // namespace reprise::uapi
