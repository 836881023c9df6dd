// What the registry says of itself, whatever is captured, released, given another mechanism or freed.
#include "tracker/buffer_registry.h"

#include <cstdlib>

#include "tests/effort.h"
#include "tests/random.h"
#include "tests/tracker/arena_memory.h"

namespace reprise::test {
namespace {

struct Random {
    uint64_t state;
    size_t below(size_t n) { return static_cast<size_t>(next_random(state) % n); }
};

// With nothing outstanding all that the pool has is idle; a buffer with an outstanding version has no part in it.
class IdleBytes : public testing::TestWithParam<uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Seeds, IdleBytes, testing::Range<uint64_t>(1, 9));

TEST_P(IdleBytes, AreWhatThePoolHoldsForBuffersThatNobodyNeeds) {
    SCOPED_TRACE(testing::Message() << "seed " << GetParam());
    Random random{GetParam()};
    allocator_start();
    ImagePool pool(*allocator_port());
    BufferRegistry registry(*allocator_port(), pool, nullptr);
    constexpr size_t kSizes[] = {1000, 100 << 10, 300 << 10, 3 << 20};
    constexpr MechanismKind kKinds[] = {MechanismKind::kSmall, MechanismKind::kWhole, MechanismKind::kShadow, MechanismKind::kWatch};
    struct Held {
        std::unique_ptr<ArenaMemory> memory;
        size_t size = 0;
        Buffer *buffer = nullptr;
        std::vector<Version> versions;
    };
    std::vector<Held> all(8);
    auto renew = [&](Held &held) {
        held.memory = std::make_unique<ArenaMemory>(4 << 20);
        held.size = kSizes[random.below(std::size(kSizes))];
        held.buffer = registry.obtain(range_of(held.memory->data(), held.size), "buffer", {});
        ASSERT_NE(held.buffer, nullptr);
    };
    for (Held &held : all) renew(held);
    const int steps = by_build(2000, 500, 500);
    for (int step = 0; step < steps; ++step) {
        Held &held = all[random.below(all.size())];
        switch (random.below(8)) {
            case 0:
                if (random.below(2) == 0) {
                    registry.use(*held.buffer, kKinds[random.below(std::size(kKinds))]);
                } else {
                    registry.hold_by_plan(*held.buffer, random.below(3) == 0);
                }
                break;
            case 1:
            case 2:
            case 3: {
                if (!held.buffer->mechanism) registry.use(*held.buffer, kKinds[random.below(std::size(kKinds))]);
                held.memory->data()[random.below(held.size)] ^= 1;
                CaptureCost cost;
                Version version = 0;
                const Status captured = registry.capture(*held.buffer, &version, cost);
                ASSERT_TRUE(captured.ok()) << captured.text();
                held.versions.push_back(version);
                break;
            }
            case 4:
            case 5:
            case 6:
                if (held.versions.empty()) break;
                std::swap(held.versions.back(), held.versions[random.below(held.versions.size())]);
                registry.release(*held.buffer, held.versions.back());
                held.versions.pop_back();
                break;
            default:
                if (!held.versions.empty()) break;
                if (random.below(2) == 0) {
                    const size_t before = pool.live(), idle = registry.idle_bytes();
                    registry.let_idle_go();
                    EXPECT_EQ(registry.idle_bytes(), 0u);
                    EXPECT_EQ(pool.live(), before - idle) << "what is held by plan stays";
                }
                held.memory.reset();
                registry.window_ended(0);
                renew(held);
        }
        size_t idle = 0;
        bool needed_at_all = false;
        for (const Held &each : all) {
            const bool needed = each.buffer->outstanding() != 0 || each.buffer->held_by_plan;
            needed_at_all |= needed;
            EXPECT_TRUE(!needed || each.buffer->idle_bytes == 0);
            idle += each.buffer->idle_bytes;
        }
        ASSERT_EQ(registry.idle_bytes(), idle) << "step " << step;
        ASSERT_LE(idle, pool.live()) << "step " << step;
        ASSERT_TRUE(needed_at_all || idle == pool.live()) << "step " << step;
    }
    for (Held &held : all) {
        registry.hold_by_plan(*held.buffer, false);
        for (Version version : held.versions) registry.release(*held.buffer, version);
    }
    EXPECT_GT(pool.live(), 0u);
    EXPECT_EQ(registry.idle_bytes(), pool.live());
    registry.let_idle_go();
    EXPECT_EQ(registry.idle_bytes(), 0u);
    EXPECT_EQ(pool.live(), 0u);
}

}  // namespace
}  // namespace reprise::test
