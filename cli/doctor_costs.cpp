// Costs: what this machine takes for the things that preserving state is made of, and from which share of written pages on a whole copy is
// cheaper. Each is the best of several rounds: what the machine can do, not what its other users left over.
#include <algorithm>
#include <cstring>
#include <ctime>
#include <random>
#include <vector>

#include <sys/mman.h>

#include "allocator/allocator.h"
#include "cli/doctor.h"
#include "kernels/kernels.h"

namespace reprise::cli {
namespace {

constexpr size_t kPages = 16384, kBytes = kPages * kPageSize;  // 64 MiB: larger than caches
constexpr int kRounds = 5;

double now_ns() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

template <class Work>
double best_ns(int rounds, Work work) {
    double best = 0;
    for (int i = 0; i < rounds; ++i) {
        const double began = now_ns();
        work();
        const double took = now_ns() - began;
        best = i == 0 ? took : std::min(best, took);
    }
    return best;
}

class Mapping {
  public:
    explicit Mapping(int advice) {
        void *const raw = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        data_ = raw == MAP_FAILED ? nullptr : static_cast<char *>(raw);
        if (data_ != nullptr) madvise(raw, kBytes, advice);
    }
    ~Mapping() {
        if (data_ != nullptr) munmap(data_, kBytes);
    }
    Mapping(const Mapping &) = delete;
    Mapping &operator=(const Mapping &) = delete;
    char *data() const { return data_; }

  private:
    char *data_ = nullptr;
};

void touch(char *data, size_t first, size_t step) {
    for (size_t i = first; i < kPages; i += step) reinterpret_cast<volatile char *>(data)[i * kPageSize] = 1;
}

double fresh_fault_ns() {
    double best = 0;
    for (int i = 0; i < 3; ++i) {
        const Mapping fresh(MADV_NOHUGEPAGE);
        if (fresh.data() == nullptr) return 0;
        const double took = best_ns(1, [&] { touch(fresh.data(), 0, 1); });
        best = i == 0 ? took : std::min(best, took);
    }
    return best / static_cast<double>(kPages);
}

struct Tracking {
    double fault_ns = 0, scan_ns = 0;  // per page
};

// In an arena, as the engine does it: armed, every eighth page written, collected.
Tracking tracking_costs() {
    Tracking result;
    bool zeroed = false;
    void *const block = allocator_start() ? place(kBytes, kPageSize, &zeroed) : nullptr;
    if (block == nullptr) return result;
    char *const data = static_cast<char *>(block);
    memset(data, 1, kBytes);
    const AllocatorPort *const port = allocator_port();
    const AddressRange pages{reinterpret_cast<uintptr_t>(data), reinterpret_cast<uintptr_t>(data) + kBytes};
    std::vector<AddressRange> runs(kPages);
    size_t count = 0;
    if (port->guard_arm(pages) == GuardResult::kOk) {
        port->guard_collect(pages, true, runs.data(), runs.size(), &count);
        constexpr size_t kStep = 8;
        for (int i = 0; i < kRounds; ++i) {
            const double fault =
                best_ns(1, [&] { touch(data, static_cast<size_t>(i) % kStep, kStep); }) / static_cast<double>(kPages / kStep);
            const double scan =
                best_ns(1, [&] { port->guard_collect(pages, true, runs.data(), runs.size(), &count); }) / static_cast<double>(kPages);
            result.fault_ns = i == 0 ? fault : std::min(result.fault_ns, fault);
            result.scan_ns = i == 0 ? scan : std::min(result.scan_ns, scan);
        }
        port->guard_disarm(pages);
    }
    release_block(block);
    return result;
}

}  // namespace

void measure_costs(Diagnosis &diagnosis) {
    const double page = static_cast<double>(kPageSize);
    const Mapping from(MADV_HUGEPAGE), to(MADV_HUGEPAGE);
    if (from.data() == nullptr || to.data() == nullptr) {
        diagnosis.add("costs", Health::kNote, "not measured: 128 MiB cannot be mapped", "raise ulimit -v");
        return;
    }
    memset(from.data(), 1, kBytes);
    memset(to.data(), 1, kBytes);
    const double fresh = fresh_fault_ns();
    // The choice of the fastest variant settles in the first rounds.
    const double copy = best_ns(3 * kRounds, [&] { kernels::copy(to.data(), from.data(), kBytes); }) / static_cast<double>(kPages);
    std::vector<uint8_t> differs(kPages / 8);
    const double compare =
        best_ns(kRounds, [&] { kernels::compare_pages(to.data(), from.data(), kPages, differs.data()); }) / static_cast<double>(kPages);
    std::vector<size_t> order(kPages);
    for (size_t i = 0; i < kPages; ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), std::minstd_rand(1));
    order.resize(kPages / 8);
    std::sort(order.begin(), order.end());
    std::vector<kernels::CopyItem> items;
    for (const size_t i : order) items.push_back({to.data() + i * kPageSize, from.data() + i * kPageSize, kPageSize});
    const double scattered = best_ns(kRounds, [&] { kernels::copy_list(items.data(), items.size()); }) / static_cast<double>(items.size());

    diagnosis.measures.push_back({"page_fault", fresh, "ns", "first touch of a 4 KiB page"});
    diagnosis.measures.push_back(
        {"copy_rate", page / copy, "GB/s", "copying 64 MiB, one thread (" + std::string(kernels::copy_choice(kBytes).variant) + ")"});
    diagnosis.measures.push_back({"scattered_copy_rate", page / scattered, "GB/s", "copying single pages, one in eight"});
    diagnosis.measures.push_back({"compare_rate", page / compare, "GB/s", "comparing 64 MiB with its copy, page by page"});
    // A whole copy moves every byte four times: save at the forward, save the present, load, put back. Preserving what is written does the
    // same for the written pages alone, and pays to find them.
    double share = (4 * copy - compare) / (4 * scattered);
    const char *how = "by comparing";
    if (diagnosis.tracks_writes) {
        const Tracking tracking = tracking_costs();
        if (tracking.scan_ns > 0) {
            diagnosis.measures.push_back({"watched_write", tracking.fault_ns, "ns", "first write to a watched page"});
            diagnosis.measures.push_back({"scan", tracking.scan_ns, "ns", "collecting and re-arming, per page, one in eight written"});
            share = (4 * copy - 2 * tracking.scan_ns) / (4 * scattered + tracking.fault_ns);
            how = "by watching";
        }
    }
    share = std::clamp(share, 0.0, 1.0);
    diagnosis.measures.push_back(
        {"crossover", share, "share", std::string("of pages written from which on a whole copy is cheaper than finding them ") + how});
}

}  // namespace reprise::cli
