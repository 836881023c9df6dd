#include "cli/plan_input.h"

#include <cmath>
#include <cstdlib>
#include <set>

#include "cli/records.h"
#include "cli/text.h"
#include "planner/plan_json.h"
#include "planner/profile_json.h"

namespace reprise::cli {

std::string load_profile(const std::string &path, const ProfileChoice &choice, planner::Profile *out) {
    Json newest;
    uint64_t newest_line = 0;
    std::set<std::string> all;
    uint64_t lines = 0;
    const ReadResult read = read_file(path, [&](Line &line) {
        ++lines;
        if (line.kind != LineKind::kProfile) return;
        const std::string run = text_of(line.json, "run");
        const uint64_t step = number_of(line.json, "step");
        if (all.size() < 20) all.insert("run " + printable(run.substr(0, 60)) + " step " + std::to_string(step));
        if (!choice.run.empty() && run != choice.run) return;
        if (choice.step >= 0 && step != static_cast<uint64_t>(choice.step)) return;
        newest = std::move(line.json);
        newest_line = line.number;
    });
    if (!read.problem.empty()) return read.problem;
    if (newest.is_null()) {
        if (all.empty())
            return "holds no profile (reprise.profile/1): a job writes one into its records when it runs with a budget: reprise run "
                   "--budget "
                   "SIZE --records FILE -- COMMAND";
        std::string known;
        for (const std::string &one : all) known += (known.empty() ? "" : ", ") + one;
        return "holds no profile of that run and step; it has: " + known;
    }
    Result<planner::Profile> profile = planner::read_profile(newest.dump(-1, ' ', false, Json::error_handler_t::replace));
    if (!profile.ok())
        return format("line %llu: %s", static_cast<unsigned long long>(newest_line), printable(profile.status().text()).c_str());
    *out = std::move(profile.value());
    return "";
}

std::string check_plan_file(const std::string &path) {
    Json plan;
    std::string problem;
    const ReadResult read = read_file(path, [&](Line &line) {
        if (line.kind == LineKind::kPlan && plan.is_null()) {
            plan = std::move(line.json);
        } else if (problem.empty()) {
            problem = line.problem.empty() ? "holds something else than one plan (reprise plan --budget SIZE -o FILE writes one)"
                                           : "is no plan: its line " + line.problem;
        }
    });
    if (!read.problem.empty()) return read.problem;
    if (problem.empty() && plan.is_null()) problem = "is empty: reprise plan --budget SIZE -o FILE writes a plan";
    if (!problem.empty()) return problem;
    const Result<planner::JobPlan> parsed = planner::read_plan(plan.dump(-1, ' ', false, Json::error_handler_t::replace));
    return parsed.ok() ? "" : printable(parsed.status().text());
}

bool parse_budget(const std::string &text, int64_t whole, int64_t *out) {
    char *end = nullptr;
    const double value = strtod(text.c_str(), &end);
    if (end == text.c_str() || !std::isfinite(value) || value <= 0) return false;
    std::string unit;
    for (; *end != 0; ++end) {
        if (*end != ' ') unit += static_cast<char>(tolower(static_cast<unsigned char>(*end)));
    }
    double scale = unit.empty() || unit == "b" ? 1 : 0;
    if (unit == "%") {
        if (value > 100) return false;
        scale = static_cast<double>(whole) / 100;
    }
    static constexpr char kPrefixes[] = "kmgt";
    for (int i = 0; i < 4; ++i) {
        const std::string prefix(1, kPrefixes[i]);
        if (unit == prefix || unit == prefix + "b" || unit == prefix + "ib") scale = std::ldexp(1.0, 10 * (i + 1));
    }
    const double bytes = value * scale;
    if (bytes < 1 || bytes > 1e17) return false;
    *out = static_cast<int64_t>(bytes);
    return true;
}

}  // namespace reprise::cli
