// The record file: JSON lines, one per replay (reprise.record/1) and one per new contract (reprise.contract/1). Every line is one write to
// a descriptor opened O_APPEND, so what was written survives kill -9 up to the last whole line. A file that cannot be written is said once.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "policy/instance.h"

namespace reprise {

class RecordFile {
  public:
    // An empty path records nothing.
    explicit RecordFile(std::string path);

    bool wanted() const { return wanted_; }
    // Cheap when nothing is wanted; else serialises and writes at once.
    void write(const nlohmann::json &line);
    // The same, of a line that is JSON already (without its end).
    void write_line(std::string text);
    const std::string &run() const { return run_; }
    // In a forked child: what it writes is a run of its own.
    void new_run();

  private:
    bool open();
    void end_torn_line(uint64_t size);
    void give_up(const char *what, int error);

    std::string path_;
    std::string run_;  // names this process in the records
    int descriptor_ = -1;
    bool regular_ = false;
    uint64_t size_ = 0;  // after our last line: another size means that somebody else wrote, and may have died in the middle of it
    uint64_t device_ = 0, inode_ = 0;  // of our file: the descriptor number may have been closed and reused by the job
    bool wanted_ = false;
};

// reprise.contract/1 of one instance (docs/formats.md has the schema).
nlohmann::json contract_json(const Instance &instance, const std::string &run);
// Of what is stable about it: segment, buffers by name and size, mechanisms, providers.
uint64_t contract_digest(const Instance &instance);

}  // namespace reprise
