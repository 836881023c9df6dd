#include "planner/presolve.h"

#include <algorithm>
#include <numeric>

namespace reprise::planner {

Fixing all_open(const Core &core) {
    Fixing fixing;
    for (const CoreInstance &it : core.instances)
        fixing.choice.push_back(it.freedom == Freedom::open ? int8_t{-1} : it.freedom == Freedom::replay ? int8_t{1} : int8_t{0});
    for (const CoreWindow &window : core.windows) fixing.mechanisms.push_back((1u << window.mechanism_count) - 1);
    return fixing;
}

namespace {

// Whether all uses of `inner` lie within those of `outer`. Both are sorted by instance.
bool uses_within(const Core &core, const CoreElement &inner, const CoreElement &outer) {
    int o = outer.use_begin;
    for (int u = inner.use_begin; u < inner.use_end; u++) {
        const CoreUse &use = core.uses[u];
        while (o < outer.use_end && core.uses[o].instance < use.instance) o++;
        if (o == outer.use_end || core.uses[o].instance != use.instance) return false;
        if (core.uses[o].begin > use.begin || core.uses[o].end < use.end) return false;
    }
    return true;
}

bool costs_no_more(const Core &core, int window, int better, int worse) {
    for (int k = 0; k < core.windows[window].size(); k++) {
        const CoreCost &b = core.cost(window, better, k), &w = core.cost(window, worse, k);
        if (b.time > w.time || b.pages > w.pages) return false;
    }
    const CoreMechanism &small = core.mechanism(window, better), &large = core.mechanism(window, worse);
    std::vector<int64_t> pages, capture;
    for (int e = large.element_begin; e < large.element_end; e++) {
        pages.push_back(core.elements[e].pages);
        capture.push_back(core.elements[e].capture);
    }
    std::vector<int> order(small.element_end - small.element_begin);
    std::iota(order.begin(), order.end(), small.element_begin);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return core.elements[a].pages > core.elements[b].pages; });
    for (int e : order) {
        const CoreElement &element = core.elements[e];
        bool placed = false;
        for (size_t y = pages.size(); y-- > 0 && !placed;) {
            if (pages[y] < element.pages || capture[y] < element.capture) continue;
            if (!uses_within(core, element, core.elements[large.element_begin + static_cast<int>(y)])) continue;
            placed = true;
            pages[y] -= element.pages;
            capture[y] -= element.capture;
        }
        if (!placed) return false;
    }
    return true;
}

}  // namespace

int drop_dominated_mechanisms(const Core &core, Fixing &fixing) {
    int dropped = 0;
    for (int w = 0; w < core.window_count(); w++)
        for (int worse = 0; worse < core.windows[w].mechanism_count; worse++)
            for (int better = 0; better < core.windows[w].mechanism_count; better++) {
                bool both = better != worse && (fixing.mechanisms[w] >> worse & 1) && (fixing.mechanisms[w] >> better & 1);
                if (!both || !costs_no_more(core, w, better, worse)) continue;
                fixing.mechanisms[w] &= ~(1u << worse);
                dropped++;
            }
    return dropped;
}

int fix_by_reduced_cost(const Relaxed &relaxed, int64_t cutoff, Fixing &fixing) {
    int fixed = 0;
    for (size_t i = 0; i < fixing.choice.size(); i++) {
        if (fixing.choice[i] >= 0) continue;
        int64_t reduced = relaxed.reduced[i];
        if (relaxed.bound + std::abs(reduced) <= cutoff) continue;
        fixing.choice[i] = reduced < 0 ? 1 : 0;
        fixed++;
    }
    return fixed;
}

namespace {

// How many instances may be replayed with the window's mechanism, and the place of the last of them.
std::pair<int, int> users(const Core &core, int w, const Fixing &fixing) {
    int count = 0, place = -1;
    for (int k = 0; k < core.windows[w].size(); k++)
        if (fixing.choice[core.readers[core.windows[w].reader_begin + k]] != 0) count++, place = k;
    return {count, place};
}

}  // namespace

int drop_private_mechanisms(const Core &core, const Lagrangian &lagrangian, const Relaxed &relaxed, int64_t cutoff, Fixing &fixing) {
    int dropped = 0;
    for (int w = 0; w < core.window_count(); w++) {
        if (decided(fixing.mechanisms[w])) continue;
        auto [count, place] = users(core, w, fixing);
        if (count != 1) continue;
        int i = core.readers[core.windows[w].reader_begin + place];
        int64_t without = relaxed.bound + (fixing.choice[i] < 0 ? std::max<int64_t>(0, relaxed.reduced[i]) : 0);
        int64_t paid = relaxed.level[core.windows[w].reader_begin + place], least = INT64_MAX;
        uint32_t left = 0, cheapest = 0;
        for (uint32_t set = fixing.mechanisms[w]; set; set &= set - 1) {
            uint32_t one = set & -set;
            int64_t cost = lagrangian.alone(w, __builtin_ctz(set), place);
            if (cost < least) least = cost, cheapest = one;
            if (without + cost - paid <= cutoff) left |= one;
        }
        left |= cheapest;
        dropped += __builtin_popcount(fixing.mechanisms[w] & ~left);
        fixing.mechanisms[w] = left;
    }
    return dropped;
}

int probe_mechanisms(const Core &core, Lagrangian &lagrangian, const std::vector<int64_t> &multipliers, int64_t cutoff, const Work &work,
                     uint64_t stop, Fixing &fixing) {
    int dropped = 0;
    Relaxed probe;
    for (int w = 0; w < core.window_count() && work.used < stop; w++) {
        if (decided(fixing.mechanisms[w]) || users(core, w, fixing).first < 2) continue;
        uint32_t all = fixing.mechanisms[w], left = all;
        for (uint32_t set = all; set && !decided(left); set &= set - 1) {
            uint32_t one = set & -set;
            fixing.mechanisms[w] = one;
            lagrangian.evaluate(multipliers, fixing, probe);
            if (probe.bound > cutoff) left &= ~one, dropped++;
        }
        fixing.mechanisms[w] = left;
    }
    return dropped;
}

}  // namespace reprise::planner
