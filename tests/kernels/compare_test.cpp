#include "support.h"

namespace reprise::kernels::testing {
namespace {

using detail::equal_variants;
using detail::Kind;

// One flipped bit anywhere must be seen.
TEST(EqualVariants, SingleBits) {
    Random random(21);
    for (unsigned v = 0; v < equal_variants().count; v++) {
        const auto &variant = equal_variants().entries[v];
        if (!detail::has(variant.needs)) continue;
        SCOPED_TRACE(variant.name);
        for (int round = 0; round < 2000; round++) {
            size_t size = random.below(1500);
            Buffer a(size, random.below(64)), b(size, random.below(64));
            random.fill(a.data(), size);
            if (size) memcpy(b.data(), a.data(), size);
            ASSERT_TRUE(variant.run(a.data(), b.data(), size)) << size;
            if (size == 0) continue;
            size_t at = random.below(size);
            b.data()[at] = static_cast<unsigned char>(b.data()[at] ^ (1u << random.below(8)));
            ASSERT_FALSE(variant.run(a.data(), b.data(), size)) << size << " bytes, differing at " << at;
        }
    }
}

TEST(Equal, EverySizeClassEveryVariant) {
    Random random(22);
    for_each_variant(Kind::equal, equal_variants(), [&] {
        for (size_t size : sizes()) {
            Buffer a(size, random.below(4096)), b(size, random.below(4096));
            random.fill(a.data(), size);
            if (size) memcpy(b.data(), a.data(), size);
            ASSERT_TRUE(equal(a.data(), b.data(), size)) << size;
            if (size == 0) continue;
            for (size_t at : {size_t{0}, size - 1, random.below(size)}) {
                b.data()[at] ^= 0x10;
                ASSERT_FALSE(equal(a.data(), b.data(), size)) << size << " bytes, differing at " << at;
                b.data()[at] ^= 0x10;
            }
        }
    });
    EXPECT_TRUE(equal(nullptr, nullptr, 0));
}

void check_pages(Random &random, size_t pages, size_t one_in) {
    Buffer a(pages * 4096, 64 * random.below(64)), b(pages * 4096, random.below(4096));
    random.fill(a.data(), a.size());
    if (pages) memcpy(b.data(), a.data(), a.size());
    std::vector<uint8_t> expected((pages + 7) / 8, 0);
    size_t count = 0;
    for (size_t page = 0; page < pages; page++) {
        if (random.below(one_in) != 0) continue;
        b.data()[page * 4096 + random.below(4096)] ^= 0x80;
        expected[page / 8] = static_cast<uint8_t>(expected[page / 8] | 1u << (page % 8));
        count++;
    }
    Buffer bits(expected.size(), random.below(64));
    random.fill(bits.data(), bits.size());
    ASSERT_EQ(compare_pages(a.data(), b.data(), pages, bits.data()), count) << pages;
    ASSERT_EQ(bits.bytes(), expected) << pages << " pages";
    ASSERT_NO_FATAL_FAILURE(bits.expect_guards());
}

TEST(ComparePages, EveryVariant) {
    Random random(23);
    for_each_variant(Kind::equal, equal_variants(), [&] {
        for (size_t pages : {0, 1, 2, 7, 8, 9, 63, 64, 65, 511, 512, 513, 1023, 1024, 1025, 1600}) {
            if (test::kUnderThreads && (pages == 511 || pages == 513 || pages == 1024)) continue;  // the same pieces
            for (size_t one_in : {1, 2, 50}) ASSERT_NO_FATAL_FAILURE(check_pages(random, pages, one_in));
        }
    });
}

TEST(ComparePages, WhileTuning) {
    Random random(24);
    for (bool parallel : {true, false}) {
        WithWorkers workers(parallel);
        ASSERT_NO_FATAL_FAILURE(check_pages(random, test::by_build(24001, 24001, 17001), 100));
        for (int round = 0; round < test::by_build(40, 40, 8); round++)
            ASSERT_NO_FATAL_FAILURE(check_pages(random, 100 + random.below(1500), 30));
    }
}

}  // namespace
}  // namespace reprise::kernels::testing
