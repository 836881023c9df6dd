// Segments, instances (one forward each) and executions (one F or B each).
#pragma once

#include <pthread.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "reprise/detail/engine_abi.h"
#include "tracker/tracker.h"

namespace reprise {

struct Segment {
    std::string name;
    uint64_t forwards = 0;
    uint64_t replays = 0;
    uint64_t replays_on_changed_state = 0;
    uint64_t last_replayed = 0;      // the youngest instance that was replayed
    std::set<uint64_t> unmanaged;    // outstanding instances that go by the rules of retire_unmanaged()
    uint64_t most_unmanaged = 4096;  // of them that are kept while nothing says that they are done: see let_oldest_go()
    uint64_t let_go_at = 0;          // how many there must be before it looks again
    uint64_t youngest_let_go = 0;    // of those that let_oldest_go() took; 0: none
    uint64_t kept_longer_since = 0;  // the youngest instance when most_unmanaged rose
    uint64_t contract_digest = 0;    // of the last contract, structure only
    uint64_t contracts = 0;          // different ones seen
};

// What a state provider saved: nobody but the provider knows what the bytes mean.
struct SavedState {
    std::string provider;
    reprise_state_load load = nullptr;
    reprise_state_save save = nullptr;
    void *context = nullptr;
    std::vector<std::byte> bytes;
};

struct GeneratorNote {
    std::string provider;
    uint64_t digest = 0;
};

// An independent copy or digest of one scope entry, made by plain memcpy or XXH3 and never by a mechanism.
struct Witness {
    Image bytes;
    kernels::Digest128 digest{};
    bool present = false;
};

struct Instance {
    enum class State : uint8_t { kForward, kOutstanding };

    uint64_t id = 0;
    Segment *segment = nullptr;
    State state = State::kForward;
    uint64_t ordinal = 0;  // among the segment's forwards
    uint64_t step = 0;
    uint64_t window = 0;
    std::vector<ScopeEntry> scope;
    std::vector<std::string> refusals;  // why entries with version 0 could not be captured
    std::vector<SavedState> states;
    std::vector<GeneratorNote> generators;
    std::vector<Witness> witnesses;  // parallel to scope when verifying
    uint32_t open_replays = 0;
    uint32_t replays = 0;
    bool release_pending = false;
    uint64_t cycle = 0;     // in which its forward began, and
    int32_t in_cycle = -1;  // its number there; -1: nothing is planned
    int32_t planned = -1;   // its number in the plan in force then; -1: it has none
    bool retained = false;  // nothing was recorded: it will not be replayed
    bool managed = false;   // by an adapter that releases it; else it is let go by the rules of retire_unmanaged()

    // Will it be replayed (again), for all that can be known? What belongs to one window is judged by this.
    bool awaited() const { return !retained && (managed || replays == 0 || open_replays != 0 || state == State::kForward); }
    // Is a replay of it still to come, for all that can be known?
    bool unfinished() const { return state == State::kForward || open_replays != 0 || (!retained && replays == 0); }
};

struct Execution {
    uint64_t id = 0;
    uint64_t instance = 0;
    bool is_replay = false;
    bool unprotected = false;  // a rejection that policy only warns about: runs on the present state
    pthread_t thread{};
    std::unique_ptr<Replay> replay;
    std::vector<SavedState> present_states;  // what providers are put back to
    uint64_t began_ns = 0;
    uint64_t spent_ns = 0;  // in Reprise
    uint64_t bytes_changed = 0;
};

}  // namespace reprise
