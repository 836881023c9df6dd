// A test double of libreprise_engine.so: answers every call recognisably and shows what the allocator knows of an address.
// STUB_ABI, STUB_REFUSE and STUB_NO_ENTRY make the broken variants.
#include <string.h>
#include <unistd.h>

#include <atomic>

#include "allocator/allocator.h"
#include "reprise/detail/engine_abi.h"

#ifndef STUB_ABI
#define STUB_ABI REPRISE_ENGINE_ABI
#endif

namespace {

const reprise::AllocatorPort *g_port = nullptr;
std::atomic<uint64_t> g_executions{0};
std::atomic<int> g_opened{0};
std::atomic<uint64_t> g_forks_prepared{0}, g_forks_parent{0}, g_forks_child{0};

reprise_segment segment_begin(const char *, uint64_t) { return {4242, ++g_executions, REPRISE_REPLAY, REPRISE_OK}; }
reprise_status segment_end(reprise_segment segment) { return segment.instance == 4242 ? REPRISE_OK : REPRISE_UNKNOWN_INSTANCE; }
reprise_status with_instance(uint64_t instance) { return instance == 4242 ? REPRISE_OK : REPRISE_UNKNOWN_INSTANCE; }
reprise_status step() { return REPRISE_OK; }
// What was declared here: the allocator's find() need not know it, is_live() does.
struct Declared {
    std::atomic<uintptr_t> address{0};
    size_t size = 0;
    reprise::Generation generation = 0;
};
Declared g_declared[64];
Declared *declared_at(uintptr_t address) {
    for (Declared &entry : g_declared)
        if (entry.address == address && g_port->is_live(address, entry.generation)) return &entry;
    return nullptr;
}

reprise_status track(void *address, size_t size, const char *, unsigned) {
    const reprise::Generation generation = g_port->declare(reprise::range_of(address, size));
    if (generation == 0) return REPRISE_OUT_OF_MEMORY;
    for (Declared &entry : g_declared) {
        if (entry.address != 0 && entry.address != reinterpret_cast<uintptr_t>(address)) continue;
        entry.size = size;
        entry.generation = generation;
        entry.address = reinterpret_cast<uintptr_t>(address);
        return REPRISE_OK;
    }
    return REPRISE_INTERNAL;
}
reprise_status untrack(void *address) {
    Declared *entry = declared_at(reinterpret_cast<uintptr_t>(address));
    if (entry == nullptr) return REPRISE_NOT_FOUND;
    g_port->undeclare(entry->address, entry->generation);
    return REPRISE_OK;
}
reprise_status scope(const reprise_range *, size_t) { return REPRISE_OK; }
reprise_status state(const char *, reprise_state_save, reprise_state_load, void *) { return REPRISE_OK; }
reprise_status write_intent(const void *, size_t) { return REPRISE_OK; }
reprise_status buffer_info(const void *address, reprise_buffer *buffer, reprise_range *, size_t *) {
    reprise::BlockInfo info;
    if (const Declared *entry = declared_at(reinterpret_cast<uintptr_t>(address))) {
        info = {{entry->address, entry->address + entry->size}, entry->generation, reprise::Origin::kDeclared, false};
    } else if (!g_port->find(reinterpret_cast<uintptr_t>(address), &info)) {
        return REPRISE_NOT_FOUND;
    }
    memset(buffer, 0, sizeof *buffer);
    buffer->address = reinterpret_cast<void *>(info.range.begin);
    buffer->size = info.range.size();
    buffer->generation = info.generation;
    static constexpr const char *kNames[] = {"arena", "heap", "declared"};
    strcpy(buffer->mechanism, kNames[static_cast<int>(info.origin)]);
    return REPRISE_OK;
}
reprise_status stats(reprise_statistics *statistics) {
    statistics->forwards = g_executions;
    statistics->replays = static_cast<uint64_t>(g_opened.load());
    statistics->rejections = g_forks_prepared;
    statistics->divergences = g_forks_parent;
    statistics->steps = g_forks_child;
    return REPRISE_OK;
}
const char *last_error() { return "the stub's error"; }
void at_exit() {
    static constexpr char kLine[] = "stub: at_exit\n";
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kLine, sizeof kLine - 1);
}
void fork_prepare() { ++g_forks_prepared; }
void fork_parent() { ++g_forks_parent; }
void fork_child() { ++g_forks_child; }

reprise_engine_table make_table() {
    reprise_engine_table table{};
    table.abi = STUB_ABI;
    table.size = sizeof table;
    table.segment_begin = segment_begin;
    table.segment_end = segment_end;
    table.segment_abort = with_instance;
    table.release = with_instance;
    table.step = step;
    table.track = track;
    table.untrack = untrack;
    table.scope = scope;
    table.state = state;
    table.write_intent = write_intent;
    table.buffer_info = buffer_info;
    table.stats = stats;
    table.last_error = last_error;
    table.at_exit = at_exit;
    table.fork_prepare = fork_prepare;
    table.fork_parent = fork_parent;
    table.fork_child = fork_child;
    return table;
}
reprise_engine_table g_table;

}  // namespace

#ifdef STUB_NO_ENTRY
#define reprise_engine_open some_other_entry
#endif
extern "C" __attribute__((visibility("default"))) int reprise_engine_open(const reprise::AllocatorPort *port,
                                                                          const reprise_engine_table **table) {
#ifdef STUB_REFUSE
    return 7;
#endif
    if (port->abi != reprise::kAllocatorPortAbi) return 1;
    g_port = port;
    ++g_opened;
    g_table = make_table();
    *table = &g_table;
    return 0;
}
