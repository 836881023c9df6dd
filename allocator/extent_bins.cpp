#include "allocator/extent_bins.h"

namespace reprise {

uintptr_t fit_in(const Extent &extent, size_t pages, size_t alignment) {
    const uintptr_t begin = extent.begin.load(std::memory_order_relaxed);
    const uintptr_t start = (begin + alignment - 1) & ~(alignment - 1);
    return start >= begin && start + pages * kPageSize <= extent.end() ? start : 0;
}

size_t ExtentBins::bin_of(size_t pages) {
    if (pages < kExact) return pages;
    const size_t log = 63 - static_cast<size_t>(__builtin_clzll(pages));
    const size_t bin = kExact + (log - 10) * kPerDoubling + ((pages >> (log - 4)) & (kPerDoubling - 1));
    return bin < kBins ? bin : kBins - 1;
}

void ExtentBins::insert(ExtentTable &table, ExtentId id) {
    const size_t bin = bin_of(table[id].pages.load(std::memory_order_relaxed));
    const ExtentId head = heads_[bin];
    table[id].bin_prev = 0;
    table[id].bin_next = head;
    if (head != 0) table[head].bin_prev = id;
    heads_[bin] = id;
    occupied_[bin / 64] |= uint64_t{1} << (bin % 64);
}

void ExtentBins::remove(ExtentTable &table, ExtentId id) {
    Extent &e = table[id];
    if (e.bin_next != 0) table[e.bin_next].bin_prev = e.bin_prev;
    if (e.bin_prev != 0) {
        table[e.bin_prev].bin_next = e.bin_next;
    } else {
        const size_t bin = bin_of(e.pages.load(std::memory_order_relaxed));
        heads_[bin] = e.bin_next;
        if (e.bin_next == 0) occupied_[bin / 64] &= ~(uint64_t{1} << (bin % 64));
    }
    e.bin_prev = e.bin_next = 0;
}

size_t ExtentBins::next_bin(size_t from) const {
    if (from >= kBins) return kBins;
    size_t word = from / 64;
    uint64_t bits = occupied_[word] & (~uint64_t{0} << (from % 64));
    while (bits == 0) {
        if (++word == kWords) return kBins;
        bits = occupied_[word];
    }
    return word * 64 + static_cast<size_t>(__builtin_ctzll(bits));
}

ExtentId ExtentBins::look(ExtentTable &table, size_t bin, size_t pages, size_t alignment) const {
    ExtentId best = 0;
    int looked = 0;
    for (ExtentId id = heads_[bin]; id != 0 && looked < kLook; id = table[id].bin_next, ++looked) {
        const Extent &e = table[id];
        if (fit_in(e, pages, alignment) == 0) continue;
        if (best != 0) {
            const uint32_t have = table[best].pages.load(std::memory_order_relaxed), got = e.pages.load(std::memory_order_relaxed);
            const bool lower = e.begin.load(std::memory_order_relaxed) < table[best].begin.load(std::memory_order_relaxed);
            if (got > have || (got == have && !lower)) continue;
        }
        best = id;
    }
    return best;
}

ExtentId ExtentBins::find(ExtentTable &table, size_t pages, size_t alignment) const {
    size_t bin = next_bin(bin_of(pages));
    for (int tries = 0; bin < kBins && tries < 32; ++tries, bin = next_bin(bin + 1)) {
        if (const ExtentId id = look(table, bin, pages, alignment)) return id;
    }
    if (bin >= kBins) return 0;
    // Large alignments only: from here on any extent fits, wherever it begins. (A bin above 1023 also holds extents a little too small.)
    for (bin = next_bin(bin_of(pages + alignment / kPageSize) + 1); bin < kBins; bin = next_bin(bin + 1)) {
        if (const ExtentId id = look(table, bin, pages, alignment)) return id;
    }
    return 0;
}

}  // namespace reprise
