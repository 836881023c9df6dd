// Host-state providers: state behind callbacks (generators). Callbacks run on the thread that begins or ends a segment, with no lock held.
#pragma once

#include <string>
#include <vector>

#include "allocator/base/status.h"
#include "policy/instance.h"

namespace reprise {

struct Provider {
    std::string name;
    reprise_state_save save = nullptr;
    reprise_state_load load = nullptr;
    void *context = nullptr;
};

// Saves every provider's state. A provider that fails is named in *failed and left out.
std::vector<SavedState> save_states(const std::vector<Provider> &providers, std::string *failed);
// Saves what the same providers hold now, into states of the same order.
std::vector<SavedState> save_again(const std::vector<SavedState> &states, std::string *failed);
// Loads each state that differs from `present` (parallel lists; empty: loads all). One that refuses does not keep the others from being
// set: a put-back restores what can be restored. Returns the first refusal.
Status load_states(const std::vector<SavedState> &states, const std::vector<SavedState> &present);

}  // namespace reprise
