#include "allocator/arena.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "tests/allocator/support.h"

namespace reprise::test {
namespace {

using ArenaTest = Started;
constexpr size_t kMatrix = 768 * 768 * sizeof(float);

long minor_faults() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
}

bool all_zero(const char *p, size_t n) {
    for (size_t i = 0; i < n; ++i) {
        if (p[i] != 0) return false;
    }
    return true;
}

TEST_F(ArenaTest, RefusesWhatIsNotForIt) {
    bool zeroed = true;
    EXPECT_EQ(place(kSmallBuffer - 1, 64, &zeroed), nullptr);
    EXPECT_FALSE(zeroed);
    EXPECT_EQ(place(0, 64, &zeroed), nullptr);
    EXPECT_EQ(place(~size_t{0}, 64, &zeroed), nullptr);
    EXPECT_EQ(place(~size_t{0} - 100, size_t{1} << 63, &zeroed), nullptr);
    EXPECT_EQ(place(kSmallBuffer, 96, &zeroed), nullptr) << "an alignment that is not a power of two";
    int local = 0;
    EXPECT_FALSE(in_arena(&local));
    EXPECT_FALSE(release_block(&local));
    EXPECT_EQ(block_size(&local), 0u);
    EXPECT_FALSE(resize_in_place(&local, kSmallBuffer));
}

TEST_F(ArenaTest, KeepsErrno) {
    errno = 1234;
    void *p = place(size_t{300} << 20, 64, nullptr);
    EXPECT_EQ(place(~size_t{0} >> 8, 64, nullptr), nullptr);
    EXPECT_TRUE(release_block(p));
    port().trim();
    EXPECT_EQ(errno, 1234);
}

TEST_F(ArenaTest, DoubleAndForeignFreesAreSeen) {
    char *p = static_cast<char *>(place(kSmallBuffer, 64, nullptr));
    ASSERT_NE(p, nullptr);
    EXPECT_TRUE(in_arena(p));
    EXPECT_EQ(block_size(p), kSmallBuffer);
    EXPECT_EQ(block_size(p + 64), 0u);
    EXPECT_FALSE(release_block(p + 64));
    EXPECT_FALSE(release_block(p + kPageSize));
    EXPECT_TRUE(release_block(p));
    EXPECT_FALSE(release_block(p));
    EXPECT_EQ(block_size(p), 0u);
    EXPECT_TRUE(in_arena(p)) << "a freed pointer must still never reach the next allocator";
}

TEST_F(ArenaTest, AlignmentIsHonoured) {
    for (size_t alignment = 1; alignment <= (size_t{1} << 30); alignment *= 2) {
        for (size_t size : {kSmallBuffer, kMatrix}) {
            void *a = place(size, alignment, nullptr), *b = place(size + 4096, alignment, nullptr);
            ASSERT_NE(a, nullptr) << alignment;
            ASSERT_NE(b, nullptr) << alignment;
            EXPECT_EQ(address_of(a) % alignment, 0u);
            EXPECT_EQ(address_of(b) % alignment, 0u);
            EXPECT_TRUE(release_block(a));
            EXPECT_TRUE(release_block(b));
        }
    }
}

TEST_F(ArenaTest, ZeroedIsTheTruth) {
    std::vector<char *> blocks;
    for (int round = 0; round < 3; ++round) {
        for (int i = 0; i < 20; ++i) {
            const size_t size = i % 2 == 0 ? kSmallBuffer + 4096 * i : kMatrix + 4096 * i;
            bool zeroed = false;
            char *p = static_cast<char *>(place(size, 64, &zeroed));
            ASSERT_NE(p, nullptr);
            if (zeroed) {
                EXPECT_TRUE(all_zero(p, size));
            }
            std::memset(p, 0xee, size);
            blocks.push_back(p);
        }
        for (char *p : blocks) EXPECT_TRUE(release_block(p));
        blocks.clear();
        if (round == 1) port().trim();
    }
    bool zeroed = true;
    char *p = static_cast<char *>(place(kMatrix, 64, &zeroed));
    EXPECT_FALSE(zeroed) << "reused memory was called zero";
    EXPECT_TRUE(release_block(p));
    port().trim();
    p = static_cast<char *>(place(kMatrix, 64, &zeroed));
    EXPECT_TRUE(zeroed) << "memory that was given back reads as zero, and calloc should profit";
    EXPECT_TRUE(all_zero(p, kMatrix));
    EXPECT_TRUE(release_block(p));
}

TEST_F(ArenaTest, BorrowedMemoryIsNobodysBlock) {
    const size_t live = arena.statistics().live;
    auto *p = static_cast<char *>(port().borrow(kMatrix));
    ASSERT_NE(p, nullptr);
    std::memset(p, 1, kMatrix);
    EXPECT_TRUE(in_arena(p));
    EXPECT_EQ(arena.statistics().live, live + page_ceil(kMatrix));
    BlockInfo block;
    EXPECT_FALSE(port().find(address_of(p), &block));
    EXPECT_FALSE(port().find(address_of(p) + kMatrix / 2, &block));
    EXPECT_EQ(block_size(p), 0u);
    EXPECT_FALSE(release_block(p)) << "a stray free of the job's must not take it";
    EXPECT_FALSE(resize_in_place(p, 2 * kMatrix));
    static const char *borrowed = p;
    static bool listed = false;
    port().for_each(
        [](void *, const BlockInfo *it) {
            listed = listed || it->range.begin == address_of(borrowed);
            return true;
        },
        nullptr);
    EXPECT_FALSE(listed);
    EXPECT_FALSE(arena.give_back(address_of(p) + kPageSize));
    EXPECT_TRUE(arena.give_back(address_of(p)));
    EXPECT_FALSE(arena.give_back(address_of(p))) << "once is enough";
    EXPECT_EQ(arena.statistics().live, live);
    void *mine = place(kMatrix, 64, nullptr);
    EXPECT_FALSE(arena.give_back(address_of(mine))) << "the job's block was not borrowed";
    EXPECT_TRUE(release_block(mine));
    EXPECT_EQ(port().borrow(kSmallBuffer - 1), nullptr);
    EXPECT_EQ(port().borrow(~size_t{0}), nullptr);
}

TEST_F(ArenaTest, NothingGrowsIntoWhatIsBorrowed) {
    port().trim();
    std::vector<void *> blocks, borrowed;
    bool met = false;
    for (int i = 0; i < 50 && !met; ++i) {
        auto *block = static_cast<char *>(place(kMatrix, 64, nullptr)), *beside = static_cast<char *>(port().borrow(kMatrix));
        blocks.push_back(block);
        borrowed.push_back(beside);
        if (beside != block + page_ceil(kMatrix)) continue;
        met = true;
        EXPECT_FALSE(resize_in_place(block, 2 * kMatrix));
        port().give_back(beside);
        borrowed.pop_back();
        EXPECT_TRUE(resize_in_place(block, 2 * kMatrix));
    }
    EXPECT_TRUE(met) << "no two of them were neighbours";
    for (void *p : blocks) EXPECT_TRUE(release_block(p));
    for (void *p : borrowed) port().give_back(p);
}

// What the job has freed and what the engine gives back is the same memory, and touched once.
TEST_F(ArenaTest, BorrowerAndJobShareWhatIsThere) {
    auto *first = static_cast<char *>(place(kMatrix, 64, nullptr));
    ASSERT_NE(first, nullptr);
    std::memset(first, 1, kMatrix);
    EXPECT_TRUE(release_block(first));
    const long before = minor_faults();
    for (int round = 0; round < 10; ++round) {
        auto *borrowed = static_cast<char *>(port().borrow(kMatrix));
        EXPECT_EQ(borrowed, first);
        std::memset(borrowed, 2, kMatrix);
        port().give_back(borrowed);
        bool zeroed = true;
        auto *placed = static_cast<char *>(place(kMatrix, 64, &zeroed));
        EXPECT_EQ(placed, first);
        EXPECT_FALSE(zeroed);
        std::memset(placed, 3, kMatrix);
        EXPECT_TRUE(release_block(placed));
    }
    EXPECT_LT(minor_faults() - before, static_cast<long>(kMatrix / kPageSize)) << "less than once through it";
}

TEST_F(ArenaTest, FindSeesInteriorAddressesAndGenerations) {
    port().trim();
    char *p = static_cast<char *>(place(kMatrix + 100, 64, nullptr));
    BlockInfo block;
    ASSERT_TRUE(port().find(address_of(p), &block));
    EXPECT_EQ(block.range, range_of(p, kMatrix + 100));
    EXPECT_EQ(block.origin, Origin::kArena);
    EXPECT_TRUE(block.huge_pages);
    const Generation first = block.generation;
    ASSERT_TRUE(port().find(address_of(p) + kMatrix + 99, &block));
    EXPECT_EQ(block.generation, first);
    EXPECT_FALSE(port().find(address_of(p) + kMatrix + 100, &block)) << "bytes that nobody asked for";
    EXPECT_TRUE(port().is_live(address_of(p), first));
    EXPECT_FALSE(port().is_live(address_of(p), first + 1));
    EXPECT_TRUE(release_block(p));
    EXPECT_FALSE(port().find(address_of(p), &block));
    EXPECT_FALSE(port().is_live(address_of(p), first));
    char *again = static_cast<char *>(place(kMatrix + 100, 64, nullptr));
    EXPECT_EQ(again, p) << "a freed extent of the right size is reused";
    ASSERT_TRUE(port().find(address_of(again), &block));
    EXPECT_NE(block.generation, first);
    EXPECT_TRUE(release_block(again));
}

TEST_F(ArenaTest, ResizeInPlace) {
    char *p = static_cast<char *>(place(size_t{8} << 20, 64, nullptr));
    std::memset(p, 7, size_t{8} << 20);
    BlockInfo before, after;
    ASSERT_TRUE(port().find(address_of(p), &before));
    ASSERT_TRUE(resize_in_place(p, size_t{8} << 20));
    ASSERT_TRUE(port().find(address_of(p), &after));
    EXPECT_EQ(before.generation, after.generation) << "nothing changed";
    ASSERT_TRUE(resize_in_place(p, size_t{4} << 20));
    ASSERT_TRUE(port().find(address_of(p), &after));
    EXPECT_NE(before.generation, after.generation);
    EXPECT_EQ(after.range.size(), size_t{4} << 20);
    EXPECT_FALSE(port().find(address_of(p) + (size_t{5} << 20), &after)) << "the cut-off tail is free";
    ASSERT_TRUE(resize_in_place(p, size_t{7} << 20)) << "its own tail is free behind it";
    EXPECT_EQ(block_size(p), size_t{7} << 20);
    ASSERT_TRUE(port().find(address_of(p) + (size_t{6} << 20), &after));
    for (size_t i = 0; i < size_t{4} << 20; i += 511) ASSERT_EQ(p[i], 7);
    EXPECT_FALSE(resize_in_place(p, 100)) << "too small for an arena";
    char *q = static_cast<char *>(place(size_t{64} << 20, 64, nullptr));
    EXPECT_FALSE(resize_in_place(p, size_t{200} << 30) && !kSanitized);
    EXPECT_TRUE(release_block(p));
    EXPECT_TRUE(release_block(q));
    EXPECT_FALSE(resize_in_place(p, size_t{4} << 20)) << "freed";
}

TEST_F(ArenaTest, TightlyPacked) {
    port().trim();
    const size_t before = resident_bytes_of(arena.reservation());
    std::vector<char *> blocks;
    for (int i = 0; i < 200; ++i) {
        char *p = static_cast<char *>(place(kMatrix, 64, nullptr));
        ASSERT_NE(p, nullptr);
        std::memset(p, 1, kMatrix);
        blocks.push_back(p);
    }
    const size_t grown = resident_bytes_of(arena.reservation()) - before;
    EXPECT_LE(grown, 200 * kMatrix * 108 / 100) << "rounding to huge pages costs 1.77 x";
    EXPECT_GE(grown, 200 * kMatrix);
    for (char *p : blocks) EXPECT_TRUE(release_block(p));
    // Resident for reuse, and no more than was live at the peak.
    EXPECT_LE(resident_bytes_of(arena.reservation()) - before, 200 * kMatrix * 110 / 100);
    port().trim();
    EXPECT_LE(resident_bytes_of(arena.reservation()), before + (size_t{8} << 20)) << "trim gives everything back";
}

TEST_F(ArenaTest, SteadyStateReusesWithoutFaults) {
    const auto step = [&] {
        std::vector<char *> blocks;
        for (int i = 0; i < 40; ++i) {
            const size_t size = i % 3 == 0 ? kMatrix : kSmallBuffer * static_cast<size_t>(1 + i % 7);
            char *p = static_cast<char *>(place(size, 64, nullptr));
            for (size_t at = 0; at < size; at += kPageSize) p[at] = 1;
            blocks.push_back(p);
        }
        while (!blocks.empty()) {
            release_block(blocks.back());
            blocks.pop_back();
        }
    };
    for (int i = 0; i < 5; ++i) step();
    const uint64_t purged = arena.statistics().purged;
    const size_t opened = arena.statistics().opened;
    for (int i = 0; i < 50; ++i) step();
    EXPECT_EQ(arena.statistics().purged, purged) << "a loop that returns to its peak must not refault";
    EXPECT_EQ(arena.statistics().opened, opened);
}

TEST_F(ArenaTest, ShrunkenJobGivesBack) {
    port().trim();
    std::vector<char *> blocks;
    for (int i = 0; i < 64; ++i) {
        blocks.push_back(static_cast<char *>(place(size_t{4} << 20, 64, nullptr)));
        std::memset(blocks.back(), 1, size_t{4} << 20);
    }
    arena.set_decay_ms(600'000);  // however slow this machine is, nothing ages before it was looked at
    while (blocks.size() > 4) {
        release_block(blocks.back());
        blocks.pop_back();
    }
    EXPECT_GT(arena.statistics().dirty, size_t{100} << 20);
    arena.set_decay_ms(200);
    for (int i = 0; i < 40; ++i) {
        usleep(50000);
        release_block(place(kSmallBuffer, 64, nullptr));
    }
    EXPECT_LT(arena.statistics().dirty, size_t{8} << 20) << "idle memory decays on later operations";
    for (char *p : blocks) release_block(p);
    arena.set_decay_ms(Arena::kDecayMs);
}

TEST_F(ArenaTest, FewMappings) {
    std::vector<void *> blocks[2];  // by kind of arena
    AddressRange hull[2] = {{~uintptr_t{0}, 0}, {~uintptr_t{0}, 0}};
    for (size_t i = 0; i < 2000; ++i) {
        const size_t kind = i % 4 == 0, size = kind ? kMatrix : kSmallBuffer + 4096 * (i % 50);
        char *p = static_cast<char *>(place(size, 64, nullptr));
        ASSERT_NE(p, nullptr);
        *p = 1;
        blocks[kind].push_back(p);
        hull[kind] = {std::min(hull[kind].begin, address_of(p)), std::max(hull[kind].end, address_of(p) + size)};
    }
    for (auto &list : blocks)
        for (size_t i = 0; i < list.size(); i += 2) release_block(list[i]);
    port().trim();
    for (const AddressRange &range : hull) EXPECT_LE(mapping_count(range), 6u);
    for (auto &list : blocks)
        for (size_t i = 1; i < list.size(); i += 2) release_block(list[i]);
}

TEST_F(ArenaTest, ForEachListsLiveBlocksInOrder) {
    void *a = place(kSmallBuffer, 64, nullptr), *b = place(kMatrix, 64, nullptr), *c = place(kSmallBuffer * 2, 64, nullptr);
    release_block(c);
    struct Seen {
        uintptr_t want[2];
        int hits = 0;
        uintptr_t last = 0;
        bool sorted = true, dead = false;
        uintptr_t freed;
    } seen{{address_of(a), address_of(b)}, 0, 0, true, false, address_of(c)};
    port().for_each(
        [](void *context, const BlockInfo *block) {
            auto *s = static_cast<Seen *>(context);
            if (block->origin != Origin::kArena) return true;
            s->sorted = s->sorted && block->range.begin > s->last;
            s->last = block->range.begin;
            s->hits += block->range.begin == s->want[0] || block->range.begin == s->want[1];
            s->dead = s->dead || block->range.begin == s->freed;
            return true;
        },
        &seen);
    EXPECT_EQ(seen.hits, 2);
    EXPECT_TRUE(seen.sorted);
    EXPECT_FALSE(seen.dead);
    int calls = 0;
    port().for_each([](void *context, const BlockInfo *) { return ++*static_cast<int *>(context) < 1; }, &calls);
    EXPECT_EQ(calls, 1) << "stops when told to";
    release_block(a);
    release_block(b);
}

}  // namespace
}  // namespace reprise::test
