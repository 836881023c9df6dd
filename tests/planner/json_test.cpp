#include <gtest/gtest.h>

#include <string>

#include "bench/planner_families.h"
#include "planner/problem_json.h"

namespace reprise::planner::test {
namespace {

TEST(Json, ThereAndBack) {
    for (int family = 0; family < kFamilies; family++) {
        Problem problem = make_problem(family, 2, 16, 4, 0.4);
        problem.grid_ns = 10;
        problem.instances[3].freedom = Freedom::replay;
        std::string text = write_problem(problem);
        Result<Problem> read = read_problem(text);
        ASSERT_TRUE(read.ok()) << read.status().text();
        EXPECT_EQ(write_problem(read.value()), text) << family_name(family);
        EXPECT_EQ(read.value().instances[3].freedom, Freedom::replay);
        Answer a = solve(problem).value(), b = solve(read.value()).value();
        EXPECT_EQ(write_answer(problem, a), write_answer(read.value(), b));
    }
}

TEST(Json, NonsenseIsRefused) {
    std::string text = write_problem(make_problem(kTransformer, 1, 8, 2, 0.5));
    for (size_t cut : {size_t{0}, size_t{1}, text.size() / 2, text.size() - 1}) EXPECT_FALSE(read_problem(text.substr(0, cut)).ok()) << cut;
    auto with = [&](const std::string &from, const std::string &to) {
        std::string changed = text;
        size_t at = changed.find(from);
        EXPECT_NE(at, std::string::npos) << from;
        return changed.replace(at, from.size(), to);
    };
    for (const std::string &bad :
         {with("reprise.problem/1", "reprise.problem/2"), with("\"budget\":", "\"money\":"), with("\"whole\"", "\"magic\""),
          with("\"keep\":", "\"keep\":-"), with("[0,1,", "[0,0,"), with("\"grid_ns\":1", "\"grid_ns\":\"one\"")}) {
        Result<Problem> result = read_problem(bad);
        EXPECT_FALSE(result.ok());
        EXPECT_NE(std::string(result.status().text()), "");
    }
    // Newer fields are none of ours.
    EXPECT_TRUE(read_problem(with("\"grid_ns\":1", "\"grid_ns\":1,\"weather\":[\"fine\"]")).ok());
}

}  // namespace
}  // namespace reprise::planner::test
