// Vocabulary shared by every layer: address ranges, strong byte and page counts. Header-only, needs no C++ runtime: it is also used inside
// hooks.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

namespace reprise {

inline constexpr size_t kPageSize = 4096;
inline constexpr size_t kHugePageSize = size_t{2} << 20;
// Below this a buffer is always copied whole: a page-table operation costs more than the copy (docs/tracking.md).
inline constexpr size_t kSmallBuffer = size_t{128} << 10;

constexpr uintptr_t page_floor(uintptr_t address) { return address & ~(uintptr_t{kPageSize} - 1); }
constexpr uintptr_t page_ceil(uintptr_t address) { return page_floor(address + kPageSize - 1); }

// A half-open range of addresses.
struct AddressRange {
    uintptr_t begin = 0;
    uintptr_t end = 0;

    constexpr size_t size() const { return end - begin; }
    constexpr bool empty() const { return end <= begin; }
    constexpr bool contains(uintptr_t address) const { return address >= begin && address < end; }
    constexpr bool contains(AddressRange other) const { return other.begin >= begin && other.end <= end; }
    constexpr bool meets(AddressRange other) const { return begin < other.end && other.begin < end; }
    constexpr AddressRange intersect(AddressRange other) const {
        AddressRange r{begin > other.begin ? begin : other.begin, end < other.end ? end : other.end};
        if (r.end < r.begin) r.end = r.begin;
        return r;
    }
    // The whole pages that hold these bytes, neighbours included.
    constexpr AddressRange pages() const { return {page_floor(begin), page_ceil(end)}; }
    friend constexpr bool operator==(AddressRange, AddressRange) = default;
};

inline AddressRange range_of(const void *address, size_t size) {
    auto begin = reinterpret_cast<uintptr_t>(address);
    return {begin, begin + size};
}

// Counts that must not be mixed up: pages are not bytes.
template <class Tag>
struct Count {
    uint64_t value = 0;
    constexpr Count() = default;
    constexpr explicit Count(uint64_t v) : value(v) {}
    friend constexpr auto operator<=>(Count, Count) = default;
    friend constexpr Count operator+(Count a, Count b) { return Count(a.value + b.value); }
    friend constexpr Count operator-(Count a, Count b) { return Count(a.value - b.value); }
    constexpr Count &operator+=(Count b) {
        value += b.value;
        return *this;
    }
    constexpr Count &operator-=(Count b) {
        value -= b.value;
        return *this;
    }
};
using Bytes = Count<struct BytesTag>;
using Pages = Count<struct PagesTag>;
constexpr Bytes to_bytes(Pages p) { return Bytes(p.value * kPageSize); }
constexpr Pages to_pages(Bytes b) { return Pages((b.value + kPageSize - 1) / kPageSize); }

// Names one life of one block of memory: address reuse gives another generation. 0 names nothing.
using Generation = uint64_t;

}  // namespace reprise
