// Programs that make only the two calls: what is let go, when, and what they are told when they want it after all.
#include "tests/policy/engine_fixture.h"

namespace reprise::test {
namespace {

constexpr uint64_t kKept = 4096;  // docs/limits.md

TEST(Retirement, NeitherReplaysNorStepsDoesNotGrow) {
    Driver driver(quiet());
    Block block(300 << 10), small(5000);
    uint64_t held = 0, most = 0;
    for (size_t i = 0; i < 12000; ++i) {
        const reprise_segment f = driver.forward("evaluation", {block.range(), small.range()});
        ASSERT_EQ(driver.end(f), REPRISE_OK);
        block.data()[i * 4096 % block.size()] += 1;
        small.data()[0] += 1;
        if (i == 6000) held = driver.stats().bytes_held;
        most = std::max(most, driver.stats().instances_outstanding);
    }
    EXPECT_LE(most, kKept + kKept / 4);
    EXPECT_LE(driver.stats().bytes_held, held + held / 4);
}

TEST(Retirement, WhatWentByAgeIsRefusedByThatNameAndMoreAreKeptAfterwards) {
    Driver driver(quiet());
    Block block(5000);
    std::vector<uint64_t> ids;
    auto round = [&] {
        ids.clear();
        for (size_t i = 0; i < 6000; ++i) {
            block.data()[0] = static_cast<uint8_t>(i);
            const reprise_segment f = driver.forward("cell", {block.range()});
            ASSERT_EQ(driver.end(f), REPRISE_OK);
            ids.push_back(f.instance);
        }
    };
    round();
    auto replay = [&](size_t i) {
        const reprise_segment b = driver.replay("cell", ids[i]);
        if (b.status == REPRISE_OK) {
            EXPECT_EQ(block.data()[0], static_cast<uint8_t>(i));
            EXPECT_EQ(driver.end(b), REPRISE_OK);
        }
        return b.status;
    };
    EXPECT_EQ(replay(5999), REPRISE_OK);
    EXPECT_EQ(replay(0), REPRISE_RELEASED);
    const std::string text = thread_state().error;
    for (const char *part : {"was let go", "4096", "'cell'", "8192", "reprise_step()", "reprise_release()"})
        EXPECT_NE(text.find(part), std::string::npos) << text;
    EXPECT_EQ(replay(1), REPRISE_RELEASED);
    EXPECT_EQ(std::string(thread_state().error).find("16384"), std::string::npos) << "one round asks for more once";
    round();
    for (size_t i = 6000; i-- > 0;) ASSERT_EQ(replay(i), REPRISE_OK) << i << ": " << thread_state().error;
}

TEST(Retirement, ReleasedAndUnknownOnesKeepTheirOwnMessages) {
    Driver driver(quiet());
    Block block(1000);
    const reprise_segment f = driver.forward("s", {block.range()});
    driver.end(f);
    ASSERT_TRUE(driver->release(f.instance).ok());
    EXPECT_EQ(driver.replay("s", f.instance).status, REPRISE_RELEASED);
    EXPECT_EQ(std::string(thread_state().error).find("let go"), std::string::npos) << thread_state().error;
    EXPECT_EQ(driver.replay("s", 999).status, REPRISE_UNKNOWN_INSTANCE);
}

// An open forward is not let go under its own feet, however many others begin inside it.
TEST(Retirement, AnOpenForwardStays) {
    Driver driver(quiet());
    Block block(1000);
    block.data()[0] = 1;
    const reprise_segment outer = driver.forward("s", {block.range()});
    for (size_t i = 0; i < 6000; ++i) driver.end(driver.forward("s", {}));
    EXPECT_EQ(driver.end(outer), REPRISE_OK) << thread_state().error;
}

TEST(Retirement, ForwardsThatThrewWithoutStepsDoNotGrow) {
    Driver driver(quiet());
    Block block(1000);
    for (size_t i = 0; i < 12000; ++i) ASSERT_EQ(driver.forward("s", {block.range()}).status, REPRISE_OK);
    EXPECT_LE(driver.stats().instances_outstanding, 2 * kKept + 2 * kKept / 4);
}

}  // namespace
}  // namespace reprise::test
