#include "policy/cost_meter.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

#include "allocator/base/types.h"
#include "kernels/kernels.h"
#include "policy/clock.h"
#include "policy/machine_cache.h"
#include "policy/text_file.h"

namespace reprise {
namespace {

constexpr size_t kScratch = size_t{16} << 20;
constexpr int kRounds = 5;
constexpr uint64_t kLeastBytes = uint64_t{1} << 20;  // less is mostly the fixed part
// Nothing is written faster than 1 TB/s, and what takes 0.27 ms per page was something else: beyond that no number is a measurement, and
// the planner takes none of it.
constexpr int64_t kLeastCost = 4'000, kMostCost = int64_t{1} << 28;
constexpr int kFormat = 2;

int64_t middle(std::vector<int64_t> values) {
    std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2), values.end());
    return values[values.size() / 2];
}

int64_t ps_per_page(uint64_t nanoseconds, size_t bytes) {
    return static_cast<int64_t>(nanoseconds * 1000 / std::max<size_t>(1, bytes / kPageSize));
}

class Scratch {
  public:
    Scratch() : memory_(mmap(nullptr, kScratch, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
        if (*this) std::memset(memory_, 1, kScratch);
    }
    ~Scratch() {
        if (*this) munmap(memory_, kScratch);
    }
    Scratch(const Scratch &) = delete;
    Scratch &operator=(const Scratch &) = delete;
    explicit operator bool() const { return memory_ != MAP_FAILED; }
    char *data() const { return static_cast<char *>(memory_); }
    AddressRange range() const { return {reinterpret_cast<uintptr_t>(memory_), reinterpret_cast<uintptr_t>(memory_) + kScratch}; }

  private:
    void *memory_;
};

// Writes one byte in every `stride`-th page.
uint64_t touch(char *data, size_t stride, char value) {
    const uint64_t began = now_ns();
    for (size_t page = 0; page < kScratch / kPageSize; page += stride) data[page * kPageSize] = value;
    return elapsed_ns(began);
}

}  // namespace

std::string CostMeter::cache_file() { return machine_file("costs"); }

namespace {

// Arming takes a walk over page tables, and no page is written.
bool possible(const planner::MechanismCosts &costs) {
    for (int64_t value : {costs.copy_ps, costs.delta_ps, costs.selective_load_ps}) {
        if (value < kLeastCost || value > kMostCost) return false;
    }
    return costs.arm_ps >= 1 && costs.arm_ps <= kMostCost;
}

// One line of numbers: a file that is not that is no cache.
bool read_cache(const std::string &path, planner::MechanismCosts &costs) {
    std::string text, why;
    if (path.empty() || !read_text_file(path, &text, &why)) return false;
    int format = 0;
    long long copy = 0, arm = 0, delta = 0, load = 0;
    if (sscanf(text.c_str(), "%d %lld %lld %lld %lld", &format, &copy, &arm, &delta, &load) != 5 || format != kFormat) return false;
    planner::MechanismCosts read = costs;
    read.copy_ps = copy, read.arm_ps = arm, read.delta_ps = delta, read.selective_load_ps = load;
    if (!possible(read)) return false;
    costs = read;
    return true;
}

void write_cache(const std::string &path, const planner::MechanismCosts &costs) {
    write_machine_file(path, std::to_string(kFormat) + ' ' + std::to_string(costs.copy_ps) + ' ' + std::to_string(costs.arm_ps) + ' ' +
                                 std::to_string(costs.delta_ps) + ' ' + std::to_string(costs.selective_load_ps) + '\n');
}

}  // namespace

void CostMeter::add(Samples &samples, uint64_t bytes, uint64_t nanoseconds) {
    if (bytes < kLeastBytes) return;
    const int64_t value = ps_per_page(nanoseconds, bytes);
    if (value < kLeastCost || value > kMostCost) return;  // a clock that jumped, a job that was stopped
    samples.ps_per_page[samples.count++ % kSamples] = static_cast<uint32_t>(value);
}

int64_t CostMeter::median(const Samples &samples, int64_t otherwise) {
    constexpr size_t kEnough = 5;
    if (samples.count < kEnough) return otherwise;
    const size_t count = std::min(samples.count, kSamples);
    return middle({samples.ps_per_page.begin(), samples.ps_per_page.begin() + static_cast<long>(count)});
}

planner::MechanismCosts CostMeter::refine(planner::MechanismCosts measured) const {
    measured.copy_ps = median(copy_, measured.copy_ps);
    measured.selective_load_ps = median(load_, measured.selective_load_ps);
    return measured;
}

planner::MechanismCosts CostMeter::measure(const AllocatorPort &port, const std::string &cache) {
    planner::MechanismCosts costs;
    // A test's clock measures nothing, least of all what other processes may be told.
    if (g_clock_source.load(std::memory_order_relaxed) != nullptr || read_cache(cache, costs)) return costs;
    const Scratch from, to;
    if (!from || !to) return costs;
    std::vector<int64_t> copies, arms, deltas;
    for (int round = 0; round < kRounds; ++round) {
        uint64_t began = now_ns();
        kernels::copy(to.data(), from.data(), kScratch);
        copies.push_back(ps_per_page(elapsed_ns(began), kScratch));
        // What a first write costs more than a write, and copying that page afterwards.
        constexpr size_t kStride = 8;
        const uint64_t plain = touch(to.data(), kStride, static_cast<char>(round));
        began = now_ns();
        if (port.guard_arm(to.range()) != GuardResult::kOk) continue;
        arms.push_back(ps_per_page(elapsed_ns(began), kScratch));
        const uint64_t watched = touch(to.data(), kStride, static_cast<char>(round + 1));
        deltas.push_back(ps_per_page(watched - std::min(watched, plain), kScratch / kStride));
        port.guard_disarm(to.range());
    }
    // The least of several: other load only ever adds.
    auto least = [](const std::vector<int64_t> &values) { return std::max<int64_t>(1, *std::min_element(values.begin(), values.end())); };
    costs.copy_ps = least(copies);
    if (!deltas.empty()) {
        costs.arm_ps = least(arms);
        costs.delta_ps = least(deltas) + 2 * costs.copy_ps;           // its before-image, and the shadow brought up to date
        costs.selective_load_ps = least(deltas) + 2 * costs.copy_ps;  // loading a page and putting it back writes it twice
    }
    if (!possible(costs))
        return {};  // a clock that stood still, or a machine that was stopped: the defaults, and another try in the next job
    write_cache(cache, costs);
    return costs;
}

}  // namespace reprise
