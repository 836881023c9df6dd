#include <algorithm>
#include <cinttypes>
#include <numeric>

#include "planner/planner.h"

namespace reprise::planner {

namespace {

// Sums stay below 2^60 whatever the multipliers (lagrangian.cpp).
constexpr int64_t kMostPages = int64_t{1} << 34;  // 64 TiB
constexpr int64_t kMostTime = int64_t{1} << 46;   // 19 hours

Status wrong(const char *format, auto... arguments) { return Status::error(REPRISE_INVALID_ARGUMENT, format, arguments...); }

Status check_instance(const Problem &problem, size_t i, std::vector<uint8_t> &taken, int64_t &time, int64_t &pages) {
    const Instance &it = problem.instances[i];
    auto slots = static_cast<int32_t>(problem.base.size());
    const char *name = it.name.c_str();
    if (it.forward_begin < 0 || it.forward_begin >= it.forward_end || it.replay_begin >= it.replay_end ||
        it.forward_begin >= it.replay_begin || it.forward_end >= it.replay_end || it.replay_end > slots)
        return wrong("instance %zu (%s): its events %d %d %d %d are not in order within %d slots", i, name, it.forward_begin,
                     it.forward_end, it.replay_begin, it.replay_end, slots);
    for (int32_t event : {it.forward_begin, it.forward_end, it.replay_begin, it.replay_end}) {
        if (taken[event]) return wrong("instance %zu (%s): event %d belongs to two instances", i, name, event);
        taken[event] = 1;
    }
    if (it.keep_pages < 0 || it.replay_ns < 0 || it.transient_pages < 0 || it.keep_pages > kMostPages || it.transient_pages > kMostPages ||
        it.replay_ns > kMostTime)
        return wrong("instance %zu (%s): pages or time negative or beyond the planner's range", i, name);
    time += it.replay_ns;
    pages += std::max(it.keep_pages, it.transient_pages);
    return {};
}

Status check_mechanism(const Problem &problem, const Window &window, const Mechanism &mechanism, std::vector<int32_t> &mark, int32_t &stamp,
                       int64_t &time, int64_t &pages) {
    const char *name = window.name.c_str(), *how = mechanism.name.c_str();
    if (mechanism.readers.size() != window.readers.size())
        return wrong("window %s, mechanism %s: costs of %zu readers, but there are %zu", name, how, mechanism.readers.size(),
                     window.readers.size());
    for (const ReaderCost &cost : mechanism.readers) {
        if (cost.ns < 0 || cost.pages < 0 || cost.ns > kMostTime || cost.pages > kMostPages)
            return wrong("window %s, mechanism %s: a reader's cost is negative or beyond the planner's range", name, how);
        time += cost.ns;
        pages += cost.pages;
    }
    int32_t readers = ++stamp;
    for (int32_t reader : window.readers) mark[reader] = readers;
    for (const Element &element : mechanism.elements) {
        if (element.pages < 0 || element.capture_ns < 0 || element.pages > kMostPages || element.capture_ns > kMostTime)
            return wrong("window %s, mechanism %s: an element is negative or beyond the planner's range", name, how);
        time += element.capture_ns;
        pages += element.pages;
        std::vector<int32_t> seen;
        for (const Use &use : element.uses) {
            if (use.instance < 0 || use.instance >= static_cast<int32_t>(mark.size()) || mark[use.instance] != readers)
                return wrong("window %s, mechanism %s: instance %d uses an element but is no reader", name, how, use.instance);
            const Instance &it = problem.instances[use.instance];
            if (use.begin > use.end || use.begin < it.forward_begin || use.end > it.replay_end)
                return wrong("window %s, mechanism %s: a use [%d, %d) lies outside its instance", name, how, use.begin, use.end);
            seen.push_back(use.instance);
        }
        std::sort(seen.begin(), seen.end());
        if (std::adjacent_find(seen.begin(), seen.end()) != seen.end())
            return wrong("window %s, mechanism %s: an instance uses one element twice", name, how);
    }
    return {};
}

// The number of the stretch of the time line that each instance lies in: stretches end where no instance is outstanding.
std::vector<int32_t> stretches(const Problem &problem) {
    std::vector<int32_t> order(problem.instances.size()), part(problem.instances.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(),
              [&](int a, int b) { return problem.instances[a].forward_begin < problem.instances[b].forward_begin; });
    int32_t number = 0, end = 0;
    for (int32_t i : order) {
        if (problem.instances[i].forward_begin >= end) number++;
        end = std::max(end, problem.instances[i].replay_end);
        part[i] = number;
    }
    return part;
}

}  // namespace

Status validate(const Problem &problem) {
    if (problem.grid_ns < 1) return wrong("the time grid is %" PRId64 " ns: it must be at least 1", problem.grid_ns);
    if (problem.base.size() > (1u << 24) || problem.instances.size() > (1u << 20)) return wrong("more events than the planner's range");
    int64_t time = 0, pages = 0;
    for (size_t t = 0; t < problem.base.size(); t++)
        if (problem.base[t] < 0 || problem.base[t] > kMostPages)
            return wrong("slot %zu: base memory of %" PRId64 " pages", t, problem.base[t]);
    std::vector<uint8_t> taken(problem.base.size() + 1);
    for (size_t i = 0; i < problem.instances.size(); i++)
        if (Status status = check_instance(problem, i, taken, time, pages); !status.ok()) return status;
    std::vector<int32_t> mark(problem.instances.size(), 0);
    std::vector<int32_t> part = stretches(problem);
    int32_t stamp = 0;
    for (const Window &window : problem.windows) {
        const char *name = window.name.c_str();
        if (window.mechanisms.empty() || window.mechanisms.size() > static_cast<size_t>(kMostMechanisms))
            return wrong("window %s: %zu mechanisms, must be 1 to %d", name, window.mechanisms.size(), kMostMechanisms);
        int32_t once = ++stamp;
        for (int32_t reader : window.readers) {
            if (reader < 0 || reader >= static_cast<int32_t>(mark.size()))
                return wrong("window %s: reader %d is no instance", name, reader);
            if (mark[reader] == once) return wrong("window %s: instance %d reads it twice", name, reader);
            mark[reader] = once;
            if (part[reader] != part[window.readers.front()])
                return wrong("window %s: nothing is outstanding between its readers %d and %d: make it two windows", name,
                             window.readers.front(), reader);
        }
        for (const Mechanism &mechanism : window.mechanisms)
            if (Status status = check_mechanism(problem, window, mechanism, mark, stamp, time, pages); !status.ok()) return status;
    }
    if (time > kMostTime || pages > kMostPages) return wrong("all times or pages together are beyond the planner's range");
    return {};
}

}  // namespace reprise::planner
