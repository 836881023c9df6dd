#include "cli/cycles.h"

#include <algorithm>

#include "cli/text.h"

namespace reprise::cli {

int64_t signed_of(const Json &value) {
    if (value.is_number_unsigned()) return static_cast<int64_t>(std::min<uint64_t>(value.get<uint64_t>(), INT64_MAX));
    return value.is_number_integer() ? value.get<int64_t>() : 0;
}

int64_t signed_field(const Json &json, const char *field) {
    const auto found = json.is_object() ? json.find(field) : json.end();
    return found != json.end() ? signed_of(*found) : 0;
}

int64_t highest_in(const Json &array) {
    int64_t most = 0;
    if (array.is_array())
        for (const Json &value : array) most = std::max(most, signed_of(value));
    return most;
}

std::string event_words(const Json &events, size_t number) {
    if (!events.is_array() || number >= events.size()) return "";
    const Json &event = events[number];
    if (!event.is_array() || event.size() < 4 || !event[0].is_string() || !event[1].is_string() || !event[3].is_string()) return "";
    const int64_t ordinal = signed_of(event[2]);
    return "the " + std::string(event[0] == "F" ? "forward" : "replay") + " of '" + event[1].get<std::string>() + "'" +
           (ordinal > 0 ? " (" + std::to_string(ordinal) + ")" : "") + (event[3] == "begin" ? " has begun" : " has ended");
}

void Cycles::add(const Line &line) {
    if (line.kind == LineKind::kForeign || line.kind == LineKind::kBroken || line.kind == LineKind::kTorn) return;
    const std::string named = text_of(line.json, "run");
    if (!named.empty()) current_ = named;
    if (line.json.contains("step")) step_ = number_of(line.json, "step");
    if (line.kind != LineKind::kProfile && line.kind != LineKind::kPlan && line.kind != LineKind::kTimeline) return;
    latest_ = current_;
    RunCycles &run = runs_[current_];
    if (line.kind == LineKind::kProfile) {
        ++run.profiles;
        run.profile = line.json;
    } else if (line.kind == LineKind::kPlan) {
        add_plan(line.json, run, step_);
    } else {
        add_timeline(line.json, run);
    }
}

const RunCycles *Cycles::latest() const {
    const auto found = runs_.find(latest_);
    return found == runs_.end() ? nullptr : &found->second;
}

void Cycles::add_plan(const Json &json, RunCycles &run, uint64_t step) {
    ++run.plans;
    run.plan = json;
    AdoptedPlan adopted{step,
                        text_of(json, "policy"),
                        text_of(json, "verdict"),
                        text_of(json, "proof"),
                        signed_field(json, "budget_bytes"),
                        signed_field(json, "peak_bytes"),
                        signed_field(json, "added_ns"),
                        0,
                        0};
    for (const Json &instance : array_of(json, "instances"))
        ++(text_of(instance, "decision") == "replay" ? adopted.replayed : adopted.retained);
    if (run.history.size() == RunCycles::kPlans) run.history.erase(run.history.begin());
    run.history.push_back(std::move(adopted));
}

void Cycles::add_timeline(const Json &json, RunCycles &run) {
    run.timeline = json;
    const std::string shape = text_of(json, "shape");
    if (const Json &events = array_of(json, "events"); !events.empty()) {
        run.events = events;
        if (run.shapes_.size() >= RunCycles::kShapes) run.shapes_.clear();
        run.shapes_[shape] = events;
    } else if (const auto known = run.shapes_.find(shape); known != run.shapes_.end()) {
        run.events = known->second;
    }
    const CyclePoint point{number_of(json, "step"),
                           number_of(json, "cycle"),
                           signed_field(json, "budget"),
                           highest_in(array_of(json, "planned")),
                           highest_in(array_of(json, "actual")),
                           number_of(json, "retained"),
                           number_of(json, "denied")};
    run.highest = std::max(run.highest, point.actual);
    if (point.budget > 0 && point.actual > point.budget) ++run.over_budget;
    if (point.planned > 0) {
        const double off = static_cast<double>(point.actual) / static_cast<double>(point.planned) - 1;
        run.worst_ppm = std::max(run.worst_ppm, static_cast<int64_t>(std::min(std::abs(off), 1e6) * 1e6));
    }
    if (run.timelines++ % run.stride == 0 || run.points.empty()) {
        run.points.push_back(point);
    } else if (point.actual > run.points.back().actual) {
        run.points.back() = point;
    }
    if (run.points.size() < RunCycles::kPoints) return;
    std::vector<CyclePoint> kept;
    for (size_t i = 0; i + 1 < run.points.size(); i += 2)
        kept.push_back(run.points[i].actual >= run.points[i + 1].actual ? run.points[i] : run.points[i + 1]);
    run.points = std::move(kept);
    run.stride *= 2;
}

}  // namespace reprise::cli
