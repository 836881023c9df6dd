#include "allocator/extent_table.h"

namespace reprise {
namespace {

constexpr ExtentId kExtentsPerStep = 4096;  // 256 KiB at a time
constexpr size_t kMaxExtents = size_t{16} << 20;

}  // namespace

bool ExtentTable::start(uintptr_t arena_base, size_t arena_size) {
    const size_t pages = arena_size / kPageSize;
    size_t extents = pages / 16 + kExtentsPerStep;
    if (extents > kMaxExtents) extents = kMaxExtents;
    if (!map_memory_.reserve(pages * sizeof(uint32_t)) || !extent_memory_.reserve(extents * sizeof(Extent))) {
        stop();
        return false;
    }
    arena_base_ = arena_base;
    map_ = reinterpret_cast<std::atomic<uint32_t> *>(map_memory_.base());
    extents_ = reinterpret_cast<Extent *>(extent_memory_.base());
    capacity_ = static_cast<ExtentId>(extents);
    // Record 0 must be readable: an empty page map entry leads to it, and it is never live.
    if (!extent_memory_.open(0, kExtentsPerStep * sizeof(Extent))) {
        stop();
        return false;
    }
    opened_ = kExtentsPerStep;
    return true;
}

void ExtentTable::stop() {
    map_memory_.release();
    extent_memory_.release();
}

bool ExtentTable::open_map(AddressRange pages) {
    return map_memory_.open((pages.begin - arena_base_) / kPageSize * sizeof(uint32_t),
                            (pages.end - arena_base_) / kPageSize * sizeof(uint32_t));
}

ExtentId ExtentTable::make() {
    if (unused_ != 0) {
        const ExtentId id = unused_;
        unused_ = extents_[id].bin_next;
        extents_[id].bin_next = 0;
        return id;
    }
    const ExtentId id = used_.load(std::memory_order_relaxed);
    if (id >= opened_) {
        const ExtentId next = opened_ + kExtentsPerStep < capacity_ ? opened_ + kExtentsPerStep : capacity_;
        if (id >= next || !extent_memory_.open(opened_ * sizeof(Extent), next * sizeof(Extent))) return 0;
        opened_ = next;
    }
    used_.store(id + 1, std::memory_order_release);
    return id;  // zeroed memory is a valid unused record
}

void ExtentTable::recycle(ExtentId id) {
    Extent &e = extents_[id];
    e.state = ExtentState::kUnused;
    e.map_filled = false;
    e.bin_next = unused_;
    unused_ = id;
}

void ExtentTable::set_tags(ExtentId id) {
    const Extent &e = extents_[id];
    map_entry(e.begin.load(std::memory_order_relaxed)).store(id, std::memory_order_relaxed);
    map_entry(e.end() - kPageSize).store(id, std::memory_order_relaxed);
}

void ExtentTable::fill(ExtentId id) {
    Extent &e = extents_[id];
    if (e.map_filled) return;
    std::atomic<uint32_t> *entry = &map_entry(e.begin.load(std::memory_order_relaxed));
    const uint32_t pages = e.pages.load(std::memory_order_relaxed);
    for (uint32_t i = 0; i < pages; ++i) entry[i].store(id, std::memory_order_relaxed);
    e.map_filled = true;
}

bool ExtentTable::read(ExtentId id, AddressRange *range, Generation *generation) const {
    const Extent &e = extents_[id];
    const Generation before = e.generation.load(std::memory_order_acquire);
    if (before == 0) return false;
    // Acquire, so that the second look at the generation stays behind them; writers store 0 before, and release, these fields.
    const uintptr_t begin = e.begin.load(std::memory_order_acquire);
    const uint64_t size = e.size.load(std::memory_order_acquire);
    if (e.generation.load(std::memory_order_relaxed) != before) return false;
    *range = {begin, begin + size};
    *generation = before;
    return true;
}

}  // namespace reprise
