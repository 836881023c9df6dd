#include "cli/plan_picture.h"

#include <algorithm>
#include <cmath>

#include "cli/html.h"
#include "cli/text.h"

namespace reprise::cli {

using planner::JobPlan;
using planner::Policy;

namespace {

constexpr double kWidth = 960, kHeight = 540, kLeft = 90, kRight = 190, kTop = 60, kBottom = 64;

struct Style {
    Policy policy;
    const char *colour, *dash;
    double width;
};
// Told apart by dashes too.
constexpr Style kStyles[] = {{Policy::joint, "#1f5fa8", "", 2.6},     {Policy::eager_whole, "#c8641b", "7 3", 1.8},
                             {Policy::greedy, "#4c8c3f", "2 3", 1.8}, {Policy::selective, "#8d4fa3", "10 3 2 3", 1.6},
                             {Policy::whole, "#a3333d", "4 4", 1.6},  {Policy::retain, "#4b5560", "1 4", 1.6},
                             {Policy::fixed, "#2a8d8d", "12 4", 1.6}};

const Style &style_of(Policy policy) {
    for (const Style &style : kStyles)
        if (style.policy == policy) return style;
    return kStyles[0];
}

bool is_rule(Policy policy) { return policy != Policy::joint && policy != Policy::eager_whole && policy != Policy::greedy; }

std::string text_at(double x, double y, const char *anchor, const std::string &text, const char *more = "") {
    return format("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\"%s>", x, y, anchor, more) + escape_html(printable(text)) + "</text>\n";
}

}  // namespace

std::vector<double> round_ticks(double least, double most, double base) {
    constexpr double kMostTicks = 8;
    if (!(most > least)) return {least};
    // 1, 2, 4, ... of 1024; 1, 2, 5, 10, ... of 1000.
    const std::vector<double> factors = base == 1024 ? std::vector<double>{2} : std::vector<double>{2, 2.5, 2};
    double step = 1;
    for (size_t k = 0; (most - least) / step > kMostTicks; ++k) step *= factors[k % factors.size()];
    std::vector<double> out;
    for (double at = std::ceil(least / step) * step; at <= most * (1 + 1e-9); at += step) out.push_back(at);
    return out;
}

std::string tick_text(double value, double base) {
    static const char *const bytes[] = {"B", "KiB", "MiB", "GiB", "TiB"}, *const times[] = {"ns", "us", "ms", "s"};
    if (value == 0) return "0";
    const size_t units = base == 1024 ? std::size(bytes) : std::size(times);
    size_t unit = 0;
    for (; unit + 1 < units && value >= base; ++unit) value /= base;
    return format("%.4g %s", value, base == 1024 ? bytes[unit] : times[unit]);
}

std::string sweep_svg(const std::string &title, const Sweep &sweep) {
    double least = 1e300, most = 0, slowest = 0;
    for (size_t b = 0; b < sweep.budgets.size(); b++) {
        least = std::min(least, static_cast<double>(sweep.budgets[b]));
        most = std::max(most, static_cast<double>(sweep.budgets[b]));
        for (size_t p = 0; p < sweep.policies.size(); p++)
            if (fits(sweep.plan(p, b))) slowest = std::max(slowest, static_cast<double>(sweep.plan(p, b).added_ns));
    }
    least = std::min(least, static_cast<double>(sweep.least.smallest_bytes));
    if (most <= least) most = least + 1;
    const double margin = (most - least) * 0.03;
    const double from = std::max(0.0, least - margin), to = most + margin;
    slowest = slowest > 0 ? slowest * 1.06 : 1;
    const auto x_of = [&](double bytes) { return kLeft + (kWidth - kLeft - kRight) * (bytes - from) / (to - from); };
    const auto y_of = [&](double ns) { return kTop + (kHeight - kTop - kBottom) * (1 - ns / slowest); };

    std::string out = format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" height=\"%.0f\" font-family=\"sans-serif\" "
        "font-size=\"13\" fill=\"#1d2733\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n",
        kWidth, kHeight, kWidth, kHeight);
    out += text_at(kLeft, 28, "start", title, " font-size=\"17\" font-weight=\"bold\"");
    out +=
        text_at(kLeft, 48, "start", "added time of a cycle, beyond retaining everything, against the memory budget", " fill=\"#5d6b7a\"");
    for (const double tick : round_ticks(from, to, 1024)) {
        const double x = x_of(tick);
        out += format("<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.0f\" y2=\"%.0f\" stroke=\"#e3e8ee\"/>\n", x, x, kTop, kHeight - kBottom);
        out += text_at(x, kHeight - kBottom + 20, "middle", tick_text(tick, 1024));
    }
    for (const double tick : round_ticks(0, slowest, 1000)) {
        const double y = y_of(tick);
        out += format("<line x1=\"%.0f\" x2=\"%.0f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#e3e8ee\"/>\n", kLeft, kWidth - kRight, y, y);
        out += text_at(kLeft - 8, y + 4, "end", tick_text(tick, 1000));
    }
    out += text_at(kLeft + (kWidth - kLeft - kRight) / 2, kHeight - 16, "middle", "memory budget");
    const double smallest = x_of(static_cast<double>(sweep.least.smallest_bytes));
    out += format("<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.0f\" y2=\"%.0f\" stroke=\"#a3333d\" stroke-dasharray=\"3 3\"/>\n", smallest,
                  smallest, kTop, kHeight - kBottom);
    out += text_at(smallest + 5, kTop + 12, "start", "smallest budget " + human_bytes(static_cast<double>(sweep.least.smallest_bytes)),
                   " fill=\"#a3333d\" font-size=\"11\"");

    // The one that was asked for is drawn last, on top.
    double legend = kTop + 8;
    for (size_t k = sweep.policies.size(); k-- > 0;) {
        const Style &style = style_of(sweep.policies[k]);
        std::vector<std::pair<double, double>> points;
        std::string dots;
        const auto dot = [&](double bytes, const JobPlan &plan) {
            points.emplace_back(x_of(bytes), y_of(static_cast<double>(plan.added_ns)));
            dots +=
                format("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" fill=\"%s\"><title>%s</title></circle>\n", points.back().first,
                       points.back().second, k == 0 ? 3.4 : 2.6, style.colour,
                       escape_html(std::string(planner::policy_name(plan.policy)) + " at " + human_bytes(bytes) + ": " +
                                   human_duration(static_cast<double>(plan.added_ns)) + ", " + human_count(replayed(plan)) + " replayed")
                           .c_str());
        };
        for (size_t b = 0; b < sweep.budgets.size(); b++) {
            const JobPlan &plan = sweep.plan(k, b);
            if (!fits(plan)) continue;
            // A rule's one plan begins to fit at its peak, between two budgets.
            if (is_rule(plan.policy) && points.empty() && static_cast<double>(plan.peak_bytes) > from)
                dot(static_cast<double>(plan.peak_bytes), plan);
            dot(static_cast<double>(sweep.budgets[b]), plan);
        }
        if (points.size() > 1) {
            out += format("<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"%.1f\" stroke-dasharray=\"%s\" points=\"", style.colour,
                          style.width, style.dash);
            for (const auto &[x, y] : points) out += format("%.1f,%.1f ", x, y);
            out += "\"/>\n";
        }
        out += dots;
    }
    for (size_t p = 0; p < sweep.policies.size(); p++) {
        const Style &style = style_of(sweep.policies[p]);
        const double x = kWidth - kRight + 16;
        out +=
            format("<line x1=\"%.0f\" x2=\"%.0f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-width=\"%.1f\" stroke-dasharray=\"%s\"/>\n",
                   x, x + 34, legend, legend, style.colour, style.width, style.dash);
        std::string name = planner::policy_name(sweep.policies[p]);
        bool ever = false;
        for (size_t b = 0; b < sweep.budgets.size(); b++) ever = ever || fits(sweep.plan(p, b));
        if (!ever) name += " (never fits)";
        out += text_at(x + 42, legend + 4, "start", name);
        legend += 22;
    }
    return out + "</svg>\n";
}

}  // namespace reprise::cli
