// The plan of one run as the first guess of the next, and when it is not taken.
#include <fcntl.h>
#include <sys/stat.h>

#include "policy/machine_cache.h"
#include "tests/policy/planning_job.h"

namespace reprise::test {
namespace {

// A cache of its own; every job here plans within the same budget, unless a test says otherwise.
class PlanCacheTest : public testing::Test {
  protected:
    PlanCacheTest() {
        for (const char *name : kNames) before_.push_back(getenv(name) != nullptr ? getenv(name) : "");
        setenv("XDG_CACHE_HOME", (folder_ / "cache").c_str(), 1);
        shape_.keep = 4 << 20;
    }
    ~PlanCacheTest() override {
        for (size_t i = 0; i < before_.size(); ++i) {
            if (before_[i].empty()) {
                unsetenv(kNames[i]);
            } else {
                setenv(kNames[i], before_[i].c_str(), 1);
            }
        }
    }

    struct Outcome {
        int first_retained = -1;  // the cycle
        uint64_t retained = 0;    // in the last one
        uint64_t peak = 0;        // from the first plan on
    };
    // Until its plan is in force, and some cycles more.
    Outcome run(uint64_t budget = kBudget, bool cached = true, Policy policy = Policy::kJoint) {
        Config config = planning(policy, budget);
        config.plan_cache = cached;
        SimulatedJob job(config, shape_);
        Outcome out;
        auto cycle = [&] { alternates_ &&job.cycles % 2 != 0 ? job.cycle(5) : job.cycle(); };
        EXPECT_TRUE(run_until(
            job, [&] { return job.retained != 0; }, cycle));
        out.first_retained = job.cycles;
        WatchedPort::forget_peak();
        for (int i = 0; i < 6; ++i) {
            job.retained = 0;
            cycle();
        }
        (void)WatchedPort::get().ledger_take_peak();
        out.retained = job.retained;
        out.peak = WatchedPort::peak;
        EXPECT_EQ(job.wrong_bytes + job.wrong_after, 0u);
        EXPECT_LE(out.peak, budget);
        return out;
    }
    std::vector<std::string> plans() const {
        std::vector<std::string> paths;
        std::error_code none;
        for (std::filesystem::directory_iterator at(folder_ / "cache/reprise", none), end; !none && at != end; at.increment(none)) {
            if (at->path().filename().string().rfind("plan-", 0) == 0) paths.push_back(at->path());
        }
        return paths;
    }

    static constexpr uint64_t kBudget = uint64_t{32} << 20;
    // Three cycles make a profile; with two to warm up, and the planner's own, nothing is retained before the sixth.
    static constexpr int kMeasured = 6;

    static constexpr const char *kNames[] = {"XDG_CACHE_HOME", "HOME"};
    const Folder folder_;
    std::vector<std::string> before_;
    JobShape shape_;
    bool alternates_ = false;  // every other cycle has fewer segments
};

// lingers: what is measured in replays, and corrected by what retained forwards leave, has to be known again in what the next run measures.
class PlanCacheOfLingering : public PlanCacheTest, public testing::WithParamInterface<size_t> {};
INSTANTIATE_TEST_SUITE_P(Bytes, PlanCacheOfLingering, testing::Values(0, 3 << 20));

TEST_P(PlanCacheOfLingering, TheNextRunBeginsWithIt) {
    shape_.lingers = GetParam();
    const Outcome first = run();
    EXPECT_GE(first.first_retained, kMeasured);
    ASSERT_EQ(plans().size(), 1u);
    // The planner's thread has to read it meanwhile: mostly within one cycle, but on a busy machine later.
    Outcome second;
    for (int attempt = 0; attempt < 20; ++attempt) {
        second = run();
        EXPECT_EQ(second.retained, first.retained);
        if (second.first_retained < kMeasured) break;
    }
    EXPECT_LT(second.first_retained, kMeasured);
    EXPECT_GT(second.first_retained, 3) << "one cycle is measured after two to warm up";
    EXPECT_EQ(plans().size(), 1u);
}

// Two of them are one cycle, which is known after four; three of those are measured without a guess.
TEST_F(PlanCacheTest, TheNextRunOfStepsThatAlternateBeginsWithIt) {
    constexpr int kPeriodKnown = 4;
    alternates_ = true;
    EXPECT_GT(run().first_retained, kPeriodKnown + 2 * 3);
    ASSERT_EQ(plans().size(), 1u);
    Outcome second;
    for (int attempt = 0; attempt < 20 && (attempt == 0 || second.first_retained > kPeriodKnown + 2 * 3); ++attempt) second = run();
    EXPECT_LE(second.first_retained, kPeriodKnown + 2 * 3);
}

TEST_F(PlanCacheTest, IsNeitherReadNorWrittenWhereThatIsNotWanted) {
    run(kBudget, false);
    EXPECT_TRUE(plans().empty());
    run();
    ASSERT_EQ(plans().size(), 1u);
    EXPECT_GE(run(kBudget, false).first_retained, kMeasured);
}

TEST_F(PlanCacheTest, OfAnotherBudgetOrPolicyIsNotTaken) {
    run();
    EXPECT_GE(run(kBudget + (8 << 20)).first_retained, kMeasured);
    EXPECT_GE(run(kBudget, true, Policy::kGreedy).first_retained, kMeasured);
    EXPECT_EQ(plans().size(), 3u);
}

// The same segments and buffers, but a larger batch: what is kept would not fit.
TEST_F(PlanCacheTest, OfAJobThatUsedOtherMemoryIsNotTaken) {
    run();
    shape_.keep = 6 << 20;
    EXPECT_GE(run().first_retained, kMeasured);
    EXPECT_EQ(plans().size(), 1u) << "replaced by the one that fits";
}

TEST_F(PlanCacheTest, OfAnotherJobIsNotTaken) {
    run();
    shape_.segments = 9;
    EXPECT_GE(run().first_retained, kMeasured);
    EXPECT_EQ(plans().size(), 2u);
}

TEST_F(PlanCacheTest, CutOffOrOldIsNotTakenAndReplaced) {
    run();
    ASSERT_EQ(plans().size(), 1u);
    const std::string path = plans().front();
    for (int cut = 0; cut < 3; ++cut) {
        const auto size = std::filesystem::file_size(path);
        std::filesystem::resize_file(path, cut == 0 ? 0 : cut == 1 ? size / 2 : size - 2);
        EXPECT_GE(run().first_retained, kMeasured) << "cut " << cut;
        EXPECT_EQ(plan_in(path).verdict, planner::Verdict::planned) << "written anew";
    }
    const timespec old[2] = {{time(nullptr) - 8 * 24 * 60 * 60, 0}, {time(nullptr) - 8 * 24 * 60 * 60, 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), old, 0), 0);
    EXPECT_GE(run().first_retained, kMeasured);
    struct stat status {};
    ASSERT_EQ(stat(path.c_str(), &status), 0);
    EXPECT_GT(status.st_mtime, time(nullptr) - 3600);
}

TEST_F(PlanCacheTest, WithoutAPlaceForItTheJobGoesOn) {
    setenv("XDG_CACHE_HOME", "/proc/nothing", 1);
    EXPECT_GE(run().first_retained, kMeasured);
    setenv("XDG_CACHE_HOME", "relative", 1);
    setenv("HOME", "", 1);
    EXPECT_GE(run().first_retained, kMeasured);
}

TEST(MachineCache, OnlyTheYoungestAreKept) {
    const Folder folder;
    for (int i = 0; i < 10; ++i) {
        const std::string path = folder / ("kind-" + std::to_string(i));
        write_machine_file(path, "text");
        const timespec time[2] = {{1000 + (i * 7) % 10, 0}, {1000 + (i * 7) % 10, 0}};
        ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), time, 0), 0);
    }
    write_machine_file(folder / "other", "text");
    prune_machine_files(folder / "kind-", 3);
    for (int i = 0; i < 10; ++i) EXPECT_EQ(exists(folder / ("kind-" + std::to_string(i))), (i * 7) % 10 >= 7) << i;
    EXPECT_TRUE(exists(folder / "other"));
    prune_machine_files("/no/such/folder/kind-", 3);
}

}  // namespace
}  // namespace reprise::test
