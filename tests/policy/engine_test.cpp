// Every promise of the C API that a random walk does not reach: errors, trouble, policies, records.
#include <unistd.h>

#include <atomic>
#include <thread>

#include "tests/policy/engine_fixture.h"

namespace reprise::test {
namespace {

const char *error() { return thread_state().error; }

TEST(Errors, EndingWhatIsNotOpen) {
    Driver driver(quiet());
    EXPECT_EQ(driver.end({}), REPRISE_INVALID_ARGUMENT);
    EXPECT_EQ(driver.end({7, 99, REPRISE_REPLAY, REPRISE_OK}), REPRISE_UNKNOWN_INSTANCE);
    reprise_segment f = driver.forward("s", {});
    EXPECT_EQ(driver.end(f), REPRISE_OK);
    EXPECT_EQ(driver.end(f), REPRISE_WRONG_STATE);
    EXPECT_NE(driver->segment_end(f, nullptr).text(), std::string());
}

TEST(Errors, ReplayOfUnknownReleasedOrForeign) {
    Driver driver(quiet());
    EXPECT_EQ(driver.replay("s", 12345).status, REPRISE_UNKNOWN_INSTANCE);
    EXPECT_NE(std::string(error()).find("12345"), std::string::npos);
    reprise_segment f = driver.forward("s", {});
    driver.end(f);
    EXPECT_EQ(driver.replay("other", f.instance).status, REPRISE_UNKNOWN_INSTANCE);
    EXPECT_TRUE(driver->release(f.instance).ok());
    EXPECT_EQ(driver.replay("s", f.instance).status, REPRISE_RELEASED);
    EXPECT_TRUE(driver->release(f.instance).ok()) << "releasing twice is harmless";
    EXPECT_EQ(driver->release(999).code(), REPRISE_UNKNOWN_INSTANCE);
}

TEST(Errors, Names) {
    Driver driver(quiet());
    EXPECT_EQ(driver.forward(nullptr, {}).status, REPRISE_INVALID_ARGUMENT);
    EXPECT_EQ(driver.forward(std::string(10000, 'x').c_str(), {}).status, REPRISE_INVALID_ARGUMENT);
    EXPECT_EQ(driver.forward(std::string(REPRISE_NAME_MAX - 1, 'x').c_str(), {}).status, REPRISE_OK);
    int x = 0;
    EXPECT_EQ(driver->track(&x, sizeof x, std::string(10000, 'x').c_str(), 0).code(), REPRISE_INVALID_ARGUMENT);
    EXPECT_EQ(driver->track(nullptr, 4, "n", 0).code(), REPRISE_INVALID_ARGUMENT);
    EXPECT_EQ(driver->track(&x, 0, "n", 0).code(), REPRISE_INVALID_ARGUMENT);
    EXPECT_EQ(driver->track(&x, SIZE_MAX, "n", 0).code(), REPRISE_INVALID_ARGUMENT);
    EXPECT_EQ(driver->track(&x, sizeof x, "n", 1u << 30).code(), REPRISE_INVALID_ARGUMENT);
    EXPECT_EQ(driver->track(&x, sizeof x, "n", REPRISE_TRACK_CONCURRENT | REPRISE_TRACK_ELEMENT(3)).code(), REPRISE_INVALID_ARGUMENT);
    EXPECT_EQ(driver->untrack(&x).code(), REPRISE_NOT_FOUND);
}

TEST(Errors, WrongThread) {
    Driver driver(quiet());
    Block block(1000);
    reprise_segment f = driver.forward("s", {block.range()});
    std::thread([&] { EXPECT_EQ(driver.end(f), REPRISE_WRONG_STATE); }).join();
    EXPECT_EQ(driver.end(f), REPRISE_OK);
    block.data()[0] = 1;
    reprise_segment b = driver.replay("s", f.instance);
    ASSERT_EQ(b.status, REPRISE_OK);
    std::thread([&] { EXPECT_EQ(driver.end(b), REPRISE_WRONG_STATE); }).join();
    EXPECT_EQ(block.data()[0], 0);
    EXPECT_EQ(driver.end(b), REPRISE_OK);
    EXPECT_EQ(block.data()[0], 1);
}

TEST(Errors, OuterReplayEndedBeforeTheInner) {
    Driver driver(quiet());
    Block block(1000);
    reprise_segment outer = driver.forward("outer", {block.range()});
    driver.end(outer);
    reprise_segment inner = driver.forward("inner", {block.range()});
    driver.end(inner);
    block.data()[0] = 9;
    reprise_segment b1 = driver.replay("outer", outer.instance);
    reprise_segment b2 = driver.replay("inner", inner.instance);
    EXPECT_EQ(driver.end(b1), REPRISE_WRONG_STATE);
    EXPECT_EQ(driver.end(b2), REPRISE_OK);
    EXPECT_EQ(driver.end(b1), REPRISE_OK);
    EXPECT_EQ(block.data()[0], 9);
}

class BySize : public testing::TestWithParam<size_t> {};
INSTANTIATE_TEST_SUITE_P(Sizes, BySize, testing::Values(100, 300 << 10, 3 << 20));

TEST_P(BySize, FreedBeforeTheReplayIsRejectedByName) {
    Driver driver(quiet());
    Block block(GetParam());
    ASSERT_TRUE(driver->track(block.data(), block.size(), "queue", 0).ok());
    reprise_segment f = driver->forward_begin("s", nullptr, 0, false);
    driver.end(f);
    block.reset();
    Block again(GetParam());  // most likely the same address, never the same generation
    reprise_segment b = driver.replay("s", f.instance);
    EXPECT_EQ(b.status, REPRISE_REJECTED);
    EXPECT_NE(std::string(error()).find("queue"), std::string::npos) << error();
    EXPECT_NE(std::string(error()).find("freed"), std::string::npos) << error();
    EXPECT_EQ(driver.stats().rejections, 1u);
}

TEST_P(BySize, FreedDuringTheReplayIsNotWritten) {
    Driver driver(quiet());
    auto block = std::make_unique<Block>(GetParam());
    reprise_segment f = driver.forward("s", {block->range()});
    driver.end(f);
    memset(block->data(), 7, block->size());
    reprise_segment b = driver.replay("s", f.instance);
    ASSERT_EQ(b.status, REPRISE_OK) << error();
    EXPECT_EQ(block->data()[GetParam() / 2], 0);
    block.reset();
    Block other(GetParam());
    memset(other.data(), 3, other.size());
    EXPECT_EQ(driver.end(b), REPRISE_OK);
    for (size_t i = 0; i < other.size(); ++i) ASSERT_EQ(other.data()[i], 3) << i;
}

TEST_P(BySize, DivergenceIsReportedAndPutBack) {
    Driver driver(quiet());
    Block block(GetParam());
    reprise_segment f = driver.forward("s", {block.range()});
    driver.end(f);
    reprise_segment b = driver.replay("s", f.instance);
    block.data()[GetParam() / 2] = 5;
    reprise_replay_result result{};
    EXPECT_EQ(driver.end(b, &result), REPRISE_DIVERGED);
    EXPECT_GT(result.stray_bytes, 0u);
    EXPECT_EQ(block.data()[GetParam() / 2], 0);
    EXPECT_EQ(driver.stats().divergences, 1u);
}

TEST_P(BySize, WhatTheForwardWroteTheReplayMayWrite) {
    Driver driver(quiet());
    Block block(GetParam());
    for (int step = 1; step < 5; ++step) {
        reprise_segment f = driver.forward("s", {block.range()});
        block.data()[10] = static_cast<uint8_t>(step);
        driver.end(f);
        reprise_segment b = driver.replay("s", f.instance);
        EXPECT_EQ(block.data()[10], step - 1);
        block.data()[10] = static_cast<uint8_t>(step);
        EXPECT_EQ(driver.end(b), REPRISE_OK) << error();
        EXPECT_EQ(block.data()[10], step);
        EXPECT_TRUE(driver->release(f.instance).ok());
    }
    EXPECT_EQ(driver.stats().divergences, 0u);
}

TEST_P(BySize, GatedWriteIsKeptOnceAndRefusedWhenItMeetsOthers) {
    Driver driver(quiet());
    Block block(GetParam());
    reprise_segment f1 = driver.forward("s1", {block.range()});
    driver.end(f1);
    reprise_segment f2 = driver.forward("s2", {block.range()});
    driver.end(f2);
    reprise_replay_result result{};
    reprise_segment b2 = driver.replay("s2", f2.instance, REPRISE_REPLAY_GATED);
    block.data()[3] = 1;
    EXPECT_EQ(driver.end(b2, &result), REPRISE_OK);
    EXPECT_EQ(result.gated_kept, 1u);
    EXPECT_EQ(block.data()[3], 1) << "the update that only the replay makes is kept";
    reprise_segment b1 = driver.replay("s1", f1.instance, REPRISE_REPLAY_GATED);
    EXPECT_EQ(block.data()[3], 0);
    block.data()[3] = 1 + 1;
    EXPECT_EQ(driver.end(b1, &result), REPRISE_OK);
    EXPECT_EQ(result.gated_conflict, 1u);
    EXPECT_EQ(block.data()[3], 1);
}

TEST_P(BySize, ConcurrentWritersAreMergedByElement) {
    Driver driver(quiet());
    const size_t size = GetParam() / 4 * 4;
    Block block(size);
    auto *values = reinterpret_cast<uint32_t *>(block.data());
    ASSERT_TRUE(driver->track(block.data(), size, "shared", REPRISE_TRACK_CONCURRENT | REPRISE_TRACK_ELEMENT(4)).ok());
    reprise_segment f = driver->forward_begin("s", nullptr, 0, false);
    driver.end(f);
    values[1] = 0x01020304;
    values[2] = 0x05060708;
    reprise_segment b = driver.replay("s", f.instance);
    EXPECT_EQ(values[1], 0u);
    values[2] = 0x00000700;  // the other writer, while the old bytes are loaded
    values[size / 4 - 1] = 77;
    EXPECT_EQ(driver.end(b), REPRISE_OK) << error();
    EXPECT_EQ(values[1], 0x01020304u);
    EXPECT_EQ(values[2], 0x00000700u) << "whole elements: no bytes of two writers in one value";
    EXPECT_EQ(values[size / 4 - 1], 77u);
}

TEST(Aliases, OverlappingDeclarations) {
    Driver driver(quiet());
    Block block(400 << 10);
    uint8_t *p = block.data();
    reprise_segment f = driver.forward("s", {{p, 200 << 10}, {p + (100 << 10), 300 << 10}, {p + 5, 1000}});
    driver.end(f);
    for (size_t i = 0; i < block.size(); i += 1000) p[i] = 1;
    std::vector<uint8_t> before = block.bytes();
    reprise_segment b = driver.replay("s", f.instance);
    ASSERT_EQ(b.status, REPRISE_OK);
    EXPECT_EQ(block.bytes(), std::vector<uint8_t>(block.size(), 0));
    EXPECT_EQ(driver.end(b), REPRISE_OK);
    EXPECT_EQ(block.bytes(), before);
}

TEST(Aliases, TwoMappingsOfOneFile) {
    Driver driver(quiet());
    const size_t size = 600 << 10;
    int file = memfd_create("alias", MFD_CLOEXEC);
    ASSERT_EQ(ftruncate(file, static_cast<off_t>(size)), 0);
    auto *a = static_cast<uint8_t *>(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    auto *b = static_cast<uint8_t *>(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    ASSERT_NE(a, MAP_FAILED);
    ASSERT_NE(b, MAP_FAILED);
    ASSERT_TRUE(driver->track(a, size, "first view", 0).ok());
    ASSERT_TRUE(driver->track(b, size, "second view", 0).ok());
    reprise_segment f = driver->forward_begin("s", nullptr, 0, false);
    driver.end(f);
    b[5000] = 9;
    reprise_segment r = driver.replay("s", f.instance);
    ASSERT_EQ(r.status, REPRISE_OK);
    EXPECT_EQ(a[5000], 0);
    EXPECT_EQ(driver.end(r), REPRISE_OK);
    EXPECT_EQ(a[5000], 9);
    end_mapping(range_of(b, size));  // what the munmap hook does
    munmap(b, size);
    EXPECT_EQ(driver.replay("s", f.instance).status, REPRISE_REJECTED);
    EXPECT_NE(std::string(error()).find("second view"), std::string::npos) << error();
    munmap(a, size);
    close(file);
}

TEST(Neighbours, BytesBesideADeclaredRangeAreLeftAlone) {
    Driver driver(quiet());
    Block block(600 << 10);
    uint8_t *p = block.data();
    reprise_segment f = driver.forward("s", {{p + 100001, 300000}});
    driver.end(f);
    memset(p, 4, block.size());
    reprise_segment b = driver.replay("s", f.instance);
    ASSERT_EQ(b.status, REPRISE_OK);
    EXPECT_EQ(p[100000], 4);
    EXPECT_EQ(p[100001], 0);
    EXPECT_EQ(p[400000], 0);
    EXPECT_EQ(p[400001], 4);
    p[100000] = 5;  // a neighbour's write during the replay stays
    p[400001] = 6;
    EXPECT_EQ(driver.end(b), REPRISE_OK);
    EXPECT_EQ(p[100000], 5);
    EXPECT_EQ(p[400001], 6);
    EXPECT_EQ(p[100001], 4);
}

struct Counter {
    uint64_t value = 0;
    int refuse = 0;
};
size_t save_counter(void *context, void *into, size_t capacity) {
    auto *counter = static_cast<Counter *>(context);
    const size_t size = 20000;  // more than the first guess
    if (capacity >= size) {
        memset(into, 0, size);
        memcpy(into, &counter->value, sizeof counter->value);
    }
    return size;
}
int load_counter(void *context, const void *from, size_t) {
    auto *counter = static_cast<Counter *>(context);
    if (counter->refuse != 0) return 1;
    memcpy(&counter->value, from, sizeof counter->value);
    return 0;
}

TEST(Providers, AreRewoundAndPutBack) {
    Driver driver(quiet());
    Counter counter{5};
    EXPECT_EQ(driver->state(nullptr, save_counter, load_counter, &counter).code(), REPRISE_INVALID_ARGUMENT);
    EXPECT_EQ(driver->state("c", save_counter, nullptr, &counter).code(), REPRISE_INVALID_ARGUMENT);
    ASSERT_TRUE(driver->state("c", save_counter, load_counter, &counter).ok());
    reprise_segment f = driver.forward("s", {});
    counter.value = 6;
    driver.end(f);
    counter.value = 9;
    reprise_segment b = driver.replay("s", f.instance);
    EXPECT_EQ(counter.value, 5u);
    counter.value = 6;
    EXPECT_EQ(driver.end(b), REPRISE_OK);
    EXPECT_EQ(counter.value, 9u);
    counter.refuse = 1;
    EXPECT_EQ(driver.replay("s", f.instance).status, REPRISE_REJECTED);
    counter.refuse = 0;
    EXPECT_EQ(counter.value, 9u);
    EXPECT_TRUE(driver->state("c", nullptr, nullptr, nullptr).ok());
    EXPECT_EQ(driver->state("c", nullptr, nullptr, nullptr).code(), REPRISE_NOT_FOUND);
}

TEST(Abort, PutsBackAndForgets) {
    Driver driver(quiet());
    Block block(300 << 10);
    reprise_segment f = driver.forward("s", {block.range()});
    driver.end(f);
    block.data()[0] = 1;
    reprise_segment b = driver.replay("s", f.instance);
    EXPECT_EQ(block.data()[0], 0);
    ASSERT_TRUE(driver->segment_abort(f.instance).ok());
    EXPECT_EQ(block.data()[0], 1);
    EXPECT_EQ(driver.end(b), REPRISE_WRONG_STATE);
    EXPECT_EQ(driver.replay("s", f.instance).status, REPRISE_RELEASED);
}

TEST(Abort, ExitPutsBackWhatIsLoaded) {
    Driver driver(quiet());
    Block block(300 << 10);
    reprise_segment f = driver.forward("s", {block.range()});
    driver.end(f);
    block.data()[0] = 1;
    ASSERT_EQ(driver.replay("s", f.instance).status, REPRISE_OK);
    EXPECT_EQ(block.data()[0], 0);
    driver->at_exit();
    EXPECT_EQ(block.data()[0], 1);
}

TEST(Threads, ReplaysThatLoadTheSameBytesWaitForEachOther) {
    Driver driver(quiet());
    Block block(300 << 10);
    reprise_segment f1 = driver.forward("a", {block.range()});
    driver.end(f1);
    block.data()[0] = 1;
    reprise_segment f2 = driver.forward("b", {block.range()});
    driver.end(f2);
    block.data()[0] = 2;
    reprise_segment b1 = driver.replay("a", f1.instance);
    ASSERT_EQ(b1.status, REPRISE_OK);
    std::atomic<bool> began{false};
    std::thread other([&] {
        reprise_segment b2 = driver.replay("b", f2.instance);
        began = true;
        EXPECT_EQ(b2.status, REPRISE_OK) << error();
        EXPECT_EQ(block.data()[0], 1);
        EXPECT_EQ(driver.end(b2), REPRISE_OK);
    });
    usleep(100000);
    EXPECT_FALSE(began);
    EXPECT_EQ(block.data()[0], 0);
    EXPECT_EQ(driver.end(b1), REPRISE_OK);
    other.join();
    EXPECT_EQ(block.data()[0], 2);
}

TEST(Threads, AWaitThatCouldDeadlockTimesOut) {
    Config config = quiet();
    config.busy_timeout_ms = 100;
    Driver driver(config);
    Block block(1000);
    reprise_segment f1 = driver.forward("a", {block.range()});
    driver.end(f1);
    reprise_segment f2 = driver.forward("b", {block.range()});
    driver.end(f2);
    block.data()[0] = 2;
    reprise_segment b1 = driver.replay("a", f1.instance);
    std::thread([&] { EXPECT_EQ(driver.replay("b", f2.instance).status, REPRISE_BUSY); }).join();
    EXPECT_EQ(driver.end(b1), REPRISE_OK);
}

TEST(Threads, DisjointReplaysRunTogether) {
    Config config = quiet();
    config.busy_timeout_ms = 100;
    Driver driver(config);
    Block shared(1000), a(1000), b(1000);
    reprise_segment f1 = driver.forward("a", {shared.range(), a.range()});
    driver.end(f1);
    reprise_segment f2 = driver.forward("b", {shared.range(), b.range()});
    driver.end(f2);
    a.data()[0] = b.data()[0] = 1;  // the shared buffer does not change: scopes overlap, loaded bytes do not
    reprise_segment b1 = driver.replay("a", f1.instance);
    std::thread([&] {
        reprise_segment b2 = driver.replay("b", f2.instance);
        EXPECT_EQ(b2.status, REPRISE_OK);
        EXPECT_EQ(driver.end(b2), REPRISE_OK);
    }).join();
    EXPECT_EQ(driver.end(b1), REPRISE_OK);
}

}  // namespace
}  // namespace reprise::test
