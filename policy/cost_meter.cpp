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
constexpr size_t kStride = 5;               // of this many pages one is written: few enough for one look to report all
constexpr size_t kRounds = 9;
constexpr size_t kTrials = 16;                         // before them: the kernels try their variants
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
    Scratch(size_t size, int protection) : memory_(mmap(nullptr, size, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)), size_(size) {}
    ~Scratch() {
        if (*this) munmap(memory_, size_);
    }
    Scratch(const Scratch &) = delete;
    Scratch &operator=(const Scratch &) = delete;
    explicit operator bool() const { return memory_ != MAP_FAILED; }
    std::byte *data() const { return static_cast<std::byte *>(memory_); }
    size_t size() const { return size_; }
    AddressRange range() const { return {reinterpret_cast<uintptr_t>(memory_), reinterpret_cast<uintptr_t>(memory_) + size_}; }

  private:
    void *memory_;
    size_t size_;
};

// Writes one byte in every kStride-th page, from `first` on.
uint64_t touch(std::byte *data, size_t first, std::byte value) {
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

// The middle of several: in the job, too, other load adds to some.
class Median {
  public:
    void add(uint64_t value) { values_.push_back(std::max<int64_t>(static_cast<int64_t>(value), 1)); }
    int64_t value() const { return middle(values_); }

  private:
    std::vector<int64_t> values_;
};

// A stretch of live memory, its image, and where the present is saved to while the image is loaded.
class Memory {
  public:
    Memory() {
        if (!*this) return;
        for (const Scratch *scratch : {&live, &image, &present}) std::memset(scratch->data(), 1, kScratch);
        if (others_) madvise(others_.data(), others_.size(), MADV_NOHUGEPAGE);
    }
    explicit operator bool() const { return live && image && present; }
    // A piece as a job finds one that it used a step ago: in no cache, and the processor knows the addresses of other pages.
    void cool(size_t at) const {
        for (const Scratch *scratch : {&live, &image, &present}) kernels::evict(scratch->data() + at, kPiece);
        if (!others_) return;
        for (size_t offset = 0; offset < others_.size(); offset += kPageSize)
            static_cast<const volatile std::byte *>(others_.data())[offset];
    }

    const Scratch live{kScratch, PROT_READ | PROT_WRITE}, image{kScratch, PROT_READ | PROT_WRITE},
        present{kScratch, PROT_READ | PROT_WRITE};

  private:
    const Scratch others_{size_t{4096} * kPageSize, PROT_READ};  // more than a processor remembers; the zero page each: no memory
};

// What it costs to save pieces of the live memory, and to load and put them back.
struct CopyCosts {
    Median save, load;
};

// A megabyte of it, as a whole copy or (`pages`) one page in kStride.
void measure_copies(const Memory &memory, size_t at, bool pages, CopyCosts &costs) {
    const size_t piece = pages ? kPageSize : kPiece, step = pages ? kStride * kPageSize : kPiece;
    std::vector<kernels::CopyItem> saves, back;
    std::vector<kernels::SwapItem> swaps;
    size_t bytes = 0;
    for (size_t offset = at; offset < at + kPiece; offset += step, bytes += piece) {
        std::byte *const live = memory.live.data() + offset, *const image = memory.image.data() + offset;
        std::byte *const present = memory.present.data() + at + bytes;  // saved in one place, as replays do
        saves.push_back({image, live, piece});
        swaps.push_back({live, present, image, piece});
        back.push_back({live, present, piece});
    }
    memory.cool(at);
    costs.save.add(ps_per_page(timed([&] {
                                   if (pages) return kernels::copy_list(saves.data(), saves.size());
                                   kernels::copy(memory.image.data() + at, memory.live.data() + at, kPiece);
                               }),
                               bytes));
    memory.cool(at);
    const uint64_t loading = timed([&] { kernels::save_and_load_list(swaps.data(), swaps.size()); });
    memory.cool(at);  // the replay lies between
    costs.load.add(ps_per_page(loading + timed([&] { kernels::copy_list(back.data(), back.size()); }), bytes));
}

void measure_comparing(const Memory &memory, size_t at, Median &cost) {
    std::memcpy(memory.image.data() + at, memory.live.data() + at, kPiece);
    memory.cool(at);
    std::array<uint8_t, kPiece / kPageSize / 8> differs{};
    cost.add(ps_per_page(
        timed([&] { kernels::compare_pages(memory.image.data() + at, memory.live.data() + at, kPiece / kPageSize, differs.data()); }),
        kPiece));
}

struct WatchCosts {
    Median write, first_write;          // of pages
    Median idle_look_ns, look_ns;       // at all of the memory, of which nothing, or one page in kStride, was written
    Median idle_piece_ns, one_page_ns;  // at a piece, of which nothing, or one page, was written

    static int64_t above(const Median &a, const Median &b) { return std::max<int64_t>(0, a.value() - b.value()); }
    int64_t look_fixed_ns() const { return std::max<int64_t>(1, above(one_page_ns, idle_piece_ns)); }
    int64_t look_ps() const { return ps_per_page(static_cast<uint64_t>(idle_look_ns.value()), kScratch); }
    int64_t fault_ps() const {
        const int64_t again = std::max<int64_t>(0, above(look_ns, idle_look_ns) - look_fixed_ns());
        return ps_per_page(static_cast<uint64_t>(above(first_write, write) + again), kScratch / kStride);
    }
};

// As captures of a shadow do: look for what was written, and watch it again. False: this memory cannot be watched.
bool measure_watching(const AllocatorPort &port, const Memory &memory, WatchCosts &costs) {
    std::byte *const data = memory.live.data();
    const AddressRange all = memory.live.range();
    if (port.guard_arm(all) != GuardResult::kOk) return false;
    std::vector<AddressRange> runs(kScratch / kPageSize);
    size_t found = 0;
    bool done = true;
    const auto look = [&](AddressRange range) {
        return timed([&] { done = port.guard_collect(range, true, runs.data(), runs.size(), &found) == GuardResult::kOk && done; });
    };
    for (size_t round = 0; round < kRounds && done; ++round) {
        const auto value = static_cast<std::byte>(round);
        costs.idle_look_ns.add(look(all));
        costs.first_write.add(touch(data, 0, value));
        costs.write.add(touch(data, 0, value));
        costs.look_ns.add(look(all));
        const AddressRange piece{all.begin, all.begin + kPiece};
        costs.idle_piece_ns.add(look(piece));
        data[0] = value;
        costs.one_page_ns.add(look(piece));
    }
    port.guard_disarm(all);
    return done;
}

}  // namespace

std::string CostMeter::cache_file() { return machine_file("costs"); }

namespace {

// Looking takes a walk over page tables, and no page is written.
bool possible(const planner::MechanismCosts &costs, bool watches) {
    for (int64_t value : {costs.copy_ps, costs.copy_load_ps, costs.compare_ps, costs.page_copy_ps, costs.page_load_ps}) {
        if (value < kLeastCost || value > kMostCost) return false;
    }
    if (!watches) return true;
    if (costs.fault_ps < kLeastCost || costs.fault_ps > kMostCost) return false;
    for (int64_t value : {costs.look_ps, costs.look_fixed_ns}) {
        if (value < 1 || value > kMostCost) return false;
    }
    return true;
}

// Numbers and the end of their line: a file that is not that is no cache. Those of watching are 0 where no page could be watched.
bool read_cache(const std::string &path, bool watches, planner::MechanismCosts &costs) {
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
    if (at != text.c_str() + text.size() - 1 || *at != '\n' || !possible(read, watches)) return false;
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

void CostMeter::copied(uint64_t bytes, uint64_t nanoseconds) {
    constexpr auto kFixed = static_cast<uint64_t>(planner::MechanismCosts{}.copy_fixed_ns);
    add(copy_, bytes, nanoseconds - std::min(nanoseconds, kFixed));
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
    measured.page_load_ps = median(page_load_, measured.page_load_ps);
    if (!watches_) measured.look_ps = measured.compare_ps, measured.look_fixed_ns = measured.fault_ps = 0;
    return measured;
}

planner::MechanismCosts CostMeter::measure(const AllocatorPort &port, bool watches, const std::string &cache) {
    planner::MechanismCosts costs;
    // A test's clock measures nothing, least of all what other processes may be told.
    if (g_clock_source.load(std::memory_order_relaxed) != nullptr || read_cache(cache, watches, costs)) return costs;
    const Memory memory;
    if (!memory) return costs;
    CopyCosts whole, pages;
    Median comparing;
    for (size_t trial = 0; trial < kTrials; ++trial) {
        CopyCosts none;
        measure_copies(memory, 0, false, none);
    }
    for (size_t round = 0; round < kRounds; ++round) {
        const size_t at = round * kPiece % kScratch;
        measure_copies(memory, at, false, whole);
        measure_copies(memory, at, true, pages);
        measure_comparing(memory, at, comparing);
    }
    costs.copy_ps = whole.save.value();
    costs.copy_load_ps = whole.load.value();
    costs.compare_ps = comparing.value();
    costs.page_copy_ps = pages.save.value();
    costs.page_load_ps = pages.load.value();
    WatchCosts watching;
    const bool watched = watches && measure_watching(port, memory, watching);
    if (watched) {
        costs.look_ps = watching.look_ps();
        costs.look_fixed_ns = watching.look_fixed_ns();
        costs.fault_ps = watching.fault_ps();
    } else if (!watches) {
        costs.look_ps = costs.look_fixed_ns = costs.fault_ps = 0;  // refine() says what stands for them
    }
    if (!possible(costs, watched))
        return {};  // a clock that stood still, or a machine that was stopped: the defaults, and another try in the next job
    // What could not be watched now although it can be here is measured again.
    if (watched == watches) write_cache(cache, costs);
    return costs;
}

}  // namespace reprise
