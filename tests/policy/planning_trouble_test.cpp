// Jobs that do not keep to their plan, programs that do not keep to the calls, and what else can come between.
#include <malloc.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <thread>

#include "planner/profile_json.h"
#include "tests/effort.h"
#include "tests/policy/planning_job.h"

namespace reprise::test {
namespace {

constexpr uint64_t kPlenty = uint64_t{1} << 30;

// ---- a job that changes -----------------------------------------------------------------------------------------------------------------

class Changes : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Planning, Changes, testing::Bool(), [](const auto &steps) { return steps.param ? "steps" : "stepless"; });

TEST_P(Changes, OtherSegmentsAreMeasuredAndPlannedFor) {
    const Folder folder;
    JobShape shape;
    shape.steps = GetParam();
    SimulatedJob job(planning(Policy::kJoint, kPlenty, folder / "plan"), shape);
    ASSERT_TRUE(run_until(job, [&] { return exists(folder / "plan"); }));
    job.cycle();
    for (const std::vector<int> &order : {std::vector<int>{7, 6, 5, 4, 3, 2, 1, 0}, {0, 1, 2}, {8, 9, 10, 11, 0, 1, 2, 3, 4}}) {
        unlink((folder / "plan").c_str());
        ASSERT_TRUE(run_until(
            job, [&] { return exists(folder / "plan"); }, [&] { job.cycle_of(order); }))
            << order.size() << " segments";
        job.retained = job.replayed = 0;
        for (int i = 0; i < 3; ++i) job.cycle_of(order);
        EXPECT_EQ(job.retained, 3 * order.size()) << "in the new order, too, everything fits";
    }
    EXPECT_EQ(job.wrong_bytes + job.wrong_after, 0u);
    EXPECT_EQ(job.driver().stats().rejections, 0u);
}

TEST_P(Changes, StepsThatAlternateKeepWorking) {
    const Folder folder;
    JobShape shape;
    shape.steps = GetParam();
    SimulatedJob job(planning(Policy::kJoint, kPlenty, folder / "plan"), shape);
    int step = 0;
    const bool planned = run_until(
        job, [&] { return exists(folder / "plan"); },
        [&] {
            job.cycle_of({0, 1, 2, 3});
            job.cycle_of({4, 5, 6});
            ++step;
        });
    EXPECT_TRUE(planned) << "every second step is like this one: together they are a cycle";
    for (int i = 0; i < 6; ++i) {
        job.cycle_of({0, 1, 2, 3});
        job.cycle_of({4, 5, 6});
    }
    EXPECT_GT(job.retained, 0u);
    EXPECT_EQ(job.wrong_bytes + job.wrong_after, 0u);
    EXPECT_EQ(job.driver().stats().rejections, 0u);
}

TEST_P(Changes, SegmentsOfSomeStepsAloneKeepWorking) {
    const Folder folder;
    JobShape shape;
    shape.steps = GetParam();
    SimulatedJob job(planning(Policy::kJoint, kPlenty, folder / "plan"), shape);
    ASSERT_TRUE(run_until(job, [&] { return exists(folder / "plan"); }));
    uint64_t random = 99;
    for (int i = 0; i < 40; ++i) {
        std::vector<int> order{0, 1, 2, 3, 4, 5, 6, 7};
        if (next_random(random) % 3 == 0) order.push_back(8);
        if (next_random(random) % 4 == 0) order.erase(order.begin() + static_cast<long>(next_random(random) % order.size()));
        job.cycle_of(order);
    }
    EXPECT_GT(job.retained, 0u);
    EXPECT_EQ(job.wrong_bytes + job.wrong_after, 0u);
    EXPECT_EQ(job.driver().stats().rejections, 0u);
}

TEST(PlanningChanges, ABufferThatBeginsToChangeIsNoticed) {
    const Folder folder;
    JobShape shape;
    const Limits limits = limits_of(shape);
    SimulatedJob job(planning(Policy::kJoint, limits.budget(0.4), folder / "plan", folder / "records"), shape);
    job.writes = [](SimulatedJob &, int) {};
    ASSERT_TRUE(run_until_settled(job, folder / "plan"));
    auto windows = [&] {
        size_t changing = 0;
        for (const planner::PlannedWindow &window : plan_in(folder / "plan").windows) changing += window.bytes > (200 << 10);
        return changing;
    };
    const size_t before = windows();
    job.writes = SimulatedJob::write_all;
    EXPECT_TRUE(run_until(job, [&] { return windows() > before; })) << "the plan knows nothing of what changes now";
    for (int i = 0; i < 4; ++i) job.cycle();
    EXPECT_EQ(job.wrong_bytes + job.wrong_after, 0u);
    EXPECT_EQ(job.driver().stats().rejections, 0u);
}

// ---- what is never retained
// ---------------------------------------------------------------------------------------------------------------

TEST(PlanningFreedom, NestedAndReplayOnlySegmentsStayReplayed) {
    const Folder folder;
    Driver driver(WatchedPort::get(), planning(Policy::kJoint, kPlenty, folder / "plan"));
    Block buffer(300 << 10);
    uint64_t wrong = 0, retained_free = 0;
    auto cycle = [&](int step) {
        auto begin = [&](const char *name, uint32_t options) {
            EXPECT_TRUE(driver->scope(std::vector{buffer.range()}.data(), 1).ok());
            return driver->forward_begin(name, nullptr, 0, false, options);
        };
        std::vector<std::pair<const char *, reprise_segment>> open;
        auto run = [&](const char *name, uint32_t options, const std::function<void()> &inside = {}) {
            const reprise_segment f = begin(name, options);
            ASSERT_EQ(f.status, REPRISE_OK) << thread_state().error;
            if (inside) inside();
            ASSERT_EQ(driver.end(f), REPRISE_OK);
            open.emplace_back(name, f);
        };
        run("free", 0);
        run("reentrant", REPRISE_FORWARD_REPLAY_ONLY);
        run("outer", 0, [&] { run("inner", 0); });
        run("itself", 0, [&] { run("itself", 0); });
        buffer.data()[step % 100] = static_cast<uint8_t>(step);
        for (size_t i = open.size(); i-- > 0;) {
            auto &[name, f] = open[i];
            if (f.action == REPRISE_RETAIN) {
                (std::string(name) == "free" ? retained_free : wrong) += step > 12;  // at first nobody knows what contains what
                continue;
            }
            const reprise_segment b = driver.replay(name, f.instance);
            ASSERT_EQ(b.status, REPRISE_OK) << name << ": " << thread_state().error;
            ASSERT_EQ(driver.end(b), REPRISE_OK);
            ASSERT_TRUE(driver->release(f.instance).ok());
        }
        ASSERT_TRUE(driver->step().ok());
    };
    const Patience patience;
    int step = 1;
    for (; !exists(folder / "plan") && !patience.over(); ++step) {
        cycle(step);
        usleep(500);
    }
    ASSERT_TRUE(exists(folder / "plan"));
    for (int i = 0; i < 20; ++i) cycle(step++);
    EXPECT_EQ(wrong, 0u);
    EXPECT_GT(retained_free, 0u);
    for (const planner::PlannedInstance &instance : plan_in(folder / "plan").instances) {
        EXPECT_EQ(instance.replay, instance.segment != "free") << instance.segment << ": " << instance.why;
    }
}

TEST(PlanningFreedom, OnlyIfRetainedIsAnsweredTheSameInASegmentOfTheSameName) {
    const Folder folder;
    Driver driver(WatchedPort::get(), quiet(Policy::kRetain));
    const reprise_segment outer = driver->forward_begin("s", nullptr, 0, true, REPRISE_FORWARD_RETAINED_ONLY);
    ASSERT_EQ(outer.status, REPRISE_OK);
    ASSERT_EQ(outer.action, REPRISE_RETAIN);
    const reprise_segment inner = driver->forward_begin("s", nullptr, 0, true, REPRISE_FORWARD_RETAINED_ONLY);
    EXPECT_TRUE(inner.status == REPRISE_NOT_FOUND || inner.action == REPRISE_RETAIN) << "a forward without a scope, to be replayed";
    EXPECT_TRUE(inner.status != REPRISE_OK || driver.end(inner) == REPRISE_OK);
    EXPECT_EQ(driver.end(outer), REPRISE_OK);
}

TEST(PlanningFreedom, AProgramThatReplaysWhatItWasToldToRetainIsToldSo) {
    const Folder folder;
    SimulatedJob job(planning(Policy::kJoint, kPlenty, folder / "plan"), {});
    ASSERT_TRUE(run_until(job, [&] { return job.retained != 0; }));
    const reprise_segment f = job.driver().forward(SimulatedJob::name_of(0).c_str(), job.scope_of(0));
    ASSERT_EQ(f.action, REPRISE_RETAIN);
    ASSERT_EQ(job.driver().end(f), REPRISE_OK);
    const reprise_segment b = job.driver().replay(SimulatedJob::name_of(0).c_str(), f.instance);
    EXPECT_EQ(b.status, REPRISE_WRONG_STATE);
    EXPECT_NE(std::string(thread_state().error).find("REPRISE_RETAIN"), std::string::npos) << thread_state().error;
    job.retained = 0;
    for (int i = 0; i < 4; ++i) job.cycle();
    EXPECT_EQ(job.retained, 0u) << "never again";
    EXPECT_EQ(job.wrong_bytes + job.wrong_after, 0u);
}

// ---- plans from files
// -----------------------------------------------------------------------------------------------------------------------

class Pinned : public testing::Test {
  protected:
    void SetUp() override {
        limits_ = limits_of(shape_);
        SimulatedJob job(planning(Policy::kJoint, limits_.budget(0.5), folder_ / "plan"), shape_);
        ASSERT_TRUE(run_until_settled(job, folder_ / "plan"));
        plan_ = plan_in(folder_ / "plan");
    }
    // Runs with this text as REPRISE_PLAN; what it retains is returned.
    std::set<std::string> retained_with(const std::string &text, const JobShape &shape) {
        std::string why;
        EXPECT_TRUE(write_text_file(folder_ / "given", text, &why)) << why;
        Config config = planning(Policy::kJoint, limits_.budget(0.5), folder_ / "made");
        config.plan = folder_ / "given";
        SimulatedJob job(config, shape);
        for (int i = 0; i < 12; ++i) job.cycle();
        EXPECT_EQ(job.wrong_bytes + job.wrong_after, 0u);
        EXPECT_EQ(job.driver().stats().rejections, 0u);
        return job.retained_names;
    }
    const Folder folder_;
    JobShape shape_;
    Limits limits_;
    planner::JobPlan plan_;
};

// Names of buffers are addresses here, so that no plan of another process fits. In one process they come again.
TEST_F(Pinned, WrittenAndReadIsTheSame) {
    std::string text, why;
    ASSERT_TRUE(read_text_file(folder_ / "plan", &text, &why)) << why;
    nlohmann::json file = nlohmann::json::parse(text);
    for (const char *about : {"run", "step"}) file.erase(about);  // which run adopted it when
    EXPECT_EQ(nlohmann::json::parse(planner::write_plan(plan_)), file);
}

TEST_F(Pinned, CutOffAtAnyPlaceIsRefused) {
    std::string text = planner::write_plan(plan_);
    for (size_t size : {size_t{0}, size_t{1}, text.size() / 3, text.size() / 2, text.size() - 1})
        EXPECT_FALSE(planner::read_plan(text.substr(0, size)).ok()) << size;
    (void)retained_with(text.substr(0, text.size() / 2), shape_);
    EXPECT_TRUE(exists(folder_ / "made")) << "this run makes its own";
}

TEST_F(Pinned, OfAnotherJobIsRefused) {
    JobShape other = shape_;
    other.segments = 5;
    (void)retained_with(planner::write_plan(plan_), other);
    EXPECT_TRUE(exists(folder_ / "made"));
}

TEST_F(Pinned, WithTooFewEventsIsRefused) {
    planner::JobPlan cut = plan_;
    cut.memory_bytes.resize(3);
    cut.peak_slot = 0;
    (void)retained_with(planner::write_plan(cut), shape_);
    EXPECT_TRUE(exists(folder_ / "made"));
}

// ---- processes and threads
// ---------------------------------------------------------------------------------------------------------------------

std::ptrdiff_t threads_here() { return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}); }

// A fork does not mind the locks of AddressSanitizer's allocator: a child of a moment in which the thread frees memory can free none. There
// the thread comes to its end first.
TEST(PlanningProcess, ForkWhileThePlannersThreadWorks) {
    const std::ptrdiff_t threads = threads_here();
    for (int delay = 0; delay < 8; ++delay) {
        const Folder folder;
        JobShape shape;
        shape.work_us = 20;
        SimulatedJob job(planning(Policy::kJoint, kPlenty, folder / "plan"), shape);
        for (int i = 0; i < 5 + delay; ++i) job.cycle();  // the fifth hands over to the thread
        while (kUnderAddresses && threads_here() > threads) usleep(1000);
        job.driver()->fork_prepare();
        allocator_fork_prepare();
        const pid_t child = fork();
        child == 0 ? allocator_fork_child() : allocator_fork_parent();
        child == 0 ? job.driver()->fork_child() : job.driver()->fork_parent();
        ASSERT_GE(child, 0);
        if (child == 0) {
            alarm(60);
            const bool planned = exists(folder / "plan");  // if the parent has one, the child goes on with it; it makes none of its own
            job.retained = 0;
            for (int i = 0; i < 12; ++i) job.cycle();
            _exit(testing::Test::HasFailure() ? 3 : planned && job.retained == 0 ? 4 : job.wrong_bytes + job.wrong_after != 0 ? 5 : 0);
        }
        EXPECT_TRUE(run_until(job, [&] { return job.retained != 0; }));
        int status = 0;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status << " after " << delay;
        EXPECT_EQ(job.wrong_bytes + job.wrong_after, 0u);
    }
}

TEST(PlanningProcess, WithoutAThreadEverythingIsReplayed) {
    const pid_t child = fork();  // limits cannot be raised again
    ASSERT_GE(child, 0);
    if (child == 0) {
        if (getuid() == 0 && setuid(65534) != 0) _exit(77);  // the limit does not hold root
        const rlimit none{0, 0};
        if (setrlimit(RLIMIT_NPROC, &none) != 0) _exit(77);
        SimulatedJob job(planning(Policy::kJoint, kPlenty), {});
        for (int i = 0; i < 20; ++i) job.cycle();
        _exit(testing::Test::HasFailure() ? 3 : job.retained != 0 ? 4 : job.wrong_bytes != 0 ? 5 : 0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status)) << status;
    EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(PlanningProcess, ThreadsRunSegmentsWhileAPlanIsInForce) {
    const Folder folder;
    SimulatedJob job(planning(Policy::kJoint, kPlenty, folder / "plan"), {});
    ASSERT_TRUE(run_until(job, [&] { return job.retained != 0; }));
    std::atomic<bool> stop{false};
    std::atomic<uint64_t> wrong{0}, done{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
        threads.emplace_back([&, t] {
            Block mine(200 << 10);
            const std::string name = "thread " + std::to_string(t);
            for (int i = 1; !stop; ++i) {
                mine.data()[5] = static_cast<uint8_t>(i);
                // As an adapter does: the steps of the other thread do not let it go.
                reprise_scope_item item{};
                item.address = mine.data();
                item.size = mine.size();
                item.name = "mine";
                const reprise_segment f = job.driver()->forward_begin(name.c_str(), &item, 1, true);
                wrong += f.status != REPRISE_OK;
                wrong += job.driver()->segment_end(f, nullptr).code() != REPRISE_OK;
                if (f.action == REPRISE_RETAIN) continue;
                mine.data()[5] = 0;
                const reprise_segment b = job.driver()->replay_begin(name.c_str(), f.instance, 0);
                if (b.status != REPRISE_OK) {
                    ADD_FAILURE() << b.status << ": " << thread_state().error;
                    break;
                }
                wrong += mine.data()[5] != static_cast<uint8_t>(i);
                wrong += job.driver()->segment_end(b, nullptr).code() != REPRISE_OK;
                wrong += !job.driver()->release(f.instance).ok();
                ++done;
            }
        });
    }
    const Patience patience;
    for (int i = 0; i < 30 || (done == 0 && !patience.over()); ++i) job.cycle();
    stop = true;
    for (std::thread &thread : threads) thread.join();
    EXPECT_EQ(wrong, 0u);
    EXPECT_GT(done, 0u);
    EXPECT_EQ(job.wrong_bytes + job.wrong_after, 0u);
    // Alone again, it is planned for again.
    job.retained = 0;
    EXPECT_TRUE(run_until(job, [&] { return job.retained != 0; }));
}

// ---- a clock that jumps
// ------------------------------------------------------------------------------------------------------------------------

// Back by less and by more than there was, on by an hour and by a thousand years; once in the profile steps, and all the time.
class JumpingClock : public testing::TestWithParam<std::tuple<int64_t, bool>> {};
INSTANTIATE_TEST_SUITE_P(Planning, JumpingClock,
                         testing::Combine(testing::Values(-1000, -60'000'000'000, -(int64_t{1} << 49), 3'600'000'000'000, int64_t{1} << 55),
                                          testing::Bool()),
                         [](const auto &about) { return "case" + std::to_string(about.index); });

TEST_P(JumpingClock, ThePlanStaysOneAndTheJobGoesOn) {
    const auto [by, always] = GetParam();
    const JobShape shape;
    const Limits limits = limits_of(shape);
    const Folder folder;
    SimulatedJob job(planning(Policy::kJoint, limits.budget(0.6), folder / "plan"), shape);
    int runs = 0;
    job.works = [&, by = by, always = always] {
        if (always || ++runs == 30) VirtualClock::jump(by);
    };
    ASSERT_TRUE(run_until(job, [&] { return exists(folder / "plan"); }));
    const planner::JobPlan plan = plan_in(folder / "plan");
    EXPECT_EQ(plan.verdict, planner::Verdict::planned);
    EXPECT_GE(plan.added_ns, plan.bound_ns);
    EXPECT_GE(plan.bound_ns, 0);
    if (!always) {
        EXPECT_LT(plan.added_ns, 10'000'000) << "one jump is in no median";
    }
    for (int i = 0; i < 4; ++i) job.cycle();
    EXPECT_GT(job.retained, 0u);
    EXPECT_EQ(job.wrong_bytes + job.wrong_after, 0u);
    EXPECT_EQ(job.driver().stats().rejections, 0u);
    EXPECT_LT(job.driver().stats().nanoseconds_replay, uint64_t{1} << 62);
}

// ---- sizes and ends
// ----------------------------------------------------------------------------------------------------------------------------

TEST(PlanningSizes, NoSegmentAtAll) {
    Driver driver(WatchedPort::get(), planning(Policy::kJoint, kPlenty));
    for (int i = 0; i < 50; ++i) EXPECT_TRUE(driver->step().ok());
    EXPECT_EQ(driver.stats().steps, 50u);
}

TEST(PlanningSizes, OneSegmentAndNoBuffers) {
    for (bool buffers : {true, false}) {
        const Folder folder;
        JobShape shape;
        shape.segments = 1;
        if (!buffers) shape.buffers.clear();
        SimulatedJob job(planning(Policy::kJoint, kPlenty, folder / "plan"), shape);
        ASSERT_TRUE(run_until(job, [&] { return exists(folder / "plan"); })) << buffers;
        job.retained = 0;
        for (int i = 0; i < 3; ++i) job.cycle();
        EXPECT_EQ(job.retained, 3u);
        EXPECT_EQ(job.wrong_bytes, 0u);
    }
}

TEST(PlanningSizes, FiveThousandSegments) {
    constexpr int kSegments = by_build(5000, 2000, 500);
    const Folder folder;
    JobShape shape;
    shape.segments = kSegments;
    shape.keep = 2048;
    shape.work_us = 0;
    shape.buffers = {1000, 5000, 300};
    SimulatedJob job(planning(Policy::kJoint, uint64_t{12} << 20, folder / "plan"), shape);
    ASSERT_TRUE(run_until(job, [&] { return exists(folder / "plan"); }));
    for (int i = 0; i < 3; ++i) job.cycle();
    EXPECT_EQ(plan_in(folder / "plan").instances.size(), static_cast<size_t>(kSegments));
    EXPECT_EQ(job.wrong_bytes + job.wrong_after, 0u);
    EXPECT_EQ(job.driver().stats().rejections, 0u);
}

TEST(PlanningSizes, InstancesThatAreDroppedWithoutReplay) {
    const Folder folder;
    JobShape shape;
    SimulatedJob job(planning(Policy::kJoint, kPlenty, folder / "plan"), shape);
    auto cycle = [&] {
        for (int i = 8; i < 12; ++i) job.forward(i);  // an evaluation
        job.drop_all();
        job.cycle();
    };
    (void)run_until(
        job, [&] { return exists(folder / "plan"); },
        [&] {
            cycle();
            if (job.cycles > 400) FAIL();
        });
    for (int i = 0; i < 10; ++i) cycle();
    EXPECT_EQ(job.wrong_bytes + job.wrong_after, 0u);
    EXPECT_EQ(job.driver().stats().rejections, 0u);
}

// A cycle that never ends is given up: nothing grows with it.
TEST(PlanningSizes, ACycleThatNeverEnds) {
    Driver driver(WatchedPort::get(), planning(Policy::kJoint, kPlenty));
    Block buffer(4096);
    const std::vector<reprise_range> scope{buffer.range()};
    const reprise_segment kept = driver.forward("kept for ever", scope);
    ASSERT_EQ(driver.end(kept), REPRISE_OK);
    // What is allocated, not what is resident: pages come and go with whatever else runs in this process.
    auto allocated = [] { return mallinfo2().uordblks + mallinfo2().hblkhd; };
    [[maybe_unused]] size_t before = 0;
    for (int i = 0; i < 180'000; ++i) {
        buffer.data()[i % 4096] = static_cast<uint8_t>(i);
        const reprise_segment f = driver.forward("s", scope);
        ASSERT_EQ(driver.end(f), REPRISE_OK);
        ASSERT_TRUE(driver->release(f.instance).ok());
        if (i == 120'000) before = allocated();
    }
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // these have an allocator of their own
    const size_t now = allocated();
    EXPECT_LT(now - std::min(now, before), size_t{256} << 10) << "60,000 forwards of a cycle that was given up are remembered";
#endif
    const reprise_segment b = driver.replay("kept for ever", kept.instance);
    ASSERT_EQ(b.status, REPRISE_OK);
    EXPECT_EQ(buffer.data()[100], 0);
    EXPECT_EQ(driver.end(b), REPRISE_OK);
}

// ---- the text files
// -----------------------------------------------------------------------------------------------------------------------------

TEST(TextFile, ReplacesFilesAndNothingElse) {
    const Folder folder;
    std::string why, text;
    ASSERT_TRUE(write_text_file(folder / "a", "one", &why));
    ASSERT_EQ(symlink((folder / "a").c_str(), (folder / "link").c_str()), 0);
    ASSERT_TRUE(write_text_file(folder / "link", "two", &why));
    EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
    ASSERT_TRUE(read_text_file(folder / "a", &text, &why));
    EXPECT_EQ(text, "two");
    EXPECT_TRUE(write_text_file("/dev/null", "three", &why)) << why;
    EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
    EXPECT_FALSE(write_text_file("/dev/full", "four", &why));
    ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
    EXPECT_FALSE(write_text_file(folder / "pipe", "five", &why)) << "nobody reads it: it would wait for ever";
    EXPECT_TRUE(std::filesystem::is_fifo(folder / "pipe"));
    EXPECT_FALSE(write_text_file(folder / "", "six", &why));
    EXPECT_FALSE(write_text_file(folder / "no/such/folder", "seven", &why));
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / ""), {}), 3) << "no drafts are left";
}

// Killed while it writes, again and again: what stands there is always one of the texts, whole.
TEST(TextFile, KilledWhileItIsWritten) {
    const Folder folder;
    std::string why, text;
    const std::string big[] = {std::string(3 << 20, 'a'), std::string(3 << 20, 'b')};
    ASSERT_TRUE(write_text_file(folder / "plan", big[0], &why));
    for (useconds_t round = 0; round < 12; ++round) {
        const pid_t child = fork();
        ASSERT_GE(child, 0);
        if (child == 0) {
            for (int i = 0;; ++i) (void)write_text_file(folder / "plan", big[i % 2], &why);
        }
        usleep(3000 + round * 700);
        kill(child, SIGKILL);
        ASSERT_EQ(waitpid(child, nullptr, 0), child);
        ASSERT_TRUE(read_text_file(folder / "plan", &text, &why)) << why;
        EXPECT_TRUE(text == big[0] || text == big[1]) << text.size();
    }
}

}  // namespace
}  // namespace reprise::test
