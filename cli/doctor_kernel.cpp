// Kernel: can written pages be found, are there huge pages, what is forbidden here?
#include <cerrno>
#include <cstring>
#include <fstream>

#include <sys/mman.h>
#include <sys/utsname.h>

#include "allocator/page_guard_probe.h"
#include "cli/doctor.h"
#include "cli/text.h"

namespace reprise::cli {
namespace {

std::string first_line(const char *path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
}

std::string status_field(const char *field) {
    std::ifstream file("/proc/self/status");
    for (std::string line; std::getline(file, line);) {
        if (line.compare(0, strlen(field), field) == 0) {
            const size_t at = line.find_first_not_of(" \t", strlen(field));
            return at == std::string::npos ? "" : line.substr(at);
        }
    }
    return "";
}

void examine_tracking(Diagnosis &diagnosis) {
    GuardCapabilities guard;
    diagnosis.tracks_writes = run_guard_probe(&guard);
    if (!diagnosis.tracks_writes) {
        diagnosis.add(
            "write tracking", Health::kLimited, std::string("does not work: ") + guard.reason,
            "everything works without it, by comparing with copies, which costs time in proportion to the state; Linux 6.7 or newer with "
            "userfaultfd allowed has it");
        return;
    }
    diagnosis.add("write tracking", Health::kGood,
                  "userfaultfd WP_ASYNC and PAGEMAP_SCAN work: armed, written, collected and re-armed on scratch pages");
    if (!guard.kernel_writes_seen) {
        diagnosis.add("kernel writes", Health::kLimited, "a read(2) into a watched page was not seen",
                      "use REPRISE_DIRTY=compare in jobs that read files into their state, or a current stable kernel");
    }
    if (!guard.hole_seen) {
        diagnosis.add("dropped huge pages", Health::kNote,
                      "this kernel does not report a watched huge page that was dropped; Reprise knows its own and copes");
    }
}

void examine_seccomp(Diagnosis &diagnosis) {
    const std::string mode = status_field("Seccomp:");
    if (mode == "2") {
        diagnosis.add("seccomp", diagnosis.tracks_writes ? Health::kGood : Health::kNote,
                      std::string("a filter is on") +
                          (diagnosis.tracks_writes ? ", and it lets through what is needed" : ", which may be what forbids userfaultfd"),
                      diagnosis.tracks_writes ? "" : "allow userfaultfd in the container's profile, or give it /dev/userfaultfd");
    } else if (mode == "1") {
        diagnosis.add("seccomp", Health::kBroken, "strict mode: this process may only read and write", "run jobs outside strict seccomp");
    } else {
        diagnosis.add("seccomp", Health::kGood, "no filter");
    }
}

// Does a madvised 2 MiB block become a huge page? Asked of the kernel's accounting for this very mapping.
void examine_huge_pages(Diagnosis &diagnosis) {
    constexpr size_t kHuge = size_t{2} << 20;
    const std::string setting = first_line("/sys/kernel/mm/transparent_hugepage/enabled");
    void *const raw = mmap(nullptr, 3 * kHuge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED) {
        diagnosis.add("huge pages", Health::kLimited, std::string("6 MiB cannot be mapped: ") + strerror(errno), "raise ulimit -v");
        return;
    }
    const uintptr_t base = (reinterpret_cast<uintptr_t>(raw) + kHuge - 1) / kHuge * kHuge;
    const bool advised = madvise(reinterpret_cast<void *>(base), kHuge, MADV_HUGEPAGE) == 0;
    memset(reinterpret_cast<void *>(base), 1, kHuge);
    std::ifstream maps("/proc/self/smaps");
    bool inside = false;
    unsigned long kib = 0;
    for (std::string line; std::getline(maps, line);) {
        unsigned long begin = 0, end = 0, value = 0;
        if (sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) inside = begin <= base && base < end;
        if (inside && sscanf(line.c_str(), "AnonHugePages: %lu kB", &value) == 1) kib += value;
    }
    munmap(raw, 3 * kHuge);
    if (kib >= 2048) {
        diagnosis.add("huge pages", Health::kGood, "a block of 2 MiB became one huge page (" + printable(setting) + ")");
    } else {
        diagnosis.add(
            "huge pages", Health::kNote,
            std::string("a block of 2 MiB did not become a huge page (") + (advised ? printable(setting) : "madvise refused it") + ")",
            "copies and scans are slower with small pages; echo madvise > /sys/kernel/mm/transparent_hugepage/enabled");
    }
}

}  // namespace

void examine_kernel(Diagnosis &diagnosis) {
    utsname name{};
    uname(&name);
    diagnosis.add("kernel", Health::kGood, std::string(name.sysname) + " " + name.release + " on " + name.machine);
    examine_tracking(diagnosis);
    examine_seccomp(diagnosis);
    examine_huge_pages(diagnosis);
}

}  // namespace reprise::cli
