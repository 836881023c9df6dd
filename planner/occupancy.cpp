#include "planner/occupancy.h"

#include <algorithm>

namespace reprise::planner {

Occupancy::Occupancy(const Core &core) : core_(core) {
    set({std::vector<uint8_t>(core.instances.size(), 0), std::vector<uint8_t>(core.windows.size(), 0)});
}

void Occupancy::set(const Choice &choice) {
    choice_ = choice;
    memory_.assign(core_.slots + 1, 0);
    time_ = 0;
    bulk_ = true;
    for (int i = 0; i < core_.size(); i++) instance_part(i, 1);
    for (int w = 0; w < core_.window_count(); w++) {
        const CoreWindow &window = core_.windows[w];
        for (int k = 0; k < window.size(); k++)
            if (choice_.replay[core_.readers[window.reader_begin + k]]) reader_part(w, k, 1);
        const CoreMechanism &mechanism = core_.mechanism(w, choice_.mechanism[w]);
        for (int e = mechanism.element_begin; e < mechanism.element_end; e++) element_part(e, 1);
    }
    bulk_ = false;
    int64_t now = 0;
    for (int t = 0; t < core_.slots; t++) {
        now += memory_[t];
        memory_[t] = core_.base[t] + now;
    }
    memory_.resize(core_.slots);
}

void Occupancy::instance_part(int instance, int sign) {
    const CoreInstance &it = core_.instances[instance];
    if (choice_.replay[instance]) {
        time_ += sign * it.time;
        add(it.replay_begin, it.replay_end, sign * it.transient);
    } else {
        add(it.forward_end, it.replay_end, sign * it.keep);
    }
}

void Occupancy::reader_part(int window, int place, int sign) {
    const CoreCost &cost = core_.cost(window, choice_.mechanism[window], place);
    const CoreInstance &it = core_.instances[core_.readers[core_.windows[window].reader_begin + place]];
    time_ += sign * cost.time;
    if (cost.pages) add(it.replay_begin, it.replay_end, sign * cost.pages);
}

// The element as its replayed users have it alive: the union of their intervals.
void Occupancy::element_part(int element, int sign) {
    const CoreElement &it = core_.elements[element];
    bool used = false;
    int begin = 0, end = 0;
    for (int u = it.use_begin; u < it.use_end; u++) {
        const CoreUse &use = core_.uses_by_begin[u];
        if (!choice_.replay[use.instance]) continue;
        used = true;
        if (use.begin > end || begin == end) {
            add(begin, end, sign * it.pages);
            begin = use.begin;
            end = use.end;
        } else {
            end = std::max(end, use.end);
        }
    }
    add(begin, end, sign * it.pages);
    if (used) time_ += sign * it.capture;
}

// Whether another replayed user has the element alive all the while that this one needs it: then nothing changes with this one.
bool Occupancy::covered(const ReaderUse &use, int instance) const {
    const CoreElement &it = core_.elements[use.element];
    for (int u = it.use_begin; u < it.use_end; u++) {
        const CoreUse &other = core_.uses[u];
        if (other.begin <= use.begin && other.end >= use.end && choice_.replay[other.instance] && other.instance != instance) return true;
    }
    return false;
}

void Occupancy::set_replay(int instance, bool replay) {
    if (choice_.replay[instance] == static_cast<uint8_t>(replay)) return;
    const CoreInstance &it = core_.instances[instance];
    touched_.clear();
    for (int z = it.window_begin; z < it.window_end; z++) {
        auto [w, k] = core_.windows_of[z];
        const int *offset = &core_.reader_offsets[core_.mechanism(w, choice_.mechanism[w]).reader_use_begin + k];
        for (int u = offset[0]; u < offset[1]; u++)
            if (!covered(core_.reader_uses[u], instance)) touched_.push_back(core_.reader_uses[u].element);
    }
    auto elements = [&](int sign) {
        for (int e : touched_) element_part(e, sign);
        for (int z = it.window_begin; z < it.window_end; z++) {
            auto [w, k] = core_.windows_of[z];
            if (choice_.replay[instance]) reader_part(w, k, sign);
        }
    };
    elements(-1);
    instance_part(instance, -1);
    choice_.replay[instance] = replay;
    instance_part(instance, 1);
    elements(1);
}

void Occupancy::set_mechanism(int window, int mechanism) {
    if (choice_.mechanism[window] == mechanism) return;
    auto part = [&](int sign) {
        const CoreWindow &w = core_.windows[window];
        for (int k = 0; k < w.size(); k++)
            if (choice_.replay[core_.readers[w.reader_begin + k]]) reader_part(window, k, sign);
        const CoreMechanism &m = core_.mechanism(window, choice_.mechanism[window]);
        for (int e = m.element_begin; e < m.element_end; e++) element_part(e, sign);
    };
    part(-1);
    choice_.mechanism[window] = static_cast<uint8_t>(mechanism);
    part(1);
}

int64_t Occupancy::peak() const { return memory_.empty() ? 0 : *std::max_element(memory_.begin(), memory_.end()); }

int Occupancy::peak_slot() const { return static_cast<int>(std::max_element(memory_.begin(), memory_.end()) - memory_.begin()); }

bool Occupancy::fits(int64_t budget) const {
    int64_t most = INT64_MIN;
    for (int64_t m : memory_) most = std::max(most, m);
    return most <= budget;
}

std::vector<int> Occupancy::violated(int64_t budget) const {
    std::vector<int> slots;
    int worst = -1;
    for (int t = 0; t <= core_.slots; t++) {
        if (t < core_.slots && memory_[t] > budget) {
            if (worst < 0 || memory_[t] > memory_[worst]) worst = t;
        } else if (worst >= 0) {
            slots.push_back(worst);
            worst = -1;
        }
    }
    return slots;
}

}  // namespace reprise::planner
