// A control group whose limit is 5 % above the job's own peak: under us, the job must not be killed for what we took, and must come out
// right or be told what could not be preserved. Each job runs in a child of its own. Group: its files are made up (a tree that the
// allocator reads in place of /sys/fs/cgroup), its usage is this process's true resident memory: whoever passes the limit would have been
// killed. RealGroup: the kernel's, where this process may make one; it kills.
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>

#include "allocator/headroom.h"
#include "tests/policy/engine_fixture.h"

namespace reprise::test {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

uint64_t resident(const char *key) {
    std::ifstream file("/proc/self/status");
    for (std::string line; std::getline(file, line);) {
        if (line.compare(0, std::strlen(key), key) == 0) return std::strtoull(line.c_str() + std::strlen(key), nullptr, 10) * 1024;
    }
    return 0;
}

std::string root;  // of the made-up files

void write_file(const std::string &path, const std::string &text) {
    std::filesystem::create_directories(std::filesystem::path(root + path).parent_path());
    std::ofstream(root + path) << text;
}

struct Layout {
    const char *group, *folder, *limit, *usage;
};
constexpr Layout kV1{"4:memory:/job\n", "/sys/fs/cgroup/memory/job", "/memory.limit_in_bytes", "/memory.usage_in_bytes"};
constexpr Layout kV2{"0::/job\n", "/sys/fs/cgroup/job", "/memory.max", "/memory.current"};
const Layout *layout = nullptr;

uint64_t group_of_test() {
    write_file(std::string(layout->folder) + layout->usage, std::to_string(resident("VmRSS:")) + "\n");
    return headroom_parts_below(root.c_str()).group;
}

struct Outcome {
    uint64_t peak = 0;
    uint64_t right = 0, wrong = 0, refused = 0, refused_without_reason = 0;
};

// Steps of three forwards over three states that change in between; the peak, of activations, comes in the middle of each step.
Outcome job(const AllocatorPort &port, Policy policy) {
    Outcome outcome;
    Driver driver(port, quiet(policy));
    std::vector<Block> states;
    for (int i = 0; i < 3; ++i) states.emplace_back(8 * kMiB);
    for (size_t step = 0; step < 5; ++step) {
        uint64_t instances[3];
        for (size_t i = 0; i < 3; ++i) {
            std::memset(states[i].data(), static_cast<int>(step + 1), 6 * kMiB);
            const reprise_segment f = driver.forward("s", {states[0].range(), states[1].range(), states[2].range()});
            driver.end(f);
            instances[i] = f.instance;
            const std::unique_ptr<Block> activations = std::make_unique<Block>(step == 0 ? 8 * kMiB : 40 * kMiB);
            std::memset(activations->data(), 1, activations->size());
            states[i].data()[5 * kMiB] = 77;  // changed since: its forward saw step + 1
        }
        for (size_t i = 3; i-- > 0;) {
            const reprise_segment b = driver.replay("s", instances[i]);
            if (b.status == REPRISE_OK) {
                const bool seen = states[i].data()[5 * kMiB] == step + 1;
                const bool ended = driver.end(b) == REPRISE_OK && states[i].data()[5 * kMiB] == 77;
                ++(seen && ended ? outcome.right : outcome.wrong);
            } else {
                ++outcome.refused;
                const std::string why = thread_state().error;
                if (b.status != REPRISE_REJECTED || why.find("memory") == std::string::npos) ++outcome.refused_without_reason;
                if (states[i].data()[5 * kMiB] != 77) ++outcome.wrong;
            }
        }
        (void)driver->step();
    }
    outcome.peak = resident("VmHWM:");
    return outcome;
}

// In a child, so that every job begins with the same memory and its peak is its own. `enter`: what the child does first.
Outcome run(Policy policy, const std::function<bool(AllocatorPort &)> &enter) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        AllocatorPort port = *allocator_port();
        if (!enter(port)) _exit(1);
        const Outcome outcome = job(port, policy);
        _exit(write(ends[1], &outcome, sizeof outcome) == sizeof outcome ? 0 : 1);
    }
    close(ends[1]);
    Outcome outcome;
    EXPECT_EQ(read(ends[0], &outcome, sizeof outcome), static_cast<ssize_t>(sizeof outcome)) << "it did not come to its end";
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    return outcome;
}

// limit 0: no group.
Outcome run(Policy policy, uint64_t limit) {
    return run(policy, [&](AllocatorPort &port) {
        if (limit == 0) return true;
        write_file("/proc/self/cgroup", layout->group);
        write_file(std::string(layout->folder) + layout->limit, std::to_string(limit) + "\n");
        port.group_headroom = group_of_test;
        port.headroom = group_of_test;
        return true;
    });
}

class Group : public testing::TestWithParam<const Layout *> {
  protected:
    void SetUp() override {
        std::string name = testing::TempDir() + "/reprise-group-XXXXXX";
        ASSERT_NE(mkdtemp(name.data()), nullptr);
        root = name;
        layout = GetParam();
        alone_ = run(Policy::kOff, 0).peak;
        ASSERT_GT(alone_, 50 * kMiB);
    }
    void TearDown() override { std::filesystem::remove_all(root); }
    uint64_t alone_ = 0;
};

TEST_P(Group, FivePercentAboveThePeakKillsNothing) {
    const uint64_t limit = alone_ + alone_ / 20;
    for (const Policy policy : {Policy::kSelective, Policy::kWhole}) {
        SCOPED_TRACE(to_string(policy));
        const Outcome outcome = run(policy, limit);
        EXPECT_LE(outcome.peak, limit) << "killed; without us its peak was " << alone_;
        EXPECT_EQ(outcome.wrong, 0u);
        EXPECT_EQ(outcome.refused_without_reason, 0u);
        EXPECT_EQ(outcome.right + outcome.refused, 15u);
        EXPECT_GT(outcome.refused, 0u) << "24 MiB cannot have been preserved in " << limit - alone_ << " bytes: is the limit seen at all?";
    }
}

TEST_P(Group, WithRoomEverythingIsRight) {
    const uint64_t limit = 4 * alone_;
    for (const Policy policy : {Policy::kSelective, Policy::kWhole}) {
        SCOPED_TRACE(to_string(policy));
        const Outcome outcome = run(policy, limit);
        EXPECT_LE(outcome.peak, limit);
        EXPECT_GT(outcome.peak, alone_ + alone_ / 20) << "preserving takes memory: the other test would find nothing";
        EXPECT_EQ(outcome.wrong + outcome.refused_without_reason, 0u);
        EXPECT_GE(outcome.right, 9u) << "all but the first windows'";
    }
}

// A folder below the kernel's own, for one job. No folder() where none can be made.
class KernelsGroup {
  public:
    explicit KernelsGroup(uint64_t limit) {
        for (const Layout *version : {&kV1, &kV2}) {
            const std::string parent = std::filesystem::path(version->folder).parent_path();
            const std::string made = parent + "/reprise-test-" + std::to_string(getpid());
            if (mkdir(made.c_str(), 0755) != 0) continue;
            folder_ = made;
            usage_ = version == &kV1 ? "/memory.max_usage_in_bytes" : "/memory.peak";
            if (access((made + version->limit).c_str(), W_OK) == 0 && access((made + usage_).c_str(), R_OK) == 0 && may_enter()) {
                const bool limited = limit == 0 || std::ofstream(made + version->limit) << limit << std::flush;
                EXPECT_TRUE(limited) << made;
                return;
            }
            leave();
        }
    }
    ~KernelsGroup() { leave(); }
    KernelsGroup(const KernelsGroup &) = delete;
    KernelsGroup &operator=(const KernelsGroup &) = delete;

    const std::string &folder() const { return folder_; }
    bool enter() const { return bool(std::ofstream(folder_ + "/cgroup.procs") << 0 << std::flush); }
    uint64_t peak() const {
        uint64_t bytes = 0;
        std::ifstream(folder_ + usage_) >> bytes;
        return bytes;
    }

  private:
    bool may_enter() const {
        const pid_t child = fork();
        if (child == 0) _exit(enter() ? 0 : 1);
        int status = 1;
        return child > 0 && waitpid(child, &status, 0) == child && status == 0;
    }
    void leave() {
        if (!folder_.empty()) (void)rmdir(folder_.c_str());
        folder_.clear();
    }
    std::string folder_, usage_;
};

// -> false: no group can be made.
bool run_in_group(Policy policy, uint64_t limit, Outcome *outcome, uint64_t *peak) {
    const KernelsGroup group(limit);
    if (group.folder().empty()) return false;
    *outcome = run(policy, [&](AllocatorPort &) { return group.enter(); });
    *peak = group.peak();
    EXPECT_GT(*peak, 50 * kMiB) << "was the job in the group?";
    return true;
}

TEST(RealGroup, FivePercentAboveThePeakKillsNothing) {
    Outcome outcome;
    uint64_t alone = 0, peak = 0;
    if (!run_in_group(Policy::kOff, 0, &outcome, &alone)) GTEST_SKIP() << "no control group can be made here";
    for (const auto &[policy, limit] : {std::pair{Policy::kSelective, alone + alone / 20}, std::pair{Policy::kWhole, alone + alone / 20},
                                        std::pair{Policy::kSelective, 4 * alone}}) {
        SCOPED_TRACE(testing::Message() << to_string(policy) << " " << limit << ", alone " << alone);
        ASSERT_TRUE(run_in_group(policy, limit, &outcome, &peak));
        EXPECT_EQ(outcome.wrong + outcome.refused_without_reason, 0u);
        EXPECT_EQ(outcome.right + outcome.refused, 15u);
        if (limit == 4 * alone) {
            EXPECT_GE(outcome.right, 9u) << "all but the first windows'";
        } else {
            EXPECT_GT(outcome.refused, 0u) << "is the limit seen at all?";
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Versions, Group, testing::Values(&kV1, &kV2), [](const auto &which) { return which.param == &kV1 ? "v1" : "v2"; });

}  // namespace
}  // namespace reprise::test
