#include "policy/providers.h"

namespace reprise {
namespace {

// Most generators need a few KiB.
constexpr size_t kFirstGuess = 8192;

bool save_one(SavedState &state) {
    state.bytes.resize(state.bytes.empty() ? kFirstGuess : state.bytes.size());
    size_t needed = state.save(state.context, state.bytes.data(), state.bytes.size());
    if (needed != SIZE_MAX && needed > state.bytes.size()) {
        state.bytes.resize(needed);
        needed = state.save(state.context, state.bytes.data(), state.bytes.size());
    }
    if (needed == SIZE_MAX || needed > state.bytes.size()) return false;
    state.bytes.resize(needed);
    return true;
}

void save_into(std::vector<SavedState> &out, SavedState state, std::string *failed) {
    if (state.save != nullptr && !save_one(state)) {
        *failed = state.provider;
        state.load = nullptr;  // nothing to load
    }
    out.push_back(std::move(state));
}

}  // namespace

std::vector<SavedState> save_states(const std::vector<Provider> &providers, std::string *failed) {
    std::vector<SavedState> states;
    states.reserve(providers.size());
    for (const Provider &provider : providers) {
        save_into(states, {provider.name, provider.load, provider.save, provider.context, {}}, failed);
    }
    return states;
}

std::vector<SavedState> save_again(const std::vector<SavedState> &states, std::string *failed) {
    std::vector<SavedState> now;
    now.reserve(states.size());
    for (const SavedState &state : states) save_into(now, {state.provider, state.load, state.save, state.context, {}}, failed);
    return now;
}

Status load_states(const std::vector<SavedState> &states, const std::vector<SavedState> &present) {
    Status first_refusal;
    for (size_t i = 0; i < states.size(); ++i) {
        const SavedState &state = states[i];
        if (state.load == nullptr) continue;
        if (i < present.size() && present[i].bytes == state.bytes) continue;
        if (state.load(state.context, state.bytes.data(), state.bytes.size()) != 0 && first_refusal.ok()) {
            first_refusal =
                Status::error(REPRISE_REJECTED, "the state provider '%s' could not set a state that it had saved", state.provider.c_str());
        }
    }
    return first_refusal;
}

}  // namespace reprise
