// The replay rule against a model that copies everything by memcpy: random operations on random buffers, in every policy and dirty source.
// A failure prints the seed; REPRISE_TEST_SEED=n runs that one alone.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "tests/policy/engine_fixture.h"

namespace reprise::test {
namespace {

struct Setting {
    const char *name;
    Policy policy;
    bool compare;
};

class ReplayModel : public testing::TestWithParam<Setting> {};

struct Outstanding {
    reprise_segment segment{};
    std::string name;
    std::vector<std::vector<uint8_t>> seen;  // all buffers, as F saw them
    bool open = false;                       // F has not ended
    bool doomed = false;                     // a buffer of its scope was freed since
};

struct OpenReplay {
    reprise_segment segment{};
    size_t instance = 0;
    std::vector<std::vector<uint8_t>> before;  // all buffers, as they were when B began
    std::vector<std::vector<uint8_t>> loaded;  // and after the load
    std::vector<bool> freed;                   // while it was open: must not be written
};

class Model {
  public:
    Model(const Setting &setting, uint64_t seed) : random_(seed), driver_(config(setting)) {
        const size_t count = 2 + pick(5);
        for (size_t i = 0; i < count; ++i) blocks_.emplace_back(random_size());
        for (Block &block : blocks_) scribble(block.data(), block.size());
        concurrent_ = pick(3) == 0 ? pick(count) : count;
        int fds[2];
        EXPECT_EQ(pipe(fds), 0);
        reader_ = fds[0];
        writer_ = fds[1];
    }
    ~Model() {
        close(reader_);
        close(writer_);
    }

    void run(size_t operations) {
        for (size_t i = 0; i < operations && !testing::Test::HasFailure(); ++i) operation();
        while (!replays_.empty() && !testing::Test::HasFailure()) end_replay();
        for (Outstanding &o : outstanding_) {
            if (o.open) driver_.end(o.segment);
            EXPECT_TRUE(driver_->release(o.segment.instance).ok());
        }
        EXPECT_EQ(driver_.stats().instances_outstanding, 0u);
    }

  private:
    static Config config(const Setting &setting) {
        Config config;
        config.policy = setting.policy;
        config.force_compare = setting.compare;
        config.on_reject = OnReject::kFail;
        config.log = LogLevel::kOff;
        return config;
    }
    size_t pick(size_t n) { return next_random(random_) % n; }
    size_t random_size() {
        switch (pick(5)) {
            case 0:
                return 8 * (1 + pick(40));
            case 1:
                return (4096 + pick(100000)) & ~size_t{7};
            case 2:
                return ((size_t{128} << 10) + pick(300000)) & ~size_t{7};
            case 3:
                return ((size_t{2} << 20) + pick(3 << 20)) & ~size_t{7};
            default:
                return (size_t{1} << 20) / 4096 * 4096;
        }
    }
    void scribble(uint8_t *at, size_t size) {
        uint64_t seed = next_random(random_);
        for (size_t i = 0; i < size; ++i) at[i] = static_cast<uint8_t>(seed + i * 31 + (i >> 8));
    }

    void write() {
        const size_t index = pick(blocks_.size());
        if (index == concurrent_ && !replays_.empty()) return write_from_another_thread();
        Block &block = blocks_[index];
        size_t size;
        switch (pick(6)) {
            case 0:
                size = block.size();
                break;  // dense
            case 1:
                size = 1 + pick(std::min<size_t>(block.size(), 65536));
                break;  // a stretch
            default:
                size = 1 + pick(std::min<size_t>(block.size(), 200));
                break;  // sparse
        }
        size_t offset = pick(block.size() - size + 1);
        if (pick(8) == 0 && size <= 4096) {  // by the kernel
            std::vector<uint8_t> bytes(size, static_cast<uint8_t>(next_random(random_)));
            ASSERT_EQ(::write(writer_, bytes.data(), size), static_cast<ssize_t>(size));
            ASSERT_EQ(read(reader_, block.data() + offset, size), static_cast<ssize_t>(size));
            return;
        }
        if (pick(10) == 0) {
            ASSERT_TRUE(driver_->write_intent(block.data() + offset, size).ok());
        }
        if (pick(10) == 0) {  // a write without effect
            volatile uint8_t *p = block.data() + offset;
            *p = *p;
            return;
        }
        scribble(block.data() + offset, size);
    }

    // Into the buffer declared concurrent, while old bytes are loaded: whole elements, with values that were not there.
    void write_from_another_thread() {
        Block &block = blocks_[concurrent_];
        const size_t element = pick(block.size() / 8);
        const uint64_t value = next_random(random_);
        std::thread([&] { memcpy(block.data() + element * 8, &value, 8); }).join();
    }

    void free_and_allocate() {
        if (pick(4) != 0) return;
        const size_t index = pick(blocks_.size());
        const size_t old_size = blocks_[index].size();
        blocks_[index].reset();
        blocks_[index] = Block(pick(2) == 0 ? old_size : random_size());  // as likely as not at the same address
        scribble(blocks_[index].data(), blocks_[index].size());
        for (Outstanding &o : outstanding_) o.doomed = true;
        for (OpenReplay &replay : replays_) replay.freed[index] = true;
    }

    // Aborts the innermost replay.
    void abort() {
        if (replays_.empty() || pick(2) != 0) return;
        OpenReplay replay = std::move(replays_.back());
        std::vector<std::vector<uint8_t>> expected = expected_after(replay);
        replays_.pop_back();
        ASSERT_TRUE(driver_->segment_abort(replay.segment.instance).ok());
        expect_same(expected, "after abort");
        std::erase_if(outstanding_, [&](const Outstanding &o) { return o.segment.instance == replay.segment.instance; });
    }

    // The child replays what the parent captured, with tracking lost, and tells by its exit status.
    void fork_and_replay() {
        if (outstanding_.empty() || pick(6) != 0) return;
        const Outstanding &o = outstanding_[pick(outstanding_.size())];
        for (const OpenReplay &open : replays_) {
            if (open.segment.instance == o.segment.instance) return;
        }
        driver_->fork_prepare();
        allocator_fork_prepare();
        pid_t child = fork();
        if (child == 0) {
            allocator_fork_child();
            driver_->fork_child();
            if (concurrent_ != 0) blocks_[0].data()[0] ^= 1;
            std::vector<std::vector<uint8_t>> before = everything();
            reprise_segment b = driver_.replay(o.name.c_str(), o.segment.instance);
            bool good = o.doomed ? b.status == REPRISE_REJECTED : b.status == REPRISE_OK && everything() == o.seen;
            if (b.status == REPRISE_OK) good = driver_.end(b) == REPRISE_OK && good;
            _exit(good && everything() == before ? 0 : 1);
        }
        allocator_fork_parent();
        driver_->fork_parent();
        int status = 0;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "in the forked child: " << status;
    }

    std::vector<std::vector<uint8_t>> everything() {
        std::vector<std::vector<uint8_t>> all;
        for (Block &block : blocks_) all.push_back(block.bytes());
        return all;
    }
    void expect_same(const std::vector<std::vector<uint8_t>> &expected, const char *when) {
        for (size_t i = 0; i < blocks_.size(); ++i) {
            ASSERT_EQ(expected[i].size(), blocks_[i].size());
            auto wrong = std::mismatch(expected[i].begin(), expected[i].end(), blocks_[i].data());
            ASSERT_TRUE(wrong.first == expected[i].end()) << when << ": buffer " << i << " of " << blocks_[i].size()
                                                          << " bytes differs at offset " << (wrong.first - expected[i].begin());
        }
    }

    void forward() {
        std::vector<reprise_scope_item> scope;
        for (size_t i = 0; i < blocks_.size(); ++i) {
            const uint32_t flags = i == concurrent_ ? REPRISE_ITEM_CONCURRENT | 8u << 8 : 0u;
            scope.push_back({blocks_[i].data(), blocks_[i].size(), "", flags, 0});
        }
        std::rotate(scope.begin(), scope.begin() + static_cast<ptrdiff_t>(pick(scope.size())), scope.end());
        Outstanding o;
        o.name = "segment" + std::to_string(pick(3));
        o.seen = everything();
        o.segment = driver_->forward_begin(o.name.c_str(), scope.data(), scope.size(), true);
        ASSERT_EQ(o.segment.status, REPRISE_OK);
        for (size_t n = pick(4); n != 0; --n) write();
        if (pick(5) != 0) {
            ASSERT_EQ(driver_.end(o.segment), REPRISE_OK);
        } else {
            o.open = true;  // a replay may begin while its forward is still running
        }
        outstanding_.push_back(std::move(o));
    }

    void begin_replay() {
        if (outstanding_.empty() || replays_.size() >= 3) return;
        size_t index = pick(outstanding_.size());
        for (const OpenReplay &open : replays_) {
            if (open.segment.instance == outstanding_[index].segment.instance) return;
        }
        OpenReplay replay;
        replay.instance = index;
        replay.before = everything();
        Outstanding &o = outstanding_[index];
        replay.segment = driver_.replay(o.name.c_str(), o.segment.instance);
        if (o.doomed) {
            ASSERT_EQ(replay.segment.status, REPRISE_REJECTED);
            expect_same(replay.before, "after a rejection");
            return;
        }
        ASSERT_EQ(replay.segment.status, REPRISE_OK) << thread_state().error;
        expect_same(o.seen, "after load");
        replay.loaded = o.seen;
        replay.freed.resize(blocks_.size());
        replays_.push_back(std::move(replay));
    }

    void end_replay() {
        if (replays_.empty()) return;
        OpenReplay replay = std::move(replays_.back());
        replays_.pop_back();
        std::vector<std::vector<uint8_t>> expected = expected_after(replay);
        reprise_status status = driver_.end(replay.segment);
        // Random writes inside the replay are what a divergent replay does: reported or not, everything is put back.
        ASSERT_TRUE(status == REPRISE_OK || status == REPRISE_DIVERGED) << status;
        expect_same(expected, "after put-back");
    }

    // What put-back must leave: the bytes of before; of a buffer freed meanwhile, what is there; of a concurrent one, the merge.
    std::vector<std::vector<uint8_t>> expected_after(const OpenReplay &replay) {
        std::vector<std::vector<uint8_t>> expected = replay.before;
        for (size_t i = 0; i < blocks_.size(); ++i) {
            if (replay.freed[i]) {
                expected[i] = blocks_[i].bytes();
            } else if (i == concurrent_) {
                for (size_t at = 0; at < expected[i].size(); at += 8) {
                    if (memcmp(blocks_[i].data() + at, replay.loaded[i].data() + at, 8) != 0) {
                        memcpy(expected[i].data() + at, blocks_[i].data() + at, 8);
                    }
                }
            }
        }
        return expected;
    }

    void release() {
        if (outstanding_.empty()) return;
        size_t index = pick(outstanding_.size());
        for (const OpenReplay &open : replays_) {
            if (open.segment.instance == outstanding_[index].segment.instance) return;
        }
        if (outstanding_[index].open) driver_.end(outstanding_[index].segment);
        ASSERT_TRUE(driver_->release(outstanding_[index].segment.instance).ok());
        outstanding_.erase(outstanding_.begin() + static_cast<ptrdiff_t>(index));
    }

    void end_open_forward() {
        for (Outstanding &o : outstanding_) {
            if (!o.open) continue;
            ASSERT_EQ(driver_.end(o.segment), REPRISE_OK);
            o.open = false;
            return;
        }
    }

    void operation() {
        switch (pick(13)) {
            case 10:
                free_and_allocate();
                break;
            case 11:
                abort();
                break;
            case 12:
                fork_and_replay();
                break;
            case 0:
                forward();
                break;
            case 1:
                begin_replay();
                break;
            case 2:
                end_replay();
                break;
            case 3:
                release();
                break;
            case 4:
                end_open_forward();
                break;
            default:
                write();
                break;
        }
    }

    uint64_t random_;
    Driver driver_;
    std::vector<Block> blocks_;
    std::vector<Outstanding> outstanding_;
    std::vector<OpenReplay> replays_;
    size_t concurrent_ = 0;  // index of the buffer declared concurrent; none when it is out of range
    int reader_ = -1, writer_ = -1;
};

TEST_P(ReplayModel, RandomOperations) {
    uint64_t first = 1;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    uint64_t last = 4;
#else
    uint64_t last = 40;
#endif
    if (const char *only = std::getenv("REPRISE_TEST_SEED")) first = last = std::strtoull(only, nullptr, 10);
    for (uint64_t seed = first; seed <= last; ++seed) {
        SCOPED_TRACE("REPRISE_TEST_SEED=" + std::to_string(seed));
        Model model(GetParam(), seed);
        model.run(150);
        if (HasFailure()) return;
    }
}

INSTANTIATE_TEST_SUITE_P(Settings, ReplayModel,
                         testing::Values(Setting{"selective", Policy::kSelective, false}, Setting{"compare", Policy::kSelective, true},
                                         Setting{"whole", Policy::kWhole, false}),
                         [](const auto &setting) { return setting.param.name; });

}  // namespace
}  // namespace reprise::test
