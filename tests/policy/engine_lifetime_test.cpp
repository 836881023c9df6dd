// What outlives what: instances, replays and buffers that end while something else still holds on to them.
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "tests/policy/engine_fixture.h"

namespace reprise::test {
namespace {

// A state provider whose calls can be watched, and can be told to refuse.
struct Provider {
    int value = 0;
    bool refuse = false;
    std::function<void()> on_load;

    static size_t save(void *self, void *into, size_t capacity) {
        if (capacity >= sizeof(int)) memcpy(into, &static_cast<Provider *>(self)->value, sizeof(int));
        return sizeof(int);
    }
    static int load(void *self, const void *from, size_t) {
        auto &provider = *static_cast<Provider *>(self);
        if (provider.on_load) provider.on_load();
        if (provider.refuse) return 1;
        memcpy(&provider.value, from, sizeof(int));
        return 0;
    }
    void declare(Driver &driver, const char *name) { ASSERT_TRUE(driver->state(name, save, load, this).ok()); }
};

// Before-images are repacked when a release leaves them mostly dead, also while another replay is open that reads them at its end.
TEST(Lifetime, ReleaseOfAnotherInstanceDuringAReplay) {
    Driver driver(quiet());
    Block block(4 << 20);
    auto write_pages = [&](size_t count, uint8_t value) {
        for (size_t page = 0; page < count; ++page) block.data()[page * 4096] = value;
    };
    reprise_segment f1 = driver.forward("one", {block.range()});
    driver.end(f1);
    write_pages(100, 1);
    reprise_segment f2 = driver.forward("two", {block.range()});
    driver.end(f2);
    write_pages(101, 2);
    reprise_segment f3 = driver.forward("three", {block.range()});
    driver.end(f3);
    const std::vector<uint8_t> present = block.bytes();
    reprise_segment b = driver.replay("one", f1.instance);
    ASSERT_EQ(b.status, REPRISE_OK);
    ASSERT_TRUE(driver->release(f2.instance).ok());
    Block other(size_t{101} * 4096);  // takes over the memory of the image that went
    memset(other.data(), 0xee, other.size());
    reprise_segment f4 = driver.forward("four", {other.range()});
    driver.end(f4);
    EXPECT_EQ(driver.end(b), REPRISE_OK) << thread_state().error;
    EXPECT_EQ(block.bytes(), present);
}

TEST(Lifetime, AbortOfTheOuterReplayUnwindsTheInnerOneFirst) {
    for (const char *how : {"abort", "begin again", "exit"}) {
        SCOPED_TRACE(how);
        Driver driver(quiet());
        Block block(300 << 10);
        auto forward = [&](const char *name, uint8_t value) {
            block.data()[0] = value;
            reprise_segment f = driver.forward(name, {block.range()});
            driver.end(f);
            return f.instance;
        };
        const uint64_t outer = forward("outer", 1), middle = forward("middle", 2), inner = forward("inner", 3);
        block.data()[0] = 9;
        reprise_segment b1 = driver.replay("outer", outer);
        reprise_segment b2 = driver.replay("middle", middle);
        reprise_segment b3 = driver.replay("inner", inner);
        ASSERT_EQ(b3.status, REPRISE_OK);
        ASSERT_EQ(block.data()[0], 3);
        if (how == std::string("abort")) {
            ASSERT_TRUE(driver->segment_abort(outer).ok());
        } else if (how == std::string("exit")) {
            driver->at_exit();
        } else {
            reprise_segment again = driver.replay("outer", outer);
            ASSERT_EQ(again.status, REPRISE_OK);
            EXPECT_EQ(block.data()[0], 1);
            EXPECT_EQ(driver.end(again), REPRISE_OK);
        }
        EXPECT_EQ(block.data()[0], 9);
        EXPECT_EQ(driver.end(b3), REPRISE_WRONG_STATE);
        EXPECT_EQ(driver.end(b2), REPRISE_WRONG_STATE);
        EXPECT_EQ(driver.end(b1), REPRISE_WRONG_STATE);
        EXPECT_EQ(block.data()[0], 9);
    }
}

TEST(Lifetime, AbortByAnotherThreadWhileAProviderIsSet) {
    Driver driver(quiet());
    Block block(1000);
    Provider generator;
    generator.declare(driver, "generator");
    generator.value = 1;
    reprise_segment f = driver.forward("s", {block.range()});
    driver.end(f);
    generator.value = 2;
    block.data()[0] = 5;
    int loads = 0;
    generator.on_load = [&] {
        if (loads++ == 0) std::thread([&] { EXPECT_TRUE(driver->segment_abort(f.instance).ok()); }).join();
    };
    reprise_segment b = driver.replay("s", f.instance);
    EXPECT_EQ(b.status, REPRISE_RELEASED);
    EXPECT_EQ(generator.value, 2);
    EXPECT_EQ(block.data()[0], 5);
    EXPECT_EQ(driver.stats().instances_outstanding, 0u);
}

TEST(Lifetime, AbortByAnotherThreadWhileAReplayEnds) {
    Driver driver(quiet());
    Block block(1000);
    Provider generator;
    generator.declare(driver, "generator");
    generator.value = 1;
    reprise_segment f = driver.forward("s", {block.range()});
    driver.end(f);
    generator.value = 2;
    block.data()[0] = 5;
    reprise_segment b = driver.replay("s", f.instance);
    ASSERT_EQ(b.status, REPRISE_OK);
    ASSERT_EQ(generator.value, 1);
    generator.on_load = [&] { std::thread([&] { EXPECT_TRUE(driver->segment_abort(f.instance).ok()); }).join(); };
    EXPECT_EQ(driver.end(b), REPRISE_WRONG_STATE);
    EXPECT_EQ(generator.value, 2);
    EXPECT_EQ(block.data()[0], 5);
}

// Providers are the job's code: they may take its locks and call us, so none of ours may be held.
TEST(Lifetime, AbortCallsProvidersWithoutALock) {
    Driver driver(quiet());
    Block block(1000);
    Provider generator;
    generator.declare(driver, "generator");
    generator.value = 1;
    reprise_segment f = driver.forward("s", {block.range()});
    driver.end(f);
    generator.value = 2;
    generator.on_load = [&] { EXPECT_EQ(driver.stats().forwards, 1u); };
    ASSERT_EQ(driver.replay("s", f.instance).status, REPRISE_OK);
    EXPECT_TRUE(driver->segment_abort(f.instance).ok());
    EXPECT_EQ(generator.value, 2);
}

TEST(Lifetime, AProviderThatRefusesDoesNotKeepTheOthersFromBeingPutBack) {
    Driver driver(quiet());
    Block block(1000);
    Provider first, second;
    first.declare(driver, "first");
    second.declare(driver, "second");
    reprise_segment f = driver.forward("s", {block.range()});
    driver.end(f);
    first.value = second.value = 7;
    reprise_segment b = driver.replay("s", f.instance);
    ASSERT_EQ(b.status, REPRISE_OK);
    ASSERT_EQ(second.value, 0);
    first.refuse = true;
    EXPECT_EQ(driver.end(b), REPRISE_OK);
    EXPECT_EQ(second.value, 7);
}

TEST(Lifetime, ReleaseWhileARefusedReplayBeginsLeaksNothing) {
    Driver driver(quiet());
    Block block(1000);
    Provider generator;
    generator.declare(driver, "generator");
    reprise_segment f = driver.forward("s", {block.range()});
    driver.end(f);
    generator.value = 2;
    generator.refuse = true;
    generator.on_load = [&] { EXPECT_TRUE(driver->release(f.instance).ok()); };
    EXPECT_EQ(driver.replay("s", f.instance).status, REPRISE_REJECTED);
    EXPECT_EQ(driver.stats().instances_outstanding, 0u);
}

// The list of what was declared must not keep pointing at a buffer that another generation at its address replaced.
TEST(Lifetime, ADeclaredBufferThatIsFreedAndAllocatedAgain) {
    Driver driver(quiet());
    for (int round = 0; round < 20; ++round) {
        Block block(300 << 10);
        ASSERT_TRUE(driver->track(block.data(), block.size(), "queue", 0).ok());
        if (round % 2 == 0) {  // its address is named by a scope before it is declared again
            Block other(300 << 10);
            block = std::move(other);
            reprise_segment f = driver.forward("named", {block.range()});
            driver.end(f);
            EXPECT_TRUE(driver->release(f.instance).ok());
            continue;
        }
        reprise_segment f = driver->forward_begin("s", nullptr, 0, false);
        driver.end(f);
        block.data()[0] = 1;
        reprise_segment b = driver.replay("s", f.instance);
        ASSERT_EQ(b.status, REPRISE_OK) << thread_state().error;
        EXPECT_EQ(block.data()[0], 0);
        EXPECT_EQ(driver.end(b), REPRISE_OK);
        EXPECT_EQ(block.data()[0], 1);
        EXPECT_TRUE(driver->release(f.instance).ok());
    }
}

// What F writes later is not known while it runs: a replay inside it that writes the same is no divergence.
TEST(Lifetime, AReplayInsideItsOwnForwardMayWriteWhatTheForwardWrites) {
    for (size_t size : {size_t{1000}, size_t{300} << 10}) {
        SCOPED_TRACE(size);
        Driver driver(quiet());
        Block block(size);
        reprise_segment f = driver.forward("penalty", {block.range()});
        block.data()[0] = 1;
        reprise_segment b = driver.replay("penalty", f.instance);
        ASSERT_EQ(b.status, REPRISE_OK);
        EXPECT_EQ(block.data()[0], 0);
        block.data()[0] = 7;
        block.data()[size - 1] = 7;  // F has not come this far yet
        EXPECT_EQ(driver.end(b), REPRISE_OK) << thread_state().error;
        EXPECT_EQ(block.data()[0], 1);
        EXPECT_EQ(block.data()[size - 1], 0);
        EXPECT_EQ(driver.end(f), REPRISE_OK);
        EXPECT_EQ(driver.stats().divergences, 0u);
    }
}

// A program that makes only the two calls, with several segments: each instance stays until its own segment's next forward, so there is
// always one. Windows end all the same, and what was preserved of memory that is gone goes with them.
TEST(Lifetime, WindowsEndWithoutReleases) {
    Driver driver(quiet());
    Block state(1 << 20);
    for (size_t round = 0; round < 60; ++round) {
        Block activation((256 << 10) + round * 65536);
        reprise_segment f1 = driver.forward("one", {state.range()});
        driver.end(f1);
        reprise_segment f2 = driver.forward("two", {state.range(), activation.range()});
        driver.end(f2);
        for (const auto &[name, f] : {std::pair{"two", f2}, std::pair{"one", f1}}) {
            reprise_segment b = driver.replay(name, f.instance);
            ASSERT_EQ(b.status, REPRISE_OK);
            driver.end(b);
        }
    }
    EXPECT_LE(driver.stats().instances_outstanding, 2u);
    EXPECT_LT(driver.stats().bytes_held, uint64_t{16} << 20) << "the state's shadow and the last activations', not sixty of them";
}

TEST(Lifetime, VersionsOfWatchedBuffersNeverFall) {
    Driver driver(quiet());
    Block block(1 << 20);
    reprise_scope_item item{block.data(), block.size(), "argument", REPRISE_ITEM_ARGUMENT, 0};
    uint64_t version = 0;
    for (int round = 0; round < 4; ++round) {
        reprise_segment f = driver->forward_begin("s", &item, 1, true);
        driver.end(f);
        reprise_buffer info{};
        ASSERT_TRUE(driver->buffer_info(block.data(), &info, nullptr, nullptr).ok());
        EXPECT_STREQ(info.mechanism, "watch");
        EXPECT_GE(info.version, version);
        version = info.version;
        block.data()[round] = 1;
        ASSERT_TRUE(driver->buffer_info(block.data(), &info, nullptr, nullptr).ok());
        EXPECT_GT(info.version, version);
        version = info.version;
    }
}

TEST(Fork, AReplayThatAnotherThreadHasOpenIsPutBackInTheChild) {
    Driver driver(quiet());
    Block block(300 << 10);
    reprise_segment f = driver.forward("s", {block.range()});
    driver.end(f);
    block.data()[0] = 1;
    pid_t child = 0;
    std::thread([&] {
        reprise_segment b = driver.replay("s", f.instance);
        ASSERT_EQ(b.status, REPRISE_OK);
        std::thread([&] {
            driver->fork_prepare();
            allocator_fork_prepare();
            child = fork();
            if (child == 0) {
                allocator_fork_child();
                driver->fork_child();
                _exit(block.data()[0] == 1 && driver.stats().instances_outstanding == 1 ? 0 : 1);
            }
            allocator_fork_parent();
            driver->fork_parent();
        }).join();
        EXPECT_EQ(block.data()[0], 0) << "the parent's replay runs on";
        EXPECT_EQ(driver.end(b), REPRISE_OK);
    }).join();
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    EXPECT_EQ(block.data()[0], 1);
}

}  // namespace
}  // namespace reprise::test
