// Free extents of one kind (dirty or clean) of one half of the arena, by number of pages.
//
// Used by the arena under its lock. Exact bins up to 1023 pages, then 16 per doubling, with a bitmap over them: finding a fit is a few
// bit scans and looks at no more than kLook records per bin. Best fit, then lowest address among those looked at: packs the low end.
#pragma once

#include "allocator/extent_table.h"

namespace reprise {

class ExtentBins {
  public:
    void insert(ExtentTable &table, ExtentId id);
    void remove(ExtentTable &table, ExtentId id);
    // An extent that can hold `pages` at an address aligned to `alignment` bytes (a power of two), or 0. Stays in its bin.
    ExtentId find(ExtentTable &table, size_t pages, size_t alignment) const;

    static size_t bin_of(size_t pages);

  private:
    static constexpr size_t kExact = 1024, kPerDoubling = 16, kBins = kExact + 20 * kPerDoubling, kWords = (kBins + 63) / 64;
    static constexpr int kLook = 8;

    size_t next_bin(size_t from) const;
    ExtentId look(ExtentTable &table, size_t bin, size_t pages, size_t alignment) const;

    ExtentId heads_[kBins] = {};
    uint64_t occupied_[kWords] = {};
};

// Where a block of `pages` at `alignment` would begin in this extent; 0 when it does not fit.
uintptr_t fit_in(const Extent &extent, size_t pages, size_t alignment);

}  // namespace reprise
