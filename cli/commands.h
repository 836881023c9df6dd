// The subcommands. Each function adds one to the application: its options, its help, and a callback that does the work and leaves the exit
// status. One file per subcommand; main.cpp calls them all, on the one thread there is.
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

namespace reprise::cli {

struct Invocation {
    CLI::App *app = nullptr;
    std::vector<std::string> program;  // what stands behind `--`
    bool has_program = false;
    int status = 0;
};

void add_run(Invocation &invocation);
void add_audit(Invocation &invocation);
void add_doctor(Invocation &invocation);
void add_inspect(Invocation &invocation);
void add_verify(Invocation &invocation);
void add_report(Invocation &invocation);
void add_plan(Invocation &invocation);
void add_completion(Invocation &invocation);

// The command behind `--`, or, without it, behind the options; says what is wrong and leaves `status` when there is none.
bool take_program(Invocation &invocation, const CLI::App &subcommand);

}  // namespace reprise::cli
