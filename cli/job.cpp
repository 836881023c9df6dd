#include "cli/job.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/Validators.hpp>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "cli/place.h"
#include "cli/plan_input.h"
#include "cli/program.h"
#include "cli/text.h"

namespace reprise::cli {
namespace {

std::string check_size(const std::string &text) {
    int64_t bytes = 0;
    if (text == "auto" || parse_budget(text, INT64_MAX / 64, &bytes)) return "";
    return "'" + printable(text) + "' is not a size (44GiB, 512M, a number of bytes), a share of memory (80%) or auto";
}

std::string check_threads(const std::string &text) {
    const bool digits = !text.empty() && text.size() < 6 && text.find_first_not_of("0123456789") == std::string::npos;
    return digits && atoi(text.c_str()) > 0 ? "" : "'" + printable(text) + "' is not a number of threads (1 or more)";
}

// Opening it for appending says more than access(): read-only file systems, quotas, folders. A file that is only made for the test goes
// again.
std::string check_writable(const char *option, const std::string &path) {
    struct stat status {};
    const bool was_there = lstat(path.c_str(), &status) == 0;
    if (was_there && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode) && !S_ISLNK(status.st_mode))
        return "";  // a pipe or a device: as it comes
    const int file = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0644);
    if (file < 0) {
        return std::string(option) + " '" + printable(path) + "' cannot be written (" + strerror(errno) + "): give a path that can be";
    }
    close(file);
    if (!was_there) unlink(path.c_str());
    return "";
}

bool is_text(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    std::string line;
    std::getline(file, line);
    return line.find('\0') == std::string::npos;
}

}  // namespace

std::string preload_list(const std::string &library) {
    std::string list = library;
    const char *before = getenv("LD_PRELOAD");
    std::string old = before != nullptr ? before : "";
    for (char &c : old) c = c == ':' ? ' ' : c;
    std::stringstream words(old);
    for (std::string entry; words >> entry;) {
        const size_t slash = entry.rfind('/');
        if (entry.substr(slash == std::string::npos ? 0 : slash + 1) != "libreprise.so") list += ":" + entry;
    }
    return list;
}

void add_job_options(CLI::App &command, JobOptions &options, bool choose_policy) {
    if (choose_policy) {
        command.add_option("--policy", options.policy, "what is done about state that changes: REPRISE_POLICY")
            ->check(CLI::IsMember(kPolicies))
            ->type_name("NAME");
    }
    command.add_option("--budget", options.budget, "memory that the job may use (44GiB, 80%, auto), planned for: REPRISE_BUDGET")
        ->check(CLI::Validator(check_size, ""))
        ->type_name("SIZE");
    if (choose_policy) {
        command.add_option("--plan", options.plan, "decide as this file says (reprise plan -o, --save-plan): REPRISE_PLAN")
            ->type_name("FILE");
        command.add_option("--save-plan", options.save_plan, "write the plan that the job makes to this file: REPRISE_SAVE_PLAN")
            ->type_name("FILE");
        command.add_option("--on-infeasible", options.on_infeasible, "when no plan fits the budget: REPRISE_ON_INFEASIBLE")
            ->check(CLI::IsMember(kOnInfeasibles))
            ->type_name("WHAT");
    }
    command.add_option("--records", options.records, "append a JSON line per replay to this file: REPRISE_RECORDS")->type_name("FILE");
    command.add_option("--report", options.report, "write statistics at exit to this file: REPRISE_REPORT")->type_name("FILE");
    command.add_option("--verify", options.verify, "check every load against an independent copy: REPRISE_VERIFY")
        ->check(CLI::IsMember(kVerifies))
        ->expected(0, 1)
        ->default_str("digest")
        ->type_name("HOW");
    command.add_option("--on-reject", options.on_reject, "a replay that would be wrong: REPRISE_ON_REJECT")
        ->check(CLI::IsMember(kOnRejects))
        ->type_name("WHAT");
    command.add_flag("--require", options.require, "fail when nothing was attached, or when the preload cannot load: REPRISE_REQUIRE=1");
    command.add_option("--dirty", options.dirty, "how written pages are found: REPRISE_DIRTY")
        ->check(CLI::IsMember(kDirtySources))
        ->type_name("SOURCE");
    command.add_option("--reentrant", options.reentrant, "reentrant checkpoints: REPRISE_REENTRANT")
        ->check(CLI::IsMember(kReentrants))
        ->type_name("HOW");
    command.add_option("--include", options.include, "only modules of these names, comma-separated patterns: REPRISE_INCLUDE")
        ->type_name("PATTERNS");
    command.add_option("--exclude", options.exclude, "not modules of these names: REPRISE_EXCLUDE")->type_name("PATTERNS");
    command.add_option("--track", options.track, "libraries whose aligned allocations are tensors: REPRISE_TRACK")->type_name("NAMES");
    command.add_option("--threads", options.threads, "copying threads: REPRISE_THREADS")
        ->check(CLI::Validator(check_threads, ""))
        ->type_name("COUNT");
    command.add_option("--log", options.log, "lines on stderr: REPRISE_LOG")->check(CLI::IsMember(kLogs))->type_name("LEVEL");
    command.add_option("--library", options.library, "libreprise.so (default: the one that belongs to this command)")->type_name("PATH");
}

std::string job_environment(JobOptions &options, Environment *out) {
    const Place place = find_library(options.library);
    if (place.library.empty()) return place.problem;
    options.library = place.library;
    // The job may change its folder before its first segment.
    options.records = absolute(options.records);
    options.report = absolute(options.report);
    options.plan = absolute(options.plan);
    options.save_plan = absolute(options.save_plan);
    // A plan that cannot be read is found now, not in the job's third step. Whether it is one of this job only the job can say.
    if (!options.plan.empty()) {
        if (const std::string problem = check_plan_file(options.plan); !problem.empty())
            return "--plan '" + printable(options.plan) + "' " + problem;
    }
    for (const auto &[name, path] :
         {std::pair{"--records", &options.records}, std::pair{"--report", &options.report}, std::pair{"--save-plan", &options.save_plan}}) {
        if (path->empty()) continue;
        if (const std::string problem = check_writable(name, *path); !problem.empty()) return problem;
    }
    out->emplace_back("LD_PRELOAD", preload_list(place.library));
    const std::pair<const char *, const std::string *> settings[] = {
        {"REPRISE_POLICY", &options.policy},
        {"REPRISE_BUDGET", &options.budget},
        {"REPRISE_RECORDS", &options.records},
        {"REPRISE_REPORT", &options.report},
        {"REPRISE_VERIFY", &options.verify},
        {"REPRISE_ON_REJECT", &options.on_reject},
        {"REPRISE_DIRTY", &options.dirty},
        {"REPRISE_REENTRANT", &options.reentrant},
        {"REPRISE_INCLUDE", &options.include},
        {"REPRISE_EXCLUDE", &options.exclude},
        {"REPRISE_TRACK", &options.track},
        {"REPRISE_THREADS", &options.threads},
        {"REPRISE_LOG", &options.log},
        {"REPRISE_PLAN", &options.plan},
        {"REPRISE_SAVE_PLAN", &options.save_plan},
        {"REPRISE_ON_INFEASIBLE", &options.on_infeasible},
    };
    for (const auto &[name, value] : settings) {
        if (!value->empty()) out->emplace_back(name, *value);
    }
    if (options.require) out->emplace_back("REPRISE_REQUIRE", "1");
    return "";
}

int check_program(const char *command, const std::vector<std::string> &program, bool require, std::string *path) {
    const Program found = find_program(program.front());
    if (found.failure != 0) {
        complain(command, found.problem);
        return found.failure;
    }
    for (const std::string &warning : found.warnings) {
        complain(command, (require ? "" : "warning: ") + warning + "; run what it starts, or another build of it, under Reprise instead" +
                              (require ? " (--require)" : ""));
    }
    if (require && !found.warnings.empty()) return kOwnFailure;
    *path = found.path;
    return 0;
}

int become(const char *command, const std::string &path, const std::vector<std::string> &program, const Environment &environment) {
    for (const auto &[name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    std::vector<char *> arguments;
    for (const std::string &word : program) arguments.push_back(const_cast<char *>(word.c_str()));
    arguments.push_back(nullptr);
    fflush(nullptr);
    const std::string file = path.find('/') == std::string::npos ? "./" + path : path;
    execv(file.c_str(), arguments.data());
    // A text without a first line that names an interpreter is run by sh, as everywhere; what is no text is not.
    if (errno == ENOEXEC && is_text(file)) {
        arguments.front() = const_cast<char *>(file.c_str());
        arguments.insert(arguments.begin(), const_cast<char *>("sh"));
        execv("/bin/sh", arguments.data());
    } else if (errno == ENOEXEC) {
        complain(command, "'" + printable(program.front()) + "' is neither a program of this machine nor a script");
        return kNotExecutable;
    }
    const int error = errno;
    complain(command, "'" + printable(program.front()) + "' cannot be started: " + strerror(error));
    return error == ENOENT ? kNotFound : kNotExecutable;
}

}  // namespace reprise::cli
