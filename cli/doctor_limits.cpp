// Limits: address space, descriptors, locked memory, control groups, overcommit. What matters is tried: the allocator itself is started.
#include <cerrno>
#include <cstring>
#include <fstream>

#include <sys/mman.h>
#include <sys/resource.h>

#include "allocator/allocator.h"
#include "allocator/headroom.h"
#include "cli/doctor.h"
#include "cli/text.h"

namespace reprise::cli {
namespace {

std::string limit_text(int which) {
    rlimit limit{};
    getrlimit(static_cast<__rlimit_resource_t>(which), &limit);
    return limit.rlim_cur == RLIM_INFINITY ? "unlimited" : human_bytes(static_cast<double>(limit.rlim_cur));
}

void examine_arenas(Diagnosis &diagnosis) {
    constexpr size_t kTensor = size_t{1} << 20;
    bool zeroed = false;
    const std::string limit = "ulimit -v is " + limit_text(RLIMIT_AS);
    void *const block = allocator_start() ? place(kTensor, 64, &zeroed) : nullptr;
    if (block == nullptr) {
        diagnosis.add("address space", Health::kLimited, "no tracked arenas can be reserved (" + limit + "): tensors would be copied whole",
                      "raise ulimit -v, or set REPRISE_ARENA to fewer bytes");
        return;
    }
    memset(block, 1, kTensor);
    release_block(block);
    diagnosis.add("address space", Health::kGood, "tracked arenas were reserved and used (" + limit + ")");
}

void examine_memory(Diagnosis &diagnosis) {
    const Headroom room = headroom_parts();
    std::string text = human_bytes(static_cast<double>(room.machine)) + " available on the machine";
    const bool grouped = room.group != ~uint64_t{0};
    text +=
        grouped ? ", " + human_bytes(static_cast<double>(room.group)) + " below the control group's limit" : ", no control group limits it";
    const uint64_t least = grouped && room.group < room.machine ? room.group : room.machine;
    const bool little = least < uint64_t{256} << 20;
    diagnosis.add(
        "memory", little ? Health::kLimited : Health::kGood, text,
        little ? "shadows are not made when memory is short, and replays may be refused: raise the group's limit, or free memory" : "");
    std::ifstream file("/proc/sys/vm/overcommit_memory");
    int mode = -1;
    file >> mode;
    if (mode == 2) {
        diagnosis.add("overcommit", Health::kNote, "vm.overcommit_memory=2: reserved memory counts",
                      "if jobs fail to allocate, set REPRISE_ARENA to fewer bytes");
    }
}

}  // namespace

void examine_limits(Diagnosis &diagnosis) {
    examine_arenas(diagnosis);
    examine_memory(diagnosis);
    rlimit files{};
    getrlimit(RLIMIT_NOFILE, &files);
    const bool few = files.rlim_cur < 64;
    diagnosis.add("descriptors", few ? Health::kLimited : Health::kGood, "ulimit -n is " + human_count(files.rlim_cur),
                  few ? "raise ulimit -n: Reprise needs five, beside the job's own" : "");
    // Only jobs that lock memory care: what they lock, the arenas lock too.
    void *const page = mmap(nullptr, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const bool locked = page != MAP_FAILED && mlock(page, 65536) == 0;
    const std::string error = locked ? "" : strerror(errno);
    if (page != MAP_FAILED) munmap(page, 65536);
    diagnosis.add("locked memory", locked ? Health::kGood : Health::kNote,
                  "ulimit -l is " + limit_text(RLIMIT_MEMLOCK) + (locked ? "" : ", and 64 KiB cannot be locked (" + error + ")"),
                  locked ? "" : "only jobs that call mlockall need more: raise ulimit -l for them");
}

}  // namespace reprise::cli
