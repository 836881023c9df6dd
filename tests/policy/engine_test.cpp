// Every promise of the C API that a random walk does not reach: errors, trouble, policies, records.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/policy/engine_fixture.h"

namespace reprise::test {
namespace {

Config quiet(Policy policy = Policy::kSelective) {
    Config config;
    config.policy = policy;
    config.log = LogLevel::kOff;
    return config;
}

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

TEST(Retirement, TenThousandDroppedInstancesDoNotGrow) {
    Driver driver(quiet());
    Block block(200 << 10), small(5000);
    uint64_t held = 0;
    for (int i = 0; i < 10000; ++i) {
        reprise_segment f = driver.forward("s", {block.range(), small.range()});
        driver.end(f);
        block.data()[static_cast<size_t>(i) % block.size()] += 1;
        small.data()[0] += 1;
        ASSERT_TRUE(driver->step().ok());
        if (i == 100) held = driver.stats().bytes_held;
    }
    EXPECT_LE(driver.stats().bytes_held, held + 65536);
    EXPECT_LE(driver.stats().instances_outstanding, 3u);
}

TEST(Retirement, OneInstanceKeptForEverPinsOnlyItsOwnBytes) {
    Driver driver(quiet());
    Block block(4 << 20);
    reprise_segment kept = driver.forward("kept", {block.range()});
    driver.end(kept);
    std::vector<uint8_t> seen = block.bytes();
    uint64_t random = 1;
    for (int i = 0; i < 300; ++i) {
        reprise_segment f = driver.forward("s", {block.range()});
        driver.end(f);
        for (int n = 0; n < 8; ++n) block.data()[next_random(random) % (1 << 20)] += 1;
        reprise_segment b = driver.replay("s", f.instance);
        ASSERT_EQ(b.status, REPRISE_OK);
        ASSERT_EQ(driver.end(b), REPRISE_OK);
        ASSERT_TRUE(driver->release(f.instance).ok());
    }
    EXPECT_LE(driver.stats().bytes_held, (4u << 20) + (3u << 20)) << "one shadow and at most the first MiB twice";
    reprise_segment b = driver.replay("kept", kept.instance);
    ASSERT_EQ(b.status, REPRISE_OK) << error();
    EXPECT_EQ(block.bytes(), seen);
    EXPECT_EQ(driver.end(b), REPRISE_OK);
}

TEST(Info, VersionRisesWithWritesAndRunsAreExact) {
    Driver driver(quiet());
    Block block(1 << 20);
    reprise_buffer info{};
    EXPECT_EQ(driver->buffer_info(&info, &info, nullptr, nullptr).code(), REPRISE_NOT_FOUND);
    ASSERT_TRUE(driver->track(block.data(), block.size(), "codebook", 0).ok());
    reprise_segment f = driver->forward_begin("s", nullptr, 0, false);
    driver.end(f);
    ASSERT_TRUE(driver->buffer_info(block.data() + 77, &info, nullptr, nullptr).ok());
    EXPECT_STREQ(info.name, "codebook");
    EXPECT_STREQ(info.mechanism, "shadow");
    EXPECT_EQ(info.address, block.data());
    const uint64_t version = info.version;
    block.data()[5 * 4096] = 1;
    block.data()[6 * 4096] = 1;
    block.data()[100 * 4096] = 1;
    reprise_range runs[8];
    size_t count = 8;
    ASSERT_TRUE(driver->buffer_info(block.data(), &info, runs, &count).ok());
    EXPECT_EQ(info.version, version + 1);
    ASSERT_EQ(count, 2u);
    EXPECT_EQ(runs[0].address, block.data() + 5 * 4096);
    EXPECT_EQ(runs[0].size, 2 * 4096u);
    EXPECT_EQ(runs[1].address, block.data() + 100 * 4096);
}

TEST(Audit, ChangesNothingAndCounts) {
    Driver driver(quiet(Policy::kAudit));
    Block block(300 << 10);
    reprise_segment f = driver.forward("s", {block.range()});
    driver.end(f);
    block.data()[0] = 1;
    reprise_segment b = driver.replay("s", f.instance);
    ASSERT_EQ(b.status, REPRISE_OK);
    EXPECT_EQ(block.data()[0], 1);
    block.data()[1] = 2;
    EXPECT_EQ(driver.end(b), REPRISE_OK);
    EXPECT_EQ(block.data()[1], 2);
    EXPECT_EQ(driver.stats().replays_on_changed_state, 1u);
}

TEST(Audit, AFreedBufferIsNoFailure) {
    Driver driver(quiet(Policy::kAudit));
    Block block(300 << 10);
    reprise_segment f = driver.forward("s", {block.range()});
    driver.end(f);
    block.reset();
    reprise_segment b = driver.replay("s", f.instance);
    EXPECT_EQ(b.status, REPRISE_OK);
    EXPECT_EQ(driver.end(b), REPRISE_OK);
    EXPECT_EQ(driver.stats().rejections, 0u);
}

TEST(Off, DoesNothing) {
    Driver driver(quiet(Policy::kOff));
    Block block(300 << 10);
    reprise_segment f = driver.forward("s", {block.range()});
    EXPECT_EQ(driver.end(f), REPRISE_OK);
    block.data()[0] = 1;
    reprise_segment b = driver.replay("s", f.instance);
    EXPECT_EQ(b.status, REPRISE_OK);
    EXPECT_EQ(block.data()[0], 1);
    EXPECT_EQ(driver.end(b), REPRISE_OK);
    EXPECT_EQ(driver.stats().bytes_preserved, 0u);
}

TEST(Reject, WarnGoesOnUnprotected) {
    Config config = quiet();
    config.on_reject = OnReject::kWarn;
    Driver driver(config);
    Block block(1000);
    reprise_segment f = driver.forward("s", {block.range()});
    driver.end(f);
    block.reset();
    reprise_segment b = driver.replay("s", f.instance);
    EXPECT_EQ(b.status, REPRISE_OK);
    EXPECT_EQ(driver.end(b), REPRISE_OK);
    EXPECT_EQ(driver.stats().rejections, 1u);
}

// A tracker that misses writes: verification must not believe it.
TEST(Verify, FindsWhatABlindTrackerMissed) {
    allocator_start();
    static AllocatorPort blind = *allocator_port();
    blind.guard_collect = [](AddressRange, bool, AddressRange *, size_t, size_t *count) {
        *count = 0;
        return GuardResult::kOk;
    };
    blind.guard_probe = [](GuardCapabilities *out) { out->write_protect_async = true; };
    blind.guard_arm = [](AddressRange) { return GuardResult::kOk; };
    blind.guard_disarm = [](AddressRange) { return GuardResult::kOk; };
    for (Verify verify : {Verify::kDigest, Verify::kBytes}) {
        Config config = quiet();
        config.verify = verify;
        Driver driver(blind, config);
        Block block(1 << 20);
        reprise_segment f = driver.forward("s", {block.range()});
        driver.end(f);
        block.data()[12345] = 1;
        EXPECT_EQ(driver.replay("s", f.instance).status, REPRISE_REJECTED);
        EXPECT_NE(std::string(error()).find("verification failed"), std::string::npos) << error();
        EXPECT_EQ(block.data()[12345], 1);
    }
}

std::vector<nlohmann::json> lines_of(const std::string &path) {
    std::ifstream file(path);
    std::vector<nlohmann::json> lines;
    for (std::string line; std::getline(file, line);) {
        if (!line.empty()) lines.push_back(nlohmann::json::parse(line));
    }
    return lines;
}

TEST(Records, OneLinePerReplayAndAContract) {
    const std::string path = testing::TempDir() + "/records." + std::to_string(getpid());
    std::ofstream(path) << "{\"torn\":";  // an earlier run died in the middle of a line
    {
        Config config = quiet();
        config.records = path;
        Driver driver(config);
        Block block(300 << 10);
        ASSERT_TRUE(driver->track(block.data(), block.size(), "queue", 0).ok());
        for (int i = 0; i < 3; ++i) {
            reprise_segment f = driver->forward_begin("s", nullptr, 0, false);
            driver.end(f);
            block.data()[0] += 1;
            driver.end(driver.replay("s", f.instance));
        }
    }
    std::ifstream file(path);
    std::string torn;
    std::getline(file, torn);
    EXPECT_EQ(torn, "{\"torn\":");
    size_t contracts = 0, records = 0;
    for (std::string line; std::getline(file, line);) {
        nlohmann::json json = nlohmann::json::parse(line);
        if (json["schema"] == "reprise.contract/1") {
            ++contracts;
            EXPECT_EQ(json["buffers"][0]["name"], "queue");
        } else {
            ++records;
            EXPECT_EQ(json["outcome"], "match");
            EXPECT_GT(json["bytes_changed"].get<uint64_t>(), 0u);
        }
    }
    EXPECT_EQ(contracts, 1u);
    EXPECT_EQ(records, 3u);
    unlink(path.c_str());
}

TEST(Records, SurviveAClosedDescriptorAndAFullDisk) {
    const std::string path = testing::TempDir() + "/records-closed." + std::to_string(getpid());
    Config config = quiet();
    config.records = path;
    Driver driver(config);
    Block block(1000);
    auto once = [&] {
        reprise_segment f = driver.forward("s", {block.range()});
        driver.end(f);
        block.data()[0] += 1;
        EXPECT_EQ(driver.end(driver.replay("s", f.instance)), REPRISE_OK);
    };
    once();
    for (int fd = 3; fd < 1024; ++fd) close(fd);
    once();
    EXPECT_EQ(lines_of(path).size(), 3u);
    unlink(path.c_str());

    for (const char *bad : {"/dev/full", "/nonexistent/folder/records"}) {
        config.records = bad;
        Driver other(config);
        reprise_segment f = other.forward("s", {block.range()});
        other.end(f);
        EXPECT_EQ(other.end(other.replay("s", f.instance)), REPRISE_OK) << "the job goes on";
    }
}

TEST(Memory, TooLittleHeadroomWatchesAndRejectsOnlyRealChanges) {
    allocator_start();
    static AllocatorPort poor = *allocator_port();
    poor.headroom = []() -> uint64_t { return 1 << 20; };
    Driver driver(poor, quiet());
    Block block(8 << 20);
    reprise_segment f = driver.forward("s", {block.range()});
    ASSERT_EQ(f.status, REPRISE_OK);
    driver.end(f);
    volatile uint8_t *p = block.data();
    p[0] = p[0];
    reprise_segment b = driver.replay("s", f.instance);
    EXPECT_EQ(b.status, REPRISE_OK) << "written is not changed: " << error();
    driver.end(b);
    p[0] = 1;
    EXPECT_EQ(driver.replay("s", f.instance).status, REPRISE_REJECTED);
    EXPECT_EQ(p[0], 1);
}

TEST(Fork, TheChildReplaysAndTheParentIsUntouched) {
    Driver driver(quiet());
    Block block(3 << 20);
    reprise_segment f = driver.forward("s", {block.range()});
    driver.end(f);
    block.data()[0] = 1;
    block.data()[2 << 20] = 1;
    driver->fork_prepare();
    allocator_fork_prepare();
    pid_t child = fork();
    if (child == 0) {
        allocator_fork_child();
        driver->fork_child();
        block.data()[1 << 20] = 1;  // the child's own write, after its tracking bits were lost
        reprise_segment b = driver.replay("s", f.instance);
        bool good = b.status == REPRISE_OK && block.data()[0] == 0 && block.data()[1 << 20] == 0 && block.data()[2 << 20] == 0;
        good = good && driver.end(b) == REPRISE_OK && block.data()[0] == 1 && block.data()[1 << 20] == 1;
        _exit(good ? 0 : 1);
    }
    allocator_fork_parent();
    driver->fork_parent();
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    reprise_segment b = driver.replay("s", f.instance);
    ASSERT_EQ(b.status, REPRISE_OK);
    EXPECT_EQ(block.data()[0], 0);
    EXPECT_EQ(driver.end(b), REPRISE_OK);
    EXPECT_EQ(block.data()[1 << 20], 0);
}

TEST(Config, ValuesThatDoNotParseAreSaidAndDefaulted) {
    Config config = Config::from_environment([](const char *name) -> const char * {
        if (std::string(name) == "REPRISE_POLICY") return "sometimes";
        if (std::string(name) == "REPRISE_BUDGET") return "many";
        if (std::string(name) == "REPRISE_VERIFY") return "bytes";
        return nullptr;
    });
    EXPECT_EQ(config.policy, Policy::kSelective);
    EXPECT_EQ(config.verify, Verify::kBytes);
    EXPECT_EQ(config.budget, 0u);
    ASSERT_EQ(config.complaints.size(), 2u);
    EXPECT_NE(config.complaints[0].find("REPRISE_POLICY=sometimes"), std::string::npos);
    EXPECT_NE(config.complaints[0].find("selective, whole, audit, off"), std::string::npos);
}

TEST(Config, Budgets) {
    uint64_t bytes = 0;
    const uint64_t gib = 1 << 30;
    EXPECT_TRUE(parse_budget("44GiB", 0, &bytes));
    EXPECT_EQ(bytes, 44 * gib);
    EXPECT_TRUE(parse_budget("1.5g", 0, &bytes));
    EXPECT_EQ(bytes, gib * 3 / 2);
    EXPECT_TRUE(parse_budget("80%", 100 * gib, &bytes));
    EXPECT_EQ(bytes, 80 * gib);
    EXPECT_TRUE(parse_budget("4096", 0, &bytes));
    EXPECT_EQ(bytes, 4096u);
    for (const char *bad : {"", "x", "0", "-5", "120%", "5 parsecs", "nan", "inf", "1e40"})
        EXPECT_FALSE(parse_budget(bad, gib, &bytes)) << bad;
}

}  // namespace
}  // namespace reprise::test
