#include "allocator/headroom.h"

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/allocator/support.h"

namespace reprise::test {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

// A made-up / with the few files that are read.
class Headroom : public ::testing::Test {
  protected:
    void SetUp() override {
        char name[] = "/tmp/reprise-headroom-XXXXXX";
        ASSERT_NE(mkdtemp(name), nullptr);
        root_ = name;
        write("/proc/meminfo", "MemTotal: 9999999 kB\nMemFree: 1 kB\nMemAvailable:    1048576 kB\n");
    }
    void TearDown() override { std::filesystem::remove_all(root_); }
    void write(const std::string &path, const std::string &text) {
        std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
        std::ofstream(root_ + path) << text;
    }
    void group(const std::string &path, const std::string &max, const std::string &high, uint64_t current, uint64_t inactive,
               uint64_t active) {
        write("/sys/fs/cgroup" + path + "/memory.max", max + "\n");
        write("/sys/fs/cgroup" + path + "/memory.high", high + "\n");
        write("/sys/fs/cgroup" + path + "/memory.current", std::to_string(current) + "\n");
        write("/sys/fs/cgroup" + path + "/memory.stat",
              "anon 5\nactive_file " + std::to_string(active) + "\ninactive_file " + std::to_string(inactive) + "\n");
    }
    uint64_t room() { return headroom_below(root_.c_str()); }
    std::string root_;
};

TEST_F(Headroom, MachineOnly) { EXPECT_EQ(room(), 1024 * kMiB); }

TEST_F(Headroom, NothingReadableIsUnlimited) {
    std::filesystem::remove_all(root_ + "/proc");
    EXPECT_EQ(room(), ~uint64_t{0});
}

TEST_F(Headroom, V2TakesTheTightestLevel) {
    write("/proc/self/cgroup", "0::/jobs/mine\n");
    group("/jobs/mine", "max", "max", 10 * kMiB, 0, 0);
    EXPECT_EQ(room(), 1024 * kMiB);
    group("/jobs", std::to_string(500 * kMiB), "max", 100 * kMiB, 0, 0);
    EXPECT_EQ(room(), 400 * kMiB) << "an ancestor's limit";
    group("/jobs/mine", "max", std::to_string(150 * kMiB), 100 * kMiB, 0, 0);
    EXPECT_EQ(room(), 50 * kMiB) << "memory.high throttles before max kills";
    group("/jobs/mine", std::to_string(120 * kMiB), "max", 100 * kMiB, 20 * kMiB, 10 * kMiB);
    EXPECT_EQ(room(), 45 * kMiB) << "page cache can be reclaimed";
    group("/jobs/mine", std::to_string(100 * kMiB), "max", 130 * kMiB, 0, 0);
    EXPECT_EQ(room(), 0u);
}

TEST_F(Headroom, V2PathOutsideTheContainersMount) {
    write("/proc/self/cgroup", "0::/not/visible/here\n");
    group("", std::to_string(300 * kMiB), "max", 100 * kMiB, 0, 0);
    EXPECT_EQ(room(), 200 * kMiB);
}

TEST_F(Headroom, V1) {
    write("/proc/self/cgroup", "9:name=systemd:/\n5:cpu,memory:/a/b\n1:cpuset:/\n0::/\n");
    const auto v1 = [&](const std::string &path, uint64_t limit, uint64_t usage) {
        write("/sys/fs/cgroup/memory" + path + "/memory.limit_in_bytes", std::to_string(limit));
        write("/sys/fs/cgroup/memory" + path + "/memory.usage_in_bytes", std::to_string(usage));
        write("/sys/fs/cgroup/memory" + path + "/memory.stat",
              "cache 1\ninactive_file 3\ntotal_inactive_file 1048576\ntotal_active_file 0\n");
    };
    v1("/a/b", 9223372036854771712u, 50 * kMiB);
    v1("/a", 200 * kMiB, 60 * kMiB);
    v1("", 9223372036854771712u, 90 * kMiB);
    EXPECT_EQ(room(), 141 * kMiB);
}

TEST_F(Headroom, TheRealMachineAnswers) {
    const uint64_t a = port().headroom();
    EXPECT_GT(a, 0u);
    EXPECT_LT(a, uint64_t{1} << 50) << "no limit was found at all";
}

}  // namespace
}  // namespace reprise::test
