// A block in the tracked arena, as a hook would place it.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

#include "allocator/allocator.h"

namespace reprise::test {

class ArenaMemory {
  public:
    explicit ArenaMemory(size_t size) : size_(size) {
        allocator_start();
        bool zeroed = false;
        data_ = static_cast<uint8_t *>(place(size, 4096, &zeroed));
        if (data_ == nullptr) {
            ADD_FAILURE() << "the arena gave no block of " << size << " bytes";
            abort();
        }
        std::memset(data_, 0, size);
    }
    ArenaMemory(const ArenaMemory &) = delete;
    ArenaMemory &operator=(const ArenaMemory &) = delete;
    ~ArenaMemory() { release_block(data_); }

    uint8_t *data() const { return data_; }
    size_t size() const { return size_; }
    AddressRange range() const { return range_of(data_, size_); }
    void touch_page(size_t page, uint8_t value = 1) { data_[page * kPageSize] = value; }

  private:
    uint8_t *data_ = nullptr;
    size_t size_;
};

}  // namespace reprise::test
