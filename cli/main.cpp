// The `reprise` command: reads the command line and hands it to a subcommand.
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <cstring>
#include <exception>

#include "cli/commands.h"
#include "cli/probe_child.h"
#include "cli/program.h"
#include "cli/text.h"
#include "reprise/reprise.h"

namespace reprise::cli {

bool take_program(Invocation &invocation, const CLI::App &subcommand) {
    const std::vector<std::string> others = subcommand.remaining();
    if (!invocation.has_program) invocation.program = others;
    const char *name = subcommand.get_name().c_str();
    if (invocation.has_program ? !others.empty() : !others.empty() && others.front().front() == '-') {
        complain(name, "unknown option or word '" + printable(others.front()) + "' before the command (reprise " + name + " --help)");
    } else if (invocation.program.empty()) {
        complain(name, std::string("no command given: reprise ") + name + " [options] -- COMMAND ARGUMENTS...");
    } else {
        return true;
    }
    invocation.status = kOwnFailure;
    return false;
}

namespace {

int reprise_main(int argc, char **argv) {
    if (argc >= 2 && strcmp(argv[1], kProbeWord) == 0) return probe_child(argc - 2, argv + 2);

    CLI::App app("Reprise: activation recomputation that sees the state the first pass saw.");
    app.name("reprise");
    app.set_version_flag("--version", "reprise " REPRISE_COMMAND_VERSION);
    app.require_subcommand(1);
    app.get_formatter()->column_width(34);
    app.footer("reprise COMMAND --help tells about one of them; reprise(1) and docs/cli.md about all.");
    Invocation invocation;
    invocation.app = &app;
    add_run(invocation);
    add_audit(invocation);
    add_doctor(invocation);
    add_inspect(invocation);
    add_verify(invocation);
    add_plan(invocation);
    add_report(invocation);
    add_completion(invocation);

    // What stands behind the first `--` of run and audit is the job's, whatever it looks like.
    const bool takes_program = argc >= 2 && (strcmp(argv[1], "run") == 0 || strcmp(argv[1], "audit") == 0);
    std::vector<std::string> words;
    for (int i = 1; i < argc; ++i) {
        if (takes_program && !invocation.has_program && strcmp(argv[i], "--") == 0) {
            invocation.has_program = true;
        } else if (invocation.has_program) {
            invocation.program.emplace_back(argv[i]);
        } else {
            words.emplace_back(argv[i]);
        }
    }
    try {
        app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
    } catch (const CLI::ParseError &error) {
        const int status = app.exit(error);
        return status == 0 ? 0 : takes_program ? kOwnFailure : 2;
    }
    if (fflush(stdout) != 0 || ferror(stdout) != 0) {
        complain(app.get_subcommands().front()->get_name().c_str(), "what it found cannot be written to standard output");
        return takes_program ? kOwnFailure : 2;
    }
    return invocation.status;
}

}  // namespace
}  // namespace reprise::cli

int main(int argc, char **argv) {
    try {
        return reprise::cli::reprise_main(argc, argv);
    } catch (const std::exception &error) {
        fprintf(stderr, "reprise: %s\n", error.what());
        return 2;
    }
}
