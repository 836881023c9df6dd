// The planner's speed over the published families: CPU time of one thread. One line a problem, then a table per family.
//
//   bench_planner [--families A,B] [--seeds 1-12] [--instances 200] [--buffers 20] [--tightness 0.15,0.4,0.7] [--ppm N] [--work N]
//   [--smallest]
//                 [--quiet]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "bench/native/clock.h"
#include "bench/planner_families.h"
#include "planner/planner.h"

using bench::cpu_seconds;
using namespace reprise;
using namespace reprise::planner;

namespace {

struct Settings {
    std::vector<int> families;
    uint64_t first_seed = 1, last_seed = 12;
    int instances = 200, buffers = 20;
    std::vector<double> tightness{0.15, 0.4, 0.7};
    Options options;
    bool smallest = false, quiet = false;
};

struct Row {
    std::vector<double> milliseconds, gaps;
    int exact = 0, eps = 0, wrong = 0;
    double work = 0;
};

[[noreturn]] void usage(const char *what) {
    fprintf(stderr, "bench_planner: %s\n", what);
    fprintf(stderr,
            "usage: bench_planner [--families A,B] [--seeds 1-12] [--instances N] [--buffers N] [--tightness 0.15,0.4,0.7] [--ppm N] "
            "[--work N]\n"
            "                     [--no-peak] [--smallest] [--quiet]\n");
    exit(2);
}

std::vector<std::string> split(const char *text) {
    std::vector<std::string> out(1);
    for (; *text; text++) {
        if (*text == ',')
            out.emplace_back();
        else
            out.back() += *text;
    }
    return out;
}

Settings parse(int count, char **arguments) {
    Settings out;
    for (int a = 1; a < count; a++) {
        std::string name = arguments[a];
        auto value = [&]() -> const char * { return a + 1 < count ? arguments[++a] : (usage((name + " needs a value").c_str()), ""); };
        if (name == "--families") {
            for (const std::string &wanted : split(value())) {
                int family = 0;
                while (family < kFamilies && wanted != family_name(family)) family++;
                if (family == kFamilies) usage(("no family " + wanted).c_str());
                out.families.push_back(family);
            }
        } else if (name == "--seeds") {
            const char *range = value();
            out.first_seed = out.last_seed = strtoull(range, nullptr, 10);
            if (const char *dash = strchr(range, '-')) out.last_seed = strtoull(dash + 1, nullptr, 10);
        } else if (name == "--instances") {
            out.instances = atoi(value());
        } else if (name == "--buffers") {
            out.buffers = atoi(value());
        } else if (name == "--tightness") {
            out.tightness.clear();
            for (const std::string &t : split(value())) out.tightness.push_back(atof(t.c_str()));
        } else if (name == "--ppm") {
            out.options.tolerance_ppm = static_cast<uint32_t>(atoi(value()));
        } else if (name == "--work") {
            out.options.work = strtoull(value(), nullptr, 10);
        } else if (name == "--no-peak") {
            out.options.least_peak_percent = 0;
        } else if (name == "--smallest") {
            out.smallest = true;
        } else if (name == "--quiet") {
            out.quiet = true;
        } else {
            usage(("unknown argument " + name).c_str());
        }
    }
    if (out.families.empty())
        for (int f = 0; f < kFamilies; f++) out.families.push_back(f);
    if (out.instances < 1 || out.buffers < 1 || out.last_seed < out.first_seed) usage("nothing to do");
    return out;
}

void one(const Settings &settings, int family, uint64_t seed, double tightness, Row &row) {
    Problem problem = make_problem(family, seed, settings.instances, settings.buffers, tightness);
    double began = cpu_seconds();
    if (settings.smallest) {
        Result<SmallestBudget> result = smallest_budget(problem, settings.options);
        double ms = (cpu_seconds() - began) * 1e3;
        if (!result.ok()) usage(result.status().text());
        const SmallestBudget &it = result.value();
        row.milliseconds.push_back(ms);
        row.exact += it.exact;
        row.gaps.push_back(100.0 * static_cast<double>(it.feasible_pages - it.bound_pages) / static_cast<double>(it.feasible_pages));
        row.work += static_cast<double>(it.work);
        row.wrong += evaluate(problem, it.plan).value().peak_pages > it.feasible_pages;
        if (!settings.quiet)
            printf("%-11s seed %3llu  %8.2f ms  smallest %lld bound %lld %s  work/ns %.2f\n", family_name(family),
                   static_cast<unsigned long long>(seed), ms, static_cast<long long>(it.feasible_pages),
                   static_cast<long long>(it.bound_pages), it.exact ? "exact" : "open", static_cast<double>(it.work) / (ms * 1e6));
        return;
    }
    Result<Answer> result = solve(problem, settings.options);
    double ms = (cpu_seconds() - began) * 1e3;
    if (!result.ok()) usage(result.status().text());
    const Answer &it = result.value();
    double gap = it.verdict != Verdict::planned ? 100.0
                 : it.objective_ns ? 100.0 * static_cast<double>(it.objective_ns - it.bound_ns) / static_cast<double>(it.objective_ns)
                                   : 0;
    row.milliseconds.push_back(ms);
    row.gaps.push_back(gap);
    row.exact += it.proof == Proof::exact;
    row.eps += it.proof == Proof::eps;
    row.work += static_cast<double>(it.work);
    Evaluation checked = it.verdict == Verdict::planned ? evaluate(problem, it.plan).value() : Evaluation{};
    row.wrong += it.verdict == Verdict::planned && (checked.peak_pages > problem.budget_pages || checked.time_ns != it.time_ns);
    if (!settings.quiet) {
        const Counters &c = it.counters;
        printf(
            "%-11s seed %3llu at %.2f  %8.2f ms  %s objective %lld bound %lld gap %.4f%% proof %s%s  events %u labels %llu programs %llu "
            "evaluations %llu nodes %llu "
            "work/ns %.2f\n",
            family_name(family), static_cast<unsigned long long>(seed), tightness, ms, verdict_name(it.verdict),
            static_cast<long long>(it.objective_ns), static_cast<long long>(it.bound_ns), gap, proof_name(it.proof),
            it.least_peak ? " least-peak" : "", c.most_events, static_cast<unsigned long long>(c.labels),
            static_cast<unsigned long long>(c.programs), static_cast<unsigned long long>(c.evaluations),
            static_cast<unsigned long long>(c.nodes), static_cast<double>(it.work) / (ms * 1e6));
        fflush(stdout);
    }
}

double at(std::vector<double> values, double quantile) {
    std::sort(values.begin(), values.end());
    return values.empty() ? 0 : values[std::min(values.size() - 1, static_cast<size_t>(quantile * static_cast<double>(values.size())))];
}

}  // namespace

int main(int count, char **arguments) {
    Settings settings = parse(count, arguments);
    printf("%-11s %5s %6s %5s %9s %9s %9s %9s %9s %6s\n", "family", "runs", "exact", "eps", "median ms", "p95 ms", "worst ms", "gap med%",
           "gap max%", "wrong");
    std::vector<std::string> lines;
    int wrong = 0;
    for (int family : settings.families) {
        Row row;
        for (double tightness : settings.smallest ? std::vector<double>{0.5} : settings.tightness)
            for (uint64_t seed = settings.first_seed; seed <= settings.last_seed; seed++) one(settings, family, seed, tightness, row);
        printf("%-11s %5zu %6d %5d %9.2f %9.2f %9.2f %9.4f %9.4f %6d\n", family_name(family), row.milliseconds.size(), row.exact, row.eps,
               at(row.milliseconds, 0.5), at(row.milliseconds, 0.95), at(row.milliseconds, 1), at(row.gaps, 0.5), at(row.gaps, 1),
               row.wrong);
        fflush(stdout);
        wrong += row.wrong;
    }
    return wrong != 0;
}
