// The tables against a page-by-page simulation of what every reader needs.
#include "planner/tables.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "bench/planner_families.h"
#include "planner/planner.h"
#include "tests/effort.h"

namespace reprise::planner::test {
namespace {

// Random events of `n` instances; every instance's four in order.
std::vector<Instance> random_instances(int n, Random &random) {
    std::vector<Instance> out(static_cast<size_t>(n));
    std::vector<int> done(static_cast<size_t>(n), 0);
    for (int32_t event = 0; event < 4 * n; event++) {
        int i = random.below(n);
        while (done[static_cast<size_t>(i)] == 4) i = (i + 1) % n;
        Instance &it = out[static_cast<size_t>(i)];
        int32_t *events[] = {&it.forward_begin, &it.forward_end, &it.replay_begin, &it.replay_end};
        *events[done[static_cast<size_t>(i)]++] = event;
    }
    return out;
}

// Pages that differ at the replay from what the forward saw, each with the number of the first write after the forward.
std::map<int64_t, int32_t> first_overwrites(const Instance &it, const BufferHistory &history) {
    std::map<int64_t, int32_t> out;
    for (const BufferWrite &write : history.writes)
        if (write.slot >= it.forward_begin && write.slot < it.replay_begin)
            for (const PageRun &run : write.pages)
                for (int64_t page = run.begin; page < run.end; page++) {
                    auto [at, fresh] = out.try_emplace(page, write.slot);
                    if (!fresh) at->second = std::min(at->second, write.slot);
                }
    return out;
}

// Distinct (page, first overwrite) pairs alive in a slot when exactly these readers are replayed: what before-images must hold. A page is
// identified by its value, which the last write before the forward made.
int64_t images_alive(const std::vector<Instance> &instances, const BufferHistory &history, const std::vector<int32_t> &replayed,
                     int32_t slot, bool from_forward) {
    std::set<std::pair<int64_t, int32_t>> images;
    for (int32_t i : replayed) {
        const Instance &it = instances[static_cast<size_t>(i)];
        for (auto [page, write] : first_overwrites(it, history))
            if ((from_forward ? it.forward_begin : write + 1) <= slot && slot < it.replay_end) images.emplace(page, write);
    }
    return static_cast<int64_t>(images.size());
}

int64_t elements_alive(const Mechanism &mechanism, const std::set<int32_t> &replayed, int32_t slot, size_t first) {
    int64_t pages = 0;
    for (size_t e = first; e < mechanism.elements.size(); e++)
        for (const Use &use : mechanism.elements[e].uses)
            if (replayed.count(use.instance) && use.begin <= slot && slot < use.end) {
                pages += mechanism.elements[e].pages;
                break;
            }
    return pages;
}

TEST(Tables, EveryPageIsCountedOnce) {
    for (uint64_t seed = 1; seed <= reprise::test::by_build(60u, 60u, 10u); seed++) {
        Random random(seed);
        int n = 2 + random.below(6);
        std::vector<Instance> instances = random_instances(n, random);
        BufferHistory history;
        history.name = "b";
        history.pages = 40;
        history.over_predicted_ppm = 0;
        for (int i = 0; i < n; i++) history.users.push_back(i);
        for (int w = 0, writes = 1 + random.below(6); w < writes; w++) {
            BufferWrite write{random.below(4 * n), {}};
            for (int r = 0; r < 1 + random.below(3); r++) {
                int64_t begin = random.below(40);
                write.pages.push_back({begin, std::min<int64_t>(40, begin + 1 + random.below(20))});
            }
            history.writes.push_back(write);
        }
        std::vector<Window> windows;
        append_windows(instances, history, {}, windows);
        std::set<int32_t> seen;
        for (const Window &window : windows) {
            ASSERT_EQ(window.mechanisms.size(), 3u);
            for (size_t k = 0; k < window.readers.size(); k++) {
                int32_t i = window.readers[k];
                EXPECT_TRUE(seen.insert(i).second) << "in two windows";
                auto differing = static_cast<int64_t>(first_overwrites(instances[static_cast<size_t>(i)], history).size());
                EXPECT_EQ(window.mechanisms[1].readers[k].pages, differing) << "seed " << seed;
                EXPECT_EQ(window.mechanisms[0].readers[k].pages, differing > 0 ? 40 : 0);
            }
            for (int subset = 0; subset < 8; subset++) {
                std::vector<int32_t> replayed;
                for (int32_t i : window.readers)
                    if (subset == 0 || random.below(2)) replayed.push_back(i);
                std::set<int32_t> set(replayed.begin(), replayed.end());
                for (int32_t slot = 0; slot < 4 * n; slot++) {
                    EXPECT_EQ(elements_alive(window.mechanisms[1], set, slot, 1), images_alive(instances, history, replayed, slot, false))
                        << "seed " << seed;
                    EXPECT_EQ(elements_alive(window.mechanisms[2], set, slot, 0), images_alive(instances, history, replayed, slot, true))
                        << "seed " << seed;
                }
            }
        }
        const bool changes =
            std::any_of(instances.begin(), instances.end(), [&](const Instance &it) { return !first_overwrites(it, history).empty(); });
        EXPECT_EQ(seen.size(), changes ? static_cast<size_t>(n) : 0) << "seed " << seed;
        Problem problem;
        problem.base.assign(static_cast<size_t>(4 * n), 0);
        problem.instances = instances;
        problem.windows = windows;
        Status status = validate(problem);
        EXPECT_TRUE(status.ok()) << status.text();
    }
}

// Pages that the capture at each forward (or, for what comes after the last one, the first in the next cycle) finds written.
std::map<int32_t, std::set<int64_t>> found_by_captures(const std::vector<Instance> &instances, const BufferHistory &history) {
    std::map<int32_t, std::set<int64_t>> found;
    for (const Instance &it : instances) found[it.forward_begin];
    for (const BufferWrite &write : history.writes) {
        auto capture = std::find_if(found.begin(), found.end(), [&](const auto &c) { return c.first > write.slot; });
        if (capture == found.end()) capture = found.begin();
        for (const PageRun &run : write.pages)
            for (int64_t page = run.begin; page < run.end; page++) capture->second.insert(page);
    }
    return found;
}

// What a shadow is charged, against what it does: a look per capture, a fault and a copy for every page that one finds, and for a
// before-image that a capture moved out of the shadow a copy, and a fault when its page, watched again, is loaded the first time.
TEST(Tables, AShadowPaysForWhatItDoes) {
    MechanismCosts costs;
    costs.fault_ps = 1'000'000, costs.page_copy_ps = 10'000'000, costs.page_load_ps = 100'000'000;
    costs.look_ps = 1'000'000'000, costs.look_fixed_ns = 7;
    int64_t moved_images = 0;
    for (uint64_t seed = 1; seed <= reprise::test::by_build(60u, 60u, 10u); seed++) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        Random random(seed);
        const int n = 2 + random.below(5);
        const std::vector<Instance> instances = random_instances(n, random);
        BufferHistory history;
        history.name = "b", history.pages = 50, history.predictable = false;
        for (int i = 0; i < n; i++) history.users.push_back(i);
        for (int w = 0, writes = 1 + random.below(6); w < writes; w++) {
            const int64_t first = random.below(50), second = random.below(50);
            history.writes.push_back(
                {random.below(4 * n), {{first, std::min<int64_t>(50, first + 9)}, {second, std::min<int64_t>(50, second + 9)}}});
        }
        std::vector<Window> windows;
        append_windows(instances, history, costs, windows);
        if (windows.empty()) continue;
        int64_t following = 0, saving = 0, saved_images = 0, follows = 0, watched_again = 0;
        for (const Window &window : windows) {
            const Mechanism &shadow = window.mechanisms[1];
            following += shadow.elements[0].capture_ns;
            for (size_t e = 1; e < shadow.elements.size(); e++) saving += shadow.elements[e].capture_ns;
            std::set<std::pair<int64_t, int32_t>> images;  // page, its first overwrite: those that a capture moved
            for (size_t k = 0; k < window.readers.size(); k++) {
                const Instance &it = instances[static_cast<size_t>(window.readers[k])];
                const auto overwrites = first_overwrites(it, history);
                for (auto [page, write] : overwrites) {
                    if (std::any_of(instances.begin(), instances.end(), [&, slot = write](const Instance &other) {
                            return slot < other.forward_begin && other.forward_begin < it.replay_begin;
                        }))
                        images.emplace(page, write);
                }
                EXPECT_EQ(shadow.readers[k].ns, 100'000 * static_cast<int64_t>(overwrites.size()) + 3 * 50'000'000);
            }
            saved_images += static_cast<int64_t>(images.size());
        }
        for (const auto &[forward, pages] : found_by_captures(instances, history))
            follows += static_cast<int64_t>(pages.size()), watched_again += !pages.empty();
        EXPECT_EQ(following, 11'000 * follows + 7 * watched_again);
        // An element is the pages of one write with one write before it: moved for one reader, it is moved for all.
        EXPECT_EQ(saving, 11'000 * saved_images);
        moved_images += saved_images;
    }
    EXPECT_GT(moved_images, 0);
}

// A copy for every version that somebody needs, a comparison for who finds it copied already, and at the replay three copies or a
// comparison.
TEST(Tables, AWholeCopyPaysForWhatItDoes) {
    MechanismCosts costs;
    costs.copy_ps = 1'000, costs.copy_load_ps = 1'000'000, costs.compare_ps = 1'000'000'000, costs.copy_fixed_ns = 7;
    std::vector<Instance> instances(3);  // F0 F1 (written) F2 B2 B1 B0
    const int32_t events[3][4] = {{0, 1, 10, 11}, {2, 3, 8, 9}, {4, 5, 6, 7}};
    for (size_t i = 0; i < 3; i++) {
        instances[i].forward_begin = events[i][0], instances[i].forward_end = events[i][1];
        instances[i].replay_begin = events[i][2], instances[i].replay_end = events[i][3];
    }
    std::vector<Window> windows;
    append_windows(instances, {"b", 1000, {0, 1, 2}, {{3, {{0, 1}}}}, 0, 0, false}, costs, windows);
    ASSERT_EQ(windows.size(), 1u);
    const Mechanism &copy = windows[0].mechanisms[0];
    ASSERT_EQ(copy.elements.size(), 2u);
    for (const Element &element : copy.elements) EXPECT_EQ(element.capture_ns, 1'000 + 7);
    ASSERT_EQ(copy.readers.size(), 3u);
    EXPECT_EQ(copy.readers[0].ns, 1'000'000);
    EXPECT_EQ(copy.readers[1].ns, 1'000'000 + 1'000'000'000);
    EXPECT_EQ(copy.readers[2].ns, 2 * 1'000'000'000);
}

TEST(Tables, SmallAndUnpredictable) {
    std::vector<Instance> instances(1);
    instances[0].forward_end = 1, instances[0].replay_begin = 2, instances[0].replay_end = 3;
    BufferHistory history{"b", 31, {0}, {{1, {{0, 1}}}}, 0, 0, true};
    std::vector<Window> windows;
    append_windows(instances, history, {}, windows);
    ASSERT_EQ(windows.size(), 1u);
    ASSERT_EQ(windows[0].mechanisms.size(), 1u);
    EXPECT_EQ(windows[0].mechanisms[0].kind, Kind::small);
    history.pages = 32;
    history.predictable = false;
    append_windows(instances, history, {}, windows);
    ASSERT_EQ(windows.size(), 2u);
    ASSERT_EQ(windows[1].mechanisms.size(), 2u);
    EXPECT_EQ(windows[1].mechanisms[1].kind, Kind::selective);
    // Written before the forward, or never: nothing to preserve.
    history.writes = {};
    append_windows(instances, history, {}, windows);
    EXPECT_EQ(windows.size(), 2u);
}

}  // namespace
}  // namespace reprise::planner::test
