#include "planner/assemble.h"

#include <algorithm>

namespace reprise::planner {

Plan assemble(const Problem &problem, const std::vector<Core> &cores, const std::vector<Choice> &choices) {
    Plan plan{std::vector<uint8_t>(problem.instances.size(), 0), std::vector<int32_t>(problem.windows.size(), 0)};
    for (size_t c = 0; c < cores.size(); c++) {
        const Core &core = cores[c];
        for (int i = 0; i < core.size(); i++) plan.replay[core.instance_source[i]] = choices[c].replay[i];
        for (int w = 0; w < core.window_count(); w++)
            plan.mechanism[core.window_source[w]] = core.mechanism_source[w][choices[c].mechanism[w]];
    }
    // A window whose readers are all retained has no mechanism: one and the same answer for it.
    for (size_t w = 0; w < problem.windows.size(); w++) {
        bool used = false;
        for (int32_t reader : problem.windows[w].readers) used = used || plan.replay[reader];
        if (!used) plan.mechanism[w] = 0;
    }
    return plan;
}

Measured measure(const Problem &problem, const Plan &plan) {
    Measured out;
    size_t slots = problem.base.size();
    std::vector<int64_t> change(slots + 1, 0);
    int64_t grid = problem.grid_ns;
    auto memory = [&](int32_t begin, int32_t end, int64_t pages) {
        if (begin >= end) return;
        change[begin] += pages;
        change[end] -= pages;
    };
    auto time = [&](int64_t ns) {
        out.exact.time_ns += ns;
        out.grid_time_ns += (ns + grid - 1) / grid * grid;
    };
    for (size_t i = 0; i < problem.instances.size(); i++) {
        const Instance &it = problem.instances[i];
        if (plan.replay[i]) {
            time(it.replay_ns);
            memory(it.replay_begin, it.replay_end, it.transient_pages);
        } else {
            memory(it.forward_end, it.replay_end, it.keep_pages);
        }
    }
    std::vector<std::pair<int32_t, int32_t>> alive;
    for (size_t w = 0; w < problem.windows.size(); w++) {
        const Window &window = problem.windows[w];
        const Mechanism &mechanism = window.mechanisms[plan.mechanism[w]];
        for (size_t k = 0; k < window.readers.size(); k++) {
            const Instance &it = problem.instances[window.readers[k]];
            if (!plan.replay[window.readers[k]]) continue;
            time(mechanism.readers[k].ns);
            memory(it.replay_begin, it.replay_end, mechanism.readers[k].pages);
        }
        for (const Element &element : mechanism.elements) {
            alive.clear();
            for (const Use &use : element.uses)
                if (plan.replay[use.instance]) alive.emplace_back(use.begin, use.end);
            if (alive.empty()) continue;
            time(element.capture_ns);
            std::sort(alive.begin(), alive.end());
            int32_t begin = alive[0].first, end = begin;
            for (auto [b, e] : alive) {
                if (b > end) {
                    memory(begin, end, element.pages);
                    begin = b;
                }
                end = std::max(end, e);
            }
            memory(begin, end, element.pages);
        }
    }
    out.exact.memory.resize(slots);
    int64_t now = 0;
    for (size_t t = 0; t < slots; t++) {
        now += change[t];
        out.exact.memory[t] = problem.base[t] + now;
        if (t == 0 || out.exact.memory[t] > out.exact.peak_pages) {
            out.exact.peak_pages = out.exact.memory[t];
            out.exact.peak_slot = static_cast<int32_t>(t);
        }
    }
    return out;
}

std::vector<Binding> explain(const Problem &problem, const std::vector<std::pair<int, int64_t>> &weights) {
    double total = 0;
    for (auto [slot, weight] : weights) total += static_cast<double>(weight);
    std::vector<Binding> out;
    for (auto [slot, weight] : weights) {
        Binding binding;
        binding.slot = slot;
        binding.weight = total > 0 ? static_cast<double>(weight) / total : 0;
        binding.base_pages = problem.base[slot];
        std::vector<std::pair<int64_t, int32_t>> alive;
        for (size_t i = 0; i < problem.instances.size(); i++) {
            const Instance &it = problem.instances[i];
            int64_t pages = 0;
            if (it.forward_end <= slot && slot < it.replay_end) pages = it.keep_pages;
            if (it.replay_begin <= slot && slot < it.replay_end) pages = std::max(pages, it.transient_pages);
            if (pages > 0) alive.emplace_back(-pages, static_cast<int32_t>(i));
        }
        std::sort(alive.begin(), alive.end());
        for (auto [pages, i] : alive) binding.instances.push_back(i);
        alive.clear();
        for (size_t w = 0; w < problem.windows.size(); w++) {
            int64_t least = INT64_MAX;
            for (const Mechanism &mechanism : problem.windows[w].mechanisms) {
                int64_t pages = 0;
                for (const Element &element : mechanism.elements) {
                    bool here = false;
                    for (const Use &use : element.uses) here = here || (use.begin <= slot && slot < use.end);
                    if (here) pages += element.pages;
                }
                least = std::min(least, pages);
            }
            if (least > 0) alive.emplace_back(-least, static_cast<int32_t>(w));
        }
        std::sort(alive.begin(), alive.end());
        for (auto [pages, w] : alive) binding.windows.push_back(w);
        out.push_back(std::move(binding));
    }
    std::stable_sort(out.begin(), out.end(),
                     [](const Binding &a, const Binding &b) { return a.weight != b.weight ? a.weight > b.weight : a.slot < b.slot; });
    return out;
}

void report(const Problem &problem, Plan plan, Answer &answer) {
    Measured measured = measure(problem, plan);
    answer.plan = std::move(plan);
    answer.time_ns = measured.exact.time_ns;
    answer.objective_ns = measured.grid_time_ns;
    answer.peak_pages = measured.exact.peak_pages;
    answer.peak_slot = measured.exact.peak_slot;
    answer.memory = std::move(measured.exact.memory);
}

int fullest_base(const Problem &problem) {
    if (problem.base.empty()) return -1;
    return static_cast<int>(std::max_element(problem.base.begin(), problem.base.end()) - problem.base.begin());
}

}  // namespace reprise::planner
