// The C API: every entry forwards to the engine's table, or answers for it when there is no engine.
//
// Called by the job, from any thread, before the constructor and during exit too. Nothing is kept here but the engine's table.
#include <stdint.h>
#include <string.h>

#include "interpose/attach.h"
#include "interpose/engine.h"
#include "interpose/interposed.h"
#include "interpose/process.h"

using namespace reprise;

namespace {

#define REPRISE_TEXT(x) #x
#define REPRISE_DOTTED(a, b, c) REPRISE_TEXT(a) "." REPRISE_TEXT(b) "." REPRISE_TEXT(c)

// Calls `entry` of the table with these arguments; REPRISE_UNAVAILABLE without an engine.
template <class... Parameters, class... Arguments>
reprise_status forward(reprise_status (*reprise_engine_table::*entry)(Parameters...), Arguments... arguments) {
    const reprise_engine_table *table = engine();
    if (table == nullptr) return REPRISE_UNAVAILABLE;
    clear_engine_failure();
    return (table->*entry)(arguments...);
}

}  // namespace

extern "C" {

reprise_segment reprise_segment_begin(const char *name, uint64_t replay_of) {
    const reprise_engine_table *table = engine();
    if (table == nullptr) return reprise_segment{0, 0, REPRISE_RETAIN, REPRISE_UNAVAILABLE};
    clear_engine_failure();
    return table->segment_begin(name, replay_of);
}

reprise_status reprise_segment_end(reprise_segment segment) { return forward(&reprise_engine_table::segment_end, segment); }
reprise_status reprise_segment_abort(uint64_t instance) { return forward(&reprise_engine_table::segment_abort, instance); }
reprise_status reprise_release(uint64_t instance) { return forward(&reprise_engine_table::release, instance); }
reprise_status reprise_step(void) { return forward(&reprise_engine_table::step); }

reprise_status reprise_track(void *address, size_t size, const char *name, unsigned flags) {
    return forward(&reprise_engine_table::track, address, size, name, flags);
}
reprise_status reprise_untrack(void *address) { return forward(&reprise_engine_table::untrack, address); }
reprise_status reprise_scope(const reprise_range *ranges, size_t count) { return forward(&reprise_engine_table::scope, ranges, count); }
reprise_status reprise_state(const char *name, reprise_state_save save, reprise_state_load load, void *context) {
    return forward(&reprise_engine_table::state, name, save, load, context);
}
reprise_status reprise_write_intent(const void *address, size_t size) {
    return forward(&reprise_engine_table::write_intent, address, size);
}
reprise_status reprise_buffer_info(const void *address, reprise_buffer *buffer, reprise_range *runs, size_t *run_count) {
    return forward(&reprise_engine_table::buffer_info, address, buffer, runs, run_count);
}
reprise_status reprise_stats(reprise_statistics *statistics) { return forward(&reprise_engine_table::stats, statistics); }

const char *reprise_last_error(void) {
    // A failure of ours is newer than any of the engine's: a call that reaches the engine clears it.
    const char *ours = engine_failure();
    if (ours[0] != '\0') return ours;
    const reprise_engine_table *table = engine_if_open();
    return table != nullptr ? table->last_error() : "";
}

const char *reprise_version(void) { return REPRISE_DOTTED(REPRISE_VERSION_MAJOR, REPRISE_VERSION_MINOR, REPRISE_VERSION_PATCH); }

const reprise_engine_table *reprise_adapter_table(uint32_t abi) {
    if (abi != REPRISE_ENGINE_ABI) {
        set_failure("the adapter was built for another version of libreprise.so: install both from one build");
        return nullptr;
    }
    return engine();
}

int reprise_interposed(void) { return interposed() ? 1 : 0; }

int reprise_attached(int level) {
    const int now = raise_attached_level(level);
    if (level >= 2) announce_attached();
    return now;
}

}  // extern "C"
