#include "allocator/heap_table.h"

#include <atomic>
#include <map>
#include <thread>
#include <vector>

#include "allocator/base/fault.h"
#include "tests/allocator/support.h"

namespace reprise::test {
namespace {

// Made-up addresses: the table never touches the bytes.
const void *fake(uintptr_t address) { return reinterpret_cast<const void *>(address); }

TEST(HeapTable, BoundsAndGenerations) {
    note_heap(fake(0x100000), 256);
    BlockInfo block;
    ASSERT_TRUE(port().find(0x100000, &block));
    EXPECT_EQ(block.origin, Origin::kHeap);
    EXPECT_EQ(block.range, (AddressRange{0x100000, 0x100100}));
    const Generation first = block.generation;
    EXPECT_TRUE(port().find(0x1000ff, &block));
    EXPECT_FALSE(port().find(0x100100, &block));
    EXPECT_FALSE(port().find(0xfffff, &block));
    EXPECT_TRUE(port().is_live(0x100010, first));
    note_heap(fake(0x100000), 512);  // its free was never seen
    ASSERT_TRUE(port().find(0x100000, &block));
    EXPECT_NE(block.generation, first);
    EXPECT_FALSE(port().is_live(0x100000, first));
    forget_heap(fake(0x100000));
    EXPECT_FALSE(port().find(0x100000, &block));
    forget_heap(fake(0x100000));
    forget_heap(nullptr);
    note_heap(nullptr, 10);
    note_heap(fake(0x100000), 0);
    EXPECT_FALSE(port().find(0x100000, &block));
    EXPECT_EQ(port().ledger_live(LedgerKind::kHeapTensors), 0u);
}

TEST(HeapTable, AFailedReallocKeepsTheRecord) {
    note_heap(fake(0x200000), 1000);
    BlockInfo block;
    ASSERT_TRUE(port().find(0x200000, &block));
    const Generation generation = block.generation;
    const HeapRecord record = take_heap(fake(0x200000));
    EXPECT_EQ(record.generation, generation);
    EXPECT_EQ(record.size, 1000u);
    EXPECT_FALSE(port().find(0x200000, &block));
    restore_heap(fake(0x200000), record);
    EXPECT_TRUE(port().is_live(0x200000, generation));
    forget_heap(fake(0x200000));
    EXPECT_EQ(take_heap(fake(0x200000)).generation, 0u);
    restore_heap(fake(0x200000), HeapRecord{});
    EXPECT_FALSE(port().find(0x200000, &block));
}

TEST(HeapTable, AgainstAMap) {
    REPRISE_SEEDED;
    std::mt19937_64 random(seed());
    std::map<uintptr_t, std::pair<size_t, Generation>> live;
    uint64_t bytes = 0;
    for (int operation = 0; operation < (kSanitized ? 30000 : 200000); ++operation) {
        const unsigned what = static_cast<unsigned>(random() % 10);
        if (what < 5 || live.empty()) {
            // Sizes from 16 bytes to a gigabyte, packed closely where they are small.
            const size_t size = size_t{16} << (random() % 4 == 0 ? random() % 27 : random() % 10);
            const size_t jitter = 1 + random() % size;
            const uintptr_t at = 0x10000000 + (size > 65536 ? random() % 4096 * size_t{16777216} : random() % 65536 * 64);
            const auto next = live.lower_bound(at);
            if (next != live.end() && at + jitter > next->first) continue;
            if (next != live.begin() && std::prev(next)->first + std::prev(next)->second.first > at) continue;
            note_heap(fake(at), jitter);
            BlockInfo block;
            ASSERT_TRUE(port().find(at + jitter - 1, &block));
            ASSERT_EQ(block.range, (AddressRange{at, at + jitter}));
            live[at] = {jitter, block.generation};
            bytes += jitter;
        } else if (what < 8) {
            const auto victim = std::next(live.begin(), static_cast<long>(random() % (live.size() < 100 ? live.size() : 100)));
            forget_heap(fake(victim->first));
            ASSERT_FALSE(port().is_live(victim->first, victim->second.second));
            bytes -= victim->second.first;
            live.erase(victim);
        } else {
            const uintptr_t at = 0x10000000 + random() % (random() % 2 == 0 ? 65536 * 64 : uint64_t{4096} << 24);
            BlockInfo block;
            const bool found = port().find(at, &block);
            const auto after = live.upper_bound(at);
            const bool expected = after != live.begin() && at < std::prev(after)->first + std::prev(after)->second.first;
            ASSERT_EQ(found, expected) << std::hex << at;
            if (found) {
                ASSERT_EQ(block.generation, std::prev(after)->second.second);
            }
        }
    }
    EXPECT_EQ(port().ledger_live(LedgerKind::kHeapTensors), bytes);
    size_t seen = 0;
    port().for_each(
        [](void *context, const BlockInfo *block) {
            *static_cast<size_t *>(context) += block->origin == Origin::kHeap;
            return true;
        },
        &seen);
    EXPECT_EQ(seen, live.size());
    for (const auto &[at, entry] : live) forget_heap(fake(at));
    EXPECT_EQ(heap_table.count(), 0u);
    EXPECT_EQ(port().ledger_live(LedgerKind::kHeapTensors), 0u);
}

TEST(HeapTable, Threads) {
    constexpr int kThreads = 4, kRounds = kSanitized ? 5000 : 50000;
    std::atomic<uint64_t> wrong{0};
    const uint64_t untracked = heap_table.untracked();
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
        threads.emplace_back([&, t] {
            for (int i = 0; i < kRounds; ++i) {
                // Interleaved addresses: threads meet in the same granules and shards.
                const uintptr_t at = 0x40000000 + static_cast<uintptr_t>(i % 512 * kThreads + t) * 128;
                note_heap(fake(at), 100);
                BlockInfo block;
                if (!port().find(at + 99, &block) || block.range.begin != at) ++wrong;
                if (i % 3 != 0) forget_heap(fake(at));
            }
            for (int i = 0; i < 512; ++i) forget_heap(fake(0x40000000 + static_cast<uintptr_t>(i * kThreads + t) * 128));
        });
    }
    for (std::thread &thread : threads) thread.join();
    EXPECT_LE(wrong, heap_table.untracked() - untracked) << "a block that was noted was not found";
    // Only a holder that does not get the processor for 50 ms costs a note.
    EXPECT_LE(heap_table.untracked() - untracked, static_cast<uint64_t>(kRounds / 50));
    EXPECT_EQ(heap_table.count(), 0u);
}

// Readers take no lock: while entries around them come, go and move, and tables grow, what is live is always found, with its own
// generation, and nothing is ever seen half.
TEST(HeapTable, ReadersAmongWriters) {
    constexpr uintptr_t kBase = 0x7000000000;
    constexpr size_t kFixed = 512, kChurn = 40000, kStep = 256;
    constexpr int kRounds = kSanitized ? 2 : 8;
    // Sizes of several levels, a function of the address, so that a size that belongs to another block shows.
    const auto fixed_at = [](size_t i) { return kBase + i * 65536; };
    const auto fixed_size = [](size_t i) { return size_t{100} << (i % 8); };
    const auto churn_at = [](size_t i) { return kBase + i / 128 * 65536 + 32768 + i % 128 * kStep; };
    const auto churn_size = [](uintptr_t at) { return 1 + at / kStep * 2654435761u % kStep; };
    std::vector<Generation> generations(kFixed);
    for (size_t i = 0; i < kFixed; ++i) {
        note_heap(fake(fixed_at(i)), fixed_size(i));
        BlockInfo block;
        ASSERT_TRUE(port().find(fixed_at(i), &block));
        generations[i] = block.generation;
    }
    const uint64_t untracked = heap_table.untracked();
    std::atomic<bool> done{false};
    std::atomic<uint64_t> lost{0}, mixed{0};
    std::vector<std::thread> readers, writers;
    for (unsigned t = 0; t < 2; ++t) {
        readers.emplace_back([&, t] {
            std::mt19937_64 random(t);
            BlockInfo block;
            while (!done.load()) {
                const size_t i = random() % kFixed;
                const uintptr_t inside = fixed_at(i) + random() % fixed_size(i);
                lost += !port().find(inside, &block) || block.generation != generations[i] || block.range.begin != fixed_at(i) ||
                        block.range.size() != fixed_size(i);
                const uintptr_t begin = churn_at(random() % kChurn), at = begin + random() % kStep;
                if (!port().find(at, &block)) continue;
                mixed +=
                    block.range.begin != begin || block.range.size() != churn_size(begin) || block.generation == 0 || at >= block.range.end;
            }
        });
        writers.emplace_back([&, t] {
            for (int round = 0; round < kRounds; ++round) {
                for (size_t i = t; i < kChurn; i += 2) note_heap(fake(churn_at(i)), churn_size(churn_at(i)));
                for (size_t i = t; i < kChurn; i += 2) forget_heap(fake(churn_at(i)));
            }
        });
    }
    for (std::thread &writer : writers) writer.join();
    done = true;
    for (std::thread &reader : readers) reader.join();
    EXPECT_EQ(lost, 0u);
    EXPECT_EQ(mixed, 0u);
    EXPECT_LE(heap_table.untracked() - untracked, uint64_t{kChurn} * kRounds / 100);
    for (size_t i = 0; i < kFixed; ++i) forget_heap(fake(fixed_at(i)));
    EXPECT_EQ(heap_table.count(), 0u);
}

// The place where an address was found last is only a hint: what moved, ended or came anew is not answered from it.
TEST(HeapTable, AnswersAreNeverRemembered) {
    constexpr uintptr_t kBase = 0x7800000000;
    BlockInfo block;
    for (int life = 0; life < 100; ++life) {
        const size_t size = size_t{64} << (life % 6);
        note_heap(fake(kBase), size);
        ASSERT_TRUE(port().find(kBase + 63, &block));
        ASSERT_EQ(block.range.size(), size);
        const Generation generation = block.generation;
        for (uintptr_t i = 1; i <= 64; ++i) note_heap(fake(kBase + i * 65536), 64);  // the tables grow and entries move
        ASSERT_TRUE(port().find(kBase + 63, &block));
        ASSERT_EQ(block.generation, generation);
        forget_heap(fake(kBase));
        ASSERT_FALSE(port().find(kBase + 63, &block));
        note_heap(fake(kBase + 32), 16);  // another block around the same address, too short for it
        ASSERT_FALSE(port().find(kBase + 63, &block));
        forget_heap(fake(kBase + 32));
        for (uintptr_t i = 1; i <= 64; ++i) forget_heap(fake(kBase + i * 65536));
    }
    EXPECT_EQ(heap_table.count(), 0u);
}

TEST(HeapTable, WhatCannotBeNotedIsCounted) {
    const uint64_t before = heap_table.untracked();
    fault_configure("heap_table_full:2");
    note_heap(fake(0x300000), 64);
    note_heap(fake(0x300100), 64);
    note_heap(fake(0x300200), 64);
    fault_configure(nullptr);
    BlockInfo block;
    EXPECT_TRUE(port().find(0x300000, &block));
    EXPECT_FALSE(port().find(0x300100, &block));
    EXPECT_TRUE(port().find(0x300200, &block));
    EXPECT_EQ(heap_table.untracked(), before + 1);
    for (uintptr_t at : {0x300000, 0x300100, 0x300200}) forget_heap(fake(at));
    EXPECT_EQ(heap_table.count(), 0u);
}

}  // namespace
}  // namespace reprise::test
