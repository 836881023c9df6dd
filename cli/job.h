// How a job is run under Reprise: the options that run and audit share, the environment they make, and the start itself. One thread.
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <utility>
#include <vector>

namespace reprise::cli {

struct JobOptions {
    std::string library, policy, budget, plan, save_plan, on_infeasible, records, report, verify, on_reject, dirty, reentrant, include,
        exclude, track, threads, log;
    bool require = false;
    bool print = false;
};

// The values that an option takes, for checks, help and completion alike.
inline const std::vector<std::string> kPolicies = {"selective", "whole",  "joint", "eager-whole", "greedy",
                                                   "fixed",     "retain", "audit", "off"};
inline const std::vector<std::string> kOnInfeasibles = {"least", "fail"};
inline const std::vector<std::string> kVerifies = {"off", "digest", "bytes"};
inline const std::vector<std::string> kOnRejects = {"fail", "warn"};
inline const std::vector<std::string> kDirtySources = {"wp-async", "compare"};
inline const std::vector<std::string> kReentrants = {"keep", "convert"};
inline const std::vector<std::string> kLogs = {"off", "error", "warn", "info", "debug"};

void add_job_options(CLI::App &command, JobOptions &options, bool choose_policy);

using Environment = std::vector<std::pair<std::string, std::string>>;  // in the order in which they are set

// LD_PRELOAD for a child. Our preload first: the allocator that comes first serves the job. What was there stays behind it; another copy of
// ours goes.
std::string preload_list(const std::string &library);

// What to set for the job: "" when fine, else why not. Checks that the files can be written before the job runs for a day.
std::string job_environment(JobOptions &options, Environment *out);

// Looks at program[0], says what is wrong with it and what the preload cannot do in it. 0, or the exit status to leave with.
int check_program(const char *command, const std::vector<std::string> &program, bool require, std::string *path);

// Sets the environment of this process and becomes the program; returns only the exit status of a failure.
int become(const char *command, const std::string &path, const std::vector<std::string> &program, const Environment &environment);

}  // namespace reprise::cli
