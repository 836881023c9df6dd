// Conformance: every dirty source passes the same tests. A source may report too much where it says that it cannot know, never too little.
#include <unistd.h>

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "tests/tracker/arena_memory.h"
#include "tracker/dirty_source.h"

namespace reprise::test {
namespace {

struct Kind {
    const char *name;
    std::function<std::unique_ptr<DirtySource>()> make;
};

class DirtySourceTest : public testing::TestWithParam<Kind> {
  protected:
    DirtySourceTest() : memory_(4 << 20), reference_(memory_.size()), source_(GetParam().make()) {}

    void SetUp() override {
        ASSERT_NE(source_, nullptr) << "this source does not work here";
        ASSERT_TRUE(source_->start(memory_.range()));
        sync();
    }
    void TearDown() override { source_->stop(memory_.range()); }

    void sync() { memcpy(reference_.data(), memory_.data(), memory_.size()); }
    std::vector<size_t> pages(bool reset, AddressRange part = {}) {
        if (part.empty()) part = memory_.range();
        std::vector<AddressRange> written;
        auto *reference = reinterpret_cast<const std::byte *>(reference_.data()) + (part.begin - memory_.range().begin);
        EXPECT_TRUE(source_->collect(part, memory_.range(), reference, reset, written));
        std::vector<size_t> pages;
        uintptr_t last = 0;
        for (AddressRange range : written) {
            EXPECT_GE(range.begin, last) << "ascending";
            EXPECT_EQ(range.begin % kPageSize, 0u);
            EXPECT_FALSE(range.empty());
            EXPECT_TRUE(part.pages().contains(range));
            last = range.end;
            for (uintptr_t page = range.begin; page < range.end; page += kPageSize)
                pages.push_back((page - memory_.range().begin) / kPageSize);
        }
        return pages;
    }
    using List = std::vector<size_t>;

    ArenaMemory memory_;
    std::vector<uint8_t> reference_;
    std::unique_ptr<DirtySource> source_;
};

TEST_P(DirtySourceTest, NothingWrittenNothingReported) { EXPECT_EQ(pages(true), List{}); }

TEST_P(DirtySourceTest, ReportsWrittenPagesUntilReset) {
    memory_.touch_page(3);
    memory_.touch_page(700);
    EXPECT_EQ(pages(false), (List{3, 700}));
    EXPECT_EQ(pages(false), (List{3, 700})) << "without reset nothing is forgotten";
    EXPECT_EQ(pages(true), (List{3, 700}));
    sync();
    EXPECT_EQ(pages(true), List{});
    memory_.touch_page(3, 2);
    EXPECT_EQ(pages(true), List{3}) << "armed again";
}

TEST_P(DirtySourceTest, ReportsOnlyTheAskedPart) {
    memory_.touch_page(3);
    memory_.touch_page(700);
    uintptr_t base = memory_.range().begin;
    EXPECT_EQ(pages(true, {base, base + 512 * kPageSize}), List{3});
    EXPECT_EQ(pages(true, {base + 512 * kPageSize, memory_.range().end}), List{700});
}

TEST_P(DirtySourceTest, EveryOtherPage) {
    List expected;
    for (size_t page = 0; page < 1024; page += 2) {
        memory_.touch_page(page);
        expected.push_back(page);
    }
    EXPECT_EQ(pages(true), expected);
}

TEST_P(DirtySourceTest, AllPages) {
    memset(memory_.data(), 5, memory_.size());
    EXPECT_EQ(pages(true).size(), 1024u);
    sync();
    EXPECT_EQ(pages(true), List{});
}

TEST_P(DirtySourceTest, SeesTheKernelsWrites) {
    int fds[2];
    ASSERT_EQ(pipe(fds), 0);
    std::vector<uint8_t> bytes(3 * kPageSize, 9);
    ASSERT_EQ(write(fds[1], bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    ASSERT_EQ(read(fds[0], memory_.data() + 10 * kPageSize, bytes.size()), static_cast<ssize_t>(bytes.size()));
    close(fds[0]);
    close(fds[1]);
    EXPECT_EQ(pages(true), (List{10, 11, 12}));
}

#if !defined(__SANITIZE_THREAD__)  // reading what another thread writes is what this test is about
TEST_P(DirtySourceTest, LosesNoWriteOfAnotherThread) {
    std::atomic<bool> stop{false};
    std::vector<std::atomic<uint32_t>> rounds(1024);
    std::thread writer([&] {
        for (uint32_t i = 1; !stop; ++i) {
            for (size_t page = 0; page < 1024; page += 7) {
                reinterpret_cast<volatile uint32_t *>(memory_.data() + page * kPageSize)[1] = i;
            }
        }
    });
    // Copy what is reported, round after round; at the end copy and memory must agree.
    for (int round = 0; round < 30; ++round) {
        for (size_t page : pages(true)) memcpy(reference_.data() + page * kPageSize, memory_.data() + page * kPageSize, kPageSize);
    }
    stop = true;
    writer.join();
    for (size_t page : pages(true)) memcpy(reference_.data() + page * kPageSize, memory_.data() + page * kPageSize, kPageSize);
    EXPECT_EQ(memcmp(reference_.data(), memory_.data(), memory_.size()), 0);
}
#endif

TEST_P(DirtySourceTest, WritesWithoutEffectAsItSays) {
    volatile uint8_t *p = memory_.data() + 5 * kPageSize;
    p[0] = p[0];
    EXPECT_EQ(pages(true), source_->sees_writes_without_effect() ? List{5} : List{});
}

INSTANTIATE_TEST_SUITE_P(Sources, DirtySourceTest,
                         testing::Values(Kind{"WpAsync", [] { return make_write_protect_source(*allocator_port()); }},
                                         Kind{"Compare", [] { return make_compare_source(); }}),
                         [](const auto &kind) { return kind.param.name; });

}  // namespace
}  // namespace reprise::test
