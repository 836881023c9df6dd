// What the guard suites share: a fixture that knows whether this kernel can do it (found independently), and blocks of pages to write to.
#pragma once

#include <cstring>
#include <vector>

#include "allocator/arena.h"
#include "allocator/page_guard.h"
#include "tests/allocator/support.h"

namespace reprise::test {

// Asks the independent program once.
inline bool kernel_tracks_writes() {
    static const bool answer = [] {
        FILE *f = popen(KERNEL_FEATURES, "r");
        int value = -1;
        if (f == nullptr || std::fscanf(f, "wp_async=%d", &value) != 1) value = -1;
        if (f != nullptr) pclose(f);
        EXPECT_NE(value, -1) << "the independent program did not answer";
        return value == 1;
    }();
    return answer;
}

class Guard : public Started {
  protected:
    void SetUp() override {
        Started::SetUp();
        GuardCapabilities c;
        port().guard_probe(&c);
        ASSERT_EQ(c.write_protect_async, kernel_tracks_writes()) << "the probe and an independent program disagree; reason: " << c.reason;
        if (!c.write_protect_async) {
            ASSERT_NE(c.reason[0], '\0') << "a missing capability needs its reason and remedy";
            GTEST_SKIP() << "this kernel does not track writes: " << c.reason;
        }
        ASSERT_EQ(c.reason[0], '\0');
    }
    void TearDown() override {
        for (void *p : blocks_) release_block(p);
    }

    // A live arena block, all pages resident.
    AddressRange block(size_t pages) {
        void *p = place(pages * kPageSize, kPageSize, nullptr);
        EXPECT_NE(p, nullptr);
        std::memset(p, 1, pages * kPageSize);
        blocks_.push_back(p);
        return range_of(p, pages * kPageSize);
    }
    static void write(AddressRange range, size_t page) { *reinterpret_cast<volatile char *>(range.begin + page * kPageSize + 17) = 2; }

    // All written pages of the range, collected with room for `capacity` runs at a time.
    static std::vector<size_t> collect(AddressRange range, bool reset, size_t capacity, GuardResult *result = nullptr) {
        std::vector<size_t> pages;
        std::vector<AddressRange> runs(capacity);
        AddressRange rest = range;
        for (;;) {
            size_t count = 0;
            const GuardResult r = port().guard_collect(rest, reset, runs.data(), capacity, &count);
            if (result != nullptr) *result = r;
            if (r != GuardResult::kOk) break;
            for (size_t i = 0; i < count; ++i) {
                for (uintptr_t at = runs[i].begin; at < runs[i].end; at += kPageSize) pages.push_back((at - range.begin) / kPageSize);
            }
            if (count < capacity) break;
            rest.begin = runs[count - 1].end;
        }
        return pages;
    }
    static std::vector<size_t> every_page(size_t pages) {
        std::vector<size_t> all(pages);
        for (size_t i = 0; i < pages; ++i) all[i] = i;
        return all;
    }
    using Pages = std::vector<size_t>;

  private:
    std::vector<void *> blocks_;
};

}  // namespace reprise::test
