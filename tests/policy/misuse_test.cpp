// What hosts do wrong or in unlucky moments: threads that leave, forks during another thread's replay, aborts with providers, declarations
// of memory that was freed and given out again.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "tests/policy/engine_fixture.h"

namespace reprise::test {
namespace {

constexpr size_t kSize = 300 << 10;

// A block that holds 1 in its forward and 2 since.
struct Changed {
    explicit Changed(Driver &driver) : block(kSize) {
        block.data()[0] = 1;
        forward = driver.forward("s", {block.range()});
        EXPECT_EQ(driver.end(forward), REPRISE_OK);
        block.data()[0] = 2;
    }
    Block block;
    reprise_segment forward{};
};

TEST(Threads, AReplayWhoseThreadExitsIsPutBack) {
    Driver driver(quiet());
    Changed changed(driver);
    std::thread([&] {
        EXPECT_EQ(driver.replay("s", changed.forward.instance).status, REPRISE_OK);
        EXPECT_EQ(changed.block.data()[0], 1);
    }).join();
    EXPECT_EQ(changed.block.data()[0], 2);
    const reprise_segment again = driver.replay("s", changed.forward.instance);
    ASSERT_EQ(again.status, REPRISE_OK);
    EXPECT_EQ(changed.block.data()[0], 1);
    EXPECT_EQ(driver.end(again), REPRISE_OK);
    EXPECT_EQ(changed.block.data()[0], 2);
}

TEST(Threads, AForwardWhoseThreadExitsCanBeReplayedAndLetGo) {
    Driver driver(quiet());
    Block block(kSize);
    reprise_segment forward{};
    std::thread([&] { forward = driver.forward("s", {block.range()}); }).join();
    block.data()[0] = 2;
    const reprise_segment replay = driver.replay("s", forward.instance);
    ASSERT_EQ(replay.status, REPRISE_OK);
    EXPECT_EQ(block.data()[0], 0);
    EXPECT_EQ(driver.end(replay), REPRISE_OK);
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(driver->step().ok());
    EXPECT_EQ(driver.stats().instances_outstanding, 0u);
}

TEST(Threads, AnInstanceThatWaitsForItsReplayIsNotLetGo) {
    Driver driver(quiet());
    Changed changed(driver);
    reprise_segment other = driver.forward("other", {changed.block.range()});
    driver.end(other);
    changed.block.data()[0] = 3;
    const reprise_segment first = driver.replay("other", other.instance);
    ASSERT_EQ(first.status, REPRISE_OK);
    std::thread waiting([&] {
        const reprise_segment replay = driver.replay("s", changed.forward.instance);
        EXPECT_EQ(replay.status, REPRISE_OK);
        EXPECT_EQ(changed.block.data()[0], 1);
        EXPECT_EQ(driver.end(replay), REPRISE_OK);
    });
    while (driver.stats().replays < 2) std::this_thread::yield();
    driver.end(driver.forward("s", {}));  // retires replayed instances of its segment
    EXPECT_EQ(driver.end(first), REPRISE_OK);
    waiting.join();
    EXPECT_EQ(changed.block.data()[0], 3);
}

TEST(Fork, TheChildHasWhatAnotherThreadsReplayHadSaved) {
    Driver driver(quiet());
    Changed changed(driver);
    reprise_segment other = driver.forward("other", {changed.block.range()});
    driver.end(other);
    changed.block.data()[0] = 3;
    std::atomic<int> phase{0};
    std::thread replayer([&] {
        const reprise_segment replay = driver.replay("s", changed.forward.instance);
        EXPECT_EQ(replay.status, REPRISE_OK);
        phase = 1;
        while (phase != 2) std::this_thread::yield();
        EXPECT_EQ(driver.end(replay), REPRISE_OK);
    });
    while (phase != 1) std::this_thread::yield();
    driver->fork_prepare();
    allocator_fork_prepare();
    const pid_t child = fork();
    if (child == 0) {
        allocator_fork_child();
        driver->fork_child();
        bool good = changed.block.data()[0] == 3;
        const reprise_segment replay = driver.replay("other", other.instance);  // waits for nobody
        good = good && replay.status == REPRISE_OK && changed.block.data()[0] == 2;
        good = good && driver.end(replay) == REPRISE_OK && changed.block.data()[0] == 3;
        _exit(good ? 0 : 1);
    }
    allocator_fork_parent();
    driver->fork_parent();
    int status = 0;
    waitpid(child, &status, 0);
    phase = 2;
    replayer.join();
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    EXPECT_EQ(changed.block.data()[0], 3);
}

// A provider may ask Reprise things, whichever call puts it back.
struct Asking {
    Driver *driver;
    uint64_t value = 1, loads = 0;
    uint64_t abort = 0;  // the instance to abort in the next load, from another thread
};
size_t save_asking(void *context, void *into, size_t capacity) {
    auto *asking = static_cast<Asking *>(context);
    if (capacity >= sizeof asking->value) memcpy(into, &asking->value, sizeof asking->value);
    return sizeof asking->value;
}
int load_asking(void *context, const void *from, size_t) {
    auto *asking = static_cast<Asking *>(context);
    memcpy(&asking->value, from, sizeof asking->value);
    ++asking->loads;
    asking->driver->stats();
    if (const uint64_t instance = std::exchange(asking->abort, 0); instance != 0) {
        std::thread([&] { EXPECT_TRUE((*asking->driver)->segment_abort(instance).ok()); }).join();
    }
    return 0;
}

TEST(Providers, ArePutBackWithoutTheLockByAbortAndExit) {
    for (const bool exits : {false, true}) {
        Driver driver(quiet());
        Asking asking{&driver};
        ASSERT_TRUE(driver->state("asking", save_asking, load_asking, &asking).ok());
        Changed changed(driver);
        asking.value = 2;
        ASSERT_EQ(driver.replay("s", changed.forward.instance).status, REPRISE_OK);
        EXPECT_EQ(asking.value, 1u);
        if (exits) {
            driver->at_exit();
        } else {
            EXPECT_TRUE(driver->segment_abort(changed.forward.instance).ok());
        }
        EXPECT_EQ(asking.value, 2u);
        EXPECT_EQ(asking.loads, 2u);
    }
}

TEST(Providers, AnAbortWhileAReplayBeginsOrEndsLeavesThePresent) {
    for (const bool ends : {false, true}) {
        Driver driver(quiet());
        Asking asking{&driver};
        ASSERT_TRUE(driver->state("asking", save_asking, load_asking, &asking).ok());
        Changed changed(driver);
        asking.value = 2;
        if (!ends) asking.abort = changed.forward.instance;
        const reprise_segment replay = driver.replay("s", changed.forward.instance);
        if (ends) {
            ASSERT_EQ(replay.status, REPRISE_OK);
            asking.abort = changed.forward.instance;
            EXPECT_EQ(driver.end(replay), REPRISE_WRONG_STATE);
        } else {
            EXPECT_EQ(replay.status, REPRISE_RELEASED);
        }
        EXPECT_EQ(asking.value, 2u);
        EXPECT_EQ(changed.block.data()[0], 2);
        EXPECT_EQ(driver.stats().instances_outstanding, 0u);
    }
}

TEST(Declared, MemoryThatWasFreedAndGivenOutAgainIsDeclaredAnew) {
    Driver driver(quiet());
    void *first = nullptr;
    for (int i = 0; i < 50; ++i) {
        Block block(kSize);
        if (first == nullptr) first = block.data();
        EXPECT_EQ(block.data(), first) << "this test is about an address that comes back";
        ASSERT_TRUE(driver->track(block.data(), block.size(), "block", 0).ok());
        const reprise_segment forward = driver->forward_begin("s", nullptr, 0, false);
        EXPECT_EQ(driver.end(forward), REPRISE_OK);
        block.data()[0] = 2;
        const reprise_segment replay = driver.replay("s", forward.instance);
        ASSERT_EQ(replay.status, REPRISE_OK);
        EXPECT_EQ(block.data()[0], 0);
        EXPECT_EQ(driver.end(replay), REPRISE_OK);
        if (i % 3 == 0) {
            EXPECT_TRUE(driver->release(forward.instance).ok());
        }
        if (i % 7 != 0) continue;
        ASSERT_TRUE(driver->untrack(block.data()).ok());
        EXPECT_EQ(driver->untrack(block.data()).code(), REPRISE_NOT_FOUND) << "an older declaration of this address is still there";
    }
}

TEST(Declared, ARangeInsideAnotherOutlivesIt) {
    Driver driver(quiet());
    auto *memory = static_cast<uint8_t *>(mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(memory, MAP_FAILED);
    ASSERT_TRUE(driver->track(memory, 1 << 20, "outer", 0).ok());
    ASSERT_TRUE(driver->track(memory + 4096, 100, "inner", 0).ok());
    ASSERT_TRUE(driver->untrack(memory).ok());
    const reprise_segment forward = driver->forward_begin("s", nullptr, 0, false);
    driver.end(forward);
    memory[4096] = 2;
    const reprise_segment replay = driver.replay("s", forward.instance);
    ASSERT_EQ(replay.status, REPRISE_OK);
    EXPECT_EQ(memory[4096], 0);
    EXPECT_EQ(driver.end(replay), REPRISE_OK);
    EXPECT_EQ(memory[4096], 2);
    ASSERT_TRUE(driver->untrack(memory + 4096).ok());
    munmap(memory, 1 << 20);
}

TEST(Retirement, ForwardsThatThrewAreLetGoByTheStepsOfTheirThread) {
    Driver driver(quiet());
    Block block(kSize);
    for (int i = 0; i < 1000; ++i) {
        block.data()[static_cast<size_t>(i) * 300 % kSize] ^= 1;
        ASSERT_EQ(driver.forward("s", {block.range()}).status, REPRISE_OK);
        if (i % 2 == 0) {
            EXPECT_TRUE(driver->step().ok());
        }
    }
    EXPECT_LE(driver.stats().instances_outstanding, 6u);
    const reprise_segment open = driver.forward("s", {block.range()});
    std::thread([&] {
        for (int i = 0; i < 5; ++i) EXPECT_TRUE(driver->step().ok());
    }).join();
    EXPECT_EQ(driver.end(open), REPRISE_OK) << "another thread's steps say nothing about this one";
}

TEST(Reject, TheMessageNamesTheSegmentOnce) {
    Config config = quiet();
    config.busy_timeout_ms = 20;
    Driver driver(config);
    Changed changed(driver);
    const reprise_segment open = driver.replay("s", changed.forward.instance);
    ASSERT_EQ(open.status, REPRISE_OK);
    std::thread([&] {
        EXPECT_EQ(driver.replay("s", changed.forward.instance).status, REPRISE_BUSY);
        const std::string text = thread_state().error;
        EXPECT_EQ(text.find("segment 's'"), text.rfind("segment 's'")) << text;
    }).join();
    EXPECT_EQ(driver.end(open), REPRISE_OK);
}

// A write of ours must not end a job that would never have written there.
TEST(Signals, MessagesRecordsAndReportsDoNotKillTheJob) {
    const std::string full = testing::TempDir() + "/full." + std::to_string(getpid());
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGPIPE, SIG_DFL);
        signal(SIGXFSZ, SIG_DFL);
        int ends[2];
        if (pipe(ends) != 0 || dup2(ends[1], STDERR_FILENO) < 0) _exit(2);
        close(ends[0]);
        close(ends[1]);
        FILE *file = fopen(full.c_str(), "w");
        fputs("a file at its limit", file);
        fclose(file);
        const rlimit limit{1, 1};
        setrlimit(RLIMIT_FSIZE, &limit);
        Config config;
        config.log = LogLevel::kWarn;
        config.records = full;
        config.report = full + ".report";
        Driver driver(config);
        Changed changed(driver);
        if (driver.end(driver.replay("s", changed.forward.instance)) != REPRISE_OK) _exit(3);
        log_line(LogLevel::kError, "nobody reads this");
        driver->at_exit();
        sigset_t pending;
        sigpending(&pending);
        _exit(sigismember(&pending, SIGPIPE) == 0 && sigismember(&pending, SIGXFSZ) == 0 ? 0 : 4);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    unlink(full.c_str());
    unlink((full + ".report").c_str());
}

TEST(Records, APipeThatNobodyReadsIsNotWaitedFor) {
    const std::string path = testing::TempDir() + "/pipe." + std::to_string(getpid());
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    Config config = quiet();
    config.records = config.report = path;
    Driver driver(config);
    Changed changed(driver);
    EXPECT_EQ(driver.end(driver.replay("s", changed.forward.instance)), REPRISE_OK);
    driver->at_exit();
    unlink(path.c_str());
}

}  // namespace
}  // namespace reprise::test
