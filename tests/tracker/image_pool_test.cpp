#include "tracker/image_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tests/tracker/arena_memory.h"

namespace reprise::test {
namespace {

// Where there are no arenas.
AllocatorPort without_arenas() {
    AllocatorPort port = *allocator_port();
    port.borrow = [](size_t) -> void * { return nullptr; };
    return port;
}

// An image lies where the job had a block, and the job's next one where the image was.
TEST(ImagePool, SharesTheArenasWithTheJob) {
    const AllocatorPort &port = *allocator_port();
    constexpr size_t kSize = size_t{3} << 20;
    uint8_t *freed = nullptr;
    {
        const ArenaMemory block(kSize);
        freed = block.data();
    }
    const uint64_t images = port.ledger_live(LedgerKind::kImages), pools = port.ledger_live(LedgerKind::kPools);
    ImagePool pool(port);
    {
        const Image image = pool.allocate(kSize - 100, LedgerKind::kImages);
        ASSERT_TRUE(image);
        EXPECT_EQ(reinterpret_cast<uint8_t *>(image.data()), freed);
        EXPECT_EQ(image.size(), kSize - 100);
        EXPECT_EQ(port.ledger_live(LedgerKind::kImages), images + kSize) << "whole pages";
        EXPECT_EQ(pool.live(), kSize);
        BlockInfo block;
        EXPECT_FALSE(port.find(reinterpret_cast<uintptr_t>(image.data()), &block)) << "preserved bytes are no buffer";
    }
    EXPECT_EQ(port.ledger_live(LedgerKind::kImages), images);
    EXPECT_EQ(port.ledger_live(LedgerKind::kPools), pools) << "the arenas keep it, for whoever comes";
    EXPECT_EQ(pool.live() + pool.kept(), 0u);
    EXPECT_EQ(ArenaMemory(kSize).data(), freed);
}

// What was held lately is taken again without asking, until there was too little once; more than that is asked for.
TEST(ImagePool, AsksForRoomAboveWhatItHeldLately) {
    allocator_start();
    static AllocatorPort port = *allocator_port();
    static uint64_t asked = 0, free = uint64_t{1} << 40;
    port.headroom = []() -> uint64_t {
        ++asked;
        return free;
    };
    port.group_headroom = []() -> uint64_t { return ~uint64_t{0}; };
    ImagePool pool(port);
    constexpr size_t kSize = size_t{1} << 20;
    const auto asks = [&](LedgerKind kind, size_t size) {
        const uint64_t before = asked;
        EXPECT_TRUE(pool.allocate(size, kind));
        return asked != before;
    };
    EXPECT_TRUE(asks(LedgerKind::kImages, kSize));
    EXPECT_FALSE(asks(LedgerKind::kImages, kSize));
    EXPECT_TRUE(asks(LedgerKind::kPresent, 4 * kSize));
    EXPECT_FALSE(asks(LedgerKind::kPresent, 4 * kSize)) << "a replay like the one before";
    EXPECT_TRUE(asks(LedgerKind::kImages, 2 * kSize)) << "a replay's memory is no precedent for what stays";
    free = 34 * kSize;  // two more than is left to the job
    EXPECT_FALSE(asks(LedgerKind::kPresent, 4 * kSize)) << "its bytes lie in the arenas, and look taken";
    EXPECT_FALSE(pool.allocate(5 * kSize, LedgerKind::kPresent));
    EXPECT_FALSE(pool.allocate(4 * kSize, LedgerKind::kPresent)) << "memory is short: everybody asks";
    EXPECT_TRUE(asks(LedgerKind::kImages, kSize));
    free = uint64_t{1} << 40;
    for (int window = 0; window < 64; ++window) pool.window_ended();
    EXPECT_TRUE(asks(LedgerKind::kImages, kSize)) << "long ago";
}

// An arena that is full now and not later: what is kept from then goes before live and kept bytes pass the peak.
TEST(ImagePool, MappingsAndArenasTogetherStayBelowThePeak) {
    allocator_start();
    static AllocatorPort port = *allocator_port();
    static bool full = true;
    port.borrow = [](size_t size) -> void * { return full ? nullptr : allocator_port()->borrow(size); };
    ImagePool pool(port);
    constexpr size_t kSize = size_t{4} << 20;
    { const Image image = pool.allocate(kSize, LedgerKind::kImages); }
    EXPECT_EQ(pool.kept(), kSize);
    full = false;
    const Image other = pool.allocate(kSize / 2, LedgerKind::kImages);
    BlockInfo block;
    EXPECT_TRUE(in_arena(other.data()));
    EXPECT_FALSE(port.find(reinterpret_cast<uintptr_t>(other.data()), &block));
    EXPECT_LE(pool.live() + pool.kept(), kSize);
}

TEST(ImagePool, WithoutAnyMemoryNothingIsCounted) {
    AllocatorPort port = without_arenas();
    ImagePool pool(port);
    const uint64_t before = port.ledger_live(LedgerKind::kImages);
    EXPECT_FALSE(pool.allocate(size_t{1} << 60, LedgerKind::kImages));
    port.headroom = []() -> uint64_t { return ~uint64_t{0}; };
    port.group_headroom = port.headroom;
    EXPECT_FALSE(pool.allocate(size_t{1} << 60, LedgerKind::kImages)) << "no such mapping can be made";
    EXPECT_EQ(port.ledger_live(LedgerKind::kImages), before);
    EXPECT_EQ(pool.live(), 0u);
}

TEST(ImagePool, CountsEveryByteInTheLedger) {
    const AllocatorPort port = without_arenas();
    const uint64_t before = port.ledger_live(LedgerKind::kImages);
    const uint64_t pools = port.ledger_live(LedgerKind::kPools);
    {
        ImagePool pool(port);
        {
            Image small = pool.allocate(100, LedgerKind::kImages);
            Image big = pool.allocate(3 << 20, LedgerKind::kImages);
            ASSERT_TRUE(small);
            ASSERT_TRUE(big);
            memset(big.data(), 1, big.size());
            EXPECT_EQ(port.ledger_live(LedgerKind::kImages), before + 100 + (3 << 20));
            EXPECT_EQ(pool.live(), 100u + (3 << 20));
        }
        EXPECT_EQ(port.ledger_live(LedgerKind::kImages), before);
        EXPECT_EQ(port.ledger_live(LedgerKind::kPools), pools + (3 << 20)) << "kept for reuse";
    }
    EXPECT_EQ(port.ledger_live(LedgerKind::kPools), pools);
}

TEST(ImagePool, ReusesMappingsAndNeverHoldsMoreThanThePeak) {
    const AllocatorPort port = without_arenas();
    ImagePool pool(port);
    std::byte *first = nullptr;
    {
        Image image = pool.allocate(8 << 20, LedgerKind::kImages);
        first = image.data();
    }
    {
        Image image = pool.allocate(8 << 20, LedgerKind::kImages);
        EXPECT_EQ(image.data(), first);
    }
    const uint64_t pools = allocator_port()->ledger_live(LedgerKind::kPools);
    {
        Image other = pool.allocate(7 << 20, LedgerKind::kImages);  // an eighth smaller: the same mapping
        Image large = pool.allocate(64 << 20, LedgerKind::kImages);
    }
    EXPECT_LE(allocator_port()->ledger_live(LedgerKind::kPools), pools + (64 << 20) + (8 << 20));
    pool.trim();
    EXPECT_LE(allocator_port()->ledger_live(LedgerKind::kPools), pools);
}

TEST(ImagePool, GivesNothingWithoutHeadroom) {
    ImagePool pool(*allocator_port());
    pool.limit_headroom(10 << 20);
    EXPECT_FALSE(pool.allocate(100 << 20, LedgerKind::kShadows));
    EXPECT_FALSE(pool.has_headroom(100 << 20));
    EXPECT_TRUE(pool.allocate(100, LedgerKind::kImages)) << "small images come from the heap";
    pool.limit_headroom(SIZE_MAX);
    EXPECT_TRUE(pool.allocate(1 << 20, LedgerKind::kShadows));
}

TEST(ImagePool, AGroupsLimitIsKeptAwayFromUntilThePeakIsKnown) {
    static AllocatorPort port = *allocator_port();
    port.headroom = []() -> uint64_t { return 800 << 20; };
    port.group_headroom = []() -> uint64_t { return 800 << 20; };
    ImagePool pool(port);
    EXPECT_TRUE(pool.has_headroom(49 << 20));
    EXPECT_FALSE(pool.has_headroom(60 << 20)) << "the job has yet to grow";
    EXPECT_TRUE(pool.has_headroom(60 << 20, LedgerKind::kPresent)) << "for the time of a replay";
    pool.window_ended();
    pool.window_ended();
    EXPECT_TRUE(pool.has_headroom(60 << 20)) << "the peak is known, and leaves this much";
    EXPECT_FALSE(pool.has_headroom(790 << 20));
}

TEST(Image, MovesItsOwnership) {
    ImagePool pool(*allocator_port());
    Image a = pool.allocate(1000, LedgerKind::kImages);
    std::byte *data = a.data();
    Image b = std::move(a);
    EXPECT_EQ(b.data(), data);
    EXPECT_FALSE(a);  // NOLINT: moved-from is empty, by contract
    a = std::move(b);
    EXPECT_EQ(a.data(), data);
    a.reset();
    EXPECT_EQ(pool.live(), 0u);
}

}  // namespace
}  // namespace reprise::test
