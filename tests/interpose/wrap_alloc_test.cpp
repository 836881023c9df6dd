// The middle ring with real functions and an allocator of the test's own: order of records, errno, failures, who is tracked.
#include "interpose/wrap_alloc.h"

#include <errno.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "allocator/engaged.h"
#include "fake_allocator.h"
#include "interpose/boot_heap.h"

namespace {

using namespace reprise;

bool g_fail = false;  // the next real allocation fails

void *fake_malloc(size_t size) {
    g_world.log.push_back("malloc");
    if (g_fail) {
        errno = ENOMEM;
        return nullptr;
    }
    return std::malloc(size);
}
void *fake_calloc(size_t count, size_t size) {
    g_world.log.push_back("calloc");
    return std::calloc(count, size);
}
void *fake_realloc(void *block, size_t size) {
    g_world.log.push_back("realloc");
    if (g_fail) {
        errno = ENOMEM;
        return nullptr;
    }
    return std::realloc(block, size);
}
void fake_free(void *block) {
    g_world.log.push_back("free");
    std::free(block);
}
int fake_posix_memalign(void **out, size_t alignment, size_t size) {
    g_world.log.push_back("posix_memalign");
    return g_fail ? ENOMEM : ::posix_memalign(out, alignment, size);
}
void *fake_aligned(size_t alignment, size_t size) {
    g_world.log.push_back("aligned");
    return std::aligned_alloc(alignment, size);
}
size_t fake_usable(void *) { return 12345; }

class WrapAlloc : public ::testing::Test {
  protected:
    void SetUp() override {
        g_world = FakeWorld{};
        g_fail = false;
        g_engaged = 0;
        next_.malloc.set(fake_malloc);
        next_.calloc.set(fake_calloc);
        next_.realloc.set(fake_realloc);
        next_.free.set(fake_free);
        next_.posix_memalign.set(fake_posix_memalign);
        next_.aligned_alloc.set(fake_aligned);
        next_.memalign.set(fake_aligned);
        next_.malloc_usable_size.set(fake_usable);
    }
    std::vector<std::string> log() { return std::exchange(g_world.log, {}); }
    using Log = std::vector<std::string>;

    Next next_;
};

constexpr size_t kLarge = 1 << 20;
constexpr CallerClass kImporter = kCallerImporter;
constexpr CallerClass kTensors = kCallerTensorLibrary;

TEST_F(WrapAlloc, UntrackedCallersReachTheRealFunctionAlone) {
    void *a = wrap_malloc(next_, kLarge, kCallerOther);
    void *b = wrap_calloc(next_, 4, kLarge, kCallerOther);
    void *c = nullptr;
    EXPECT_EQ(wrap_posix_memalign(next_, &c, 64, kLarge, kCallerOther), 0);
    wrap_free(next_, a);
    wrap_free(next_, b);
    wrap_free(next_, c);
    wrap_free(next_, nullptr);
    EXPECT_EQ(log(), (Log{"malloc", "calloc", "posix_memalign", "free", "free", "free"}));
}

TEST_F(WrapAlloc, PlacementFollowsCallerSizeAndFunction) {
    EXPECT_TRUE(wrap_malloc(next_, 4095, kImporter) != nullptr);
    EXPECT_EQ(log(), Log{"malloc"});
    EXPECT_TRUE(wrap_malloc(next_, 4096, kImporter) != nullptr);
    EXPECT_EQ(log(), (Log{"malloc", "note"}));
    EXPECT_TRUE(wrap_malloc(next_, (128 << 10) - 1, kImporter) != nullptr);
    EXPECT_EQ(log(), (Log{"malloc", "note"}));
    EXPECT_TRUE(wrap_malloc(next_, 128 << 10, kImporter) != nullptr);
    EXPECT_EQ(log(), Log{"place"});
    EXPECT_TRUE(wrap_malloc(next_, kLarge, kTensors) != nullptr);
    EXPECT_EQ(log(), Log{"malloc"});
    EXPECT_TRUE(wrap_aligned_alloc(next_, 64, 64, kTensors) != nullptr);
    EXPECT_EQ(log(), (Log{"aligned", "note"}));
    EXPECT_TRUE(wrap_memalign(next_, 64, kLarge, kTensors) != nullptr);
    EXPECT_EQ(log(), Log{"place"});
}

TEST_F(WrapAlloc, AFullArenaFallsBackToTheNextAllocatorAndIsListed) {
    g_world.can_place = false;
    void *block = wrap_malloc(next_, kLarge, kImporter);
    EXPECT_EQ(log(), (Log{"malloc", "note"}));
    EXPECT_EQ(g_world.noted[block], kLarge);
}

TEST_F(WrapAlloc, TheRecordEndsBeforeTheRealFree) {
    void *block = wrap_malloc(next_, 5000, kImporter);
    log();
    wrap_free(next_, block);
    EXPECT_EQ(log(), (Log{"forget", "free"}));
}

TEST_F(WrapAlloc, ErrnoIsKeptAroundOurOwnWork) {
    errno = 42;
    void *noted = wrap_malloc(next_, 5000, kImporter);
    void *placed = wrap_malloc(next_, kLarge, kImporter);
    EXPECT_EQ(errno, 42);
    placed = wrap_realloc(next_, placed, 2 * kLarge, kImporter);
    g_world.can_resize = true;
    placed = wrap_realloc(next_, placed, 3 * kLarge, kImporter);
    noted = wrap_realloc(next_, noted, 4000, kImporter);
    noted = wrap_realloc(next_, noted, 9000, kImporter);
    EXPECT_EQ(errno, 42);
    wrap_free(next_, noted);
    wrap_free(next_, placed);
    EXPECT_EQ(errno, 42);
    void *aligned = nullptr;
    EXPECT_EQ(wrap_posix_memalign(next_, &aligned, 64, 100, kTensors), 0);
    EXPECT_EQ(errno, 42);
}

TEST_F(WrapAlloc, AFailureIsTheRealOne) {
    g_fail = true;
    g_world.can_place = false;
    errno = 0;
    EXPECT_EQ(wrap_malloc(next_, kLarge, kImporter), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    void *untouched = this;
    errno = 7;
    EXPECT_EQ(wrap_posix_memalign(next_, &untouched, 64, kLarge, kTensors), ENOMEM);
    EXPECT_EQ(untouched, this);
    EXPECT_EQ(errno, 7);
    EXPECT_EQ(wrap_posix_memalign(next_, &untouched, 48, kLarge, kTensors), ENOMEM);  // a bad alignment goes straight to the real call
    EXPECT_TRUE(g_world.noted.empty());
}

TEST_F(WrapAlloc, AFailedReallocKeepsBlockAndRecord) {
    char *noted = static_cast<char *>(wrap_malloc(next_, 5000, kImporter));
    char *placed = static_cast<char *>(wrap_malloc(next_, kLarge, kImporter));
    noted[4999] = placed[kLarge - 1] = 9;
    g_fail = true;
    g_world.can_place = false;
    log();
    EXPECT_EQ(wrap_realloc(next_, noted, 2 * kLarge, kImporter), nullptr);
    EXPECT_EQ(wrap_realloc(next_, placed, 2 * kLarge, kImporter), nullptr);
    EXPECT_EQ(log(), (Log{"malloc", "malloc"}));
    EXPECT_EQ(g_world.noted[noted], 5000u);
    EXPECT_EQ(g_world.placed[placed], kLarge);
    EXPECT_EQ(noted[4999] + placed[kLarge - 1], 18);
}

TEST_F(WrapAlloc, ReallocMovesBetweenTheWorlds) {
    char *block = static_cast<char *>(wrap_malloc(next_, 5000, kImporter));
    std::memset(block, 3, 5000);
    log();
    block = static_cast<char *>(wrap_realloc(next_, block, kLarge, kCallerOther));  // grown by a library: still a block of the job's
    EXPECT_EQ(log(), (Log{"place", "forget", "free"}));
    EXPECT_EQ(block[4999], 3);
    block = static_cast<char *>(wrap_realloc(next_, block, 6000, kCallerOther));
    EXPECT_EQ(log(), (Log{"malloc", "note", "release"}));
    EXPECT_EQ(block[4999], 3);
    EXPECT_EQ(g_world.noted[block], 6000u);
    EXPECT_EQ(wrap_realloc(next_, block, 5500, kCallerOther), block);
    EXPECT_EQ(g_world.noted[block], 5500u);
    char *small = static_cast<char *>(std::malloc(10));
    std::memset(small, 4, 10);
    log();
    small = static_cast<char *>(wrap_realloc(next_, small, 8000, kImporter));
    EXPECT_EQ(log(), (Log{"realloc", "note"}));
    EXPECT_EQ(small[9], 4);
}

TEST_F(WrapAlloc, ReallocToNothingFrees) {
    void *placed = wrap_malloc(next_, kLarge, kImporter);
    log();
    EXPECT_EQ(wrap_realloc(next_, placed, 0, kImporter), nullptr);
    EXPECT_EQ(log(), Log{"release"});
}

TEST_F(WrapAlloc, CallocZeroesWhatTheArenaDidNot) {
    char *block = static_cast<char *>(wrap_calloc(next_, 1024, 1024, kImporter));
    for (size_t i = 0; i < kLarge; ++i) ASSERT_EQ(block[i], 0);
    log();
    EXPECT_EQ(wrap_calloc(next_, SIZE_MAX / 2, 4, kImporter), nullptr);  // overflow: the real call refuses it
    EXPECT_EQ(log(), Log{"calloc"});
}

TEST_F(WrapAlloc, UsableSizeKnowsEveryWorld) {
    void *placed = wrap_malloc(next_, kLarge, kImporter);
    EXPECT_EQ(wrap_malloc_usable_size(next_, placed), kLarge);
    void *boot = boot_allocate(100, 16);
    EXPECT_EQ(wrap_malloc_usable_size(next_, boot), 100u);
    EXPECT_EQ(wrap_malloc_usable_size(next_, this), 12345u);
    EXPECT_EQ(wrap_malloc_usable_size(next_, nullptr), 0u);
}

TEST_F(WrapAlloc, BootBlocksAreNeverGivenToTheNextAllocator) {
    char *boot = static_cast<char *>(boot_allocate(100, 64));
    ASSERT_NE(boot, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(boot) % 64, 0u);
    std::memset(boot, 8, 100);
    char *moved = static_cast<char *>(wrap_realloc(next_, boot, 200, kCallerOther));
    EXPECT_EQ(moved[99], 8);
    wrap_free(next_, boot);
    EXPECT_EQ(log(), Log{"malloc"});
    EXPECT_EQ(boot_allocate(1 << 20, 16), nullptr);
}

TEST_F(WrapAlloc, FreedTwiceEndsTheProcessWithAMessage) {
    void *placed = wrap_malloc(next_, kLarge, kImporter);
    wrap_free(next_, placed);
    EXPECT_DEATH(wrap_free(next_, placed), "free of a pointer into a tracked arena");
}

}  // namespace
