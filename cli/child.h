// Runs a program for an answer: what it printed, how it ended, never longer than a time limit. Used by doctor's probes; one thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace reprise::cli {

struct ChildResult {
    bool started = false;
    bool timed_out = false;
    int status = -1;  // exit status, 128 + signal when killed
    std::string out, err;
};

// `environment` is added to ours; an empty value takes the variable away.
ChildResult run_and_read(const std::vector<std::string> &program, const std::vector<std::pair<std::string, std::string>> &environment,
                         int seconds);

}  // namespace reprise::cli
