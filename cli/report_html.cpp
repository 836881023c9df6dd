#include "cli/report_html.h"

#include <algorithm>
#include <cmath>

#include "cli/html.h"
#include "cli/report_plan.h"
#include "cli/text.h"

namespace reprise::cli {
namespace {

constexpr size_t kBars = 20;

std::string bytes(uint64_t count) { return human_bytes(static_cast<double>(count)); }
std::string time(uint64_t nanoseconds) { return human_duration(static_cast<double>(nanoseconds)); }

const char kHead[] = R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<style>
:root { --ink: #1d2733; --soft: #5d6b7a; --line: #d8dee6; --paper: #fff; --tint: #f3f6f9; --a: #2f6fb0; --b: #d98032; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e9ef; --soft: #9aa8b7; --line: #39434f; --paper: #14191f; --tint: #1d242c; --a: #6aa5e0; --b: #e9a05c; --bad: #f2857d; } }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2rem auto; max-width: 76rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0 0 .2rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .6rem; }
p.sub, .note { color: var(--soft); margin: .2rem 0 1rem; }
.cards { display: flex; flex-wrap: wrap; gap: .6rem; } .card { background: var(--tint); border-radius: 6px; padding: .6rem .9rem; min-width: 8rem; }
.card b { display: block; font-size: 1.25rem; font-variant-numeric: tabular-nums; } .card span { color: var(--soft); font-size: .85rem; }
.card.bad b { color: var(--bad); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; } .scroll { overflow: auto; max-height: 36rem; border: 1px solid var(--line); border-radius: 6px; }
th, td { text-align: left; padding: .28rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; } td.n, th.n { text-align: right; white-space: nowrap; }
th { position: sticky; top: 0; background: var(--tint); } th button { all: unset; cursor: pointer; font-weight: 600; } th button:focus-visible { outline: 2px solid var(--a); }
th[aria-sort=ascending] button::after { content: " \25B2"; } th[aria-sort=descending] button::after { content: " \25BC"; }
td.bad { color: var(--bad); } td.name { word-break: break-word; } input { font: inherit; padding: .3rem .5rem; margin: 0 0 .6rem; width: 20rem; max-width: 100%; color: inherit; background: var(--paper); border: 1px solid var(--line); border-radius: 4px; }
svg { width: 100%; height: auto; } svg text { fill: var(--ink); font: 12px system-ui, sans-serif; } svg .soft { fill: var(--soft); } svg .a { fill: var(--a); } svg .b { fill: var(--b); }
svg .line { fill: none; stroke: var(--a); stroke-width: 1.5; } svg .line2 { fill: none; stroke: var(--b); stroke-width: 1.5; } svg .grid { stroke: var(--line); } svg .area { fill: var(--a); fill-opacity: .35; } svg .plan { fill: none; stroke: var(--ink); stroke-width: 1; }
svg .limit { stroke: var(--bad); stroke-width: 1.5; stroke-dasharray: 6 4; } svg .bad { fill: var(--bad); } svg .kept { fill: var(--a); } svg .again { fill: var(--b); }
.key { display: inline-block; width: .8em; height: .8em; border-radius: 2px; vertical-align: -.05em; } .scroll.short { max-height: 16rem; } ul.binds { margin: .3rem 0 1rem; padding-left: 1.2rem; }
</style>
)";

const char kScript[] = R"(<script>
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  table.querySelectorAll("th").forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") !== "descending";
    table.querySelectorAll("th").forEach(other => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = row => { const cell = row.cells[column], v = cell.dataset.v; return v === undefined ? cell.textContent : Number(v); };
    const rows = [...body.rows].map(row => [key(row), row]);
    rows.sort((a, b) => (typeof a[0] === "number" ? a[0] - b[0] : a[0].localeCompare(b[0])) * (down ? -1 : 1));
    body.append(...rows.map(pair => pair[1]));
  }));
}
for (const filter of document.querySelectorAll("input.filter")) filter.addEventListener("input", () => {
  const wanted = filter.value.toLowerCase();
  for (const row of document.getElementById(filter.dataset.table).tBodies[0].rows) row.hidden = !row.cells[0].textContent.toLowerCase().includes(wanted);
});
</script>
)";

struct Bar {
    std::string name;
    uint64_t first = 0, second = 0;
};

// The largest, and what the others add up to.
std::vector<Bar> largest(std::vector<Bar> bars) {
    std::sort(bars.begin(), bars.end(), [](const Bar &x, const Bar &y) {
        const uint64_t a = x.first + x.second, b = y.first + y.second;
        return a != b ? a > b : x.name < y.name;
    });
    if (bars.size() <= kBars) return bars;
    Bar rest{"the other " + human_count(bars.size() - kBars), 0, 0};
    for (size_t i = kBars; i < bars.size(); ++i) {
        rest.first += bars[i].first;
        rest.second += bars[i].second;
    }
    bars.resize(kBars);
    bars.push_back(rest);
    return bars;
}

template <class Show>
std::string bar_chart(const std::vector<Bar> &all, const char *label, Show show) {
    const std::vector<Bar> bars = largest(all);
    constexpr double kLeft = 250, kWidth = 640, kStep = 22;
    uint64_t most = 1;
    for (const Bar &bar : bars) most = std::max(most, bar.first + bar.second);
    std::string out =
        format("<svg viewBox=\"0 0 1000 %.0f\" role=\"img\" aria-label=\"%s\">\n", kStep * static_cast<double>(bars.size()) + 6, label);
    double y = 2;
    for (const Bar &bar : bars) {
        const double first = kWidth * static_cast<double>(bar.first) / static_cast<double>(most);
        const double second = kWidth * static_cast<double>(bar.second) / static_cast<double>(most);
        // The end of a name tells more than its beginning.
        std::string name = printable(bar.name);
        if (name.size() > 34) {
            size_t from = name.size() - 32;
            while (from < name.size() && (static_cast<unsigned char>(name[from]) & 0xc0) == 0x80) ++from;
            name = "\xe2\x80\xa6" + name.substr(from);
        }
        out += format("<g><title>%s</title><text x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">%s</text>", html(bar.name).c_str(), kLeft - 8,
                      y + 14, escape_html(name).c_str());
        out += format("<rect class=\"a\" x=\"%.0f\" y=\"%.1f\" width=\"%.2f\" height=\"16\"/>", kLeft, y, first);
        if (second > 0) out += format("<rect class=\"b\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"16\"/>", kLeft + first, y, second);
        out += format("<text class=\"soft\" x=\"%.2f\" y=\"%.1f\">%s</text></g>\n", kLeft + first + second + 6, y + 13, show(bar).c_str());
        y += kStep;
    }
    return out + "</svg>\n";
}

std::string timeline(const Summary &summary) {
    constexpr double kLeft = 80, kWidth = 900, kTop = 12, kHeight = 220;
    uint64_t most = 1;
    bool tracked = false;
    for (const MemoryPoint &point : summary.memory) {
        most = std::max({most, point.held, point.tracked});
        tracked = tracked || point.tracked != 0;
    }
    const double count = static_cast<double>(std::max<size_t>(summary.memory.size() - 1, 1));
    const auto y_of = [&](uint64_t value) { return kTop + kHeight * (1 - static_cast<double>(value) / static_cast<double>(most)); };
    std::string out = "<svg viewBox=\"0 0 1000 262\" role=\"img\" aria-label=\"Memory over the run\">\n";
    for (int i = 0; i <= 4; ++i) {
        const double value = static_cast<double>(most) * i / 4;
        const double y = kTop + kHeight * (1 - i / 4.0);
        out += format(
            "<line class=\"grid\" x1=\"%.0f\" x2=\"%.0f\" y1=\"%.1f\" y2=\"%.1f\"/><text class=\"soft\" x=\"%.0f\" y=\"%.1f\" "
            "text-anchor=\"end\">%s</text>\n",
            kLeft, kLeft + kWidth, y, y, kLeft - 6, y + 4, human_bytes(value).c_str());
    }
    const auto line = [&](const char *name, auto value_of) {
        out += std::string("<polyline class=\"") + name + "\" points=\"";
        for (size_t i = 0; i < summary.memory.size(); ++i) {
            out += format("%.1f,%.1f ", kLeft + kWidth * static_cast<double>(i) / count, y_of(value_of(summary.memory[i])));
        }
        out += "\"/>\n";
    };
    if (tracked) line("line2", [](const MemoryPoint &p) { return p.tracked; });
    line("line", [](const MemoryPoint &p) { return p.held; });
    out += format(
        "<text class=\"soft\" x=\"%.0f\" y=\"256\">step %llu</text><text class=\"soft\" x=\"%.0f\" y=\"256\" text-anchor=\"end\">step "
        "%llu</text></svg>\n",
        kLeft, static_cast<unsigned long long>(summary.memory.front().step), kLeft + kWidth,
        static_cast<unsigned long long>(summary.memory.back().step));
    return out + "<p class=\"note\">One point per replay, the highest of each stretch: held by Reprise (before-images, shadows, pools)" +
           (tracked ? " in blue, tracked tensors in orange" : "") + ".</p>\n";
}

void segment_table(std::string &out, const Summary &summary) {
    out += "<h2>Segments</h2>\n" + filter_box("segments", "show segments with ...") +
           "<div class=\"scroll\"><table class=\"sortable\" id=\"segments\">";
    head_row(out, {{"segment", false},
                   {"replays", true},
                   {"on changed state", true},
                   {"loaded", true},
                   {"put back", true},
                   {"time in Reprise", true},
                   {"longest", true},
                   {"refused", true},
                   {"diverged", true},
                   {"buffers", true},
                   {"state", true},
                   {"mechanisms", false}});
    for (const auto &[name, s] : summary.segments) {
        const uint64_t replays = s.records != 0 ? s.records : s.replays;
        const uint64_t refused = s.outcome("rejection") + s.outcome("unprotected"), diverged = s.outcome("divergence");
        uint64_t buffers = 0, state = 0;
        for (const Json &buffer : array_of(s.contract, "buffers")) {
            ++buffers;
            state += number_of(buffer, "size");
        }
        out += "<tr><td class=\"name\">" + html(name) + "</td>" + number_cell(replays, human_count(replays)) +
               number_cell(s.on_changed_state, human_count(s.on_changed_state)) + number_cell(s.bytes_changed, bytes(s.bytes_changed)) +
               number_cell(s.bytes_put_back, bytes(s.bytes_put_back)) + number_cell(s.nanoseconds, time(s.nanoseconds)) +
               number_cell(s.longest_ns, time(s.longest_ns)) + number_cell(refused, human_count(refused), refused != 0) +
               number_cell(diverged, human_count(diverged), diverged != 0) + number_cell(buffers, human_count(buffers)) +
               number_cell(state, bytes(state)) + "<td>" + escape_html(outcomes_text(s.mechanisms)) + "</td></tr>\n";
    }
    out += "</tbody></table></div>\n";
}

void rejections(std::string &out, const Summary &summary) {
    std::string rows;
    for (const auto &[name, s] : summary.segments) {
        for (const auto &[reason, count] : s.reasons) {
            rows += "<tr><td class=\"name\">" + html(name) + "</td>" + number_cell(count, human_count(count)) + "<td>" + html(reason) +
                    "</td></tr>\n";
        }
        if (s.more_reasons != 0)
            rows += "<tr><td class=\"name\">" + html(name) + "</td>" + number_cell(s.more_reasons, human_count(s.more_reasons)) +
                    "<td>other reasons</td></tr>\n";
    }
    out += "<h2>Rejections and divergences</h2>\n";
    if (rows.empty()) {
        out += "<p class=\"note\">None: every replay that was recorded saw what its forward saw.</p>\n";
        return;
    }
    out += "<div class=\"scroll\"><table class=\"sortable\">";
    head_row(out, {{"segment", false}, {"times", true}, {"reason", false}});
    out += rows + "</tbody></table></div>\n";
}

void findings(std::string &out, const Summary &summary) {
    std::string rows;
    for (const auto &[name, s] : summary.segments) {
        for (const auto &[buffer, f] : s.findings) {
            rows += "<tr><td class=\"name\">" + html(name) + "</td><td class=\"name\">" + html(buffer) + "</td>" +
                    number_cell(f.replays, human_count(f.replays)) + number_cell(f.bytes, bytes(f.bytes)) +
                    number_cell(f.most, bytes(f.most)) + "</tr>\n";
        }
    }
    if (rows.empty()) return;
    out +=
        "<h2>Replayed on changed state</h2>\n<p class=\"note\">Found under the audit policy, which changes nothing: the gradients of these "
        "segments are not those of "
        "their forward.</p>\n<div class=\"scroll\"><table class=\"sortable\">";
    head_row(out, {{"segment", false}, {"buffer", false}, {"replays", true}, {"bytes changed", true}, {"most at once", true}});
    out += rows + "</tbody></table></div>\n";
}

}  // namespace

std::string report_html(const Summary &summary, const std::string &title, const std::vector<std::string> &sources) {
    const std::string name = html(title.empty() ? "Reprise: what a run did" : title);
    std::string policies, files, out = kHead;
    for (const std::string &policy : summary.policies) policies += (policies.empty() ? "" : ", ") + html(policy);
    for (const std::string &source : sources) files += (files.empty() ? "" : ", ") + html(source);
    out += "<title>" + name + "</title></head><body>\n<h1>" + name + "</h1>\n<p class=\"sub\">" + files + " &middot; " +
           plural(summary.runs.size(), "run") + " &middot; policy " + (policies.empty() ? "unknown" : policies) + "</p>\n";

    uint64_t replays = 0, on_changed = 0, changed = 0, put_back = 0, nanoseconds = 0, peak = 0, tracked = 0, forward_ns = 0;
    std::vector<Bar> byte_bars, time_bars;
    for (const auto &[segment, s] : summary.segments) {
        replays += s.records != 0 ? s.records : s.replays;
        on_changed += s.on_changed_state;
        changed += s.bytes_changed;
        put_back += s.bytes_put_back;
        nanoseconds += s.nanoseconds;
        byte_bars.push_back({segment, s.bytes_changed, s.bytes_put_back});
        time_bars.push_back({segment, s.nanoseconds, 0});
    }
    for (const Json &report : summary.reports) {
        peak = std::max(peak, number_of(report, "bytes_held_peak"));
        tracked = std::max(tracked, number_of(report, "bytes_tracked_peak"));
        forward_ns += number_of(report, "nanoseconds_forward");
    }
    const uint64_t refused = summary.total("rejection") + summary.total("unprotected"), diverged = summary.total("divergence");
    out += "<div class=\"cards\">\n";
    card(out, human_count(summary.segments.size()), summary.segments.size() == 1 ? "segment" : "segments");
    card(out, human_count(replays), "replays");
    card(out, human_count(on_changed), "on changed state");
    card(out, bytes(changed), "loaded");
    card(out, bytes(put_back), "put back");
    card(out, time(nanoseconds), "in replays");
    if (!summary.reports.empty()) {
        card(out, time(forward_ns), "in forwards");
        card(out, bytes(peak), "held at most");
        card(out, bytes(tracked), "tracked tensors at most");
    }
    card(out, human_count(refused), "refused", refused != 0);
    card(out, human_count(diverged), "diverged", diverged != 0);
    out += "</div>\n";
    planning_sections(out, summary.cycles);
    if (changed + put_back != 0) {
        out += "<h2>Where the bytes went</h2>\n<p class=\"note\">Loaded (blue) and put back (orange), by segment.</p>\n" +
               bar_chart(byte_bars, "Bytes by segment", [](const Bar &bar) { return bytes(bar.first) + " + " + bytes(bar.second); });
    }
    if (nanoseconds != 0) {
        out += "<h2>Where the milliseconds went</h2>\n<p class=\"note\">Spent in Reprise during replays, by segment.</p>\n" +
               bar_chart(time_bars, "Time by segment", [](const Bar &bar) { return time(bar.first); });
    }
    if (!summary.memory.empty()) out += "<h2>Memory held over the run</h2>\n" + timeline(summary);
    if (!summary.segments.empty()) segment_table(out, summary);
    findings(out, summary);
    rejections(out, summary);
    if (!summary.problems.empty()) {
        out += "<h2>Lines that could not be read</h2>\n<ul>\n";
        for (const Problem &line : summary.problems) out += "<li>line " + human_count(line.line) + " " + html(line.text) + "</li>\n";
        if (summary.more_problems != 0) out += "<li>and " + human_count(summary.more_problems) + " more</li>\n";
        out += "</ul>\n";
    }
    return out + kScript + "</body></html>\n";
}

}  // namespace reprise::cli
