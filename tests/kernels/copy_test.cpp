#include "support.h"

namespace reprise::kernels::testing {
namespace {

using detail::copy_variants;
using detail::Kind;

// Calls the variants themselves, every pair of alignments within a cache line.
TEST(CopyVariants, AllAlignmentsAndShortSizes) {
    Random random(1);
    for (unsigned v = 0; v < copy_variants().count; v++) {
        const auto &variant = copy_variants().entries[v];
        if (!detail::has(variant.needs)) continue;
        SCOPED_TRACE(variant.name);
        for (size_t skew_to = 0; skew_to < 64; skew_to += 1 + random.below(3)) {
            for (size_t skew_from = 0; skew_from < 64; skew_from += 1 + random.below(9)) {
                size_t size = random.below(1200);
                Buffer to(size, skew_to), from(size, skew_from);
                random.fill(from.data(), size);
                auto expected = from.bytes();
                variant.run(to.data(), from.data(), size);
                ASSERT_EQ(to.bytes(), expected) << "size " << size << " to+" << skew_to << " from+" << skew_from;
                ASSERT_NO_FATAL_FAILURE(to.expect_guards());
                ASSERT_EQ(from.bytes(), expected);
            }
        }
    }
}

// Every length up to a few lines past the shortest that is not left to the C library, then some longer ones.
TEST(CopyCached, EveryLengthAnyAlignment) {
    Random random(9);
    for (size_t size = 0; size < 4096; size += size < 600 ? 1 : 1 + random.below(90)) {
        for (int round = 0; round < 4; round++) {
            Buffer to(size, random.below(64)), from(size, random.below(64));
            random.fill(from.data(), size);
            auto expected = from.bytes();
            detail::copy_cached(to.data(), from.data(), size);
            ASSERT_EQ(to.bytes(), expected) << "size " << size;
            ASSERT_NO_FATAL_FAILURE(to.expect_guards());
            ASSERT_EQ(from.bytes(), expected);
        }
    }
}

TEST(Copy, EverySizeClassEveryVariant) {
    Random random(2);
    for_each_variant(Kind::copy, copy_variants(), [&] {
        for (size_t size : sizes()) {
            size_t skew_to = random.below(4096), skew_from = random.below(4096);
            Buffer to(size, skew_to), from(size, skew_from);
            random.fill(from.data(), size);
            copy(to.data(), from.data(), size);
            ASSERT_TRUE(size == 0 || memcmp(to.data(), from.data(), size) == 0)
                << "size " << size << " to+" << skew_to << " from+" << skew_from;
            ASSERT_NO_FATAL_FAILURE(to.expect_guards());
        }
    });
}

TEST(Copy, NothingFromNowhere) {
    copy(nullptr, nullptr, 0);
    copy_list(nullptr, 0);
    CopyItem empty{nullptr, nullptr, 0};
    copy_list(&empty, 1);
}

// Random lists: pages, short odd runs, long runs, empty ones, in any order.
void check_list(Random &random, size_t count, size_t longest) {
    std::vector<CopyItem> items;
    std::vector<size_t> offsets;
    size_t extent = 0;
    for (size_t i = 0; i < count; i++) {
        size_t size = 0;
        switch (random.below(8)) {
            case 0:
                size = 0;
                break;
            case 1:
                size = random.below(300);
                break;
            case 2:
                size = random.below(longest);
                break;
            default:
                size = 4096;
                break;
        }
        extent += random.below(100);
        offsets.push_back(extent);
        items.push_back({nullptr, nullptr, size});
        extent += size;
    }
    Buffer to(extent, random.below(64)), from(extent, random.below(64));
    random.fill(from.data(), extent);
    random.fill(to.data(), extent);
    auto expected = to.bytes();
    for (size_t i = 0; i < count; i++) {
        items[i].to = to.data() + offsets[i];
        items[i].from = from.data() + offsets[i];
        if (items[i].size) memcpy(expected.data() + offsets[i], items[i].from, items[i].size);
    }
    std::shuffle(items.begin(), items.end(), std::mt19937_64(random.word()));
    copy_list(items.data(), items.size());
    ASSERT_EQ(memcmp(to.data(), expected.data(), extent), 0) << count << " items, " << extent << " bytes";
    ASSERT_NO_FATAL_FAILURE(to.expect_guards());
}

TEST(CopyList, RandomListsEveryVariant) {
    Random random(3);
    for_each_variant(Kind::copy, copy_variants(), [&] {
        for (size_t count : {1, 2, 7, 100, test::by_build(1500, 1500, 300)}) ASSERT_NO_FATAL_FAILURE(check_list(random, count, 100000));
        ASSERT_NO_FATAL_FAILURE(check_list(random, 12, size_t{3} << 20));
    });
}

// As used: nothing forced, decisions being made, workers or none.
TEST(CopyList, WhileTuning) {
    Random random(4);
    for (bool parallel : {true, false}) {
        WithWorkers workers(parallel);
        for (size_t round = 0; round < test::by_build(30u, 30u, 6u); round++) ASSERT_NO_FATAL_FAILURE(check_list(random, 400, 60000));
    }
}

TEST(Copy, LargeWhileTuning) {
    Random random(5);
    const size_t size = (test::by_build(size_t{160}, size_t{160}, size_t{70}) << 20) + 12345;
    Buffer to(size, 3), from(size, 77);
    random.fill(from.data(), size);
    for (bool parallel : {true, false}) {
        WithWorkers workers(parallel);
        for (int round = 0; round < 2; round++) {
            memset(to.data(), 0, size);
            copy(to.data(), from.data(), size);
            ASSERT_EQ(memcmp(to.data(), from.data(), size), 0);
            ASSERT_NO_FATAL_FAILURE(to.expect_guards());
        }
    }
}

TEST(Copy, FromManyThreadsAtOnce) {
    WithWorkers workers;
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < 4; t++) {
        threads.emplace_back([&wrong, t] {
            Random random(100 + t);
            for (int round = 0; round < 12; round++) {
                size_t size = (size_t{1} << 20) + random.below(size_t{6} << 20);
                Buffer to(size, random.below(64)), from(size, random.below(64));
                random.fill(from.data(), size);
                copy(to.data(), from.data(), size);
                if (memcmp(to.data(), from.data(), size) != 0) wrong++;
            }
        });
    }
    for (auto &thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
}

TEST(Copy, ChoiceIsReportedAndSettles) {
    EXPECT_STREQ(copy_choice(1000).variant, "memcpy");
    EXPECT_TRUE(copy_choice(1000).settled);
    const size_t size = size_t{512} << 10;
    Buffer to(size), from(size);
    for (int i = 0; i < 200 && !copy_choice(size).settled; i++) copy(to.data(), from.data(), size);
    EXPECT_TRUE(copy_choice(size).settled);
    bool known = false;
    for (unsigned v = 0; v < copy_variants().count; v++) known |= std::string(copy_variants().entries[v].name) == copy_choice(size).variant;
    EXPECT_TRUE(known) << copy_choice(size).variant;
}

}  // namespace
}  // namespace reprise::kernels::testing
