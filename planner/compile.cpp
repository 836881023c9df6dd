#include <algorithm>
#include <numeric>
#include <tuple>

#include "planner/core.h"

namespace reprise::planner {

namespace {

using Uses = std::vector<Use>;

// A mechanism with its uses in the canonical numbers, sorted: what the order of mechanisms and elements is decided by.
struct Sorted {
    const Mechanism *from;
    int32_t source;
    std::vector<std::tuple<int64_t, int64_t, Uses>> elements;
    std::vector<std::pair<int64_t, int64_t>> costs;
};
bool before(const Sorted &a, const Sorted &b) {
    return std::tie(a.from->kind, a.from->name, a.elements, a.costs) < std::tie(b.from->kind, b.from->name, b.elements, b.costs);
}
struct SortedWindow {
    int32_t source;
    std::vector<int32_t> readers;  // canonical
    std::vector<Sorted> mechanisms;
};

SortedWindow sorted(const Problem &problem, int32_t w, const std::vector<int32_t> &place) {
    const Window &window = problem.windows[w];
    SortedWindow out{w, {}, {}};
    std::vector<int32_t> order(window.readers.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](int a, int b) { return place[window.readers[a]] < place[window.readers[b]]; });
    for (int32_t k : order) out.readers.push_back(place[window.readers[k]]);
    for (size_t m = 0; m < window.mechanisms.size(); m++) {
        const Mechanism &mechanism = window.mechanisms[m];
        Sorted s{&mechanism, static_cast<int32_t>(m), {}, {}};
        for (const Element &element : mechanism.elements) {
            Uses uses = element.uses;
            for (Use &use : uses) use.instance = place[use.instance];
            std::sort(uses.begin(), uses.end());
            // Something that nobody uses costs nothing.
            if (!uses.empty()) s.elements.emplace_back(element.pages, element.capture_ns, std::move(uses));
        }
        std::sort(s.elements.begin(), s.elements.end());
        for (int32_t k : order) s.costs.emplace_back(mechanism.readers[k].ns, mechanism.readers[k].pages);
        out.mechanisms.push_back(std::move(s));
    }
    std::stable_sort(out.mechanisms.begin(), out.mechanisms.end(), before);
    return out;
}

// `part[i]`, `local[i]`: the component of canonical instance i and its number there.
void add_window(Core &core, const SortedWindow &window, const std::vector<int> &local, int64_t grid) {
    auto on_grid = [&](int64_t ns) { return (ns + grid - 1) / grid; };
    int w = core.window_count();
    CoreWindow out{static_cast<int>(core.readers.size()), 0, static_cast<int>(core.mechanisms.size()),
                   static_cast<int>(window.mechanisms.size())};
    for (int32_t reader : window.readers) core.readers.push_back(local[reader]);
    out.reader_end = static_cast<int>(core.readers.size());
    std::vector<int> place(core.instances.size(), -1);
    for (int k = 0; k < out.size(); k++) place[core.readers[out.reader_begin + k]] = k;
    std::vector<int32_t> sources;
    for (const Sorted &mechanism : window.mechanisms) {
        CoreMechanism m{static_cast<int>(core.elements.size()), 0, static_cast<int>(core.costs.size()),
                        static_cast<int>(core.reader_offsets.size()), mechanism.from->kind};
        for (auto [ns, pages] : mechanism.costs) {
            core.costs.push_back({on_grid(ns), pages});
            core.most_pages += pages;
        }
        std::vector<std::vector<ReaderUse>> per_reader(out.size());
        for (const auto &[pages, capture, uses] : mechanism.elements) {
            CoreElement element{pages, on_grid(capture), w, static_cast<int>(sources.size()), static_cast<int>(core.uses.size()), 0};
            for (const Use &use : uses) {
                int instance = local[use.instance];
                CoreUse local_use{instance, use.begin - core.first_slot, use.end - core.first_slot};
                core.uses.push_back(local_use);
                per_reader[place[instance]].push_back({static_cast<int>(core.elements.size()), local_use.begin, local_use.end});
            }
            element.use_end = static_cast<int>(core.uses.size());
            core.uses_by_begin.insert(core.uses_by_begin.end(), core.uses.begin() + element.use_begin, core.uses.end());
            std::stable_sort(core.uses_by_begin.begin() + element.use_begin, core.uses_by_begin.end(),
                             [](const CoreUse &a, const CoreUse &b) { return a.begin < b.begin; });
            core.elements.push_back(element);
            core.most_pages += pages;
        }
        m.element_end = static_cast<int>(core.elements.size());
        for (auto &list : per_reader) {
            // What few others use first: who has other elements to pay for leaves these to those who have not (lagrangian.cpp).
            auto users = [&](const ReaderUse &use) { return core.elements[use.element].use_end - core.elements[use.element].use_begin; };
            std::stable_sort(list.begin(), list.end(), [&](const ReaderUse &a, const ReaderUse &b) { return users(a) < users(b); });
            core.reader_offsets.push_back(static_cast<int>(core.reader_uses.size()));
            core.reader_uses.insert(core.reader_uses.end(), list.begin(), list.end());
        }
        core.reader_offsets.push_back(static_cast<int>(core.reader_uses.size()));
        core.mechanisms.push_back(m);
        sources.push_back(mechanism.source);
    }
    core.windows.push_back(out);
    core.window_source.push_back(window.source);
    core.mechanism_source.push_back(std::move(sources));
}

void link_windows(Core &core) {
    std::vector<std::vector<WindowOf>> of(core.instances.size());
    for (int w = 0; w < core.window_count(); w++)
        for (int k = 0; k < core.windows[w].size(); k++) of[core.readers[core.windows[w].reader_begin + k]].push_back({w, k});
    for (int i = 0; i < core.size(); i++) {
        core.instances[i].window_begin = static_cast<int>(core.windows_of.size());
        core.windows_of.insert(core.windows_of.end(), of[i].begin(), of[i].end());
        core.instances[i].window_end = static_cast<int>(core.windows_of.size());
    }
}

}  // namespace

std::vector<Core> compile(const Problem &problem) {
    auto n = static_cast<int>(problem.instances.size());
    std::vector<int32_t> order(n), place(n);
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(),
              [&](int a, int b) { return problem.instances[a].forward_begin < problem.instances[b].forward_begin; });
    for (int z = 0; z < n; z++) place[order[z]] = z;

    std::vector<Core> cores;
    std::vector<int> part(n), local(n);
    int end = -1;
    for (int z = 0; z < n; z++) {
        const Instance &it = problem.instances[order[z]];
        if (it.forward_begin >= end) {
            cores.emplace_back();
            cores.back().first_slot = it.forward_begin;
            end = it.replay_end;
        }
        end = std::max(end, it.replay_end);
        Core &core = cores.back();
        int s = core.first_slot;
        core.slots = end - s;
        part[z] = static_cast<int>(cores.size()) - 1;
        local[z] = core.size();
        core.instances.push_back({it.forward_begin - s, it.forward_end - s, it.replay_begin - s, it.replay_end - s, it.keep_pages,
                                  (it.replay_ns + problem.grid_ns - 1) / problem.grid_ns, it.transient_pages, it.freedom, 0, 0});
        core.instance_source.push_back(order[z]);
        core.most_pages += it.keep_pages + it.transient_pages;
    }
    for (Core &core : cores) {
        core.base.assign(problem.base.begin() + core.first_slot, problem.base.begin() + core.first_slot + core.slots);
        core.budget = problem.budget_pages;
        core.most_pages += *std::max_element(core.base.begin(), core.base.end());
    }
    std::vector<SortedWindow> windows;
    for (int32_t w = 0; w < static_cast<int32_t>(problem.windows.size()); w++)
        if (!problem.windows[w].readers.empty()) windows.push_back(sorted(problem, w, place));
    auto earlier = [&](const SortedWindow &a, const SortedWindow &b) {
        int names = problem.windows[a.source].name.compare(problem.windows[b.source].name);
        if (names != 0) return names < 0;
        if (a.readers != b.readers) return a.readers < b.readers;
        return std::lexicographical_compare(a.mechanisms.begin(), a.mechanisms.end(), b.mechanisms.begin(), b.mechanisms.end(), before);
    };
    std::stable_sort(windows.begin(), windows.end(), earlier);
    for (const SortedWindow &window : windows) add_window(cores[part[window.readers.front()]], window, local, problem.grid_ns);
    for (Core &core : cores) link_windows(core);
    return cores;
}

}  // namespace reprise::planner
