#include <thread>

#include "tests/allocator/support.h"

namespace reprise::test {
namespace {

TEST(Ledger, LiveAndPeaks) {
    const uint64_t base = port().ledger_live(LedgerKind::kShadows), peak = port().ledger_peak();
    port().ledger_add(LedgerKind::kShadows, 1 << 30);
    port().ledger_add(LedgerKind::kImages, 1 << 29);
    EXPECT_EQ(port().ledger_live(LedgerKind::kShadows), base + (1 << 30));
    port().ledger_add(LedgerKind::kShadows, -(1 << 30));
    EXPECT_EQ(port().ledger_live(LedgerKind::kShadows), base);
    EXPECT_EQ(port().ledger_peak_of(LedgerKind::kShadows), base + (1 << 30));
    EXPECT_GE(port().ledger_peak(), peak);
    EXPECT_GE(port().ledger_peak(), (uint64_t{1} << 30) + (uint64_t{1} << 29)) << "the peak is of the sum";
    port().ledger_add(LedgerKind::kImages, -(1 << 29));
    port().ledger_add(LedgerKind::kCount, 5);
    EXPECT_EQ(port().ledger_live(LedgerKind::kCount), 0u);
}

TEST(Ledger, Threads) {
    std::thread other([] {
        for (int i = 0; i < 20000; ++i) port().ledger_add(LedgerKind::kPools, i % 2 == 0 ? 100 : -100);
    });
    for (int i = 0; i < 20000; ++i) port().ledger_add(LedgerKind::kPools, i % 2 == 0 ? 50 : -50);
    other.join();
    EXPECT_EQ(port().ledger_live(LedgerKind::kPools), 0u);
    EXPECT_GE(port().ledger_peak_of(LedgerKind::kPools), 100u);
    EXPECT_LE(port().ledger_peak_of(LedgerKind::kPools), 150u) << "more than was ever live at once";
}

TEST(Ledger, FollowsTensors) {
    ASSERT_TRUE(allocator_start());
    const uint64_t before = port().ledger_live(LedgerKind::kTensors);
    void *p = place(kSmallBuffer + 5, 64, nullptr);
    EXPECT_EQ(port().ledger_live(LedgerKind::kTensors), before + kSmallBuffer + 5);
    ASSERT_TRUE(resize_in_place(p, kSmallBuffer));
    EXPECT_EQ(port().ledger_live(LedgerKind::kTensors), before + kSmallBuffer);
    EXPECT_TRUE(release_block(p));
    EXPECT_FALSE(release_block(p));
    EXPECT_EQ(port().ledger_live(LedgerKind::kTensors), before);
}

}  // namespace
}  // namespace reprise::test
