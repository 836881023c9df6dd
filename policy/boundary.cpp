// The engine's only exported function, and the table that it fills. Here, and nowhere else, a Status becomes a reprise_status, and an
// exception (only std::bad_alloc is conceivable) becomes REPRISE_OUT_OF_MEMORY: nothing is thrown across the library.
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>

#include "policy/engine.h"
#include "policy/log.h"
#include "policy/parallel_plugin.h"

namespace reprise {
namespace {

Engine *engine = nullptr;  // never destroyed

void remember(const char *text) {
    char *error = thread_state().error;
    snprintf(error, Status::kTextCapacity, "%s", text);
}

template <class Fn>
reprise_status guarded(Fn call) noexcept {
    try {
        Status status = call();
        if (!status.ok()) remember(status.text());
        return status.code();
    } catch (const std::bad_alloc &) {
        remember("no memory is left for Reprise's own bookkeeping; raise the memory limit");
        return REPRISE_OUT_OF_MEMORY;
    } catch (const std::exception &error) {
        remember(error.what());
        return REPRISE_INTERNAL;
    } catch (...) {
        return REPRISE_INTERNAL;
    }
}

template <class Fn>
reprise_segment guarded_segment(Fn call) noexcept {
    reprise_segment segment{0, 0, REPRISE_RETAIN, REPRISE_INTERNAL};
    reprise_status status = guarded([&] {
        segment = call();
        return Status();
    });
    if (status != REPRISE_OK) segment.status = status;
    return segment;
}

reprise_segment segment_begin(const char *name, uint64_t replay_of) {
    return guarded_segment(
        [&] { return replay_of == 0 ? engine->forward_begin(name, nullptr, 0, false) : engine->replay_begin(name, replay_of, 0); });
}
reprise_segment forward_begin(const char *name, const reprise_scope_item *items, size_t count, uint32_t options) {
    return guarded_segment([&] { return engine->forward_begin(name, items, count, true, options); });
}
reprise_segment replay_begin(const char *name, uint64_t instance, uint32_t options) {
    return guarded_segment([&] { return engine->replay_begin(name, instance, options); });
}
reprise_status segment_end(reprise_segment segment) {
    return guarded([&] { return engine->segment_end(segment, nullptr); });
}
reprise_status replay_end(reprise_segment segment, reprise_replay_result *result) {
    return guarded([&] { return engine->segment_end(segment, result); });
}
reprise_status segment_abort(uint64_t instance) {
    return guarded([&] { return engine->segment_abort(instance); });
}
reprise_status release(uint64_t instance) {
    return guarded([&] { return engine->release(instance); });
}
reprise_status step() {
    return guarded([&] { return engine->step(); });
}
reprise_status track(void *address, size_t size, const char *name, unsigned flags) {
    return guarded([&] { return engine->track(address, size, name, flags); });
}
reprise_status untrack(void *address) {
    return guarded([&] { return engine->untrack(address); });
}
reprise_status scope(const reprise_range *ranges, size_t count) {
    return guarded([&] { return engine->scope(ranges, count); });
}
reprise_status state(const char *name, reprise_state_save save, reprise_state_load load, void *context) {
    return guarded([&] { return engine->state(name, save, load, context); });
}
reprise_status write_intent(const void *address, size_t size) {
    return guarded([&] { return engine->write_intent(address, size); });
}
reprise_status buffer_info(const void *address, reprise_buffer *buffer, reprise_range *runs, size_t *run_count) {
    return guarded([&] { return engine->buffer_info(address, buffer, runs, run_count); });
}
reprise_status stats(reprise_statistics *statistics) {
    return guarded([&] { return engine->stats(statistics); });
}
const char *last_error() { return thread_state().error; }
void at_exit() {
    guarded([&] {
        engine->at_exit();
        return Status();
    });
}
void fork_prepare() { engine->fork_prepare(); }
void fork_parent() { engine->fork_parent(); }
void fork_child() {
    guarded([&] {
        engine->fork_child();
        return Status();
    });
}
size_t replay_dirty(uint64_t execution, reprise_range *ranges, size_t capacity) {
    size_t count = 0;
    guarded([&] {
        count = engine->replay_dirty(execution, ranges, capacity);
        return Status();
    });
    return count;
}
reprise_status note_generator(uint64_t instance, const char *provider, const void *bytes, size_t size) {
    return guarded([&] { return engine->note_generator(instance, provider, bytes, size); });
}
reprise_status report(uint64_t instance, reprise_status kind, const char *message) {
    return guarded([&] { return engine->report(instance, kind, message); });
}
int mode() { return engine->mode(); }
const char *plan_exchange(uint32_t stage, const char *const *texts, const size_t *sizes, size_t count, size_t *reply_size) {
    *reply_size = 0;
    std::string &reply = thread_state().reply;
    const reprise_status status = guarded([&] {
        std::vector<std::string_view> views;
        for (size_t i = 0; i < count; ++i) views.emplace_back(texts[i], sizes[i]);
        reply = engine->plan_exchange(stage, views);
        return Status();
    });
    if (status != REPRISE_OK || reply.empty()) return nullptr;
    *reply_size = reply.size();
    return reply.data();
}
reprise_status note_replay(uint64_t instance, uint64_t clone_bytes) {
    return guarded([&] { return engine->note_replay(instance, clone_bytes); });
}

constexpr reprise_engine_table kTable = {REPRISE_ENGINE_ABI,
                                         sizeof(reprise_engine_table),
                                         segment_begin,
                                         segment_end,
                                         segment_abort,
                                         release,
                                         step,
                                         track,
                                         untrack,
                                         scope,
                                         state,
                                         write_intent,
                                         buffer_info,
                                         stats,
                                         last_error,
                                         at_exit,
                                         fork_prepare,
                                         fork_parent,
                                         fork_child,
                                         forward_begin,
                                         replay_begin,
                                         replay_end,
                                         replay_dirty,
                                         note_generator,
                                         report,
                                         mode,
                                         note_replay,
                                         plan_exchange};

}  // namespace
}  // namespace reprise

extern "C" __attribute__((visibility("default"))) int reprise_engine_open(const reprise::AllocatorPort *port,
                                                                          const reprise_engine_table **table) {
    using namespace reprise;
    if (port == nullptr || table == nullptr || port->abi != kAllocatorPortAbi || port->size < sizeof(AllocatorPort)) return -1;
    if (engine == nullptr) {
        reprise_status status = guarded([&] {
            Config config = Config::from_environment([](const char *name) -> const char * { return getenv(name); });
            log_start(config.log);
            if (config.policy != Policy::kOff) open_parallel_plugin();
            engine = new Engine(*port, std::move(config));
            return Status();
        });
        if (status != REPRISE_OK) return static_cast<int>(status);
    }
    *table = &kTable;
    return 0;
}
