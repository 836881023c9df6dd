// Which buffers meet a range of addresses, without looking at all of them. Buffers may overlap and nest, so they are kept by begin in one
// ordered list per size class (powers of two): within a class only those that begin less than twice a size before the range can reach it.
//
// Used by the registry alone, under the engine's mutex.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>

#include "tracker/buffer.h"

namespace reprise {

class RangeIndex {
  public:
    void add(Buffer &buffer) {
        const size_t size_class = class_of(buffer.range);
        classes_[size_class].emplace(buffer.range.begin, &buffer);
        used_ |= uint64_t{1} << size_class;
    }
    void remove(const Buffer &buffer) {
        const size_t size_class = class_of(buffer.range);
        Class &members = classes_[size_class];
        for (auto [at, end] = members.equal_range(buffer.range.begin); at != end; ++at) {
            if (at->second != &buffer) continue;
            members.erase(at);
            break;
        }
        if (members.empty()) used_ &= ~(uint64_t{1} << size_class);
    }
    // Visits every buffer that meets `range`; returns how many it had to look at.
    template <class Fn>
    size_t for_each_meeting(AddressRange range, Fn fn) const {
        size_t looked_at = 0;
        for (uint64_t left = used_; left != 0; left &= left - 1) {
            const auto size_class = static_cast<size_t>(std::countr_zero(left));
            const uintptr_t reach = size_class == 63 ? ~uintptr_t{0} : (uintptr_t{2} << size_class) - 1;
            const Class &members = classes_[size_class];
            auto at = range.begin > reach ? members.upper_bound(range.begin - reach) : members.begin();
            for (; at != members.end() && at->first < range.end; ++at) {
                ++looked_at;
                if (at->second->range.meets(range)) fn(*at->second);
            }
        }
        return looked_at;
    }

  private:
    using Class = std::multimap<uintptr_t, Buffer *>;
    static size_t class_of(AddressRange range) { return static_cast<size_t>(std::bit_width(range.size() | 1)) - 1; }

    std::array<Class, 64> classes_;
    uint64_t used_ = 0;  // bit n: class n is not empty
};

}  // namespace reprise
