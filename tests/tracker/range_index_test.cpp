// The index of ranges against a plain list, and how little it looks at.
#include "tracker/range_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <set>
#include <vector>

namespace reprise::test {
namespace {

struct Buffers {
    Buffer *add(uintptr_t begin, size_t size) {
        auto buffer = std::make_unique<Buffer>();
        buffer->range = {begin, begin + size};
        index.add(*buffer);
        all.push_back(std::move(buffer));
        return all.back().get();
    }
    void remove(size_t at) {
        index.remove(*all[at]);
        all.erase(all.begin() + static_cast<std::ptrdiff_t>(at));
    }
    std::multiset<Buffer *> indexed(AddressRange range) const {
        std::multiset<Buffer *> found;
        index.for_each_meeting(range, [&](Buffer &buffer) { found.insert(&buffer); });
        return found;
    }
    std::multiset<Buffer *> naive(AddressRange range) const {
        std::multiset<Buffer *> found;
        for (const auto &buffer : all) {
            if (buffer->range.meets(range)) found.insert(buffer.get());
        }
        return found;
    }
    RangeIndex index;
    std::vector<std::unique_ptr<Buffer>> all;
};

TEST(RangeIndex, AgainstAList) {
    const unsigned seed = std::random_device{}();
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    Buffers buffers;
    auto some_range = [&] {
        const uintptr_t begin = random() % 5000;
        return AddressRange{begin, begin + 1 + random() % (uint64_t{1} << random() % 13)};
    };
    for (int round = 0; round < 4000; ++round) {
        const AddressRange range = some_range();
        if (random() % 3 != 0 || buffers.all.empty()) {
            buffers.add(range.begin, range.size());
        } else {
            buffers.remove(random() % buffers.all.size());
        }
        const AddressRange asked = some_range();
        ASSERT_EQ(buffers.indexed(asked), buffers.naive(asked)) << round;
    }
}

TEST(RangeIndex, TheEndsOfTheAddressSpace) {
    Buffers buffers;
    Buffer *all = buffers.add(0, ~uintptr_t{0});
    Buffer *last = buffers.add(~uintptr_t{0} - 10, 10);
    Buffer *first = buffers.add(0, 1);
    EXPECT_EQ(buffers.indexed({~uintptr_t{0} - 5, ~uintptr_t{0} - 4}), (std::multiset<Buffer *>{all, last}));
    EXPECT_EQ(buffers.indexed({0, 1}), (std::multiset<Buffer *>{all, first}));
}

// A question about one address among 10,000 buffers, the largest of which holds all others.
TEST(RangeIndex, LooksAtFew) {
    Buffers buffers;
    constexpr size_t kCount = 10000, kSize = 65536;
    buffers.add(kSize, kCount * kSize);
    for (size_t i = 1; i <= kCount; ++i) buffers.add(i * kSize, kSize - 100 + i % 200);
    size_t most = 0;
    for (size_t i = 1; i <= kCount; ++i) {
        const uintptr_t address = i * kSize + kSize / 2;
        size_t met = 0;
        most = std::max(most, buffers.index.for_each_meeting({address, address + 1}, [&](Buffer &) { ++met; }));
        ASSERT_EQ(met, 2u);
    }
    EXPECT_LE(most, 6u);
}

}  // namespace
}  // namespace reprise::test
