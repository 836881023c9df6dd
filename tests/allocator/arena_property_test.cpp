// Random operations against a plain map: nothing overlaps, nothing is lost, every byte stays, every lookup is right.
#include <cstring>
#include <map>

#include "allocator/arena.h"
#include "tests/allocator/support.h"

namespace reprise::test {
namespace {

struct Model {
    size_t size;
    Generation generation;
    unsigned char mark;
};

class ArenaProperty : public Started {
  protected:
    std::map<uintptr_t, Model> live_;
    std::map<Generation, bool> used_;
    std::map<uintptr_t, Model> borrowed_;  // no generation

    void mark(uintptr_t at, size_t size, unsigned char value) {
        for (size_t i = 0; i < size; i += kPageSize) reinterpret_cast<unsigned char *>(at)[i] = value;
        reinterpret_cast<unsigned char *>(at)[size - 1] = value;
    }
    void check_marks(uintptr_t at, size_t size, unsigned char value) {
        for (size_t i = 0; i < size; i += kPageSize) ASSERT_EQ(reinterpret_cast<unsigned char *>(at)[i], value) << "byte " << i;
    }
    void add(uintptr_t at, size_t size, unsigned char value) {
        const auto next = live_.lower_bound(at);
        if (next != live_.end()) {
            ASSERT_LE(at + size, next->first) << "overlaps the next block";
        }
        if (next != live_.begin()) {
            ASSERT_LE(std::prev(next)->first + std::prev(next)->second.size, at) << "overlaps the one before";
        }
        BlockInfo block;
        ASSERT_TRUE(port().find(at, &block));
        ASSERT_EQ(block.range, (AddressRange{at, at + size}));
        ASSERT_TRUE(used_.emplace(block.generation, true).second) << "a generation came twice";
        mark(at, size, value);
        live_[at] = {size, block.generation, value};
    }
    // Whoever overlaps it changes a mark.
    void borrow_or_give_back(uint64_t random) {
        if (random % 2 == 0 && borrowed_.size() < 30) {
            const size_t size = kSmallBuffer + random / 2 % (3 << 20);
            const auto at = address_of(port().borrow(size));
            ASSERT_NE(at, 0u);
            BlockInfo block;
            ASSERT_FALSE(port().find(at + size / 2, &block));
            const auto value = static_cast<unsigned char>(random >> 40);
            mark(at, size, value);
            borrowed_[at] = {size, 0, value};
        } else if (!borrowed_.empty()) {
            give_back(std::next(borrowed_.begin(), static_cast<long>(random / 2 % borrowed_.size())));
        }
    }
    void give_back(std::map<uintptr_t, Model>::iterator it) {
        const auto [at, model] = *it;
        borrowed_.erase(it);
        check_marks(at, model.size, model.mark);
        ASSERT_TRUE(arena.give_back(at));
    }
};

TEST_F(ArenaProperty, AgainstAMap) {
    REPRISE_SEEDED;
    std::mt19937_64 random(seed());
    const auto pick_size = [&]() -> size_t {
        switch (random() % 4) {
            case 0:
                return kSmallBuffer + random() % (512 << 10);
            case 1:
                return (size_t{2} << 20) + random() % (6 << 20);
            case 2:
                return kSmallBuffer * (1 + random() % 4);  // exact repeats
            default:
                return kSmallBuffer + random() % (4 << 20);
        }
    };
    for (int operation = 0; operation < (kSanitized ? 4000 : 20000); ++operation) {
        if (operation % 11 == 0) {
            borrow_or_give_back(random());
            continue;
        }
        const unsigned what = static_cast<unsigned>(random() % 100);
        if (live_.size() < 20 || (what < 45 && live_.size() < 150)) {
            const size_t size = pick_size(), alignment = size_t{1} << (random() % 10 == 0 ? random() % 24 : 6);
            bool zeroed = false;
            auto *p = static_cast<unsigned char *>(place(size, alignment, &zeroed));
            ASSERT_NE(p, nullptr);
            ASSERT_EQ(address_of(p) % alignment, 0u);
            if (zeroed) check_marks(address_of(p), size, 0);
            add(address_of(p), size, static_cast<unsigned char>(1 + random() % 255));
        } else {
            auto victim = std::next(live_.begin(), static_cast<long>(random() % live_.size()));
            const uintptr_t at = victim->first;
            const Model model = victim->second;
            check_marks(at, model.size, model.mark);
            if (what < 85) {
                ASSERT_TRUE(release_block(reinterpret_cast<void *>(at)));
                live_.erase(victim);
                ASSERT_FALSE(port().is_live(at, model.generation));
            } else if (what < 95) {
                const size_t size = pick_size();
                if (resize_in_place(reinterpret_cast<void *>(at), size)) {
                    check_marks(at, size < model.size ? size : model.size, model.mark);
                    if (size != model.size) {
                        live_.erase(at);
                        add(at, size, model.mark);
                    }
                } else {
                    ASSERT_TRUE(port().is_live(at, model.generation)) << "a resize that fails leaves the block alone";
                }
            } else {
                BlockInfo block;
                const uintptr_t inside = at + random() % model.size;
                ASSERT_TRUE(port().find(inside, &block));
                ASSERT_EQ(block.generation, model.generation);
                const uintptr_t anywhere = at + random() % (size_t{16} << 20);
                const bool found = port().find(anywhere, &block);
                auto owner = live_.upper_bound(anywhere);
                const bool expected = owner != live_.begin() && anywhere < std::prev(owner)->first + std::prev(owner)->second.size;
                ASSERT_EQ(found, expected);
                if (found) {
                    ASSERT_EQ(block.generation, std::prev(owner)->second.generation);
                }
            }
        }
        if (operation % 997 == 0) port().trim();
    }
    for (const auto &[at, model] : live_) {
        check_marks(at, model.size, model.mark);
        ASSERT_TRUE(release_block(reinterpret_cast<void *>(at)));
    }
    EXPECT_EQ(port().ledger_live(LedgerKind::kTensors), 0u);
    while (!borrowed_.empty()) give_back(borrowed_.begin());
    EXPECT_EQ(arena.statistics().live, 0u);
}

}  // namespace
}  // namespace reprise::test
