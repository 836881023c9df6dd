#include "support.h"

namespace reprise::kernels::testing {
namespace {

using detail::Kind;
using detail::swap_variants;

void check_one(Random &random, size_t size, auto run) {
    Buffer live(size, random.below(4096)), save(size, random.below(4096)), load(size, random.below(4096));
    random.fill(live.data(), size);
    random.fill(load.data(), size);
    const auto old_live = live.bytes(), new_live = load.bytes();
    run(live.data(), save.data(), load.data(), size);
    ASSERT_TRUE(size == 0 || memcmp(save.data(), old_live.data(), size) == 0) << "saved bytes, size " << size;
    ASSERT_TRUE(size == 0 || memcmp(live.data(), new_live.data(), size) == 0) << "loaded bytes, size " << size;
    ASSERT_TRUE(size == 0 || memcmp(load.data(), new_live.data(), size) == 0) << "the source changed, size " << size;
    ASSERT_NO_FATAL_FAILURE(live.expect_guards());
    ASSERT_NO_FATAL_FAILURE(save.expect_guards());
    ASSERT_NO_FATAL_FAILURE(load.expect_guards());
}

TEST(SwapVariants, ShortSizesAnyAlignment) {
    Random random(11);
    for (unsigned v = 0; v < swap_variants().count; v++) {
        const auto &variant = swap_variants().entries[v];
        if (!detail::has(variant.needs)) continue;
        SCOPED_TRACE(variant.name);
        for (int round = 0; round < 400; round++) ASSERT_NO_FATAL_FAILURE(check_one(random, random.below(2000), variant.run));
    }
}

TEST(SaveAndLoad, EverySizeClassEveryVariant) {
    Random random(12);
    for_each_variant(Kind::swap, swap_variants(), [&] {
        for (size_t size : sizes()) {
            ASSERT_NO_FATAL_FAILURE(check_one(random, size, [](void *live, void *save, const void *load, size_t n) {
                SwapItem item{live, save, load, n};
                save_and_load_list(&item, 1);
            }));
        }
    });
}

void check_list(Random &random, size_t count) {
    std::vector<size_t> at, length;
    size_t extent = 0;
    for (size_t i = 0; i < count; i++) {
        extent += random.below(100);
        at.push_back(extent);
        length.push_back(random.below(6) == 0 ? random.below(90000) : random.below(9) == 0 ? 0 : 4096);
        extent += length.back();
    }
    check_one(random, extent, [&](unsigned char *live, unsigned char *save, unsigned char *load, size_t) {
        // Bytes between the items must stay: make them what check_one expects of a full swap only after the call.
        std::vector<unsigned char> live_before(live, live + extent), save_before(save, save + extent);
        std::vector<SwapItem> items;
        std::vector<bool> covered(extent, false);
        for (size_t i = 0; i < count; i++) {
            items.push_back({live + at[i], save + at[i], load + at[i], length[i]});
            std::fill(covered.begin() + static_cast<ptrdiff_t>(at[i]), covered.begin() + static_cast<ptrdiff_t>(at[i] + length[i]), true);
        }
        std::shuffle(items.begin(), items.end(), std::mt19937_64(random.word()));
        save_and_load_list(items.data(), items.size());
        for (size_t i = 0; i < extent; i++) {
            if (covered[i]) continue;
            ASSERT_EQ(live[i], live_before[i]) << "gap in live at " << i;
            ASSERT_EQ(save[i], save_before[i]) << "gap in save at " << i;
            save[i] = live[i];
            live[i] = load[i];
        }
    });
}

TEST(SaveAndLoad, RandomListsEveryVariant) {
    Random random(13);
    for_each_variant(Kind::swap, swap_variants(), [&] {
        for (size_t count : {1, 2, 9, 100, test::by_build(1000, 1000, 300)}) ASSERT_NO_FATAL_FAILURE(check_list(random, count));
    });
}

TEST(SaveAndLoad, WhileTuning) {
    Random random(14);
    for (bool parallel : {true, false}) {
        WithWorkers workers(parallel);
        for (int round = 0; round < test::by_build(8, 8, 2); round++) ASSERT_NO_FATAL_FAILURE(check_list(random, 200));
        if (test::kUnderThreads && !parallel) continue;  // one thread is not what it looks at
        ASSERT_NO_FATAL_FAILURE(check_one(random, (size_t{70} << 20) + 5, [](void *live, void *save, const void *load, size_t n) {
            SwapItem item{live, save, load, n};
            save_and_load_list(&item, 1);
        }));
    }
}

TEST(SaveAndLoad, Nothing) {
    save_and_load_list(nullptr, 0);
    SwapItem empty{nullptr, nullptr, nullptr, 0};
    save_and_load_list(&empty, 1);
}

}  // namespace
}  // namespace reprise::kernels::testing
