// Declared memory that cannot be read or written: never mapped, protected, unmapped behind our back, a file cut short. Before the forward,
// between forward and replay, during either. Without the preload nothing tells us, and every access would be a fault of the job's.
#include <fcntl.h>
#include <unistd.h>

#include "tests/policy/engine_fixture.h"

namespace reprise::test {
namespace {

enum class Fate { kProtected, kUnmapped, kCutShort, kReadOnly };
const char *name_of(Fate fate) {
    switch (fate) {
        case Fate::kProtected:
            return "Protected";
        case Fate::kUnmapped:
            return "Unmapped";
        case Fate::kCutShort:
            return "CutShort";
        default:
            return "ReadOnly";
    }
}

// A shared file mapping of `size` bytes.
class Mapping {
  public:
    explicit Mapping(size_t size) : size_(size) {
        std::string name = testing::TempDir() + "/unreachable-XXXXXX";
        file_ = mkstemp(name.data());
        unlink(name.c_str());
        EXPECT_EQ(ftruncate(file_, static_cast<off_t>(size)), 0);
        data_ = static_cast<uint8_t *>(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0));
        EXPECT_NE(static_cast<void *>(data_), MAP_FAILED);
    }
    ~Mapping() {
        munmap(data_, size_);
        close(file_);
    }
    Mapping(const Mapping &) = delete;
    Mapping &operator=(const Mapping &) = delete;
    void meet(Fate fate) {
        switch (fate) {
            case Fate::kProtected:
                ASSERT_EQ(mprotect(data_, size_, PROT_NONE), 0);
                return;
            case Fate::kUnmapped:
                ASSERT_EQ(munmap(data_ + size_ / 2, size_ / 2), 0);
                return;
            case Fate::kCutShort:
                ASSERT_EQ(ftruncate(file_, static_cast<off_t>(size_ / 2)), 0);
                return;
            case Fate::kReadOnly:
                ASSERT_EQ(mprotect(data_, size_, PROT_READ), 0);
                return;
        }
    }
    uint8_t *data() const { return data_; }
    size_t size() const { return size_; }
    reprise_range range() const { return {data_, size_}; }

  private:
    size_t size_;
    int file_ = -1;
    uint8_t *data_ = nullptr;
};

struct Form {
    Fate fate;
    size_t size;
    Policy policy;
};
class Unreachable : public testing::TestWithParam<Form> {
  protected:
    Unreachable() : driver_(config()), range_(GetParam().size), other_(300 << 10) {}
    static Config config() {
        Config config = quiet(GetParam().policy);
        config.verify = GetParam().policy == Policy::kWhole ? Verify::kBytes : Verify::kOff;
        return config;
    }
    bool read_only() const { return GetParam().fate == Fate::kReadOnly; }
    std::vector<reprise_range> scope() const { return {other_.range(), range_.range()}; }
    // Both buffers hold 1 in the forward and 2 afterwards.
    reprise_segment forward_then_change() {
        range_.data()[0] = other_.data()[0] = 1;
        const reprise_segment forward = driver_.forward("s", scope());
        EXPECT_EQ(forward.status, REPRISE_OK);
        EXPECT_EQ(driver_.end(forward), REPRISE_OK);
        range_.data()[0] = other_.data()[0] = 2;
        return forward;
    }
    void expect_error(const char *part) {
        EXPECT_NE(std::string(thread_state().error).find(part), std::string::npos) << thread_state().error;
    }

    Driver driver_;
    Mapping range_;
    Block other_;
};

TEST_P(Unreachable, BeforeItIsDeclared) {
    range_.meet(GetParam().fate);
    const Status status = driver_->track(range_.data(), range_.size(), "queue", 0);
    if (read_only()) {
        EXPECT_TRUE(status.ok()) << "what is never written back may be read-only: " << status.text();
        return;
    }
    EXPECT_EQ(status.code(), REPRISE_INVALID_ARGUMENT);
    EXPECT_NE(std::string(status.text()).find("'queue'"), std::string::npos) << status.text();
    EXPECT_NE(std::string(status.text()).find("cannot be read"), std::string::npos) << status.text();
    EXPECT_EQ(driver_->untrack(range_.data()).code(), REPRISE_NOT_FOUND) << "it was declared all the same";
}

TEST_P(Unreachable, BeforeTheForward) {
    ASSERT_TRUE(driver_->track(range_.data(), range_.size(), "queue", 0).ok());
    range_.meet(GetParam().fate);
    const reprise_segment forward = driver_.forward("s", {other_.range()});
    ASSERT_EQ(forward.status, REPRISE_OK) << "a forward does not fail";
    EXPECT_EQ(driver_.end(forward), REPRISE_OK);
    other_.data()[0] = 2;
    const reprise_segment replay = driver_.replay("s", forward.instance);
    if (read_only()) {
        EXPECT_EQ(replay.status, REPRISE_OK) << thread_state().error;
        EXPECT_EQ(driver_.end(replay), REPRISE_OK);
        return;
    }
    EXPECT_EQ(replay.status, REPRISE_REJECTED);
    expect_error("'queue'");
    expect_error("cannot be read");
    EXPECT_EQ(other_.data()[0], 2);
    ASSERT_TRUE(driver_->release(forward.instance).ok());
    ASSERT_TRUE(driver_->untrack(range_.data()).ok());
    const reprise_segment again = driver_.forward("s", {other_.range()});
    driver_.end(again);
    const reprise_segment right = driver_.replay("s", again.instance);
    EXPECT_EQ(right.status, REPRISE_OK) << "without it the segment is as good as any: " << thread_state().error;
    driver_.end(right);
}

TEST_P(Unreachable, DuringTheForward) {
    const reprise_segment forward = driver_.forward("s", scope());
    range_.meet(GetParam().fate);
    EXPECT_EQ(driver_.end(forward), REPRISE_OK);
    reprise_buffer info{};
    EXPECT_TRUE(driver_->buffer_info(range_.data(), &info, nullptr, nullptr).ok());
    EXPECT_TRUE(driver_->release(forward.instance).ok());
}

TEST_P(Unreachable, BetweenForwardAndReplay) {
    const reprise_segment forward = forward_then_change();
    range_.meet(GetParam().fate);
    EXPECT_EQ(driver_.replay("s", forward.instance).status, REPRISE_REJECTED);
    expect_error(read_only() ? "cannot be written back" : "cannot be read");
    EXPECT_EQ(other_.data()[0], 2) << "nothing was loaded";
    EXPECT_EQ(driver_.stats().rejections, 1u);
}

TEST_P(Unreachable, DuringTheReplay) {
    const reprise_segment forward = forward_then_change();
    const reprise_segment replay = driver_.replay("s", forward.instance);
    ASSERT_EQ(replay.status, REPRISE_OK) << thread_state().error;
    EXPECT_EQ(range_.data()[0], 1);
    range_.meet(GetParam().fate);
    const Status status = driver_->segment_end(replay, nullptr);
    EXPECT_EQ(status.code(), REPRISE_DIVERGED);
    EXPECT_NE(std::string(status.text()).find("could not be put back"), std::string::npos) << status.text();
    EXPECT_EQ(other_.data()[0], 2) << "the others are put back all the same";
    EXPECT_EQ(driver_.stats().divergences, 1u);
}

TEST_P(Unreachable, AnAbortedReplayOfIt) {
    const reprise_segment forward = forward_then_change();
    ASSERT_EQ(driver_.replay("s", forward.instance).status, REPRISE_OK);
    range_.meet(GetParam().fate);
    EXPECT_TRUE(driver_->segment_abort(forward.instance).ok());
    EXPECT_EQ(other_.data()[0], 2);
}

// What did not change needs no writing.
TEST(Unreachable, ReadOnlyAndUnchangedIsNoProblem) {
    for (const Policy policy : {Policy::kSelective, Policy::kWhole}) {
        Driver driver(quiet(policy));
        Mapping range(1 << 20);
        Block other(300 << 10);
        const reprise_segment forward = driver.forward("s", {range.range(), other.range()});
        driver.end(forward);
        other.data()[0] = 2;
        range.meet(Fate::kReadOnly);
        const reprise_segment replay = driver.replay("s", forward.instance);
        ASSERT_EQ(replay.status, REPRISE_OK) << thread_state().error;
        EXPECT_EQ(other.data()[0], 0);
        EXPECT_EQ(driver.end(replay), REPRISE_OK);
        EXPECT_EQ(other.data()[0], 2);
    }
}

TEST(Unreachable, AnAuditFindsAndGoesOn) {
    Driver driver(quiet(Policy::kAudit));
    Mapping range(1 << 20);
    const reprise_segment forward = driver.forward("s", {range.range()});
    driver.end(forward);
    range.meet(Fate::kProtected);
    const reprise_segment replay = driver.replay("s", forward.instance);
    EXPECT_EQ(replay.status, REPRISE_OK);
    EXPECT_EQ(driver.end(replay), REPRISE_OK);
    EXPECT_EQ(driver.stats().replays_on_changed_state, 1u);
}

std::vector<Form> forms() {
    std::vector<Form> forms;
    for (const Fate fate : {Fate::kProtected, Fate::kUnmapped, Fate::kCutShort, Fate::kReadOnly}) {
        for (const size_t size : {size_t{8} << 10, size_t{1} << 20, size_t{16} << 20}) {
            for (const Policy policy : {Policy::kSelective, Policy::kWhole}) forms.push_back({fate, size, policy});
        }
    }
    return forms;
}
INSTANTIATE_TEST_SUITE_P(Forms, Unreachable, testing::ValuesIn(forms()), [](const auto &form) {
    return std::string(name_of(form.param.fate)) + std::to_string(form.param.size >> 10) + "KiB" + to_string(form.param.policy);
});

// ---- other wrong input -------------------------------------------------------------------------------------------------------------

TEST(Items, ElementsThatDoNotFitAreRefused) {
    Driver driver(quiet());
    Block block(1024);
    struct Wrong {
        size_t offset, size;
        unsigned element;
        const char *said;
    };
    for (const Wrong &wrong : {Wrong{4, 64, 8, "multiple"}, Wrong{0, 60, 8, "whole elements"}, Wrong{0, 64, 3, "1, 2, 4, 8 or 16"},
                               Wrong{0, 64, 32, "1, 2, 4, 8 or 16"}}) {
        const unsigned element = REPRISE_TRACK_ELEMENT(wrong.element);
        reprise_scope_item item{block.data() + wrong.offset, wrong.size, "counter", REPRISE_ITEM_CONCURRENT | element, 0};
        const reprise_segment forward = driver->forward_begin("s", &item, 1, true);
        EXPECT_EQ(forward.status, REPRISE_INVALID_ARGUMENT) << wrong.element;
        EXPECT_NE(std::string(thread_state().error).find(wrong.said), std::string::npos) << thread_state().error;
        EXPECT_EQ(driver->track(item.address, item.size, "counter", REPRISE_TRACK_CONCURRENT | element).code(), REPRISE_INVALID_ARGUMENT);
        EXPECT_EQ(driver->track(item.address, item.size, "counter", element).code(), REPRISE_INVALID_ARGUMENT);
    }
    reprise_scope_item right{block.data() + 8, 64, "counter", REPRISE_ITEM_CONCURRENT | REPRISE_TRACK_ELEMENT(8u), 0};
    const reprise_segment forward = driver->forward_begin("s", &right, 1, true);
    EXPECT_EQ(forward.status, REPRISE_OK) << thread_state().error;
    EXPECT_EQ(driver.end(forward), REPRISE_OK);
    EXPECT_EQ(driver.stats().forwards, 1u) << "the refused ones began nothing";
}

TEST(Items, RangesThatWrapAreRefused) {
    Driver driver(quiet());
    reprise_scope_item item{reinterpret_cast<void *>(uintptr_t{4096}), SIZE_MAX, "x", 0, 0};
    EXPECT_EQ(driver->forward_begin("s", &item, 1, true).status, REPRISE_INVALID_ARGUMENT);
    EXPECT_EQ(driver->forward_begin("s", nullptr, 1, true).status, REPRISE_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace reprise::test
