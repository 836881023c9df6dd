// Rates of every kernel variant at 1 MiB, 64 MiB and 1 GiB with one worker and with two, of the choice that the tuner makes, and of
// scattered pages. Bytes per second count what the operation moves: a save-and-load is two copies. Buffers are on huge pages and were
// touched. Without the parallel plugin beside this program ("--plugin=PATH" names another) the two-worker rows use plain threads.
#include <benchmark/benchmark.h>
#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/tuner.h"
#include "kernels/variants.h"

namespace {

using namespace reprise::kernels;
using detail::Kind;

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kLargest = 1024 * kMiB;

char *map(size_t size) {
    constexpr size_t huge = 2 * kMiB;
    void *block = mmap(nullptr, size + huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) {
        std::perror("kernels_bench: cannot map its buffers (3 GiB of memory are needed)");
        std::exit(1);
    }
    char *start = static_cast<char *>(block) + (-reinterpret_cast<uintptr_t>(block) & (huge - 1));
    madvise(start, size, MADV_HUGEPAGE);
    memset(start, 1, size);
    return start;
}

struct Buffers {
    char *a = map(kLargest), *b = map(kLargest), *c = map(kLargest);
};
Buffers &buffers() {
    static Buffers mapped;
    return mapped;
}

ParallelFor g_parallel = nullptr;
unsigned g_workers = 1;

void run_threads(size_t count, void (*body)(void *, size_t), void *context) {
    std::atomic<size_t> next{0};
    auto work = [&] {
        for (size_t i = next++; i < count; i = next++) body(context, i);
    };
    std::thread other(work);
    work();
    other.join();
}

void use_workers(bool parallel) {
    if (parallel)
        set_parallel(g_parallel, g_workers);
    else
        set_parallel(nullptr, 1);
}

template <class Run>
void measure(benchmark::State &state, size_t bytes, Run run) {
    run();
    for (auto _ : state) run();
    state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * bytes));
}

std::vector<size_t> scattered_pages(size_t count) {
    std::vector<size_t> pages(kLargest / 4096);
    for (size_t i = 0; i < pages.size(); i++) pages[i] = i;
    std::shuffle(pages.begin(), pages.end(), std::mt19937_64(1));
    pages.resize(count);
    return pages;
}

std::vector<CopyItem> scattered_copies(size_t count, bool sorted) {
    auto pages = scattered_pages(count);
    if (sorted) std::sort(pages.begin(), pages.end());
    std::vector<CopyItem> items;
    size_t dense = 0;
    for (size_t page : pages) items.push_back({buffers().b + 4096 * dense++, buffers().a + 4096 * page, 4096});
    return items;
}

std::vector<SwapItem> scattered_swaps(size_t count) {
    auto pages = scattered_pages(count);
    std::sort(pages.begin(), pages.end());
    std::vector<SwapItem> items;
    size_t dense = 0;
    for (size_t page : pages) {
        items.push_back({buffers().a + 4096 * page, buffers().b + 4096 * dense, buffers().c + 4096 * dense, 4096});
        dense++;
    }
    return items;
}

constexpr size_t kScatteredPages = 26214;  // 10 % of the largest buffer

// What one operation does with `size` bytes, for every kind.
void run_operation(Kind kind, size_t size, std::vector<uint8_t> &bits, std::vector<uint64_t> &digests) {
    Buffers &m = buffers();
    switch (kind) {
        case Kind::copy:
            copy(m.b, m.a, size);
            break;
        case Kind::swap: {
            SwapItem item{m.a, m.b, m.c, size};
            save_and_load_list(&item, 1);
            break;
        }
        case Kind::equal:
            benchmark::DoNotOptimize(compare_pages(m.a, m.b, size / 4096, bits.data()));
            break;
        case Kind::digest:
            digest_pages(m.a, size / 4096, digests.data());
            break;
        case Kind::merge:
            benchmark::DoNotOptimize(merge_elements(m.a, m.b, m.c, size, 4));
            break;
        case Kind::count:
            break;
    }
}

const char *kind_name(Kind kind) {
    constexpr const char *names[] = {"copy", "save_and_load", "compare_pages", "digest_pages", "merge4"};
    return names[static_cast<unsigned>(kind)];
}

void add_rows(Kind kind, const char *variant_name, int variant, bool parallel) {
    for (size_t size : {kMiB, 64 * kMiB, kLargest}) {
        if (parallel && variant >= 0 && size < detail::kTrialBytes / 8) continue;  // too short to be split
        std::string name = std::string(kind_name(kind)) + "/" + variant_name + "/" + std::to_string(size / kMiB) +
                           "MiB/workers:" + std::to_string(parallel ? g_workers : 1);
        benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State &state) {
            Buffers &m = buffers();
            if (kind == Kind::equal || kind == Kind::merge) memcpy(m.b, m.a, size), memcpy(m.c, m.a, size);
            std::vector<uint8_t> bits(size / 4096 / 8 + 1);
            std::vector<uint64_t> digests(size / 4096);
            use_workers(parallel);
            if (variant >= 0)
                detail::force(kind, static_cast<unsigned>(variant), parallel);
            else  // let it settle
                for (int i = 0; i < (size < 64 * kMiB ? 100 : 8); i++) run_operation(kind, size, bits, digests);
            measure(state, kind == Kind::swap ? 2 * size : size, [&] { run_operation(kind, size, bits, digests); });
            if (variant < 0 && kind == Kind::copy) {
                CopyChoice choice = copy_choice(size);
                state.SetLabel(std::string(choice.variant) + (choice.parallel ? " parallel" : " alone") +
                               (choice.settled ? "" : " (open)"));
            }
            detail::unforce(kind);
            use_workers(false);
        })->UseRealTime();
    }
}

template <class Function>
void add_variants(Kind kind, detail::Variants<Function> variants) {
    for (bool parallel : {false, true}) {
        if (parallel && g_workers < 2) continue;
        for (unsigned i = 0; i < variants.count; i++)
            if (detail::has(variants.entries[i].needs)) add_rows(kind, variants.entries[i].name, static_cast<int>(i), parallel);
        add_rows(kind, "tuned", -1, parallel);
    }
}

// Lists of single pages, every variant.
void add_scattered() {
    for (bool parallel : {false, true}) {
        if (parallel && g_workers < 2) continue;
        std::string workers = "/workers:" + std::to_string(parallel ? g_workers : 1);
        for (bool sorted : {true, false}) {
            auto variants = detail::copy_variants();
            for (unsigned i = 0; i < variants.count; i++) {
                if (!detail::has(variants.entries[i].needs)) continue;
                std::string name =
                    std::string("copy_list/") + (sorted ? "sorted_pages/" : "random_pages/") + variants.entries[i].name + workers;
                benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State &state) {
                    auto items = scattered_copies(kScatteredPages, sorted);
                    use_workers(parallel);
                    detail::force(Kind::copy, i, parallel);
                    measure(state, 4096 * items.size(), [&] { copy_list(items.data(), items.size()); });
                    detail::unforce(Kind::copy);
                    use_workers(false);
                })->UseRealTime();
            }
        }
        auto variants = detail::swap_variants();
        for (unsigned i = 0; i < variants.count; i++) {
            if (!detail::has(variants.entries[i].needs)) continue;
            std::string name = std::string("save_and_load_list/sorted_pages/") + variants.entries[i].name + workers;
            benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State &state) {
                auto items = scattered_swaps(kScatteredPages);
                use_workers(parallel);
                detail::force(Kind::swap, i, parallel);
                measure(state, 2 * 4096 * items.size(), [&] { save_and_load_list(items.data(), items.size()); });
                detail::unforce(Kind::swap);
                use_workers(false);
            })->UseRealTime();
        }
    }
}

void open_plugin(const char *path) {
    using Open = int (*)(unsigned, ParallelFor *, unsigned *);
    g_parallel = run_threads;
    g_workers = std::thread::hardware_concurrency() > 1 ? 2 : 1;
    void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    auto open = plugin ? reinterpret_cast<Open>(dlsym(plugin, "reprise_parallel_open")) : nullptr;
    ParallelFor run = nullptr;
    unsigned workers = 0;
    if (open != nullptr && open(2, &run, &workers) == 0) g_parallel = run, g_workers = workers;
}

}  // namespace

int main(int argc, char **argv) {
    std::string path = argv[0];
    path = path.substr(0, path.find_last_of('/') + 1) + "libreprise_parallel.so";
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--plugin=", 9) != 0) continue;
        path = argv[i] + 9;
        for (int k = i; k + 1 < argc; k++) argv[k] = argv[k + 1];
        argc--, i--;
    }
    open_plugin(path.c_str());
    add_variants(Kind::copy, detail::copy_variants());
    add_variants(Kind::swap, detail::swap_variants());
    add_variants(Kind::equal, detail::equal_variants());
    add_variants(Kind::merge, detail::merge_variants());
    for (bool parallel : {false, true})
        if (!parallel || g_workers > 1) add_rows(Kind::digest, "tuned", -1, parallel);
    add_scattered();
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
    return 0;
}
