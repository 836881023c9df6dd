#include "planner/cuts.h"

#include <algorithm>

namespace reprise::planner {

namespace {

// The least that instance i takes in the slot when it is replayed: what it alone needs. What others may share is left out.
int64_t least_replayed(const Core &core, int i, int slot) {
    const CoreInstance &it = core.instances[i];
    bool running = it.replay_begin <= slot && slot < it.replay_end;
    int64_t pages = running ? it.transient : 0;
    for (int z = it.window_begin; z < it.window_end; z++) {
        auto [w, k] = core.windows_of[z];
        int64_t least = INT64_MAX;
        for (int m = 0; m < core.windows[w].mechanism_count; m++) {
            int64_t taken = running ? core.cost(w, m, k).pages : 0;
            const int *offset = &core.reader_offsets[core.mechanism(w, m).reader_use_begin + k];
            for (int u = offset[0]; core.windows[w].size() == 1 && u < offset[1]; u++)
                if (core.reader_uses[u].begin <= slot && slot < core.reader_uses[u].end)
                    taken += core.elements[core.reader_uses[u].element].pages;
            least = std::min(least, taken);
        }
        pages += least;
    }
    return pages;
}

struct Alive {
    double replayed;
    int64_t saved;
    int instance;
};

}  // namespace

Found find_cut(const Core &core, int64_t budget, int slot, const std::vector<double> &replayed) {
    Found found;
    int64_t need = core.base[slot] - budget;
    std::vector<Alive> alive;
    for (int i = 0; i < core.size(); i++) {
        const CoreInstance &it = core.instances[i];
        if (slot < it.forward_end || slot >= it.replay_end) continue;
        need += it.keep;
        int64_t saved = it.keep - least_replayed(core, i, slot);
        if (saved > 0) alive.push_back({replayed[i], saved, i});
    }
    // The set that is taken for granted: those most surely replayed, as many as misses most.
    std::sort(alive.begin(), alive.end(), [](const Alive &a, const Alive &b) {
        if (a.replayed != b.replayed) return a.replayed > b.replayed;
        return a.saved != b.saved ? a.saved > b.saved : a.instance < b.instance;
    });
    size_t granted = 0;
    int64_t rest = need, best_need = 0;
    for (size_t z = 0; z <= alive.size() && rest > 0; z++) {
        double freed = 0;
        for (size_t y = z; y < alive.size(); y++) freed += static_cast<double>(std::min(alive[y].saved, rest)) * alive[y].replayed;
        double missed = 1 - freed / static_cast<double>(rest);
        if (missed > found.missed + 1e-4) found.missed = missed, granted = z, best_need = rest;
        if (z < alive.size()) rest -= alive[z].saved;
    }
    if (found.missed <= 0) return found;
    found.cut.need = best_need;
    for (size_t y = granted; y < alive.size(); y++) found.cut.saved.emplace_back(alive[y].instance, std::min(alive[y].saved, best_need));
    std::sort(found.cut.saved.begin(), found.cut.saved.end());
    return found;
}

}  // namespace reprise::planner
