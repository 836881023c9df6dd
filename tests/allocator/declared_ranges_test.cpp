#include "allocator/declared_ranges.h"

#include <thread>
#include <vector>

#include "allocator/base/fault.h"
#include "tests/allocator/support.h"

namespace reprise::test {
namespace {

using Declared = Started;

TEST_F(Declared, DeclareFindEnd) {
    const Generation a = port().declare({0x5000000, 0x5002000}), b = port().declare({0x6000000, 0x6000100});
    ASSERT_NE(a, 0u);
    ASSERT_NE(b, 0u);
    ASSERT_NE(a, b);
    BlockInfo block;
    ASSERT_TRUE(port().find(0x5001fff, &block));
    EXPECT_EQ(block.origin, Origin::kDeclared);
    EXPECT_EQ(block.generation, a);
    EXPECT_EQ(block.range, (AddressRange{0x5000000, 0x5002000}));
    EXPECT_TRUE(port().is_live(0x5000000, a));
    EXPECT_FALSE(port().is_live(0x6000000, a));
    end_mapping({0x5002000, 0x6000000});  // touches neither
    EXPECT_TRUE(port().is_live(0x5000000, a));
    end_mapping({0x5001fff, 0x5002000});  // one byte is enough
    EXPECT_FALSE(port().is_live(0x5000000, a));
    EXPECT_TRUE(port().is_live(0x6000000, b));
    port().undeclare(0x6000000, b + 1);
    EXPECT_TRUE(port().is_live(0x6000000, b));
    port().undeclare(0x6000000, b);
    EXPECT_FALSE(port().is_live(0x6000000, b));
    EXPECT_EQ(declared_ranges.count(), 0u);
    EXPECT_EQ(port().declare({10, 10}), 0u);
}

TEST_F(Declared, InsideALiveBlockItLivesAsLongAsTheBlock) {
    char *p = static_cast<char *>(place(kSmallBuffer * 4, 64, nullptr));
    BlockInfo block;
    ASSERT_TRUE(port().find(address_of(p), &block));
    const Generation g = port().declare(range_of(p + 1000, 5000));
    EXPECT_EQ(g, block.generation);
    EXPECT_TRUE(port().is_live(address_of(p) + 1000, g));
    port().undeclare(address_of(p) + 1000, g);
    EXPECT_TRUE(port().is_live(address_of(p), g));
    EXPECT_TRUE(release_block(p));
    EXPECT_FALSE(port().is_live(address_of(p) + 1000, g));
    EXPECT_EQ(declared_ranges.count(), 0u);
}

TEST_F(Declared, ThousandsAndThreads) {
    std::vector<Generation> generations;
    for (uintptr_t i = 0; i < 5000; ++i)
        generations.push_back(port().declare({0x70000000 + i * 0x10000, 0x70000000 + i * 0x10000 + 0x8000}));
    std::thread ender([&] {
        for (uintptr_t i = 0; i < 5000; i += 2) end_mapping({0x70000000 + i * 0x10000, 0x70000000 + i * 0x10000 + 0x1000});
    });
    size_t lost = 0;
    for (uintptr_t i = 1; i < 5000; i += 2) lost += !port().is_live(0x70000000 + i * 0x10000, generations[i]);
    ender.join();
    EXPECT_EQ(lost, 0u) << "a neighbour's end took others along";
    for (uintptr_t i = 0; i < 5000; ++i) ASSERT_EQ(port().is_live(0x70000000 + i * 0x10000, generations[i]), i % 2 == 1);
    end_mapping({0, ~uintptr_t{0}});
    EXPECT_EQ(declared_ranges.count(), 0u);
}

// Against a plain list: ranges of all sizes, ended by ranges of all sizes, neighbours in the same page.
TEST_F(Declared, AgainstAList) {
    REPRISE_SEEDED;
    std::mt19937_64 random(seed());
    struct Known {
        AddressRange range;
        Generation generation;
    };
    std::vector<Known> known;
    const auto some_range = [&](uintptr_t most) {
        const uintptr_t begin = 0x70000000 + random() % (64 * kPageSize * 64);
        return AddressRange{begin, begin + 1 + random() % most};
    };
    for (int round = 0; round < 20000; ++round) {
        switch (random() % 4) {
            case 0: {
                const AddressRange range = some_range(random() % 8 == 0 ? 40 * kPageSize : 600);
                known.push_back({range, port().declare(range)});
                ASSERT_NE(known.back().generation, 0u);
                break;
            }
            case 1:
                if (!known.empty()) {
                    const size_t i = random() % known.size();
                    port().undeclare(known[i].range.begin, known[i].generation);
                    known.erase(known.begin() + static_cast<ptrdiff_t>(i));
                }
                break;
            default: {
                const AddressRange range = some_range(random() % 64 == 0 ? 200 * kPageSize : 5000);
                end_mapping(range);
                std::erase_if(known, [&](const Known &k) { return k.range.meets(range); });
            }
        }
        ASSERT_EQ(declared_ranges.count(), known.size()) << round;
        if (!known.empty()) {
            const Known &k = known[random() % known.size()];
            ASSERT_TRUE(port().is_live(k.range.begin, k.generation)) << round;
        }
        if (round % 5000 == 4999) {
            end_mapping({0, ~uintptr_t{0}});
            known.clear();
        }
    }
}

// A hook that cannot get the lock leaves its range for whoever gets it next; only more of them than fit end everything.
TEST_F(Declared, AHookThatFindsTheLockTakenEndsItsRangeAllTheSame) {
    constexpr uintptr_t kBase = 0x70000000, kStride = 0x10000;
    for (const uintptr_t hooks : {uintptr_t{1}, uintptr_t{64}, uintptr_t{65}}) {
        SCOPED_TRACE(hooks);
        std::vector<Generation> generations;
        for (uintptr_t i = 0; i < 100; ++i) generations.push_back(port().declare({kBase + i * kStride, kBase + i * kStride + 0x8000}));
        fault_configure("lock_contended");
        for (uintptr_t i = 0; i < hooks; ++i) end_mapping({kBase + i * kStride + 0x100, kBase + i * kStride + 0x101});
        fault_configure(nullptr);
        for (uintptr_t i = 0; i < 100; ++i) EXPECT_EQ(port().is_live(kBase + i * kStride, generations[i]), i >= hooks && hooks <= 64) << i;
        // Declared anew at once: what was ended before does not reach it.
        const Generation again = port().declare({kBase, kBase + 0x8000});
        EXPECT_TRUE(port().is_live(kBase, again));
        end_mapping({0, ~uintptr_t{0}});
        EXPECT_EQ(declared_ranges.count(), 0u);
    }
}

}  // namespace
}  // namespace reprise::test
