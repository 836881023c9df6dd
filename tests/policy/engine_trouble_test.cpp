// The engine in trouble and over time: retirement, audit, verification, records, little memory, forks, configuration.
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/policy/engine_fixture.h"

namespace reprise::test {
namespace {

const char *error() { return thread_state().error; }

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

// A job whose every replay on changed state is one record.
class RecordedJob {
  public:
    explicit RecordedJob(const std::string &path) : driver_(recording(path)), block_(1000) {}
    void once() {
        reprise_segment f = driver_.forward("s", {block_.range()});
        driver_.end(f);
        block_.data()[0] += 1;
        EXPECT_EQ(driver_.end(driver_.replay("s", f.instance)), REPRISE_OK);
    }

  private:
    static Config recording(const std::string &path) {
        Config config = quiet();
        config.records = path;
        return config;
    }
    Driver driver_;
    Block block_;
};

// Two processes share a file, and one is killed in the middle of a line.
TEST(Records, ALineAfterSomebodyElsesTornOneBeginsALineOfItsOwn) {
    const std::string path = testing::TempDir() + "/records-shared." + std::to_string(getpid());
    RecordedJob job(path);
    job.once();
    std::ofstream(path, std::ios::app) << "{\"whole\": 1}\n{\"schema\": \"reprise.rec";
    job.once();
    job.once();
    size_t torn = 0, records = 0;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
        torn += json.is_discarded();
        records += !json.is_discarded() && json.value("schema", "") == "reprise.record/1";
    }
    EXPECT_EQ(torn, 1u);
    EXPECT_EQ(records, 3u);
    unlink(path.c_str());
}

TEST(Records, SurviveAClosedDescriptorAndAFullDisk) {
    const std::string path = testing::TempDir() + "/records-closed." + std::to_string(getpid());
    RecordedJob job(path);
    job.once();
    for (int fd = 3; fd < 1024; ++fd) close(fd);
    job.once();
    EXPECT_EQ(lines_of(path).size(), 3u);
    unlink(path.c_str());

    Config config = quiet();
    Block block(1000);
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

// Another thread frees a buffer of the scope while its replay begins, and its memory is what the replay saves the present in.
TEST(Memory, ABufferFreedWhileItsReplayBeginsIsNotLoaded) {
    static AllocatorPort port = *allocator_port();
    static Block *victim = nullptr;
    port.borrow = [](size_t size) -> void * {
        if (victim != nullptr) std::exchange(victim, nullptr)->reset();
        return allocator_port()->borrow(size);
    };
    Driver driver(port, quiet(Policy::kWhole));
    Block freed(1 << 20), other(512 << 10);
    const reprise_segment f = driver.forward("s", {freed.range(), other.range()});
    driver.end(f);
    std::memset(freed.data(), 1, freed.size());
    std::memset(other.data(), 2, other.size());
    const std::vector<uint8_t> present = other.bytes();
    victim = &freed;
    const reprise_segment b = driver.replay("s", f.instance);
    EXPECT_EQ(victim, nullptr) << "nothing was borrowed";
    EXPECT_EQ(b.status, REPRISE_REJECTED);
    EXPECT_NE(std::string(error()).find("was freed"), std::string::npos) << error();
    driver.end(b);
    EXPECT_EQ(other.bytes(), present);
    EXPECT_TRUE(driver->release(f.instance).ok());
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
    EXPECT_FALSE(config.budget.given());
    ASSERT_EQ(config.complaints.size(), 2u);
    EXPECT_NE(config.complaints[0].find("REPRISE_POLICY=sometimes"), std::string::npos);
    EXPECT_NE(config.complaints[0].find("selective, whole, joint, eager-whole, greedy, fixed, retain, audit, off"), std::string::npos);
}

TEST(Config, Budgets) {
    Budget budget;
    const uint64_t gib = 1 << 30;
    EXPECT_TRUE(parse_budget("44GiB", &budget));
    EXPECT_EQ(budget.bytes, 44 * gib);
    EXPECT_TRUE(parse_budget("1.5g", &budget));
    EXPECT_EQ(budget.bytes, gib * 3 / 2);
    EXPECT_TRUE(parse_budget("80%", &budget));
    EXPECT_EQ(budget.bytes, 0u);
    EXPECT_DOUBLE_EQ(budget.share, 0.8);
    EXPECT_TRUE(parse_budget("4096", &budget));
    EXPECT_EQ(budget.bytes, 4096u);
    EXPECT_TRUE(parse_budget("auto", &budget));
    EXPECT_TRUE(budget.automatic);
    EXPECT_EQ(budget.bytes, 0u);
    for (const char *bad : {"", "x", "0", "-5", "120%", "5 parsecs", "nan", "inf", "1e40"}) EXPECT_FALSE(parse_budget(bad, &budget)) << bad;
}

}  // namespace
}  // namespace reprise::test
