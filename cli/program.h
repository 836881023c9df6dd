// The command that somebody wants run: found as a shell would, and looked at before it starts, because a preload that silently does not
// load is the worst of all outcomes. Used by `run`, `audit` and `doctor`; one thread.
#pragma once

#include <string>
#include <vector>

namespace reprise::cli {

// The statuses of env(1), nohup(1) and shells.
inline constexpr int kOwnFailure = 125, kNotExecutable = 126, kNotFound = 127;

struct Program {
    std::string path;                   // what exec gets
    int failure = 0;                    // kNotExecutable or kNotFound
    std::string problem;                // with failure: what is wrong, and what to do
    std::vector<std::string> warnings;  // why the preload will not work in it
};

// Follows scripts to their interpreter, `#!/usr/bin/env NAME` too.
Program find_program(const std::string &name);

}  // namespace reprise::cli
