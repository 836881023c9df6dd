#include "cli/report_plan.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cli/html.h"
#include "cli/plan_picture.h"
#include "cli/text.h"

namespace reprise::cli {
namespace {

constexpr double kLeft = 80, kWidth = 900, kTop = 12, kHeight = 260;
constexpr size_t kBuckets = 900, kMostRows = 5000, kMoments = 60;

std::string bytes(int64_t count) { return human_bytes(static_cast<double>(count)); }
std::string time(int64_t nanoseconds) { return human_duration(static_cast<double>(nanoseconds)); }

std::vector<int64_t> numbers(const Json &array) {
    std::vector<int64_t> out;
    for (const Json &value : array) out.push_back(signed_of(value));
    return out;
}

// What was in use in every slot. Where the job passed several events at once, one number (at the slot that was planned highest) stands for
// all of them: it is carried on, and no further than what was planned.
std::vector<int64_t> carried(std::vector<int64_t> seen, const std::vector<int64_t> &planned) {
    std::vector<uint8_t> known(seen.size());
    int64_t last = -1;
    for (size_t i = 0; i < seen.size(); ++i) {
        known[i] = seen[i] >= 0;
        last = seen[i] = known[i] ? seen[i] : last;
    }
    for (size_t i = seen.size(); i-- > 1;)
        if (seen[i - 1] < 0) seen[i - 1] = seen[i];
    for (size_t i = 0; i < seen.size() && i < planned.size(); ++i)
        if (!known[i]) seen[i] = std::min(seen[i], planned[i]);
    return seen;
}

// The highest of each bucket: a peak must not get lost.
std::vector<std::pair<double, int64_t>> thinned(const std::vector<int64_t> &values) {
    std::vector<std::pair<double, int64_t>> out;
    const size_t buckets = std::min(kBuckets, values.size());
    for (size_t b = 0; b < buckets; ++b) {
        const size_t begin = values.size() * b / buckets, end = values.size() * (b + 1) / buckets;
        out.emplace_back(static_cast<double>(begin) / static_cast<double>(values.size()),
                         *std::max_element(values.begin() + static_cast<long>(begin), values.begin() + static_cast<long>(end)));
    }
    return out;
}

class Chart {
  public:
    Chart(std::string &out, const char *label, double most) : out_(out), most_(std::max(most, 1.0)) {
        out_ += format("<svg viewBox=\"0 0 1000 %.0f\" role=\"img\" aria-label=\"%s\">\n", kTop + kHeight + 34, label);
        for (const double tick : round_ticks(0, most_, 1024))
            out_ += format(
                "<line class=\"grid\" x1=\"%.0f\" x2=\"%.0f\" y1=\"%.1f\" y2=\"%.1f\"/><text class=\"soft\" x=\"%.0f\" y=\"%.1f\" "
                "text-anchor=\"end\">%s</text>\n",
                kLeft, kLeft + kWidth, y(tick), y(tick), kLeft - 6, y(tick) + 4, tick_text(tick, 1024).c_str());
    }
    static double x(double share) { return kLeft + kWidth * share; }
    double y(double value) const { return kTop + kHeight * (1 - value / most_); }

    // Steps: a value holds until the next.
    void steps(const char *style, const std::vector<std::pair<double, int64_t>> &points, bool area) {
        if (points.empty()) return;
        std::string path =
            format(area ? "M%.1f,%.1f" : "M%.1f,%.1f", x(points[0].first), area ? y(0) : y(static_cast<double>(points[0].second)));
        for (size_t i = 0; i < points.size(); ++i) {
            const double next = i + 1 < points.size() ? points[i + 1].first : 1;
            path += format("V%.1fH%.1f", y(static_cast<double>(std::max<int64_t>(0, points[i].second))), x(next));
        }
        if (area) path += format("V%.1fZ", y(0));
        out_ += std::string("<path class=\"") + style + "\" d=\"" + path + "\"/>\n";
    }
    void limit(int64_t value, const std::string &text) {
        const double at = y(static_cast<double>(value));
        out_ += format(
            "<line class=\"limit\" x1=\"%.0f\" x2=\"%.0f\" y1=\"%.1f\" y2=\"%.1f\"/><text class=\"bad\" x=\"%.0f\" y=\"%.1f\" "
            "text-anchor=\"end\">%s</text>\n",
            kLeft, kLeft + kWidth, at, at, kLeft + kWidth, at - 4, text.c_str());
    }
    void end(const std::string &left, const std::string &right) {
        out_ += format(
            "<text class=\"soft\" x=\"%.0f\" y=\"%.0f\">%s</text><text class=\"soft\" x=\"%.0f\" y=\"%.0f\" "
            "text-anchor=\"end\">%s</text></svg>\n",
            kLeft, kTop + kHeight + 20, html(left).c_str(), kLeft + kWidth, kTop + kHeight + 20, html(right).c_str());
    }

  private:
    std::string &out_;
    double most_;
};

void cycle_section(std::string &out, const RunCycles &run) {
    const std::vector<int64_t> planned = numbers(array_of(run.timeline, "planned"));
    const std::vector<int64_t> seen = numbers(array_of(run.timeline, "actual"));
    const std::vector<int64_t> actual = carried(seen, planned);
    const int64_t budget = signed_field(run.timeline, "budget");
    if (actual.empty()) return;
    const double most = static_cast<double>(std::max(
                            {highest_in(array_of(run.timeline, "planned")), highest_in(array_of(run.timeline, "actual")), budget})) *
                        1.08;
    out += format(
        "<h2>Memory in a cycle</h2>\n<p class=\"note\">Step %llu, cycle %llu, event by event: in use (blue), planned (line)%s.</p>\n",
        static_cast<unsigned long long>(number_of(run.timeline, "step")), static_cast<unsigned long long>(number_of(run.timeline, "cycle")),
        budget > 0 ? ", budget (dashed)" : "");
    Chart chart(out, "Memory at every event of a cycle", most);
    chart.steps("area", thinned(actual), true);
    chart.steps("plan", thinned(planned), false);
    if (budget > 0) chart.limit(budget, "budget " + bytes(budget));
    chart.end("the cycle's first event", format("event %zu", actual.size()));

    // The fullest moments, and those furthest from the plan.
    std::vector<size_t> order;
    for (size_t t = 0; t < seen.size(); ++t)
        if (seen[t] >= 0) order.push_back(t);
    const auto off = [&](size_t t) { return t < planned.size() ? seen[t] - planned[t] : 0; };
    std::vector<size_t> shown;
    const auto take = [&](auto value) {
        std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return value(a) > value(b); });
        shown.insert(shown.end(), order.begin(), order.begin() + static_cast<long>(std::min(order.size(), kMoments)));
    };
    take([&](size_t t) { return seen[t]; });
    take([&](size_t t) { return std::abs(off(t)); });
    std::sort(shown.begin(), shown.end());
    shown.erase(std::unique(shown.begin(), shown.end()), shown.end());
    if (shown.empty()) return;
    out += format(
        "<p class=\"note\">%s of %s: the fullest ones, and those furthest from the plan.</p>\n<div class=\"scroll short\"><table "
        "class=\"sortable\">",
        human_count(shown.size()).c_str(), plural(order.size(), "measured moment").c_str());
    head_row(out, {{"event", true}, {"after it", false}, {"in use", true}, {"planned", true}, {"difference", true}});
    for (const size_t t : shown) {
        const bool has_plan = t < planned.size();
        const std::string difference = !has_plan ? "" : (off(t) < 0 ? "\xe2\x88\x92" : "") + bytes(std::abs(off(t)));
        out += "<tr>" + number_cell(static_cast<int64_t>(t), human_count(t)) + "<td class=\"name\">" + html(event_words(run.events, t)) +
               "</td>" + number_cell(seen[t], bytes(seen[t]), budget > 0 && seen[t] > budget) +
               number_cell(has_plan ? planned[t] : -1, has_plan ? bytes(planned[t]) : "") + number_cell(has_plan ? off(t) : 0, difference) +
               "</tr>\n";
    }
    out += "</tbody></table></div>\n";
}

void peaks_section(std::string &out, const RunCycles &run) {
    if (run.points.size() < 2) return;
    double most = 0;
    std::vector<std::pair<double, int64_t>> actual, planned, budget;
    for (size_t i = 0; i < run.points.size(); ++i) {
        const CyclePoint &point = run.points[i];
        const double at = static_cast<double>(i) / static_cast<double>(run.points.size());
        actual.emplace_back(at, point.actual);
        planned.emplace_back(at, point.planned);
        budget.emplace_back(at, point.budget);
        most = std::max({most, static_cast<double>(point.actual), static_cast<double>(point.planned), static_cast<double>(point.budget)});
    }
    out += format(
        "<h2>Peaks of the cycles</h2>\n<p class=\"note\">%s: highest use (blue), planned (line), budget (dashed). Off the plan by %s at "
        "most%s.</p>\n",
        plural(run.timelines, "cycle").c_str(), human_share(static_cast<double>(run.worst_ppm) / 1e6).c_str(),
        run.over_budget == 0 ? "; none beyond the budget" : ("; " + plural(run.over_budget, "cycle") + " beyond the budget").c_str());
    Chart chart(out, "Peaks of all cycles", most * 1.08);
    chart.steps("area", actual, true);
    chart.steps("plan", planned, false);
    if (budget.back().second > 0) chart.limit(budget.back().second, "budget " + bytes(budget.back().second));
    chart.end("step " + std::to_string(run.points.front().step), "step " + std::to_string(run.points.back().step));
}

// A cell per forward, in their order: at a thousand segments what a table does not show.
void decision_strip(std::string &out, const Json &instances) {
    const size_t count = std::min(instances.size(), kMostRows);
    const size_t per_row = std::min<size_t>(count, 100);
    const double size = count <= 100 ? std::min(1000.0 / static_cast<double>(std::max<size_t>(count, 1)), 40.0) : 10.0;
    const double height = count <= 100 ? 22 : 12;
    const size_t rows = (count + per_row - 1) / std::max<size_t>(per_row, 1);
    out += format("<svg viewBox=\"0 0 1000 %.0f\" role=\"img\" aria-label=\"Decisions in the order of the forwards\">\n",
                  height * static_cast<double>(rows) + 2);
    for (size_t i = 0; i < count; ++i) {
        const bool replay = text_of(instances[i], "decision") == "replay";
        // The colours are told apart by height as well.
        out += format("<path class=\"%s\" d=\"M%.1f,%.1fh%.1fv%.1fh-%.1fz\"><title>%s: %s</title></path>\n", replay ? "again" : "kept",
                      static_cast<double>(i % per_row) * size, static_cast<double>(i / per_row) * height + (replay ? height * 0.35 : 0),
                      size - 1, height * (replay ? 0.65 : 1) - 2, size - 1, html(text_of(instances[i], "segment")).c_str(),
                      html(text_of(instances[i], "why")).c_str());
    }
    out += "</svg>\n";
}

void plan_section(std::string &out, const RunCycles &run) {
    const Json &plan = run.plan;
    const AdoptedPlan &adopted = run.history.back();
    const std::string verdict = text_of(plan, "verdict"), proof = text_of(plan, "proof");
    out += "<h2>The plan</h2>\n<div class=\"cards\">\n";
    card(out, html(text_of(plan, "policy")), "policy");
    if (adopted.budget > 0) card(out, bytes(adopted.budget), "budget");
    card(out, bytes(adopted.peak), "planned peak", adopted.budget > 0 && adopted.peak > adopted.budget);
    if (run.timelines != 0) card(out, bytes(run.highest), "highest use measured", run.over_budget != 0);
    card(out, time(adopted.added_ns), "added to a cycle");
    if (verdict != "planned")
        card(out, html(verdict), "verdict", true);
    else if (proof == "exact" || proof == "eps")
        card(out, proof == "exact" ? "exact" : "within 0.01 %", "proven optimum");
    else if (const int64_t bound = signed_field(plan, "bound_ns"); bound > 0)
        card(out, time(bound), "no plan adds less");
    card(out, human_count(adopted.retained), "retained");
    card(out, human_count(adopted.replayed), "replayed");
    card(out, bytes(signed_field(plan, "retained_bytes")), "retaining everything");
    if (const int64_t smallest = signed_field(plan, "smallest_bytes"); smallest > 0) card(out, bytes(smallest), "smallest budget");
    if (run.plans > 1) card(out, human_count(run.plans), "plans adopted");
    if (!run.timeline.is_null() && number_of(run.timeline, "denied") != 0)
        card(out, human_count(number_of(run.timeline, "denied")), "retained less than planned", true);
    out += "</div>\n";
    if (const Json &binding = array_of(plan, "binding"); !binding.empty()) {
        out += std::string("<p class=\"note\">") + (verdict == "planned" ? "What keeps it from being faster:" : "Why nothing fits:") +
               "</p>\n<ul class=\"binds\">\n";
        for (const Json &line : binding)
            if (line.is_string()) out += "<li>" + html(line.get<std::string>()) + "</li>\n";
        out += "</ul>\n";
    }
}

void decisions_section(std::string &out, const RunCycles &run) {
    const Json &plan = run.plan;
    const Json &instances = array_of(plan, "instances");
    if (instances.empty()) return;
    out +=
        "<h2>Decisions</h2>\n<p class=\"note\">In the order of the forwards: <span class=\"key\" style=\"background:var(--a)\"></span> "
        "retained (tall), <span "
        "class=\"key\" "
        "style=\"background:var(--b)\"></span> replayed (low).</p>\n";
    decision_strip(out, instances);
    out += filter_box("decisions", "show segments with ...") + "<div class=\"scroll\"><table class=\"sortable\" id=\"decisions\">";
    head_row(out, {{"segment", false}, {"forward", true}, {"decision", false}, {"keeps", true}, {"replay", true}, {"why", false}});
    for (size_t i = 0; i < instances.size() && i < kMostRows; ++i) {
        const Json &it = instances[i];
        const int64_t ordinal = signed_field(it, "ordinal"), keeps = signed_field(it, "keep_bytes"), ns = signed_field(it, "replay_ns");
        out += "<tr><td class=\"name\">" + html(text_of(it, "segment")) + "</td>" + number_cell(ordinal, std::to_string(ordinal)) + "<td>" +
               html(text_of(it, "decision")) + "</td>" + number_cell(keeps, bytes(keeps)) + number_cell(ns, time(ns)) + "<td>" +
               html(text_of(it, "why")) + "</td></tr>\n";
    }
    out += "</tbody></table></div>\n";
    if (instances.size() > kMostRows)
        out += "<p class=\"note\">The first " + human_count(kMostRows) + " of " + human_count(instances.size()) + ".</p>\n";
    std::string rows;
    for (const Json &window : array_of(plan, "windows")) {
        const auto readers = static_cast<int64_t>(array_of(window, "readers").size());
        if (readers == 0) continue;
        const Json &unchanged = array_of(window, "unchanged");
        const auto shared = static_cast<int64_t>(std::count(unchanged.begin(), unchanged.end(), Json(true)));
        rows += "<tr><td class=\"name\">" + html(text_of(window, "buffer")) + "</td>" +
                number_cell(signed_field(window, "bytes"), bytes(signed_field(window, "bytes"))) + "<td>" +
                html(text_of(window, "mechanism")) + "</td>" + number_cell(readers, human_count(static_cast<uint64_t>(readers))) +
                number_cell(shared, human_count(static_cast<uint64_t>(shared))) + "</tr>\n";
    }
    if (rows.empty()) return;
    out += "<p class=\"note\">How buffers are preserved for the replays.</p>\n" + filter_box("preserved", "show buffers with ...") +
           "<div class=\"scroll\"><table class=\"sortable\" id=\"preserved\">";
    head_row(out, {{"buffer", false}, {"size", true}, {"mechanism", false}, {"replays", true}, {"share another's copy", true}});
    out += rows + "</tbody></table></div>\n";
}

}  // namespace

void planning_sections(std::string &out, const Cycles &cycles) {
    const RunCycles *run = cycles.latest();
    if (run == nullptr) return;
    if (cycles.runs().size() > 1)
        out += "<p class=\"note\">Planning is shown for run " + html(cycles.latest_run()) + ", the latest of " +
               human_count(cycles.runs().size()) + ".</p>\n";
    if (!run->plan.is_null()) plan_section(out, *run);
    if (!run->timeline.is_null()) cycle_section(out, *run);
    peaks_section(out, *run);
    if (!run->plan.is_null()) decisions_section(out, *run);
}

Json timeline_drawing(const Cycles &cycles, const std::string &title) {
    const RunCycles *run = cycles.latest();
    if (run == nullptr || run->timeline.is_null()) return nullptr;
    return {{"schema", "reprise.drawing/1"},
            {"title", title.empty() ? "Reprise: memory in a cycle, run " + cycles.latest_run() : title},
            {"budget", signed_field(run->timeline, "budget")},
            {"planned", numbers(array_of(run->timeline, "planned"))},
            {"actual", carried(numbers(array_of(run->timeline, "actual")), numbers(array_of(run->timeline, "planned")))}};
}

}  // namespace reprise::cli
