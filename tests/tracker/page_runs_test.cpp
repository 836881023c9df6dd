#include "tracker/page_runs.h"

#include <gtest/gtest.h>

namespace reprise::test {
namespace {

TEST(PageRuns, AppendMergesNeighbours) {
    PageRuns runs;
    append_run(runs, 0, 2);
    append_run(runs, 2, 1);
    append_run(runs, 5, 0);
    append_run(runs, 5, 1);
    EXPECT_EQ(runs, (PageRuns{{0, 3}, {5, 1}}));
}

TEST(PageBits, RunsAgreeWithANaiveModel) {
    uint64_t random = 88172645463325252ULL;
    for (int round = 0; round < 200; ++round) {
        const uint32_t pages = 1 + static_cast<uint32_t>(random % 300);
        PageBits bits(pages);
        std::vector<bool> model(pages);
        for (int n = 0; n < 20; ++n) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            auto first = static_cast<uint32_t>(random % pages);
            auto count = static_cast<uint32_t>((random >> 20) % (pages - first + 1));
            const bool set = (random >> 50) % 3 != 0;
            set ? bits.set(PageRun{first, count}) : bits.clear(PageRun{first, count});
            for (uint32_t p = first; p < first + count; ++p) model[p] = set;
        }
        PageRuns expected;
        bool any = false;
        for (uint32_t p = 0; p < pages; ++p) {
            EXPECT_EQ(bits.test(p), model[p]);
            any |= model[p];
            if (model[p]) append_run(expected, p, 1);
        }
        EXPECT_EQ(bits.runs(), expected) << round;
        EXPECT_EQ(bits.any(), any);
    }
}

TEST(PageRuns, UniteAgainstASet) {
    EXPECT_EQ(unite({}, {}), PageRuns{});
    EXPECT_EQ(unite({{0, 4}, {8, 2}}, {{1, 1}, {4, 2}, {9, 5}}), (PageRuns{{0, 6}, {8, 6}}));
    uint64_t state = 88172645463325252u;
    for (int round = 0; round < 200; ++round) {
        std::vector<bool> model(200);
        PageRuns sides[2];
        for (PageRuns &side : sides) {
            uint32_t page = 0;
            while (page < 190) {
                state ^= state << 13, state ^= state >> 7, state ^= state << 17;
                const auto count = static_cast<uint32_t>(1 + state % 9);
                if (state >> 20 & 1) append_run(side, page, count);
                if (state >> 20 & 1) std::fill_n(model.begin() + page, count, true);
                page += count + static_cast<uint32_t>(state >> 30 & 3);
            }
        }
        PageRuns expected;
        for (uint32_t p = 0; p < 200; ++p)
            if (model[p]) append_run(expected, p, 1);
        ASSERT_EQ(unite(sides[0], sides[1]), expected) << round;
    }
}

}  // namespace
}  // namespace reprise::test
