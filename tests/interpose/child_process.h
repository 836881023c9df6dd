// Runs a program in a child with an environment of its own and a time-out, and collects what it wrote.
//
// Used by the tests of this folder, on the test's thread. The preload itself is never loaded into the test program.
#pragma once

#include <map>
#include <string>
#include <vector>

struct ChildResult {
    int exit_code = -1;  // -1: killed
    int signal = 0;
    bool timed_out = false;
    std::string out, err;
};

struct ChildOptions {
    std::map<std::string, std::string> environment;  // added to ours, which is cleaned of REPRISE_* and LD_*
    std::string directory;                           // working directory; "" keeps ours
    int timeout_s = 120;
};

ChildResult run_child(const std::vector<std::string> &command, const ChildOptions &options = {});

// For failure messages.
std::string describe(const ChildResult &result);

// A folder of its own under the system's folder for temporary files, removed by the destructor.
class TemporaryFolder {
  public:
    TemporaryFolder();
    ~TemporaryFolder();
    TemporaryFolder(const TemporaryFolder &) = delete;
    TemporaryFolder &operator=(const TemporaryFolder &) = delete;
    const std::string &path() const { return path_; }
    std::string operator/(const std::string &name) const { return path_ + "/" + name; }

  private:
    std::string path_;
};

std::string read_text(const std::string &path);
void write_text(const std::string &path, const std::string &text);
