#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "allocator/arena.h"
#include "tests/allocator/support.h"

namespace reprise::test {
namespace {

using ForkTest = Started;

int child_works(void *inherited, size_t size) {
    if (block_size(inherited) != size || static_cast<char *>(inherited)[size - 1] != 42) return 1;
    BlockInfo block;
    if (!port().find(address_of(inherited) + 5, &block)) return 2;
    if (!release_block(inherited)) return 3;
    for (int i = 0; i < 200; ++i) {
        const size_t bytes = kSmallBuffer + static_cast<size_t>(i) * 20000;
        char *p = static_cast<char *>(place(bytes, 64, nullptr));
        if (p == nullptr) return 4;
        std::memset(p, i, bytes);
        note_heap(&block, sizeof block);
        if (!port().find(address_of(&block), &block)) return 5;
        forget_heap(&block);
        if (!release_block(p)) return 6;
    }
    port().trim();
    return 0;
}

TEST_F(ForkTest, ChildWorks) {
    char *p = static_cast<char *>(place(kSmallBuffer, 64, nullptr));
    std::memset(p, 42, kSmallBuffer);
    EXPECT_EQ(in_child([&] { return child_works(p, kSmallBuffer); }), 0);
    EXPECT_EQ(block_size(p), kSmallBuffer) << "the child's free is the child's";
    EXPECT_EQ(p[0], 42);
    EXPECT_TRUE(release_block(p));
}

TEST_F(ForkTest, BorrowedMemoryIsGivenBackInTheChildAndInTheParent) {
    const size_t live = arena.statistics().live;
    void *p = port().borrow(kSmallBuffer);
    ASSERT_NE(p, nullptr);
    EXPECT_EQ(in_child([&] { return arena.give_back(address_of(p)) && arena.statistics().live == live ? 0 : 1; }), 0);
    EXPECT_TRUE(arena.give_back(address_of(p)));
    EXPECT_EQ(arena.statistics().live, live);
}

// tsan forbids starting threads' work in children of multi-threaded processes.
#if !defined(__SANITIZE_THREAD__)
TEST_F(ForkTest, UnderLoad) {
    char *p = static_cast<char *>(place(kSmallBuffer, 64, nullptr));
    std::memset(p, 42, kSmallBuffer);
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
        threads.emplace_back([&, t] {
            std::mt19937_64 random(static_cast<uint64_t>(t));
            static thread_local char small[4096];
            while (!stop) {
                void *q = place(kSmallBuffer + random() % (4 << 20), 64, nullptr);
                note_heap(small, 100);
                if (q != nullptr) release_block(q);
                forget_heap(small);
                end_mapping(range_of(small, 10));
            }
        });
    }
    for (int i = 0; i < 40; ++i) ASSERT_EQ(in_child([&] { return child_works(p, kSmallBuffer); }), 0) << "fork " << i;
    stop = true;
    for (std::thread &thread : threads) thread.join();
    EXPECT_TRUE(release_block(p));
}
#endif

}  // namespace
}  // namespace reprise::test
