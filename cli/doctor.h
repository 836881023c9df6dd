// What doctor finds: one finding per thing that was tried, with what it means and the remedy. The probes try things instead of reading
// version numbers; each file of probes is about one part of the machine. One thread; what may crash or load libraries runs in child
// processes.
#pragma once

#include <string>
#include <vector>

namespace reprise::cli {

enum class Health : uint8_t { kGood, kNote, kLimited, kBroken };

struct Symptom {
    std::string name;  // "write tracking"
    Health health = Health::kGood;
    std::string detail;  // what was found
    std::string remedy;  // what to do, when not good
};

struct Measure {
    std::string name;  // "page fault, fresh page"
    double value = 0;
    std::string unit;  // "ns", "GB/s", "share"
    std::string what;  // in words
};

struct Diagnosis {
    std::vector<Symptom> findings;
    std::vector<Measure> measures;
    bool tracks_writes = false;

    void add(std::string name, Health health, std::string detail, std::string remedy = "") {
        findings.push_back({std::move(name), health, std::move(detail), std::move(remedy)});
    }
};

void examine_kernel(Diagnosis &diagnosis);  // kernel, write tracking, huge pages, seccomp
void examine_limits(Diagnosis &diagnosis);  // address space, descriptors, locked memory, control groups, overcommit
void examine_preload(Diagnosis &diagnosis, const std::string &library);  // LD_PRELOAD in a child, a segment in it
void examine_python(Diagnosis &diagnosis, const std::string &library, const std::string &python);
void examine_gpu(Diagnosis &diagnosis);
void measure_costs(Diagnosis &diagnosis);

}  // namespace reprise::cli
