#include "policy/parallel_plugin.h"

#include <dlfcn.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "kernels/kernels.h"
#include "policy/log.h"

namespace reprise {
namespace {

// More threads than this do not make a copy faster on any machine we measured, and take cores from the job.
constexpr unsigned kMostWorkers = 8;

unsigned usable_cpus() {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    return static_cast<unsigned>(std::max(1, CPU_COUNT(&set)));
}

}  // namespace

unsigned open_parallel_plugin() {
    static unsigned workers = 0;
    if (workers != 0) return workers;
    workers = 1;
    unsigned wanted = std::min(kMostWorkers, usable_cpus());
    if (const char *text = getenv("REPRISE_THREADS"); text != nullptr && atoi(text) > 0) wanted = static_cast<unsigned>(atoi(text));
    if (wanted < 2) return workers;
    Dl_info here{};
    if (dladdr(reinterpret_cast<void *>(&open_parallel_plugin), &here) == 0 || here.dli_fname == nullptr) return workers;
    std::string path = here.dli_fname;
    path.erase(path.find_last_of('/') + 1);
    path += "libreprise_parallel.so";
    void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    using Open = int (*)(unsigned, kernels::ParallelFor *, unsigned *);
    auto open = library != nullptr ? reinterpret_cast<Open>(dlsym(library, "reprise_parallel_open")) : nullptr;
    kernels::ParallelFor run = nullptr;
    unsigned granted = 1;
    if (open == nullptr || open(wanted, &run, &granted) != 0 || run == nullptr) {
        const char *error = library == nullptr ? dlerror() : "it refused";
        log_line(LogLevel::kInfo, format("copies run on one thread: %s (%s)", path.c_str(), error != nullptr ? error : "unknown"));
        return workers;
    }
    kernels::set_parallel(run, granted);
    workers = granted;
    return workers;
}

}  // namespace reprise
