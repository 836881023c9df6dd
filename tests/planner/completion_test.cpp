// What items to come add at least, against all ways to decide them; and a job that is not proven without it.
#include "planner/label_completion.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "planner/planner.h"
#include "tests/planner/instances.h"

namespace reprise::planner::test {
namespace {

// Slots that are over one after the other; some items add a little more to one of them than to the others.
struct Nest {
    std::vector<LabelItem> items;
    std::vector<int> order;
    std::vector<LabelGroup> groups;
    std::vector<int64_t> multipliers, room;
    LabelItems all() const { return {items, order, groups, multipliers, room}; }
};

Nest random_nest(Random &random, int64_t most) {
    Nest out;
    int rows = 1 + random.below(3), steps = 2 + random.below(5);
    std::vector<int> last(static_cast<size_t>(rows));
    for (int &step : last) step = random.below(steps);
    last[static_cast<size_t>(random.below(rows))] = steps - 1;
    std::vector<int64_t> sum(static_cast<size_t>(rows), 0);
    for (int j = 0; j < steps; j++) {
        LabelItem &item = out.items.emplace_back();
        item.instance = j;
        out.order.push_back(j);
        for (int o = 0; o < 2 + random.below(2); o++) {
            LabelOption &option = item.options.emplace_back();
            option.bound = static_cast<int64_t>(random.below(200000)) - 20000;
            auto pages = random.below(3) ? static_cast<int64_t>(random.unit() * static_cast<double>(most)) : 0;
            for (int r = 0; r < rows; r++) {
                int64_t here = j > last[static_cast<size_t>(r)] ? 0 : pages;
                if (here > 0 && random.below(4) == 0) here += random.below(3);
                if (j == last[static_cast<size_t>(r)]) here = static_cast<int64_t>(random.unit() * static_cast<double>(most));
                option.memory.push_back(here);
                sum[static_cast<size_t>(r)] += here;
            }
        }
    }
    for (int r = 0; r < rows; r++) {
        out.multipliers.push_back(random.below(4) ? 1 + random.below(2000) : 0);
        out.room.push_back(static_cast<int64_t>(static_cast<double>(sum[static_cast<size_t>(r)]) * (0.1 + 0.4 * random.unit())));
    }
    return out;
}

// Calls with the options of every way to decide items [from, to).
template <class Function>
void every(const Nest &nest, size_t from, size_t to, std::vector<int> &options, const Function &function) {
    if (from == to) return function(options);
    for (int o = 0; o < static_cast<int>(nest.items[from].options.size()); o++) {
        options.push_back(o);
        every(nest, from + 1, to, options, function);
        options.pop_back();
    }
}

TEST(Completion, IsNeverMoreThanWhatComes) {
    int compared = 0, positive = 0;
    for (uint64_t seed = 1; seed <= scaled(2000); seed++) {
        Random random(seed);
        // Wide cells in some: pages far above their number.
        int64_t most = random.below(2) ? 60 : 3'000'000;
        Nest nest = random_nest(random, most);
        auto first = static_cast<size_t>(random.below(static_cast<int>(nest.items.size())));
        auto taken = [&](const std::vector<int> &options, size_t steps, int slot) {
            int64_t sum = 0;
            for (size_t j = 0; j < steps; j++)
                sum += nest.items[j].options[static_cast<size_t>(options[j])].memory[static_cast<size_t>(slot)];
            return sum;
        };
        std::vector<int> slots;
        for (int r = 0; r < static_cast<int>(nest.room.size()); r++) slots.push_back(r);
        std::vector<Completion::Row> rows = Completion::chain(nest.all(), static_cast<int>(first), slots);
        if (rows.empty()) continue;
        std::vector<int64_t> more(rows.size(), INT64_MAX);
        int64_t low = INT64_MAX, high = 0;
        std::vector<int> options;
        every(nest, 0, first, options, [&](const std::vector<int> &labels) {
            int64_t here = taken(labels, first, rows[0].slot);
            low = std::min(low, here);
            high = std::max(high, here);
            for (size_t z = 0; z < rows.size(); z++) more[z] = std::min(more[z], taken(labels, first, rows[z].slot) - here);
        });
        for (size_t z = 0; z < rows.size(); z++) rows[z].more += more[z];
        Completion completion(nest.all(), static_cast<int>(first), rows, low, high, 8192 * (1 + random.below(300)));
        every(nest, 0, nest.items.size(), options, [&](const std::vector<int> &path) {
            bool fits = true;
            for (const Completion::Row &row : rows) fits = fits && taken(path, path.size(), row.slot) <= row.room;
            if (!fits) return;
            for (size_t step = first; completion.alive(static_cast<int>(step)); step++) {
                int64_t truth = 0, memory = taken(path, step, rows[0].slot);
                for (size_t j = step; j < path.size() && completion.alive(static_cast<int>(j)); j++)
                    truth += nest.items[j].options[static_cast<size_t>(path[j])].bound;
                int64_t least = completion.least(static_cast<int>(step), memory);
                for (const Completion::Row &row : rows) {
                    if (!completion.counts(row.slot, static_cast<int>(step))) continue;
                    truth += row.multiplier * (row.room - taken(path, path.size(), row.slot));
                    least -= row.multiplier * (taken(path, step, row.slot) - memory);
                }
                EXPECT_LE(least, truth) << "seed " << seed << " step " << step;
                compared++;
                positive += least > 0;
            }
        });
        if (::testing::Test::HasFailure()) return;
    }
    EXPECT_GT(compared, static_cast<int>(scaled(2000)));
    EXPECT_GT(positive, compared / 4);
}

// One row and cells of one page: exactly the best way, but for what the unit rounds off.
TEST(Completion, IsTheBestWayForOneRow) {
    int compared = 0;
    for (uint64_t seed = 1; seed <= scaled(1000); seed++) {
        Random random(seed + 5000);
        Nest nest = random_nest(random, 60);
        if (nest.room.size() != 1) continue;
        std::vector<Completion::Row> rows = Completion::chain(nest.all(), 0, {0});
        ASSERT_EQ(rows.size(), 1u);
        int64_t best = INT64_MAX, unit = 65;
        std::vector<int> options;
        every(nest, 0, nest.items.size(), options, [&](const std::vector<int> &path) {
            int64_t sum = 0, memory = 0;
            for (size_t j = 0; j < path.size(); j++) {
                const LabelOption &option = nest.items[j].options[static_cast<size_t>(path[j])];
                sum += option.bound;
                memory += option.memory[0];
            }
            if (memory <= nest.room[0]) best = std::min(best, sum + nest.multipliers[0] * (nest.room[0] - memory));
        });
        int64_t least = Completion(nest.all(), 0, rows, 0, 0, 8192 * (unit - 1)).least(0, 0);
        if (best == INT64_MAX) {
            EXPECT_GE(least, 8192 * (unit - 1)) << "seed " << seed;
            continue;
        }
        EXPECT_LE(least, best) << "seed " << seed;
        EXPECT_GE(least, std::min(best, 8192 * (unit - 1)) - unit * static_cast<int64_t>(nest.items.size() + 1)) << "seed " << seed;
        compared++;
    }
    EXPECT_GT(compared, static_cast<int>(scaled(1000) / 20));
}

// Two slots bind, and one large segment is either in one of them or, replayed, in the other: the linear bound counts with half of it in
// each. Without the tables it takes several times as many labels.
TEST(Completion, ProvesWhatTheLinearBoundLeavesOpen) {
    Problem problem = make_problem(kPerSegment, 5, 200, 20, 0.15);
    Options options;
    options.tolerance_ppm = 100;
    options.work = 120'000'000;
    const Answer answer = solve(problem, options).value();
    EXPECT_EQ(answer.proof, Proof::eps);
    EXPECT_LT(answer.counters.labels, 1'500'000u);
}

}  // namespace
}  // namespace reprise::planner::test
