// reprise report: one HTML file that needs nothing else, from a record file and maybe the report of the run. cli/report_html.cpp writes the
// page.
#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/picture.h"
#include "cli/report_html.h"
#include "cli/report_plan.h"
#include "cli/text.h"

namespace reprise::cli {
namespace {

constexpr const char *kName = "report";

struct Options {
    std::vector<std::string> files, reports;
    std::string output, title, png, python;
};

int report(const Options &options) {
    Summary summary;
    std::vector<std::string> sources = options.files;
    sources.insert(sources.end(), options.reports.begin(), options.reports.end());
    for (const std::string &path : sources) {
        if (const std::string problem = summarise(path, summary); !problem.empty()) {
            complain(kName, "'" + printable(path) + "' " + problem);
            return 1;
        }
    }
    if (summary.empty()) {
        complain(kName,
                 "there is nothing to show: no record, contract, report or plan in the files given. Record a run with reprise run "
                 "--records FILE");
        return 1;
    }
    const std::string page = report_html(summary, options.title, sources);
    if (const std::string problem = write_whole(options.output, page); !problem.empty()) {
        complain(kName, "'" + printable(options.output) + "' cannot be written (" + problem + "): give -o a path that can be");
        return 1;
    }
    if (options.output != "-") {
        printf("%s: %s, %s, %s\n", printable(options.output).c_str(), plural(summary.segments.size(), "segment").c_str(),
               plural(summary.records, "record").c_str(), human_bytes(static_cast<double>(page.size())).c_str());
    }
    // The page is there, whatever becomes of the picture.
    if (!options.png.empty()) {
        const Json drawing = timeline_drawing(summary.cycles, options.title);
        const std::string problem = drawing.is_null() ? "no cycle was measured (reprise.timeline/1): record a run with a budget"
                                                      : draw_png(drawing, options.png, options.python);
        if (!problem.empty()) {
            complain(kName, "'" + printable(options.png) + "' was not drawn: " + problem);
            return 1;
        }
    }
    return 0;
}

}  // namespace

void add_report(Invocation &invocation) {
    CLI::App *command = invocation.app->add_subcommand("report", "write a page (HTML, one file) about a run from its records");
    auto options = std::make_shared<Options>();
    command->add_option("RECORDS", options->files, "record files")->required();
    command->add_option("--report", options->reports, "statistics that the run wrote at exit (may be repeated)")->type_name("FILE");
    command->add_option("-o,--output", options->output, "where to write the page; - is standard output")->required()->type_name("FILE");
    command->add_option("--png", options->png, "also draw the memory of the latest cycle into this file (needs a Python with matplotlib)")
        ->type_name("FILE");
    command->add_option("--python", options->python, "the Python that has matplotlib (default: python3 on PATH)")->type_name("PATH");
    command->add_option("--title", options->title, "the page's title")->type_name("TEXT");
    command->footer("Exit status: 1 when a file cannot be read, holds nothing, or the page cannot be written.");
    command->callback([&invocation, options] { invocation.status = report(*options); });
}

}  // namespace reprise::cli
