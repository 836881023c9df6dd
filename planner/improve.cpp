// Better plans where the label program over everything overflows: it is run over a small part of the decisions while the rest stays as in
// the best plan known. The parts take turns in a fixed order; what no part can improve any more is left to the search.
#include <algorithm>
#include <numeric>

#include "planner/search.h"

namespace reprise::planner {

namespace {

constexpr size_t kWidth = 400;    // labels a step
constexpr size_t kMostFree = 40;  // instances decided anew at a time
constexpr int kChunk = 16;        // neighbours in the order of forwards
constexpr int kMostSlots = 150;   // active ones: more only make every part dearer

}  // namespace

// Everything as in the best plan, but for these instances and windows, and windows that nobody else uses in it.
Fixing Search::around(const std::vector<int> &instances, const std::vector<int> &windows, const Fixing &fixing) const {
    const Choice &best = incumbent_.choice();
    Fixing out;
    out.choice.assign(best.replay.begin(), best.replay.end());
    for (uint8_t m : best.mechanism) out.mechanisms.push_back(1u << m);
    for (int i : instances)
        if (fixing.choice[i] < 0) out.choice[i] = -1;
    for (int w : windows) out.mechanisms[w] = fixing.mechanisms[w];
    for (int i : instances)
        for (int z = core_.instances[i].window_begin; z < core_.instances[i].window_end; z++) {
            int w = core_.windows_of[z].window;
            const CoreWindow &window = core_.windows[w];
            bool used = false;
            for (int r = window.reader_begin; r < window.reader_end; r++) used = used || out.choice[core_.readers[r]] == 1;
            if (!used) out.mechanisms[w] = fixing.mechanisms[w];
        }
    return out;
}

// The parts that take turns: readers of a window, of two windows that share readers, what is alive in a binding slot, and neighbours in
// time.
std::vector<Search::Part> Search::parts(const Relaxed &relaxed, const Fixing &fixing) const {
    std::vector<Part> out;
    auto undecided = [&](int a, int b) {
        int64_t x = std::abs(relaxed.reduced[a]), y = std::abs(relaxed.reduced[b]);
        return x != y ? x < y : a < b;
    };
    auto add = [&](std::vector<int> instances, std::vector<int> windows) {
        std::sort(instances.begin(), instances.end());
        instances.erase(std::unique(instances.begin(), instances.end()), instances.end());
        std::erase_if(instances, [&](int i) { return fixing.choice[i] >= 0; });
        if (instances.size() > kMostFree) {
            std::sort(instances.begin(), instances.end(), undecided);
            instances.resize(kMostFree);
            std::sort(instances.begin(), instances.end());
        }
        if (instances.size() > 1) out.push_back({std::move(instances), std::move(windows)});
    };
    auto readers = [&](int w) {
        const CoreWindow &window = core_.windows[w];
        return std::vector<int>(core_.readers.begin() + window.reader_begin, core_.readers.begin() + window.reader_end);
    };
    for (int from = 0; from < core_.size(); from += kChunk / 2) {
        std::vector<int> chunk;
        for (int i = from; i < std::min(core_.size(), from + kChunk); i++) chunk.push_back(i);
        add(std::move(chunk), {});
    }
    for (int slot : lagrangian_.slots()) {
        std::vector<int> alive;
        for (int i = 0; i < core_.size(); i++)
            if (core_.instances[i].forward_end <= slot && slot < core_.instances[i].replay_end) alive.push_back(i);
        add(std::move(alive), {});
    }
    for (int w = 0; w < core_.window_count(); w++) add(readers(w), {w});
    for (int w = 0; w < core_.window_count(); w++) {
        // The window that shares most readers with this one.
        std::vector<int> common(core_.windows.size(), 0), mine = readers(w);
        for (int i : mine)
            for (int z = core_.instances[i].window_begin; z < core_.instances[i].window_end; z++) common[core_.windows_of[z].window]++;
        common[w] = 0;
        auto other = static_cast<int>(std::max_element(common.begin(), common.end()) - common.begin());
        if (common[other] == 0) continue;
        std::vector<int> both = readers(other);
        both.insert(both.end(), mine.begin(), mine.end());
        add(std::move(both), {w, other});
    }
    return out;
}

void Search::improve(std::vector<int64_t> &multipliers, const Fixing &fixing, const Relaxed &root, uint64_t allowance) {
    if (!incumbent_.found() || incumbent_.feasibility()) return;
    uint64_t stop = work_.used + allowance;
    std::vector<Part> all = parts(root, fixing);
    Relaxed relaxed;
    for (size_t turn = 0, stale = 0; stale < all.size() && work_.used < stop && !work_.spent(); turn++) {
        const Part &part = all[turn % all.size()];
        Fixing trial = around(part.instances, part.windows, fixing);
        int64_t before = incumbent_.time();
        lagrangian_.evaluate(multipliers, trial, relaxed, true);
        counters_.evaluations++;
        if (!refuted(relaxed)) {
            LabelResult result = label(multipliers, trial, relaxed, kWidth, false);
            if (!result.violated.empty() && lagrangian_.count() < kMostSlots) activate(result.violated, multipliers);
        }
        stale = incumbent_.time() < before ? 0 : stale + 1;
    }
}

}  // namespace reprise::planner
