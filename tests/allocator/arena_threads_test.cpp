// Several threads: frees on other threads than the allocation's, lookups while everything changes.
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "allocator/arena.h"
#include "tests/allocator/support.h"

namespace reprise::test {
namespace {

using ArenaThreads = Started;

TEST_F(ArenaThreads, CrossThreadFrees) {
    REPRISE_SEEDED;
    constexpr int kThreads = 4, kRounds = kSanitized ? 3000 : 20000, kSlots = 64;
    static std::atomic<void *> slots[kSlots];
    std::atomic<int> wrong{0}, refused{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
        threads.emplace_back([&, t] {
            std::mt19937_64 random(seed() + static_cast<uint64_t>(t));
            for (int i = 0; i < kRounds; ++i) {
                const size_t size = kSmallBuffer + random() % (3 << 20);
                auto *p = static_cast<uint64_t *>(place(size, 64, nullptr));
                if (p == nullptr) {
                    ++refused;
                    continue;
                }
                p[0] = address_of(p);
                p[size / 8 - 1] = size;
                p[1] = size;
                auto *old = static_cast<uint64_t *>(slots[random() % kSlots].exchange(p));
                if (old == nullptr) continue;
                if (old[0] != address_of(old) || old[old[1] / 8 - 1] != old[1] || block_size(old) != old[1]) ++wrong;
                if (!release_block(old)) ++wrong;
            }
        });
    }
    for (std::thread &thread : threads) thread.join();
    for (auto &slot : slots) {
        if (void *p = slot.exchange(nullptr)) {
            EXPECT_TRUE(release_block(p));
        }
    }
    EXPECT_EQ(wrong, 0);
    EXPECT_LE(refused, kThreads * kRounds / 100);
    port().trim();
    EXPECT_EQ(arena.statistics().live, 0u);
    EXPECT_EQ(arena.statistics().dirty, 0u);
}

TEST_F(ArenaThreads, BorrowersAndTheJobNeverHoldTheSameMemory) {
    constexpr int kBorrowRounds = kSanitized ? 2000 : 20000;
    std::atomic<int> wrong{0}, given{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
            std::mt19937_64 random(seed() + 100 + static_cast<uint64_t>(t));
            const bool borrower = t % 2 == 0;
            for (int i = 0; i < kBorrowRounds; ++i) {
                const size_t words = (kSmallBuffer + random() % (3 << 20)) / 8;
                auto *p = static_cast<uint64_t *>(borrower ? port().borrow(words * 8) : place(words * 8, 64, nullptr));
                if (p == nullptr) continue;
                ++given;
                const uint64_t mark = random();
                for (size_t at : {size_t{0}, words / 2, words - 1}) p[at] = mark + at;
                if (i % 16 == 0) std::this_thread::yield();
                for (size_t at : {size_t{0}, words / 2, words - 1}) wrong += p[at] != mark + at;
                if (borrower) {
                    port().give_back(p);
                } else {
                    wrong += !release_block(p);
                }
            }
        });
    }
    for (std::thread &thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
    EXPECT_GT(given, kBorrowRounds) << "most got some";
    port().trim();
    EXPECT_EQ(arena.statistics().live, 0u);
}

TEST_F(ArenaThreads, EveryBlockIsFreedOnce) {
    // Two threads free the same pointers: exactly one of them may succeed for each.
    constexpr int kBlocks = kSanitized ? 500 : 3000;
    std::vector<void *> blocks(kBlocks);
    for (void *&p : blocks) p = place(kSmallBuffer, 64, nullptr);
    std::atomic<int> freed{0};
    const auto free_all = [&] {
        for (void *p : blocks) freed += release_block(p) ? 1 : 0;
    };
    std::thread other(free_all);
    free_all();
    other.join();
    EXPECT_EQ(freed, kBlocks);
}

TEST_F(ArenaThreads, LookupsUnderChurnAreNeverWrong) {
    // Slot i holds only blocks whose size is i (mod kSlots) pages and 8 bytes more: a lookup that mixes two lives shows a size that was
    // never there.
    constexpr int kSlots = 16;
    static std::atomic<uintptr_t> published[kSlots];
    std::atomic<bool> stop{false};
    std::atomic<int> wrong{0};
    std::thread churn([&] {
        std::mt19937_64 random(seed());
        while (!stop) {
            const size_t slot = random() % kSlots;
            if (void *old = reinterpret_cast<void *>(published[slot].exchange(0))) {
                if (!release_block(old)) ++wrong;
            }
            void *p = place((32 + random() % 8 * kSlots + slot) * kPageSize + 8, 64, nullptr);
            published[slot] = address_of(p);
        }
    });
    std::vector<std::thread> readers;
    for (int t = 0; t < 2; ++t) {
        readers.emplace_back([&, t] {
            std::mt19937_64 random(seed() + 100 + static_cast<uint64_t>(t));
            // Enough of them must meet a block: the churning thread may get the processor late.
            uint64_t mine = 0;
            for (int i = 0; i < (kSanitized ? 50000 : 500000) || mine < 1000; ++i) {
                const size_t slot = random() % kSlots;
                const uintptr_t at = published[slot];
                if (at == 0) {
                    if (i % 1024 == 0) std::this_thread::yield();
                    continue;
                }
                BlockInfo block;
                const uintptr_t inside = at + random() % (32 * kPageSize);
                if (!port().find(inside, &block)) continue;
                ++mine;
                if (!block.range.contains(inside) || block.range.size() % kPageSize != 8 || block.range.begin % kPageSize != 0) ++wrong;
                const Generation generation = block.generation;
                BlockInfo again;
                // The same generation must mean the same block, always.
                if (port().find(inside, &again) && again.generation == generation && !(again.range == block.range)) ++wrong;
            }
        });
    }
    for (std::thread &reader : readers) reader.join();
    stop = true;
    churn.join();
    for (auto &slot : published) {
        if (slot != 0) release_block(reinterpret_cast<void *>(slot.exchange(0)));
    }
    EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace reprise::test
