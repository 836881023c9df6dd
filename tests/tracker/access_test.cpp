// Bytes that would fault are told from those that would not, without a fault.
#include "tracker/access.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace reprise::test {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

// Both ways of asking: page by page, and by mappings.
class Access : public testing::TestWithParam<size_t> {
  protected:
    ~Access() override {
        if (memory_ != nullptr) munmap(memory_, GetParam());
        if (file_ >= 0) close(file_);
    }
    AddressRange map(int protection) {
        memory_ = mmap(nullptr, GetParam(), protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        EXPECT_NE(memory_, MAP_FAILED);
        return range_of(memory_, GetParam());
    }
    AddressRange map_file(size_t file_size, int flags) {
        std::string name = testing::TempDir() + "/access-XXXXXX";
        file_ = mkstemp(name.data());
        unlink(name.c_str());
        EXPECT_EQ(ftruncate(file_, static_cast<off_t>(file_size)), 0);
        memory_ = mmap(nullptr, GetParam(), PROT_READ | PROT_WRITE, flags, file_, 0);
        EXPECT_NE(memory_, MAP_FAILED);
        return range_of(memory_, GetParam());
    }
    char *at(size_t offset) { return static_cast<char *>(memory_) + offset; }

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
    ASSERT_EQ(munmap(at(GetParam() - kPageSize), kPageSize), 0);
    EXPECT_FALSE(readable({range.begin + 3 * kPageSize, range.end}));
    EXPECT_TRUE(readable({range.begin + 3 * kPageSize, range.end - kPageSize}));
}

TEST_P(Access, AFileThatIsCutShort) {
    for (int flags : {MAP_PRIVATE, MAP_SHARED}) {
        const AddressRange range = map_file(GetParam(), flags);
        EXPECT_TRUE(readable(range));
        EXPECT_TRUE(writable({range.begin, range.begin + kPageSize}));
        ASSERT_EQ(ftruncate(file_, static_cast<off_t>(GetParam() / 2)), 0);
        EXPECT_FALSE(readable(range));
        EXPECT_FALSE(writable({range.end - 10, range.end}));
        EXPECT_TRUE(readable({range.begin, range.begin + GetParam() / 2}));
        munmap(memory_, GetParam());
        memory_ = nullptr;
        close(file_);
    }
}

TEST_P(Access, NeverMapped) {
    const AddressRange range = map(PROT_READ);
    munmap(memory_, GetParam());
    memory_ = nullptr;
    EXPECT_FALSE(readable(range));
    EXPECT_FALSE(readable({0, 4096}));
    EXPECT_FALSE(readable({~uintptr_t{0} - 2 * GetParam(), ~uintptr_t{0} - GetParam()}));
}

INSTANTIATE_TEST_SUITE_P(Sizes, Access, testing::Values(kMiB, 40 * kMiB),
                         [](const auto &size) { return std::to_string(size.param / kMiB) + "MiB"; });

}  // namespace
}  // namespace reprise::test
