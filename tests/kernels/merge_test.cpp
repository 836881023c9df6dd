#include "support.h"

namespace reprise::kernels::testing {
namespace {

using detail::Kind;
using detail::merge_variants;

size_t naive_merge(std::vector<unsigned char> &live, const std::vector<unsigned char> &loaded, const std::vector<unsigned char> &present,
                   size_t element) {
    size_t kept = 0;
    for (size_t i = 0; i + element <= live.size(); i += element) {
        const bool foreign = memcmp(&live[i], &loaded[i], element) != 0;
        kept += foreign;
        if (!foreign) memcpy(&live[i], &present[i], element);
    }
    return kept;
}

void check(Random &random, size_t elements, size_t element, size_t one_in) {
    const size_t size = elements * element;
    Buffer live(size, random.below(64)), loaded(size, random.below(64)), present(size, random.below(64));
    random.fill(loaded.data(), size);
    random.fill(present.data(), size);
    if (size) memcpy(live.data(), loaded.data(), size);
    if (random.below(2) && size) memcpy(present.data(), loaded.data(), size / 2);  // part of it did not change at all
    for (size_t i = 0; i < elements; i++)
        if (random.below(one_in) == 0)
            live.data()[i * element + random.below(element)] ^= static_cast<unsigned char>(1u << random.below(8));
    auto expected = live.bytes();
    const auto loaded_before = loaded.bytes(), present_before = present.bytes();
    size_t kept = naive_merge(expected, loaded_before, present_before, element);
    ASSERT_EQ(merge_elements(live.data(), loaded.data(), present.data(), size, element), kept) << elements << " of " << element;
    ASSERT_TRUE(size == 0 || memcmp(live.data(), expected.data(), size) == 0) << elements << " of " << element;
    ASSERT_NO_FATAL_FAILURE(live.expect_guards());
    ASSERT_EQ(loaded.bytes(), loaded_before);
    ASSERT_EQ(present.bytes(), present_before);
}

TEST(Merge, EveryVariantElementAndSize) {
    Random random(41);
    for_each_variant(Kind::merge, merge_variants(), [&] {
        for (size_t element : {1, 2, 4, 8, 16}) {
            for (int round = 0; round < test::by_build(40, 40, 4); round++)
                ASSERT_NO_FATAL_FAILURE(check(random, random.below(400), element, 1 + random.below(60)));
            for (size_t one_in : {3, 5000}) {
                ASSERT_NO_FATAL_FAILURE(check(random, (size_t{300} << 10) / element + 1, element, one_in));
                if (test::kUnderThreads && (one_in != 3 || element == 2 || element == 4)) continue;  // divided among workers all the same
                ASSERT_NO_FATAL_FAILURE(check(random, (size_t{4} << 20) / element + 3, element, one_in));
            }
        }
    });
}

TEST(Merge, WhileTuning) {
    Random random(42);
    for (bool parallel : {true, false}) {
        WithWorkers workers(parallel);
        for (int round = 0; round < test::by_build(5, 5, 1); round++) ASSERT_NO_FATAL_FAILURE(check(random, size_t{1} << 20, 8, 100000));
    }
}

// Bytes decide, not numbers: a zero that became negative is another writer's, a NaN that stayed is not.
TEST(Merge, ComparesBits) {
    float loaded[4] = {0.0f, __builtin_nanf("1"), 1.0f, 2.0f}, live[4], present[4] = {10.0f, 11.0f, 12.0f, 13.0f};
    memcpy(live, loaded, sizeof live);
    live[0] = -0.0f;
    EXPECT_EQ(merge_elements(live, loaded, present, sizeof live, 4), 1u);
    EXPECT_TRUE(__builtin_signbit(live[0]) && live[0] == 0.0f);
    EXPECT_EQ(live[1], 11.0f);
    EXPECT_EQ(live[3], 13.0f);
}

// An element is kept whole even if only one byte of it was written by the other.
TEST(Merge, ElementsAreKeptWhole) {
    uint32_t loaded[2] = {0x11111111, 0x22222222}, live[2] = {0x11111112, 0x22222222}, present[2] = {0xAAAAAAAA, 0xBBBBBBBB};
    EXPECT_EQ(merge_elements(live, loaded, present, 8, 4), 1u);
    EXPECT_EQ(live[0], 0x11111112u);
    EXPECT_EQ(live[1], 0xBBBBBBBBu);
}

}  // namespace
}  // namespace reprise::kernels::testing
