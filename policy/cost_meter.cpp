#include "policy/cost_meter.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "allocator/base/types.h"
#include "kernels/kernels.h"
#include "policy/clock.h"
#include "policy/machine_cache.h"
#include "policy/text_file.h"

namespace reprise {
namespace {

constexpr size_t kScratch = size_t{4} << 20;
constexpr size_t kPiece = size_t{1} << 20;  // what a copy is of: a typical buffer
constexpr size_t kStride = 4;               // of this many pages one is written
constexpr int kRounds = 5;
constexpr uint64_t kLeastBytes = uint64_t{256} << 10;  // less is mostly the fixed part
// Nothing is written faster than 1 TB/s, and what takes 0.27 ms per page was something else: beyond that no number is a measurement, and
// the planner takes none of it.
constexpr int64_t kLeastCost = 4'000, kMostCost = int64_t{1} << 28;
constexpr int kFormat = 3;

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

// Writes one byte in every kStride-th page, from `first` on.
uint64_t touch(char *data, size_t first, char value) {
    const uint64_t began = now_ns();
    for (size_t page = first; page < kScratch / kPageSize; page += kStride) data[page * kPageSize] = value;
    return elapsed_ns(began);
}

template <class Fn>
uint64_t timed(Fn fn) {
    const uint64_t began = now_ns();
    fn();
    return elapsed_ns(began);
}

// The least of several: other load only ever adds.
class Least {
  public:
    void add(uint64_t value) { value_ = std::min(value_, std::max<int64_t>(static_cast<int64_t>(value), 1)); }
    int64_t value() const { return value_; }

  private:
    int64_t value_ = INT64_MAX;
};

// A stretch of live memory, its image, and where the present is saved to while the image is loaded.
struct Memory {
    Scratch live, image, present;
    explicit operator bool() const { return live && image && present; }
    // As a job finds them that used them a step ago.
    void cool() const {
        for (const Scratch *scratch : {&live, &image, &present}) kernels::evict(scratch->data(), kScratch);
    }
};

// What it costs to save `pieces` of the live memory, and to load and put them back.
struct CopyCosts {
    Least save, load;
    void measure(const Memory &memory, const std::vector<kernels::CopyItem> &saves, const std::vector<kernels::SwapItem> &swaps) {
        std::vector<kernels::CopyItem> back;
        size_t bytes = 0;
        for (const kernels::SwapItem &swap : swaps) back.push_back({swap.live, swap.save_to, swap.size}), bytes += swap.size;
        memory.cool();
        save.add(ps_per_page(timed([&] { kernels::copy_list(saves.data(), saves.size()); }), bytes));
        memory.cool();
        const uint64_t loading = timed([&] { kernels::save_and_load_list(swaps.data(), swaps.size()); });
        memory.cool();  // the replay lies between
        load.add(ps_per_page(loading + timed([&] { kernels::copy_list(back.data(), back.size()); }), bytes));
    }
};

// The live memory in pieces of so many bytes, one in `stride`; the present is saved in one place, as replays do.
void measure_copies(const Memory &memory, size_t piece, size_t stride, CopyCosts &costs) {
    std::vector<kernels::CopyItem> saves;
    std::vector<kernels::SwapItem> swaps;
    for (size_t offset = 0, saved = 0; offset < kScratch; offset += stride * piece, saved += piece) {
        saves.push_back({memory.image.data() + offset, memory.live.data() + offset, piece});
        swaps.push_back({memory.live.data() + offset, memory.present.data() + saved, memory.image.data() + offset, piece});
    }
    costs.measure(memory, saves, swaps);
}

struct WatchCosts {
    Least fault, at_once_ns, in_pieces_ns;  // looking at all of the memory
    static constexpr int64_t kPieces = kScratch / kPiece;
    int64_t look_fixed_ns() const { return std::max<int64_t>(1, (in_pieces_ns.value() - at_once_ns.value()) / (kPieces - 1)); }
    int64_t look() const { return std::max<int64_t>(1, ps_per_page(std::max<int64_t>(0, at_once_ns.value() - look_fixed_ns()), kScratch)); }
};

// As captures of a shadow do: look for what was written, and watch it again. False: this memory cannot be watched.
bool measure_watching(const AllocatorPort &port, const Memory &memory, WatchCosts &costs) {
    char *const data = memory.live.data();
    const AddressRange all = memory.live.range();
    if (port.guard_arm(all) != GuardResult::kOk) return false;
    std::vector<AddressRange> runs(kScratch / kPageSize);
    size_t found = 0;
    bool done = true;
    const auto look = [&](AddressRange range) {
        return timed([&] { done = port.guard_collect(range, true, runs.data(), runs.size(), &found) == GuardResult::kOk && done; });
    };
    for (int round = 0; round < kRounds && done; ++round) {
        const auto value = static_cast<char>(round);
        const uint64_t watched = touch(data, 0, value), plain = touch(data, 0, value);
        costs.fault.add(ps_per_page(watched - std::min(watched, plain), kScratch / kStride));
        costs.at_once_ns.add(look(all));
        touch(data, 1, value);
        uint64_t in_pieces = 0;
        for (uintptr_t at = all.begin; at < all.end; at += kPiece) in_pieces += look({at, at + kPiece});
        costs.in_pieces_ns.add(in_pieces);
    }
    port.guard_disarm(all);
    return done;
}

}  // namespace

std::string CostMeter::cache_file() { return machine_file("costs"); }

namespace {

// Looking takes a walk over page tables, and no page is written.
bool possible(const planner::MechanismCosts &costs) {
    for (int64_t value : {costs.copy_ps, costs.copy_load_ps, costs.delta_ps, costs.page_copy_ps, costs.selective_load_ps}) {
        if (value < kLeastCost || value > kMostCost) return false;
    }
    for (int64_t value : {costs.arm_ps, costs.arm_fixed_ns}) {
        if (value < 1 || value > kMostCost) return false;
    }
    return true;
}

// One line of numbers: a file that is not that is no cache.
bool read_cache(const std::string &path, planner::MechanismCosts &costs) {
    std::string text, why;
    if (path.empty() || !read_text_file(path, &text, &why)) return false;
    planner::MechanismCosts read = costs;
    const char *at = text.c_str();
    const auto number = [&at](int64_t &value) {
        char *end = nullptr;
        value = strtoll(at, &end, 10);
        const bool found = end != at;
        at = end;
        return found;
    };
    int64_t format = 0;
    if (!number(format) || format != kFormat) return false;
    for (int64_t planner::MechanismCosts::*cost : planner::kMeasuredCosts) {
        if (!number(read.*cost)) return false;
    }
    if (!possible(read)) return false;
    costs = read;
    return true;
}

void write_cache(const std::string &path, const planner::MechanismCosts &costs) {
    std::string line = std::to_string(kFormat);
    for (int64_t planner::MechanismCosts::*cost : planner::kMeasuredCosts) line += ' ' + std::to_string(costs.*cost);
    write_machine_file(path, line + '\n');
}

}  // namespace

void CostMeter::add(Samples &samples, uint64_t bytes, uint64_t nanoseconds) {
    if (bytes < kLeastBytes) return;
    const int64_t value = ps_per_page(nanoseconds, bytes);
    if (value < kLeastCost || value > kMostCost) return;  // a clock that jumped, a job that was stopped
    samples.ps_per_page[samples.count++ % kSamples] = static_cast<uint32_t>(value);
}

void CostMeter::loaded(LoadedBytes bytes, uint64_t nanoseconds) {
    const uint64_t all = bytes.copies + bytes.pages + bytes.other;
    const auto nearly_all = [all](uint64_t part) { return part >= all - all / 8; };
    if (nearly_all(bytes.copies)) add(copy_load_, all, nanoseconds * 3 / 2);
    if (nearly_all(bytes.pages)) add(page_load_, all, nanoseconds * 3 / 2);
}

int64_t CostMeter::median(const Samples &samples, int64_t otherwise) {
    constexpr size_t kEnough = 5;
    if (samples.count < kEnough) return otherwise;
    const size_t count = std::min(samples.count, kSamples);
    return middle({samples.ps_per_page.begin(), samples.ps_per_page.begin() + static_cast<long>(count)});
}

planner::MechanismCosts CostMeter::refine(planner::MechanismCosts measured) const {
    measured.copy_ps = median(copy_, measured.copy_ps);
    measured.copy_load_ps = median(copy_load_, measured.copy_load_ps);
    measured.selective_load_ps = median(page_load_, measured.selective_load_ps);
    return measured;
}

planner::MechanismCosts CostMeter::measure(const AllocatorPort &port, const std::string &cache) {
    planner::MechanismCosts costs;
    // A test's clock measures nothing, least of all what other processes may be told.
    if (g_clock_source.load(std::memory_order_relaxed) != nullptr || read_cache(cache, costs)) return costs;
    const Memory memory;
    if (!memory) return costs;
    CopyCosts whole, pages;
    for (int round = 0; round < kRounds; ++round) {
        measure_copies(memory, kPiece, 1, whole);
        measure_copies(memory, kPageSize, kStride, pages);
    }
    costs.copy_ps = whole.save.value();
    costs.copy_load_ps = whole.load.value();
    costs.page_copy_ps = pages.save.value();
    costs.selective_load_ps = pages.load.value();
    WatchCosts watching;
    if (measure_watching(port, memory, watching)) {
        costs.delta_ps = watching.fault.value();
        costs.arm_ps = watching.look();
        costs.arm_fixed_ns = watching.look_fixed_ns();
    }
    if (!possible(costs))
        return {};  // a clock that stood still, or a machine that was stopped: the defaults, and another try in the next job
    write_cache(cache, costs);
    return costs;
}

}  // namespace reprise
