// reprise verify: re-checks a record file: the parser's view is judged by cli/check.cpp, violations are printed with their lines.
#include <cstdio>
#include <memory>

#include "cli/check.h"
#include "cli/commands.h"
#include "cli/text.h"

namespace reprise::cli {
namespace {

struct Options {
    std::string file, report;
    size_t limit = 100;
    bool json = false;
};

int verify(const Options &options) {
    Check check;
    const ReadResult read = read_file(options.file, [&](Line &line) { check.line(line); });
    if (!read.problem.empty()) {
        complain("verify", "'" + printable(options.file) + "' " + read.problem);
        return 2;
    }
    check.end();
    if (!options.report.empty()) {
        bool any = false;
        const ReadResult other = read_file(options.report, [&](Line &line) {
            if (line.kind != LineKind::kReport) return;
            any = true;
            check.report(line.json);
        });
        if (!other.problem.empty() || !any) {
            complain("verify", "'" + printable(options.report) + "' " + (other.problem.empty() ? "holds no report" : other.problem));
            return 2;
        }
    }
    const bool nothing = check.records() + check.contracts() + check.plans() == 0;
    if (nothing && check.violations().empty()) check.violation(0, "the file holds no record and no contract");
    if (options.json) {
        Json json = {{"schema", "reprise.verify/1"}, {"file", options.file},           {"lines", read.lines},
                     {"records", check.records()},   {"contracts", check.contracts()}, {"digests_recomputed", check.digests()},
                     {"plans", check.plans()},       {"violations", Json::array()},    {"notes", Json::array()}};
        for (const Problem &p : check.violations()) json["violations"].push_back({{"line", p.line}, {"text", p.text}});
        for (const Problem &p : check.notes()) json["notes"].push_back({{"line", p.line}, {"text", p.text}});
        puts(json.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
        return check.violations().empty() ? 0 : 1;
    }
    const std::string name = printable(options.file);
    const auto where = [&](const Problem &p) {
        return p.line == 0 ? name : name + format(":%llu", static_cast<unsigned long long>(p.line));
    };
    for (const Problem &p : check.notes()) printf("%s: note: %s\n", where(p).c_str(), p.text.c_str());
    size_t shown = 0;
    for (const Problem &p : check.violations()) {
        if (options.limit != 0 && shown++ == options.limit) {
            printf("%s: and %zu more (--limit 0 shows all)\n", name.c_str(), check.violations().size() - options.limit);
            break;
        }
        printf("%s: %s\n", where(p).c_str(), p.text.c_str());
    }
    printf("%s: %s, %s in %s, %s recomputed: %s\n", name.c_str(), plural(check.records(), "record").c_str(),
           plural(check.contracts(), "contract").c_str(), plural(check.runs(), "run").c_str(),
           plural(check.digests(), "contract digest").c_str(),
           check.violations().empty() ? "fine" : plural(check.violations().size(), "violation").c_str());
    return check.violations().empty() ? 0 : 1;
}

}  // namespace

void add_verify(Invocation &invocation) {
    CLI::App *command = invocation.app->add_subcommand("verify", "re-check a record file: schema, order, counters, digests, sums");
    auto options = std::make_shared<Options>();
    command->add_option("FILE", options->file, "the record file; - is standard input")->required();
    command->add_option("--report", options->report, "also compare with the report of the same run")->type_name("FILE");
    command->add_option("--limit", options->limit, "show at most so many violations (100; 0: all)")->type_name("N");
    command->add_flag("--json", options->json, "as JSON");
    command->footer("Exit status: 0 fine, 1 violations (each named with its line), 2 the file cannot be read.");
    command->callback([&invocation, options] { invocation.status = verify(*options); });
}

}  // namespace reprise::cli
