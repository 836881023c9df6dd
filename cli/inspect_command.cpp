// reprise inspect: record files, contracts and reports for people.
#include <fnmatch.h>
#include <algorithm>
#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "cli/summary.h"
#include "cli/text.h"

namespace reprise::cli {
namespace {

std::string bytes(uint64_t count) { return human_bytes(static_cast<double>(count)); }
std::string time(uint64_t nanoseconds) { return human_duration(static_cast<double>(nanoseconds)); }

struct Options {
    std::vector<std::string> files;
    std::string segment;
    bool json = false;
};

bool wanted(const Options &options, const std::string &segment) {
    return options.segment.empty() || fnmatch(options.segment.c_str(), segment.c_str(), 0) == 0;
}

std::string flags_of(const Json &buffer) {
    std::string text;
    for (const char *flag : {"parameter", "argument", "generator"}) {
        const auto found = buffer.find(flag);
        if (found != buffer.end() && *found == true) text += (text.empty() ? "" : " ") + std::string(flag);
    }
    return text;
}

Json segment_json(const std::string &name, const Segment &segment) {
    Json json = {{"segment", name},
                 {"records", segment.records},
                 {"outcomes", segment.outcomes},
                 {"on_changed_state", segment.on_changed_state},
                 {"bytes_changed", segment.bytes_changed},
                 {"bytes_put_back", segment.bytes_put_back},
                 {"nanoseconds", segment.nanoseconds},
                 {"longest_nanoseconds", segment.longest_ns},
                 {"mechanisms", segment.mechanisms},
                 {"contracts", segment.contracts},
                 {"reasons", segment.reasons},
                 {"forwards", segment.forwards},
                 {"replays", segment.replays}};
    if (!segment.contract.is_null()) json["contract"] = segment.contract;
    for (const auto &[buffer, finding] : segment.findings) {
        json["changed"].push_back({{"buffer", buffer}, {"replays", finding.replays}, {"bytes", finding.bytes}});
    }
    for (const auto &[buffer, stray] : segment.strays) {
        json["strays"].push_back({{"buffer", buffer}, {"replays", stray.replays}, {"bytes", stray.bytes}, {"runs", stray.runs}});
    }
    return json;
}

Json cycles_json(const Cycles &cycles) {
    Json out = Json::array();
    for (const auto &[name, run] : cycles.runs()) {
        Json plans = Json::array();
        for (const AdoptedPlan &plan : run.history)
            plans.push_back({{"step", plan.step},
                             {"policy", plan.policy},
                             {"verdict", plan.verdict},
                             {"proof", plan.proof},
                             {"budget_bytes", plan.budget},
                             {"peak_bytes", plan.peak},
                             {"added_ns", plan.added_ns},
                             {"retained", plan.retained},
                             {"replayed", plan.replayed}});
        out.push_back({{"run", name},
                       {"profiles", run.profiles},
                       {"plans", run.plans},
                       {"cycles", run.timelines},
                       {"highest_bytes", run.highest},
                       {"furthest_from_plan_ppm", run.worst_ppm},
                       {"cycles_over_budget", run.over_budget},
                       {"latest_plans", std::move(plans)}});
    }
    return out;
}

Json file_json(const Options &options, const std::string &path, const Summary &summary, const std::string &problem) {
    Json json = {{"file", path},
                 {"records", summary.records},
                 {"contracts", summary.contracts},
                 {"runs", summary.runs},
                 {"policies", summary.policies},
                 {"segments", Json::array()},
                 {"reports", summary.reports}};
    for (const auto &[name, segment] : summary.segments) {
        if (wanted(options, name)) json["segments"].push_back(segment_json(name, segment));
    }
    if (!summary.cycles.empty()) json["planning"] = cycles_json(summary.cycles);
    json["problems"] = Json::array();
    for (const Problem &line : summary.problems) json["problems"].push_back({{"line", line.line}, {"text", line.text}});
    if (!problem.empty()) json["error"] = problem;
    return json;
}

void print_report(const Json &report) {
    const auto number = [&](const char *field) { return number_of(report, field); };
    printf("  run %s: policy %s, written pages found by %s\n", printable(text_of(report, "run")).c_str(),
           printable(text_of(report, "policy")).c_str(), printable(text_of(report, "dirty_source")).c_str());
    printf("  %s, %s (%s on changed state), %s, %s, %s\n", plural(number("forwards"), "forward").c_str(),
           plural(number("replays"), "replay").c_str(), human_count(number("replays_on_changed_state")).c_str(),
           plural(number("rejections"), "rejection").c_str(), plural(number("divergences"), "divergence").c_str(),
           plural(number("steps"), "step").c_str());
    printf("  preserved %s (%s first fill), loaded %s, put back %s\n", bytes(number("bytes_preserved")).c_str(),
           bytes(number("bytes_first_fill")).c_str(), bytes(number("bytes_loaded")).c_str(), bytes(number("bytes_put_back")).c_str());
    printf("  held %s at most, tracked tensors %s at most; %s in forwards, %s in replays\n\n", bytes(number("bytes_held_peak")).c_str(),
           bytes(number("bytes_tracked_peak")).c_str(), time(number("nanoseconds_forward")).c_str(),
           time(number("nanoseconds_replay")).c_str());
}

void print_segments(const Options &options, const Summary &summary) {
    using enum Table::Align;
    Table table({{"segment"},
                 {"replays", kRight},
                 {"on changed state", kRight},
                 {"loaded", kRight},
                 {"put back", kRight},
                 {"time", kRight},
                 {"longest", kRight},
                 {"contracts", kRight},
                 {"outcomes"}});
    for (const auto &[name, segment] : summary.segments) {
        if (!wanted(options, name)) continue;
        const bool recorded = segment.records != 0;
        table.add({printable(name), human_count(recorded ? segment.records : segment.replays),
                   recorded ? human_count(segment.on_changed_state) : "-", recorded ? bytes(segment.bytes_changed) : "-",
                   recorded ? bytes(segment.bytes_put_back) : "-", recorded ? time(segment.nanoseconds) : "-",
                   recorded ? time(segment.longest_ns) : "-", segment.contracts != 0 ? human_count(segment.contracts) : "-",
                   outcomes_text(segment.outcomes)});
    }
    if (!table.empty()) printf("%s\n", table.text("  ").c_str());
}

void print_buffers(const Options &options, const Summary &summary) {
    using enum Table::Align;
    Table buffers({{"segment"},
                   {"buffer"},
                   {"size", kRight},
                   {"mechanism"},
                   {"generation", kRight},
                   {"version", kRight},
                   {"alias", kRight},
                   {"flags"}});
    Table generators({{"segment"}, {"generator"}, {"digest"}});
    for (const auto &[name, segment] : summary.segments) {
        if (!wanted(options, name)) continue;
        for (const Json &buffer : array_of(segment.contract, "buffers")) {
            buffers.add({printable(name), printable(text_of(buffer, "name")), bytes(number_of(buffer, "size")),
                         printable(text_of(buffer, "mechanism")), std::to_string(number_of(buffer, "generation")),
                         std::to_string(number_of(buffer, "version")), std::to_string(number_of(buffer, "alias_group")), flags_of(buffer)});
        }
        for (const Json &generator : array_of(segment.contract, "generators")) {
            generators.add({printable(name), printable(text_of(generator, "provider")), printable(text_of(generator, "digest"))});
        }
    }
    if (!buffers.empty()) printf("  Buffers of the latest contracts\n%s\n", buffers.text("  ").c_str());
    if (!generators.empty()) printf("  Generators of the latest contracts\n%s\n", generators.text("  ").c_str());
}

void print_trouble(const Options &options, const Summary &summary) {
    using enum Table::Align;
    Table changed({{"segment"}, {"buffer"}, {"replays", kRight}, {"bytes changed", kRight}});
    Table strays({{"segment"}, {"buffer"}, {"replays", kRight}, {"bytes", kRight}, {"runs", kRight}});
    Table reasons({{"segment"}, {"times", kRight}, {"reason"}});
    for (const auto &[name, segment] : summary.segments) {
        if (!wanted(options, name)) continue;
        for (const auto &[buffer, f] : segment.findings)
            changed.add({printable(name), printable(buffer), human_count(f.replays), bytes(f.bytes)});
        for (const auto &[buffer, s] : segment.strays) {
            strays.add({printable(name), printable(buffer), human_count(s.replays), bytes(s.bytes), human_count(s.runs)});
        }
        for (const auto &[reason, count] : segment.reasons) reasons.add({printable(name), human_count(count), printable(reason)});
        if (segment.more_reasons != 0) reasons.add({printable(name), human_count(segment.more_reasons), "(other reasons)"});
    }
    if (!changed.empty()) printf("  Replayed on changed state (audit)\n%s\n", changed.text("  ").c_str());
    if (!strays.empty()) printf("  Written by replays where the forward had not\n%s\n", strays.text("  ").c_str());
    if (!reasons.empty()) printf("  Rejections and divergences\n%s\n", reasons.text("  ").c_str());
    for (const Problem &line : summary.problems) printf("  line %s %s\n", human_count(line.line).c_str(), line.text.c_str());
    if (summary.more_problems != 0) printf("  and %s\n", plural(summary.more_problems, "more line that cannot be read").c_str());
}

void print_cycles(const Summary &summary) {
    using enum Table::Align;
    for (const auto &[name, run] : summary.cycles.runs()) {
        Table plans({{"step", kRight},
                     {"policy"},
                     {"budget", kRight},
                     {"peak", kRight},
                     {"added time", kRight},
                     {"retained", kRight},
                     {"replayed", kRight},
                     {"verdict"},
                     {"proof"}});
        for (const AdoptedPlan &plan : run.history)
            plans.add({human_count(plan.step), printable(plan.policy), bytes(static_cast<uint64_t>(std::max<int64_t>(0, plan.budget))),
                       bytes(static_cast<uint64_t>(std::max<int64_t>(0, plan.peak))),
                       time(static_cast<uint64_t>(std::max<int64_t>(0, plan.added_ns))), human_count(plan.retained),
                       human_count(plan.replayed), printable(plan.verdict), printable(plan.proof)});
        printf("  %s: %s, %s, %s\n", name.empty() ? "Of no run" : ("Run " + printable(name)).c_str(),
               plural(run.profiles, "profile").c_str(), plural(run.plans, "plan").c_str(), plural(run.timelines, "measured cycle").c_str());
        if (!plans.empty()) printf("%s", plans.text("  ").c_str());
        if (run.timelines != 0)
            printf("  highest %s; a cycle was off its plan by %s at most; %s beyond the budget\n",
                   bytes(static_cast<uint64_t>(run.highest)).c_str(), human_share(static_cast<double>(run.worst_ppm) / 1e6).c_str(),
                   run.over_budget == 0 ? "none was" : plural(run.over_budget, "cycle").c_str());
        puts("");
    }
}

int inspect(const Options &options) {
    int status = 0;
    Json all = {{"schema", "reprise.inspect/1"}, {"files", Json::array()}};
    for (const std::string &path : options.files) {
        Summary summary;
        const std::string problem = summarise(path, summary);
        if (!problem.empty()) {
            complain("inspect", "'" + printable(path) + "' " + problem);
            status = 1;
        }
        if (options.json) {
            all["files"].push_back(file_json(options, path, summary, problem));
            continue;
        }
        const bool nothing = summary.records + summary.contracts + summary.reports.size() == 0 && summary.cycles.empty();
        if (!problem.empty() && nothing) continue;
        printf("%s: %s, %s, %s, %s\n\n", printable(path).c_str(), plural(summary.records, "record").c_str(),
               plural(summary.contracts, "contract").c_str(), plural(summary.reports.size(), "report").c_str(),
               plural(summary.runs.size(), "run").c_str());
        if (nothing) {
            printf("  nothing of Reprise's is in this file\n");
        }
        for (const Json &report : summary.reports) print_report(report);
        print_cycles(summary);
        print_segments(options, summary);
        print_buffers(options, summary);
        print_trouble(options, summary);
    }
    if (options.json) puts(all.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
    return status;
}

}  // namespace

void add_inspect(Invocation &invocation) {
    CLI::App *command = invocation.app->add_subcommand("inspect", "show record files, contracts and reports");
    auto options = std::make_shared<Options>();
    command->add_option("FILE", options->files, "record files and reports; - is standard input")->required();
    command->add_option("--segment", options->segment, "only segments of this name (a pattern: layer*)")->type_name("PATTERN");
    command->add_flag("--json", options->json, "as JSON");
    command->footer("Exit status: 1 when a file cannot be read. Lines that cannot be read are named and left out.");
    command->callback([&invocation, options] { invocation.status = inspect(*options); });
}

}  // namespace reprise::cli
