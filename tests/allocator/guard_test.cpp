// The page guard when all goes well: what was written, and nothing else, is reported.
#include <fcntl.h>
#include <sys/mman.h>

#include <set>
#include <thread>

#include "tests/allocator/guard_support.h"

namespace reprise::test {
namespace {

TEST_F(Guard, ReportsWrittenPagesOnly) {
    const AddressRange r = block(64);
    GuardResult result;
    const Pages unarmed = collect(r, false, 8, &result);
    EXPECT_TRUE(result == GuardResult::kAllDirty || unarmed == every_page(64)) << "never armed: everything counts as written";
    ASSERT_EQ(port().guard_arm(r), GuardResult::kOk);
    EXPECT_EQ(collect(r, false, 8), Pages{});
    char c = *reinterpret_cast<volatile char *>(r.begin);
    EXPECT_EQ(c, 1);
    EXPECT_EQ(collect(r, false, 8), Pages{}) << "reading is not writing";
    write(r, 0);
    write(r, 5);
    write(r, 6);
    write(r, 63);
    EXPECT_EQ(collect(r, false, 8), (Pages{0, 5, 6, 63}));
    EXPECT_EQ(collect(r, false, 8), (Pages{0, 5, 6, 63})) << "looking does not reset";
    EXPECT_EQ(collect(r, true, 8), (Pages{0, 5, 6, 63}));
    EXPECT_EQ(collect(r, true, 8), Pages{}) << "get and reset";
    write(r, 6);
    EXPECT_EQ(collect(r, true, 8), Pages{6}) << "armed again by the reset";
    ASSERT_EQ(port().guard_disarm(r), GuardResult::kOk);
    EXPECT_EQ(collect(r, false, 8), every_page(64));
}

TEST_F(Guard, RandomWritesAgainstASet) {
    REPRISE_SEEDED;
    std::mt19937_64 random(seed());
    constexpr size_t kPages = 4096;
    const AddressRange r = block(kPages);
    ASSERT_EQ(port().guard_arm(r), GuardResult::kOk);
    std::set<size_t> expected;
    for (int round = 0; round < 30; ++round) {
        const size_t writes = round % 3 == 0 ? 1500 : random() % 100;
        for (size_t i = 0; i < writes; ++i) {
            const size_t page = random() % kPages;
            write(r, page);
            expected.insert(page);
        }
        const bool reset = random() % 2 == 0;
        const size_t capacity = round % 5 == 0 ? 4096 : 1 + random() % 300;
        ASSERT_EQ(collect(r, reset, capacity), Pages(expected.begin(), expected.end())) << "round " << round << " capacity " << capacity;
        if (reset) expected.clear();
    }
}

TEST_F(Guard, MoreRunsThanTheKernelFindsInOneGo) {
    constexpr size_t kPages = 3000;  // 1,500 separate runs
    const AddressRange r = block(kPages);
    ASSERT_EQ(port().guard_arm(r), GuardResult::kOk);
    Pages odd;
    for (size_t i = 1; i < kPages; i += 2) odd.push_back(i);
    for (size_t capacity : {size_t{1}, size_t{7}, size_t{255}, size_t{256}, size_t{257}, size_t{512}, size_t{1500}, size_t{5000}}) {
        for (size_t page : odd) write(r, page);
        ASSERT_EQ(collect(r, false, capacity), odd) << capacity;
        ASSERT_EQ(collect(r, true, capacity), odd) << capacity;
        ASSERT_EQ(collect(r, true, capacity), Pages{}) << capacity;
    }
    for (size_t page : odd) write(r, page);
    size_t count = 77;
    EXPECT_EQ(port().guard_collect(r, true, nullptr, 0, &count), GuardResult::kOk);
    EXPECT_EQ(count, 0u);
    EXPECT_EQ(collect(r, true, 5000), odd) << "no room: nothing may be reset unseen";
}

TEST_F(Guard, NeighboursAreLeftAlone) {
    const AddressRange r = block(96);
    const AddressRange middle{r.begin + 32 * kPageSize, r.begin + 64 * kPageSize};
    ASSERT_EQ(port().guard_arm(middle), GuardResult::kOk);
    const Pages seen = collect(r, false, 64);
    EXPECT_EQ(seen.size(), 64u) << "only the middle is armed";
    write(r, 40);
    EXPECT_EQ(collect(middle, true, 4), Pages{8});
}

TEST_F(Guard, ThreadsAreAllSeen) {
    constexpr size_t kPages = 2048;
    const AddressRange r = block(kPages);
    ASSERT_EQ(port().guard_arm(r), GuardResult::kOk);
    std::vector<std::thread> threads;
    std::set<size_t> seen;
    for (size_t t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
            for (size_t i = t; i < kPages; i += 4) write(r, i);
        });
    }
    for (int i = 0; i < 50; ++i) {
        for (size_t page : collect(r, true, 100)) seen.insert(page);
    }
    for (std::thread &thread : threads) thread.join();
    for (size_t page : collect(r, true, 100)) seen.insert(page);
    EXPECT_EQ(seen.size(), kPages) << "no write may fall between two get+resets";
}

TEST_F(Guard, WritesByTheKernelAreSeen) {
    const AddressRange r = block(64);
    ASSERT_EQ(port().guard_arm(r), GuardResult::kOk);
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const std::string data(3 * kPageSize, 'x');
    ASSERT_EQ(::write(ends[1], data.data(), data.size()), static_cast<ssize_t>(data.size()));
    ASSERT_EQ(::read(ends[0], reinterpret_cast<void *>(r.begin + 10 * kPageSize), data.size()), static_cast<ssize_t>(data.size()))
        << "a read into armed pages must neither fail nor come back short";
    EXPECT_EQ(collect(r, true, 8), (Pages{10, 11, 12}));
    close(ends[0]);
    close(ends[1]);
    GuardCapabilities c;
    port().guard_probe(&c);
    EXPECT_TRUE(c.kernel_writes_seen);
}

TEST_F(Guard, DroppedPagesCountAsWritten) {
    const AddressRange r = block(64);
    ASSERT_EQ(port().guard_arm(r), GuardResult::kOk);
    ASSERT_EQ(madvise(reinterpret_cast<void *>(r.begin + 8 * kPageSize), 4 * kPageSize, MADV_DONTNEED), 0);
    EXPECT_EQ(collect(r, true, 8), (Pages{8, 9, 10, 11}));
    GuardCapabilities c;
    port().guard_probe(&c);
    if (!c.hole_seen) GTEST_SKIP() << "dropped huge pages are not reported by this kernel; the probe says so";
    const AddressRange big = block(2048);
    const uintptr_t huge = (big.begin + kHugePageSize - 1) / kHugePageSize * kHugePageSize;
    ASSERT_EQ(port().guard_arm(big), GuardResult::kOk);
    ASSERT_EQ(madvise(reinterpret_cast<void *>(huge), kHugePageSize, MADV_DONTNEED), 0);
    EXPECT_EQ(collect(big, true, 8).size(), kHugePageSize / kPageSize);
}

TEST_F(Guard, UnpopulatedPagesCanBeArmed) {
    void *p = place(size_t{256} * kPageSize, 64, nullptr);
    ASSERT_NE(p, nullptr);
    const AddressRange r = range_of(p, 256 * kPageSize);
    port().trim();
    ASSERT_EQ(port().guard_arm(r), GuardResult::kOk);
    EXPECT_EQ(collect(r, false, 8), Pages{});
    write(r, 100);
    EXPECT_EQ(collect(r, true, 8), Pages{100});
    release_block(p);
}

TEST_F(Guard, AFreedBlockIsDisarmed) {
    const size_t pages = 128;
    void *p = place(pages * kPageSize, 64, nullptr);
    const AddressRange r = range_of(p, pages * kPageSize);
    std::memset(p, 1, r.size());
    ASSERT_EQ(port().guard_arm(r), GuardResult::kOk);
    EXPECT_EQ(collect(r, false, 4), Pages{});
    ASSERT_TRUE(release_block(p));
    void *again = place(pages * kPageSize, 64, nullptr);
    ASSERT_EQ(again, p);
    EXPECT_EQ(collect(r, false, 4), every_page(pages)) << "the next owner must not pay for faults";
    release_block(again);
    // The same for the tail that a shrink cuts off, and for a block of which a part was armed.
    p = place(pages * kPageSize, 64, nullptr);
    ASSERT_EQ(port().guard_arm({address_of(p) + 100 * kPageSize, address_of(p) + 110 * kPageSize}), GuardResult::kOk);
    ASSERT_TRUE(resize_in_place(p, 64 * kPageSize));
    EXPECT_EQ(collect({address_of(p) + 64 * kPageSize, address_of(p) + pages * kPageSize}, false, 4), every_page(64));
    release_block(p);
}

TEST_F(Guard, HugePagesStayHugeUntilWritten) {
    const AddressRange r = block(8 * 512);
    const size_t before = port().guard_huge_blocks(r);
    if (before == 0) GTEST_SKIP() << "no huge pages here (transparent_hugepage=never, or memory is fragmented)";
    ASSERT_EQ(port().guard_arm(r), GuardResult::kOk);
    EXPECT_GE(port().guard_huge_blocks(r) + 2, before) << "arming splits at most the blocks at both ends";
    write(r, 3 * 512);
    const Pages seen = collect(r, true, 4);
    EXPECT_EQ(seen, Pages{3 * 512}) << "one page, not two megabytes";
    EXPECT_LT(port().guard_huge_blocks(r), before);
    EXPECT_EQ(port().guard_huge_blocks({r.begin + 1, r.end}), 0u);
}

TEST_F(Guard, FewMappingsWhateverIsArmed) {
    std::vector<AddressRange> ranges;
    for (int i = 0; i < 300; ++i) ranges.push_back(block(i % 8 == 0 ? 600 : 40));
    ASSERT_EQ(port().guard_arm(ranges[0]), GuardResult::kOk);
    const size_t before = mapping_count();
    for (size_t i = 0; i < ranges.size(); i += 2) ASSERT_EQ(port().guard_arm(ranges[i]), GuardResult::kOk);
    EXPECT_LE(mapping_count(), before + 2);
    for (size_t i = 0; i < ranges.size(); i += 2) EXPECT_EQ(collect(ranges[i], false, 4), Pages{});
}

TEST_F(Guard, ForeignPrivateMappings) {
    const size_t size = 64 * kPageSize;
    char *p = static_cast<char *>(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    std::memset(p, 1, size);
    const AddressRange r = range_of(p, size);
    const AddressRange middle{r.begin + 16 * kPageSize, r.begin + 48 * kPageSize};
    const size_t before = mapping_count();
    ASSERT_EQ(port().guard_arm(middle), GuardResult::kOk);
    write(middle, 3);
    write(r, 2);
    EXPECT_EQ(collect(middle, true, 4), Pages{3});
    ASSERT_EQ(port().guard_disarm(middle), GuardResult::kOk);
    EXPECT_EQ(mapping_count(), before) << "disarming a foreign range undoes its registration";
    GuardResult result;
    collect(middle, false, 4, &result);
    EXPECT_EQ(result, GuardResult::kAllDirty);
    ASSERT_EQ(port().guard_arm(middle), GuardResult::kOk);
    munmap(p, size);
    EXPECT_EQ(port().guard_arm(r), GuardResult::kUnavailable) << "unmapped";
}

TEST_F(Guard, ForeignFileMappings) {
    char name[] = "/tmp/reprise-guard-XXXXXX";
    const int fd = mkstemp(name);
    ASSERT_GE(fd, 0);
    unlink(name);
    const std::string data(64 * kPageSize, 'f');
    ASSERT_EQ(::write(fd, data.data(), data.size()), static_cast<ssize_t>(data.size()));
    void *mine = mmap(nullptr, data.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    const AddressRange r = range_of(mine, data.size());
    ASSERT_EQ(port().guard_arm(r), GuardResult::kOk) << "parameters of from_pretrained live in such mappings";
    EXPECT_EQ(collect(r, false, 4), Pages{});
    write(r, 9);
    EXPECT_EQ(collect(r, true, 4), Pages{9});
    EXPECT_EQ(port().guard_disarm(r), GuardResult::kOk);
    munmap(mine, data.size());
    void *shared = mmap(nullptr, data.size(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    EXPECT_EQ(port().guard_arm(range_of(shared, data.size())), GuardResult::kUnavailable) << "others could write unseen";
    munmap(shared, data.size());
    close(fd);
}

TEST_F(Guard, RefusesWhatIsNotWholePagesOfOneKind) {
    const AddressRange r = block(64);
    EXPECT_EQ(port().guard_arm({r.begin + 8, r.end}), GuardResult::kUnavailable);
    EXPECT_EQ(port().guard_arm({r.begin, r.begin}), GuardResult::kUnavailable);
    EXPECT_EQ(port().guard_arm({r.end, r.begin}), GuardResult::kUnavailable);
    const AddressRange arena_range = arena.reservation();
    EXPECT_EQ(port().guard_arm({arena_range.begin - kPageSize, arena_range.begin + kPageSize}), GuardResult::kUnavailable);
}

}  // namespace
}  // namespace reprise::test
