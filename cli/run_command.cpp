// reprise run: sets the preload and the settings, and becomes the command.
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "cli/commands.h"
#include "cli/job.h"
#include "cli/program.h"
#include "cli/text.h"

namespace reprise::cli {
namespace {

// For a shell to read.
std::string quoted(const std::string &text) {
    if (!text.empty() &&
        text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-") == std::string::npos)
        return text;
    std::string result = "'";
    for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return result + "'";
}

int run(const std::vector<std::string> &program, JobOptions &options) {
    Environment environment;
    if (const std::string problem = job_environment(options, &environment); !problem.empty()) {
        complain("run", problem);
        return kOwnFailure;
    }
    std::string path;
    const char *asked = getenv("REPRISE_REQUIRE");
    const bool require = options.require || (asked != nullptr && *asked == '1');
    if (const int status = check_program("run", program, require, &path); status != 0) return status;
    if (options.print) {
        std::string line = "env";
        for (const auto &[name, value] : environment) line += " " + name + "=" + quoted(value);
        for (const std::string &word : program) line += " " + quoted(word);
        puts(line.c_str());
        return 0;
    }
    return become("run", path, program, environment);
}

}  // namespace

void add_run(Invocation &invocation) {
    CLI::App *command = invocation.app->add_subcommand("run", "run a command under Reprise: reprise run [options] -- COMMAND...");
    auto options = std::make_shared<JobOptions>();
    add_job_options(*command, *options, true);
    command->add_flag("--print", options->print, "print the command line that does the same, and run nothing");
    command->prefix_command();
    command->footer(
        "Exit status: the command's own; 127 when it is not found, 126 when it cannot be executed, 125 when Reprise cannot be set up.\n"
        "What is not given is left as the environment has it. An LD_PRELOAD that is there stays, behind libreprise.so.");
    command->callback([&invocation, command, options] {
        if (take_program(invocation, *command)) invocation.status = run(invocation.program, *options);
    });
}

}  // namespace reprise::cli
