// Conformance of the mechanisms: each must give back any outstanding version, whatever is captured, written and released in between. The
// oracle keeps a plain copy per version.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "tests/effort.h"
#include "tests/tracker/arena_memory.h"
#include "tracker/mechanisms/image_mechanism.h"
#include "tracker/mechanisms/shadow_mechanism.h"
#include "tracker/mechanisms/watch_mechanism.h"

namespace reprise::test {
namespace {

struct Kind {
    const char *name;
    MechanismKind kind;
    bool guarded;
};

uint64_t next_random(uint64_t &state) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

class MechanismTest : public testing::TestWithParam<Kind> {
  protected:
    static constexpr size_t kBlock = 9 << 18;
    explicit MechanismTest(size_t bytes = kBlock)
        : memory_(bytes), pool_(*allocator_port()), guard_(make_write_protect_source(*allocator_port())), compare_(make_compare_source()) {
        // Neither end on a page boundary: neighbours must not be touched.
        buffer_.range = {memory_.range().begin + 1001, memory_.range().end - 77};
        BlockInfo block;
        EXPECT_TRUE(allocator_port()->find(buffer_.range.begin, &block));
        buffer_.generation = block.generation;
        buffer_.name = "buffer";
        const Kind &kind = GetParam();
        if (kind.kind == MechanismKind::kShadow) {
            EXPECT_TRUE(!kind.guarded || guard_ != nullptr);
            mechanism_ = std::make_unique<ShadowMechanism>(buffer_, pool_, kind.guarded ? guard_.get() : nullptr, *compare_);
        } else {
            mechanism_ = std::make_unique<ImageMechanism>(buffer_, pool_, kind.kind);
        }
    }

    uint8_t *live() const { return reinterpret_cast<uint8_t *>(buffer_.range.begin); }
    size_t size() const { return buffer_.range.size(); }

    Version capture() {
        CaptureCost cost;
        Version version = ++newest_;
        EXPECT_TRUE(mechanism_->capture(version, cost).ok());
        mechanism_->forward_ended(version);
        copies_[version].assign(live(), live() + size());
        last_cost_ = cost;
        return version;
    }
    void release(Version version) {
        mechanism_->release(version);
        copies_.erase(version);
    }
    // Applies D to a copy of the present and compares it with the version's copy.
    void expect_recoverable(Version version) {
        ReplayView view;
        ASSERT_TRUE(mechanism_->changed(version, view).ok());
        std::vector<uint8_t> bytes(live(), live() + size());
        uintptr_t last = buffer_.range.begin;
        for (const Piece &piece : view.pieces) {
            ASSERT_GE(piece.live, last) << "ascending and disjoint";
            ASSERT_LE(piece.range().end, buffer_.range.end);
            last = piece.range().end;
            memcpy(bytes.data() + (piece.live - buffer_.range.begin), piece.image, piece.size);
        }
        ASSERT_TRUE(bytes == copies_[version]) << "version " << version << " of " << newest_;
    }
    // Load, a replay that writes `writes` random bytes, put-back: as Replay does it.
    void replay(Version version, uint64_t &random, size_t writes) {
        std::vector<uint8_t> before(live(), live() + size());
        ReplayView view;
        view.deep = true;
        ASSERT_TRUE(mechanism_->changed(version, view).ok());
        for (const Piece &piece : view.pieces) memcpy(reinterpret_cast<void *>(piece.live), piece.image, piece.size);
        ASSERT_EQ(memcmp(live(), copies_[version].data(), size()), 0);
        for (size_t i = 0; i < writes; ++i) live()[next_random(random) % size()] = static_cast<uint8_t>(next_random(random));
        mechanism_->refresh(view);
        std::vector<Piece> strays;
        mechanism_->strays(view, strays);
        for (const Piece &stray : strays) memcpy(reinterpret_cast<void *>(stray.live), stray.image, stray.size);
        for (const Piece &piece : view.pieces) {
            memcpy(reinterpret_cast<void *>(piece.live), before.data() + (piece.live - buffer_.range.begin), piece.size);
        }
        mechanism_->put_back(view, strays);
        ASSERT_EQ(memcmp(live(), before.data(), size()), 0) << "put back";
    }

    ArenaMemory memory_;
    ImagePool pool_;
    std::unique_ptr<DirtySource> guard_, compare_;
    Buffer buffer_;
    std::unique_ptr<Mechanism> mechanism_;
    std::map<Version, std::vector<uint8_t>> copies_;
    Version newest_ = 0;
    CaptureCost last_cost_;
};

TEST_P(MechanismTest, RandomVersions) {
    for (uint64_t seed = 1; seed <= by_build(4u, 4u, 1u); ++seed) {
        SCOPED_TRACE(seed);
        uint64_t random = seed * 7919;
        for (int step = 0; step < 100 && !HasFatalFailure(); ++step) {
            switch (next_random(random) % 8) {
                case 0:
                case 1:
                    capture();
                    break;
                case 2:
                    if (!copies_.empty())
                        release(std::next(copies_.begin(), static_cast<ptrdiff_t>(next_random(random) % copies_.size()))->first);
                    break;
                case 3:
                    if (!copies_.empty()) {
                        replay(std::next(copies_.begin(), static_cast<ptrdiff_t>(next_random(random) % copies_.size()))->first, random,
                               next_random(random) % 20);
                    }
                    break;
                case 4:  // dense
                    memset(live() + size() / 3, static_cast<int>(next_random(random) & 255), size() / 3);
                    break;
                default:
                    for (int n = 0; n < 10; ++n) live()[next_random(random) % size()] = static_cast<uint8_t>(next_random(random));
            }
            if (step % 10 == 9) {
                for (const auto &entry : std::map<Version, std::vector<uint8_t>>(copies_)) expect_recoverable(entry.first);
            }
        }
        while (!copies_.empty()) release(copies_.begin()->first);
    }
    EXPECT_EQ(mechanism_->outstanding(), 0u);
}

TEST_P(MechanismTest, ForwardsOwnWritesAreKnownEvenWhenUndone) {
    if (GetParam().kind == MechanismKind::kWhole) return;  // a blind copy does not know, and says so
    CaptureCost cost;
    ASSERT_TRUE(mechanism_->capture(1, cost).ok());
    live()[size() / 2] = 1;
    mechanism_->forward_ended(1);
    EXPECT_TRUE(mechanism_->forward_wrote(1));
    live()[size() / 2] = 0;  // somebody undid it
    ReplayView view;
    ASSERT_TRUE(mechanism_->changed(1, view).ok());
    uint64_t found = 0;
    for (const Piece &piece : view.pieces) found += piece.range().contains(buffer_.range.begin + size() / 2) ? 1 : 0;
    EXPECT_EQ(found, 1u) << "a tensor that the replay saves here needs a private copy";
    mechanism_->release(1);
}

INSTANTIATE_TEST_SUITE_P(Mechanisms, MechanismTest,
                         testing::Values(Kind{"Small", MechanismKind::kSmall, false}, Kind{"Whole", MechanismKind::kWhole, false},
                                         Kind{"ShadowGuarded", MechanismKind::kShadow, true},
                                         Kind{"ShadowCompared", MechanismKind::kShadow, false}),
                         [](const auto &kind) { return kind.param.name; });

class ShadowTest : public MechanismTest {
  protected:
    using MechanismTest::MechanismTest;
    ShadowMechanism &shadow() { return static_cast<ShadowMechanism &>(*mechanism_); }
};
INSTANTIATE_TEST_SUITE_P(Guarded, ShadowTest, testing::Values(Kind{"ShadowGuarded", MechanismKind::kShadow, true}),
                         [](const auto &kind) { return kind.param.name; });

TEST_P(ShadowTest, CopiesOnlyWrittenPages) {
    release(capture());
    EXPECT_EQ(last_cost_.first_fill, size());
    release(capture());
    EXPECT_EQ(last_cost_.copied, 0u);
    live()[50 * kPageSize] = 1;
    live()[60 * kPageSize] = 1;
    release(capture());
    EXPECT_EQ(last_cost_.copied, 2 * kPageSize);
}

TEST_P(ShadowTest, PutBackIsNotCopiedAgain) {
    uint64_t random = 3;
    Version first = capture();
    live()[50 * kPageSize] = 1;
    Version second = capture();
    replay(second, random, 0);
    replay(first, random, 0);  // loads and puts back page 50, which has not changed since `second`
    release(second);
    release(first);
    release(capture());
    EXPECT_EQ(last_cost_.copied, 0u);
}

TEST_P(ShadowTest, DenseBlocksStopFaultingAndRecover) {
    release(capture());
    memset(live(), 1, size());
    release(capture());
    EXPECT_EQ(shadow().block_counts().dense, 0u) << "once is no habit";
    memset(live(), 2, size());
    release(capture());
    EXPECT_GT(shadow().block_counts().dense, 0u);
    EXPECT_EQ(shadow().block_counts().guarded, 0u);
    live()[4 * kPageSize] = 3;
    release(capture());
    EXPECT_GT(shadow().block_counts().dense, 0u) << "somebody still writes there";
    release(capture());
    EXPECT_EQ(shadow().block_counts().dense, 0u) << "nobody wrote";
    const Version version = capture();
    live()[0] ^= 1;
    live()[size() - 1] ^= 1;
    expect_recoverable(version);
    release(version);
}

// What a plan is made with stays what happens.
TEST_P(ShadowTest, NoBlockBecomesDenseUnderAPlan) {
    release(capture());
    Version version = 0;
    for (int window = 0; window < 4; ++window) {
        memset(live(), window + 1, size());
        PageRuns pages;
        CaptureCost cost;
        cost.pages = &pages;
        cost.planned = true;
        ASSERT_TRUE(mechanism_->capture(version = 100 + static_cast<Version>(window), cost).ok());
        EXPECT_EQ(shadow().block_counts().dense, 0u);
        ASSERT_EQ(pages.size(), 1u);
        EXPECT_EQ(size_t{pages[0].count} * kPageSize, buffer_.range.pages().size());
        if (window < 3) mechanism_->release(version);
    }
    live()[7 * kPageSize] ^= 1;
    ReplayView view;
    ASSERT_TRUE(mechanism_->changed(version, view).ok());
    size_t loaded = 0;
    for (const Piece &piece : view.pieces) loaded += piece.size;
    EXPECT_EQ(loaded, kPageSize);
    mechanism_->release(version);
}

// The writer of a dense block becomes sparse: noticed when the block's turn to be guarded comes.
TEST_P(ShadowTest, DenseBlocksWithFewWritesRecover) {
    release(capture());
    for (int window = 0; window < 2; ++window) {
        memset(live(), window + 1, size());
        release(capture());
    }
    ASSERT_GT(shadow().block_counts().dense, 0u);
    for (int window = 0; window < 70; ++window) {
        for (size_t at = kPageSize; at < size(); at += 64 * kPageSize) ++live()[at];
        release(capture());
    }
    EXPECT_EQ(shadow().block_counts().dense, 0u);
}

class RingTest : public ShadowTest {
  protected:
    static constexpr size_t kBlocks = by_build(32u, 32u, 8u);
    RingTest() : ShadowTest(kBlocks * kHugePageSize) {}
};
INSTANTIATE_TEST_SUITE_P(Guarded, RingTest, testing::Values(Kind{"ShadowGuarded", MechanismKind::kShadow, true}),
                         [](const auto &kind) { return kind.param.name; });

// A queue: every window overwrites the next stretch, more than a block of it. Blocks that it has left behind are not copied for ever.
TEST_P(RingTest, CopiesLittleMoreThanWhatChanged) {
    constexpr size_t kStep = kHugePageSize * 5 / 4;
    release(capture());
    size_t written = 0, copied = 0, at = 0;
    for (int window = 0; window < 60; ++window) {
        const Version version = capture();
        if (window != 0) copied += last_cost_.copied;
        if (at + kStep > size()) at = 0;
        memset(live() + at, window + 1, kStep);
        at += kStep, written += kStep;
        if (window % 7 == 0) expect_recoverable(version);
        release(version);
    }
    EXPECT_LT(static_cast<double>(copied), 1.6 * static_cast<double>(written));
    EXPECT_LE(shadow().block_counts().dense, 3u);
}

TEST_P(ShadowTest, NoMemoryForBeforeImagesRejectsOnlyThatVersion) {
    Version old = capture();
    pool_.limit_headroom(0);
    memset(live(), 1, size());
    Version fresh = capture();
    ReplayView view;
    Status status = mechanism_->changed(old, view);
    EXPECT_EQ(status.code(), REPRISE_REJECTED);
    EXPECT_NE(std::string(status.text()).find("buffer"), std::string::npos);
    expect_recoverable(fresh);
    release(old);
    release(fresh);
}

TEST_P(ShadowTest, WriteIntentSparesTheFault) {
    release(capture());
    mechanism_->write_intent({buffer_.range.begin + 100 * kPageSize, buffer_.range.begin + 104 * kPageSize});
    std::vector<AddressRange> runs;
    mechanism_->written_since_capture(runs);
    ASSERT_EQ(runs.size(), 1u) << "announced pages count as written";
    Version version = capture();
    live()[100 * kPageSize] = 4;
    expect_recoverable(version);
    release(version);
}

TEST(Watch, RejectsChangedBytesOnly) {
    ArenaMemory memory(1 << 20);
    Buffer buffer;
    buffer.range = memory.range();
    buffer.name = "weight";
    WatchMechanism watch(buffer);
    CaptureCost cost;
    ASSERT_TRUE(watch.capture(1, cost).ok());
    EXPECT_EQ(cost.copied, 0u);
    volatile uint8_t *p = memory.data();
    p[9] = p[9];
    ReplayView view;
    EXPECT_TRUE(watch.changed(1, view).ok()) << "written is not changed";
    p[9] = 1;
    Status status = watch.changed(1, view);
    EXPECT_EQ(status.code(), REPRISE_REJECTED);
    EXPECT_NE(std::string(status.text()).find("weight"), std::string::npos);
    EXPECT_TRUE(view.pieces.empty());
    watch.release(1);
    EXPECT_EQ(watch.outstanding(), 0u);
}

}  // namespace
}  // namespace reprise::test
