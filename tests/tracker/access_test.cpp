// Bytes that would fault are told from those that would not, without a fault.
#include "tracker/access.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <tuple>

namespace reprise::test {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

// All ways of asking: page by page, about mappings, and by the text of /proc/self/maps.
class Access : public testing::TestWithParam<std::tuple<size_t, bool>> {
  protected:
    Access() { access_by_text_for_test(std::get<1>(GetParam())); }
    ~Access() override {
        access_by_text_for_test(false);
        if (memory_ != nullptr) munmap(memory_, size_);
        if (file_ >= 0) close(file_);
    }
    AddressRange map(int protection) {
        memory_ = mmap(nullptr, size_, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        EXPECT_NE(memory_, MAP_FAILED);
        return range_of(memory_, size_);
    }
    AddressRange map_file(size_t file_size, int flags) {
        std::string name = testing::TempDir() + "/access-XXXXXX";
        file_ = mkstemp(name.data());
        unlink(name.c_str());
        EXPECT_EQ(ftruncate(file_, static_cast<off_t>(file_size)), 0);
        memory_ = mmap(nullptr, size_, PROT_READ | PROT_WRITE, flags, file_, 0);
        EXPECT_NE(memory_, MAP_FAILED);
        return range_of(memory_, size_);
    }
    char *at(size_t offset) { return static_cast<char *>(memory_) + offset; }

    const size_t size_ = std::get<0>(GetParam());
    void *memory_ = nullptr;
    int file_ = -1;
};

TEST_P(Access, OrdinaryMemory) {
    const AddressRange range = map(PROT_READ | PROT_WRITE);
    EXPECT_TRUE(readable(range));
    EXPECT_TRUE(writable(range));
    EXPECT_TRUE(readable({range.begin + 5, range.end - 5}));
    EXPECT_TRUE(readable({range.begin, range.begin}));
    errno = 7;
    EXPECT_TRUE(readable(range));
    EXPECT_EQ(errno, 7);
}

TEST_P(Access, Permissions) {
    const AddressRange range = map(PROT_READ | PROT_WRITE);
    ASSERT_EQ(mprotect(at(kPageSize), kPageSize, PROT_READ), 0);
    EXPECT_TRUE(readable(range));
    EXPECT_FALSE(writable(range));
    EXPECT_TRUE(writable({range.begin, range.begin + kPageSize}));
    EXPECT_FALSE(writable({range.begin + kPageSize - 1, range.begin + kPageSize + 1}));
    ASSERT_EQ(mprotect(at(kPageSize), kPageSize, PROT_NONE), 0);
    EXPECT_FALSE(readable(range));
    EXPECT_TRUE(readable({range.begin + 2 * kPageSize, range.end}));
}

TEST_P(Access, Holes) {
    const AddressRange range = map(PROT_READ | PROT_WRITE);
    ASSERT_EQ(munmap(at(2 * kPageSize), kPageSize), 0);
    EXPECT_FALSE(readable(range));
    EXPECT_FALSE(writable(range));
    EXPECT_TRUE(readable({range.begin, range.begin + 2 * kPageSize}));
    ASSERT_EQ(munmap(at(size_ - kPageSize), kPageSize), 0);
    EXPECT_FALSE(readable({range.begin + 3 * kPageSize, range.end}));
    EXPECT_TRUE(readable({range.begin + 3 * kPageSize, range.end - kPageSize}));
}

TEST_P(Access, AFileThatIsCutShort) {
    for (int flags : {MAP_PRIVATE, MAP_SHARED}) {
        const AddressRange range = map_file(size_, flags);
        EXPECT_TRUE(readable(range));
        EXPECT_TRUE(writable({range.begin, range.begin + kPageSize}));
        ASSERT_EQ(ftruncate(file_, static_cast<off_t>(size_ / 2)), 0);
        EXPECT_FALSE(readable(range));
        EXPECT_FALSE(writable({range.end - 10, range.end}));
        EXPECT_TRUE(readable({range.begin, range.begin + size_ / 2}));
        munmap(memory_, size_);
        memory_ = nullptr;
        close(file_);
    }
}

TEST_P(Access, NeverMapped) {
    const AddressRange range = map(PROT_READ);
    munmap(memory_, size_);
    memory_ = nullptr;
    EXPECT_FALSE(readable(range));
    EXPECT_FALSE(readable({0, 4096}));
    EXPECT_FALSE(readable({~uintptr_t{0} - 2 * size_, ~uintptr_t{0} - size_}));
}

INSTANTIATE_TEST_SUITE_P(Sizes, Access, testing::Combine(testing::Values(kMiB / 32, kMiB, 40 * kMiB), testing::Bool()),
                         [](const auto &form) {
                             return std::to_string(std::get<0>(form.param) >> 10) + "KiB" + (std::get<1>(form.param) ? "Text" : "");
                         });

}  // namespace
}  // namespace reprise::test
