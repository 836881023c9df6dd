#include "fake_allocator.h"

#include <errno.h>

#include <cstdlib>
#include <cstring>

#include "allocator/allocator.h"
#include "interpose/start.h"

FakeWorld g_world;

namespace reprise {

bool allocator_start() { return true; }
void ensure_allocator_started() {}
bool allocator_in_use() { return true; }

// Every one of these spoils errno: the ring has to keep it.
void *place(size_t size, size_t alignment, bool *zeroed) {
    errno = 1001;
    if (!g_world.can_place) return nullptr;
    g_world.log.push_back("place");
    void *block = std::aligned_alloc(alignment < 64 ? 64 : alignment, (size + 4095) / 4096 * 4096);
    std::memset(block, 0xee, size);
    if (g_world.zeroed) std::memset(block, 0, size);
    *zeroed = g_world.zeroed;
    g_world.placed[block] = size;
    return block;
}
bool in_arena(const void *address) { return g_world.placed.count(const_cast<void *>(address)) != 0; }
size_t block_size(const void *address) { return g_world.placed[const_cast<void *>(address)]; }
bool release_block(void *address) {
    errno = 1002;
    g_world.log.push_back("release");
    const bool live = g_world.placed[address] != 0;
    g_world.placed[address] = 0;
    return live;
}
bool resize_in_place(void *address, size_t size) {
    errno = 1003;
    if (g_world.can_resize) g_world.placed[address] = size;
    return g_world.can_resize;
}
void note_heap(const void *address, size_t size) {
    errno = 1004;
    g_world.log.push_back("note");
    g_world.noted[address] = size;
}
void forget_heap(const void *address) {
    errno = 1005;
    g_world.log.push_back("forget");
    g_world.noted.erase(address);
}
void end_mapping(AddressRange) {}
void note_memory_locked(bool) {}

namespace {
bool find(uintptr_t address, BlockInfo *out) {
    const auto found = g_world.noted.find(reinterpret_cast<const void *>(address));
    if (found == g_world.noted.end()) return false;
    *out = {{address, address + found->second}, 1, Origin::kHeap, false};
    return true;
}
AllocatorPort make_port() {
    AllocatorPort port{};
    port.abi = kAllocatorPortAbi;
    port.size = sizeof port;
    port.find = find;
    return port;
}
const AllocatorPort g_port = make_port();
}  // namespace
const AllocatorPort *allocator_port() { return &g_port; }

}  // namespace reprise
