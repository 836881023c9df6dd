// What a replay says of the bytes that it loads: costs are learned from it.
#include "tracker/replay.h"

#include <gtest/gtest.h>

#include "tests/tracker/arena_memory.h"
#include "tracker/buffer_registry.h"
#include "tracker/dirty_source.h"

namespace reprise::test {
namespace {

constexpr size_t kSize = 512 << 10;

TEST(ReplayLoads, AreToldApartByWhatTheyComeFrom) {
    allocator_start();
    const AllocatorPort &port = *allocator_port();
    ImagePool pool(port);
    BufferRegistry registry(port, pool, make_write_protect_source(port));
    ArenaMemory whole(kSize), once(kSize), twice(kSize), small(kSize);
    auto obtain = [&registry](ArenaMemory &memory, const char *name, MechanismKind kind, size_t size = kSize) {
        Buffer *buffer = registry.obtain(range_of(memory.data(), size), name, {});
        registry.use(*buffer, kind);
        return buffer;
    };
    auto capture = [&registry](Buffer *buffer) {
        CaptureCost cost;
        cost.planned = true;
        Version version = 0;
        EXPECT_TRUE(registry.capture(*buffer, &version, cost).ok());
        return version;
    };
    Buffer *buffers[] = {obtain(whole, "whole", MechanismKind::kWhole), obtain(once, "once", MechanismKind::kShadow),
                         obtain(twice, "twice", MechanismKind::kShadow), obtain(small, "small", MechanismKind::kSmall, kPageSize)};
    std::vector<ScopeEntry> scope;
    for (Buffer *buffer : buffers) scope.push_back({buffer, capture(buffer)});

    whole.touch_page(3);
    once.touch_page(5), once.touch_page(9);
    twice.touch_page(1);
    small.touch_page(0);
    // Captured since: its page is watched again, and loading it takes a fault that belongs to no copy.
    const Version later = capture(buffers[2]);

    Replay replay(port, pool);
    ASSERT_TRUE(replay.prepare(scope).ok());
    ASSERT_TRUE(replay.load().ok());
    const LoadedBytes bytes = replay.bytes_by_kind();
    EXPECT_EQ(bytes.copies, kSize);
    EXPECT_EQ(bytes.pages, 2 * kPageSize);
    EXPECT_EQ(bytes.other, 2 * kPageSize);
    EXPECT_EQ(bytes.copies + bytes.pages + bytes.other, replay.bytes_changed());
    replay.finish();
    registry.release(*buffers[2], later);
    for (const ScopeEntry &entry : scope) registry.release(*entry.buffer, entry.version);
}

}  // namespace
}  // namespace reprise::test
