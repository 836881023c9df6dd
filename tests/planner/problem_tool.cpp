// Writes a problem of the published families, and the planner's answer to it, as JSON: for the oracle in Python (test_highs.py).
//
//   planner_problem FAMILY SEED INSTANCES BUFFERS TIGHTNESS [WORK]
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "bench/native/clock.h"
#include "bench/planner_families.h"
#include "planner/problem_json.h"

using bench::cpu_seconds;
using namespace reprise;
using namespace reprise::planner;

int main(int count, char **arguments) {
    int family = 0;
    while (count >= 6 && family < kFamilies && strcmp(arguments[1], family_name(family)) != 0) family++;
    if (count < 6 || count > 7 || family == kFamilies) {
        fprintf(stderr, "usage: planner_problem FAMILY SEED INSTANCES BUFFERS TIGHTNESS [WORK]\n");
        return 2;
    }
    Problem problem = make_problem(family, strtoull(arguments[2], nullptr, 10), atoi(arguments[3]), atoi(arguments[4]), atof(arguments[5]));
    Options options;
    if (count == 7) options.work = strtoull(arguments[6], nullptr, 10);
    double began = cpu_seconds();
    Result<Answer> result = solve(problem, options);
    double seconds = cpu_seconds() - began;
    if (!result.ok()) {
        fprintf(stderr, "%s\n", result.status().text());
        return 1;
    }
    printf("{\"problem\": %s,\n\"answer\": %s,\n\"cpu_seconds\": %.6f}\n", write_problem(problem).c_str(),
           write_answer(problem, result.value()).c_str(), seconds);
    return 0;
}
