// The lines about planning: profiles and plans are read as a job reads them, and cycles are held against their budget and plan.
#include <algorithm>

#include "cli/check.h"
#include "cli/cycles.h"
#include "cli/text.h"
#include "planner/plan_json.h"
#include "planner/profile_json.h"

namespace reprise::cli {

namespace {

std::string whole_text(const Json &json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }
std::string bytes(int64_t count) { return human_bytes(static_cast<double>(count)); }
bool is_shape(const std::string &text) { return text.size() == 16 && text.find_first_not_of("0123456789abcdef") == std::string::npos; }

}  // namespace

void Check::check_profile(uint64_t line, const Json &json) {
    ++plans_;
    Result<planner::Profile> profile = planner::read_profile(whole_text(json));
    if (!profile.ok()) {
        violation(line, printable(profile.status().text()));
        return;
    }
    const std::string shape = format("%016llx", static_cast<unsigned long long>(planner::shape_of(profile.value())));
    // A name that was not UTF-8 is written with replacement characters: its shape cannot be made again.
    const bool replaced = whole_text(json).find("\xef\xbf\xbd") != std::string::npos;
    if (json.contains("shape") && text_of(json, "shape") != shape && !replaced)
        violation(line, "the shape is not that of its segments, events and buffers, which is " + shape);
}

void Check::check_plan(uint64_t line, const Json &json) {
    ++plans_;
    Result<planner::JobPlan> read = planner::read_plan(whole_text(json));
    if (!read.ok()) {
        violation(line, printable(read.status().text()));
        return;
    }
    const planner::JobPlan &plan = read.value();
    const int64_t peak = plan.memory_bytes.empty() ? 0 : *std::max_element(plan.memory_bytes.begin(), plan.memory_bytes.end());
    if (peak != plan.peak_bytes)
        violation(line, "its highest slot has " + bytes(peak) + ", and it says a peak of " + bytes(plan.peak_bytes));
    if (plan.verdict == planner::Verdict::planned && plan.peak_bytes > plan.budget_bytes)
        violation(line, "its peak of " + bytes(plan.peak_bytes) + " is beyond its budget of " + bytes(plan.budget_bytes));
    if (plan.bound_ns > plan.added_ns) violation(line, "it adds less time than it says any plan must");
}

void Check::check_timeline(uint64_t line, const Json &json) {
    ++plans_;
    const auto say = [&](const std::string &text) { violation(line, text); };
    for (const char *field : {"step", "cycle", "budget", "retained", "denied"})
        if (!json.contains(field) || !json[field].is_number_unsigned())
            say(std::string("the timeline has no whole number '") + field + "'");
    if (!json.contains("run") || !json["run"].is_string()) say("the timeline has no field 'run'");
    Planning &planning = planning_[text_of(json, "run")];
    const std::string shape = text_of(json, "shape");
    if (json.contains("shape") && !is_shape(shape)) say("the shape is not 16 hexadecimal digits");
    const Json &planned = array_of(json, "planned"), &actual = array_of(json, "actual");
    for (const auto &[name, list, least] : {std::tuple{"planned", &planned, int64_t{0}}, std::tuple{"actual", &actual, int64_t{-1}}}) {
        if (!json.contains(name) || !json[name].is_array()) say(std::string("the timeline has no array '") + name + "'");
        for (const Json &value : *list)
            if (!value.is_number_integer() || signed_of(value) < least) {
                say(std::string("'") + name + "' is not whole numbers of bytes");
                break;
            }
    }
    if (!planned.empty() && planned.size() != actual.size())
        say(format("%zu slots are planned, and %zu were seen", planned.size(), actual.size()));
    if (const Json &events = array_of(json, "events"); !events.empty()) {
        planning.shapes[shape] = events.size();
        for (size_t k = 0; k < events.size(); k++)
            if (!events[k].is_null() && event_words(events, k).empty()) {
                say(format("event %zu is not [\"F\" or \"B\", segment, ordinal, \"begin\" or \"end\"]", k));
                break;
            }
        if (events.size() > actual.size() + 1)
            say(format("%zu events have more than %zu slots between them", events.size(), actual.size()));
    } else if (planning.shapes.count(shape) == 0) {
        say("the timeline names no events, and shape '" + printable(shape.substr(0, 40)) + "' has not been written before");
    }
    const int64_t most = highest_in(actual), plan = highest_in(planned), budget = signed_field(json, "budget");
    // A plan that needs more than the budget was adopted knowingly (REPRISE_ON_INFEASIBLE=least), and said so.
    if (budget > 0 && most > budget && plan <= budget) say("the cycle used " + bytes(most) + ", beyond its budget of " + bytes(budget));
    if (plan > 0) {
        ++planning.cycles;
        const double off = static_cast<double>(most) / static_cast<double>(plan) - 1;
        if (std::abs(off) > 0.01) ++planning.off;
        if (std::abs(off) > std::abs(planning.worst)) planning.worst = off, planning.worst_line = line;
    }
}

void Check::end_planning() {
    for (const auto &[run, planning] : planning_)
        if (planning.off != 0)
            notes_.push_back({planning.worst_line,
                              format("%llu of %llu cycles of run '%s' were off their plan's peak by more than 1 %%; this one by %.1f %%",
                                     static_cast<unsigned long long>(planning.off), static_cast<unsigned long long>(planning.cycles),
                                     printable(run.substr(0, 60)).c_str(), 100 * planning.worst)});
}

}  // namespace reprise::cli
