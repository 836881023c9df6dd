// Whose bytes a copy holds and how long: equal captures share one, an unneeded one is written over, none outlives its need.
#include "tracker/mechanisms/image_mechanism.h"

#include <cstring>

#include "tests/tracker/arena_memory.h"

namespace reprise::test {
namespace {

class ImageMechanismTest : public testing::TestWithParam<MechanismKind> {
  protected:
    static constexpr size_t kSize = 100 << 10;
    ImageMechanismTest() : memory_(1 << 20), pool_(*allocator_port()) {
        buffer_.range = {memory_.range().begin, memory_.range().begin + kSize};
        buffer_.name = "buffer";
        mechanism_ = std::make_unique<ImageMechanism>(buffer_, pool_, GetParam());
        fill(0);
    }
    bool small() const { return GetParam() == MechanismKind::kSmall; }
    void fill(int value) { memset(memory_.data(), value, kSize); }
    uint64_t capture(Version version) {
        CaptureCost cost;
        EXPECT_TRUE(mechanism_->capture(version, cost).ok());
        return cost.copied;
    }
    // The value that every byte of the version has; -1: they differ.
    int value_of(Version version) {
        fill(255);
        ReplayView view;
        EXPECT_TRUE(mechanism_->changed(version, view).ok());
        EXPECT_EQ(view.pieces.size(), 1u);
        if (view.pieces.size() != 1 || view.pieces[0].size != kSize) return -1;
        for (size_t i = 0; i < kSize; ++i) {
            if (view.pieces[0].image[i] != view.pieces[0].image[0]) return -1;
        }
        return static_cast<int>(view.pieces[0].image[0]);
    }
    size_t copies() const { return pool_.live() / kSize; }

    ArenaMemory memory_;
    ImagePool pool_;
    Buffer buffer_;
    std::unique_ptr<ImageMechanism> mechanism_;
};

TEST_P(ImageMechanismTest, EqualCapturesOfSmallBuffersShareOneCopy) {
    EXPECT_EQ(capture(1), kSize);
    EXPECT_EQ(capture(2), small() ? 0 : kSize);
    EXPECT_EQ(copies(), small() ? 1u : 2u);
    fill(1);
    capture(3);
    EXPECT_EQ(copies(), small() ? 2u : 3u);
    mechanism_->release(1);
    EXPECT_EQ(copies(), 2u) << "the second needs its bytes";
    EXPECT_EQ(value_of(2), 0);
    EXPECT_EQ(value_of(3), 1);
    mechanism_->release(2);
    EXPECT_EQ(copies(), 1u);
    EXPECT_EQ(value_of(3), 1);
    mechanism_->release(3);
    EXPECT_EQ(copies(), small() ? 1u : 0u) << "a small one is kept to compare with";
    EXPECT_EQ(mechanism_->outstanding(), 0u);
}

TEST_P(ImageMechanismTest, ACopyThatNobodyNeedsIsWrittenOver) {
    capture(1);
    fill(1);
    capture(2);
    mechanism_->release(2);
    EXPECT_EQ(copies(), small() ? 2u : 1u) << "a large one is nobody's until the next capture";
    fill(2);
    EXPECT_EQ(capture(3), kSize);
    EXPECT_EQ(copies(), 2u);
    EXPECT_EQ(value_of(1), 0);
    EXPECT_EQ(value_of(3), 2);
}

TEST_P(ImageMechanismTest, AFailedCaptureLeavesTheOthers) {
    capture(1);
    fill(1);
    pool_.limit_headroom(0);
    CaptureCost cost;
    const Status status = mechanism_->capture(2, cost);
    EXPECT_EQ(status.code(), REPRISE_OUT_OF_MEMORY);
    EXPECT_NE(std::string(status.text()).find("buffer"), std::string::npos);
    EXPECT_EQ(mechanism_->outstanding(), 1u);
    EXPECT_EQ(value_of(1), 0);
    pool_.limit_headroom(SIZE_MAX);
    fill(1);
    EXPECT_EQ(capture(2), kSize);
    EXPECT_EQ(value_of(2), 1);
    EXPECT_EQ(value_of(1), 0);
}

TEST_P(ImageMechanismTest, ReleasedInAnyOrderAndTwice) {
    for (Version version = 1; version <= 4; ++version) {
        fill(static_cast<int>(version));
        capture(version);
    }
    for (Version version : {2u, 4u, 4u, 9u}) mechanism_->release(version);
    EXPECT_EQ(mechanism_->outstanding(), 2u);
    EXPECT_EQ(value_of(1), 1);
    EXPECT_EQ(value_of(3), 3);
    ReplayView view;
    EXPECT_EQ(mechanism_->changed(2, view).code(), REPRISE_REJECTED);
    mechanism_->release(3);
    mechanism_->release(1);
    EXPECT_EQ(copies(), small() ? 1u : 0u);
}

INSTANTIATE_TEST_SUITE_P(, ImageMechanismTest, testing::Values(MechanismKind::kSmall, MechanismKind::kWhole),
                         [](const auto &kind) { return std::string(to_string(kind.param)); });

}  // namespace
}  // namespace reprise::test
