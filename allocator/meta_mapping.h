// Address space for a metadata table that is made accessible step by step.
//
// Used by the page map, the extent table and the declared ranges, under their own locks. Reserved PROT_NONE so that it costs nothing
// and mlockall() does not populate it; opened by mprotect, adjacent steps merge into one VMA. Never given back: readers are lock-free.
#pragma once

#include "allocator/base/fault.h"
#include "allocator/base/sys.h"
#include "allocator/base/types.h"

namespace reprise {

class MetaMapping {
  public:
    constexpr MetaMapping() = default;

    bool reserve(size_t size) {
        size = page_ceil(size);
        base_ = sys::map(size, PROT_NONE, MAP_NORESERVE);
        size_ = base_ == 0 ? 0 : size;
        return base_ != 0;
    }
    void release() {
        if (base_ != 0) sys::unmap(base_, size_);
        base_ = 0;
        size_ = 0;
    }
    // Makes [begin, end) (offsets in bytes) accessible; whole pages. Reads as zero when fresh.
    bool open(size_t begin, size_t end) {
        begin = page_floor(begin);
        end = page_ceil(end);
        if (end > size_ || fault(FaultPoint::kMetaOpen)) return false;
        return begin >= end || sys::protect(base_ + begin, end - begin, PROT_READ | PROT_WRITE);
    }
    uintptr_t base() const { return base_; }
    size_t size() const { return size_; }

  private:
    uintptr_t base_ = 0;
    size_t size_ = 0;
};

}  // namespace reprise
