#include "tests/planner/instances.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "tests/effort.h"
#include "tests/planner/evaluator.h"

namespace reprise::planner::test {

uint64_t scaled(uint64_t count) {
    if (reprise::test::kUnderThreads) return std::min<uint64_t>(count, 20);
    if (reprise::test::kUnderAddresses) return count / 10;
    return getenv("REPRISE_TEST_FULL") != nullptr ? count * 10 : count;
}

Problem small_problem(uint64_t index, int64_t most_plans) {
    Random random(index * 7919 + 42);
    while (true) {
        int family = random.below(kFamilies), instances = 3 + random.below(10), buffers = 1 + random.below(4);
        if (family == kPerSegment) instances = std::min(instances, 4);
        Problem problem = make_problem(family, random.next() % 1000000, instances, buffers, random.unit() * 1.1 - 0.15);
        // Equal segments, coarse times: many plans of one time.
        if (random.below(4) == 0)
            for (Instance &it : problem.instances)
                it.replay_ns = 1000000 * (1 + random.below(3)), it.keep_pages = 1000 * (1 + random.below(3));
        if (random.below(5) == 0) problem.grid_ns = 1000 * (1 + random.below(1000));
        for (Instance &it : problem.instances)
            if (random.below(20) == 0) it.freedom = random.below(2) ? Freedom::replay : Freedom::retain;
        if (plan_count(problem, most_plans + 1) <= most_plans) return problem;
    }
}

namespace {

std::vector<int32_t> permutation(size_t n, Random &random) {
    std::vector<int32_t> out(n);
    std::iota(out.begin(), out.end(), 0);
    for (size_t i = n; i > 1; i--) std::swap(out[i - 1], out[static_cast<size_t>(random.below(static_cast<int>(i)))]);
    return out;
}

template <class T>
std::vector<T> reordered(const std::vector<T> &from, const std::vector<int32_t> &to) {
    std::vector<T> out(from.size());
    for (size_t i = 0; i < from.size(); i++) out[static_cast<size_t>(to[i])] = from[i];
    return out;
}

}  // namespace

Shuffled shuffle(const Problem &problem, uint64_t seed) {
    Random random(seed);
    Shuffled out{problem, permutation(problem.instances.size(), random), permutation(problem.windows.size(), random), {}};
    for (Window &window : out.problem.windows) {
        std::vector<int32_t> readers = permutation(window.readers.size(), random),
                             mechanisms = permutation(window.mechanisms.size(), random);
        for (int32_t &reader : window.readers) reader = out.instance[static_cast<size_t>(reader)];
        window.readers = reordered(window.readers, readers);
        for (Mechanism &mechanism : window.mechanisms) {
            mechanism.readers = reordered(mechanism.readers, readers);
            for (Element &element : mechanism.elements) {
                for (Use &use : element.uses) use.instance = out.instance[static_cast<size_t>(use.instance)];
                element.uses = reordered(element.uses, permutation(element.uses.size(), random));
            }
            mechanism.elements = reordered(mechanism.elements, permutation(mechanism.elements.size(), random));
        }
        window.mechanisms = reordered(window.mechanisms, mechanisms);
        out.mechanism.push_back(std::move(mechanisms));
    }
    out.problem.instances = reordered(problem.instances, out.instance);
    out.problem.windows = reordered(out.problem.windows, out.window);
    return out;
}

Plan moved(const Plan &plan, const Shuffled &shuffled) {
    Plan out{reordered(plan.replay, shuffled.instance), {}};
    std::vector<int32_t> mechanism;
    for (size_t w = 0; w < plan.mechanism.size(); w++) mechanism.push_back(shuffled.mechanism[w][static_cast<size_t>(plan.mechanism[w])]);
    out.mechanism = reordered(mechanism, shuffled.window);
    return out;
}

}  // namespace reprise::planner::test
