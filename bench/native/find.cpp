// From an address to its buffer among 10,000: in an arena (page map entry -> record) and among the small tensors (hash table).
//
// hot: a few addresses again and again, each lookup waiting for the one before. random: any of the 10,000. cold: caches swept before every
// batch; beside it `cold_load`, one dependent load of memory that is in no cache, over as much memory as the allocator's tables span:
// cold lookup / cold load = how many loads in a row a lookup waits for. By structure it is two in an arena (allocator/extent_table.h).
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <random>
#include <vector>

#include "allocator/allocator.h"
#include "bench/native/clock.h"

namespace {

using reprise::BlockInfo;

constexpr size_t kBlocks = 10000;
constexpr size_t kBatch = 256;
constexpr size_t kSweep = size_t{256} << 20;  // more than the caches of any machine this is run on

struct Blocks {
    std::vector<uintptr_t> inside;  // an address in each block, in random order
};

void stop(const char *what) {
    fprintf(stderr, "bench_find: %s\n", what);
    exit(1);
}

const Blocks &arena_blocks() {
    static const Blocks blocks = [] {
        Blocks made;
        std::mt19937_64 random(1);
        for (size_t i = 0; i < kBlocks; i++) {
            size_t size = (size_t{128} << 10) + random() % (256 << 10);
            void *block = reprise::place(size, 64, nullptr);
            if (block == nullptr) stop("the arena is full or could not be reserved (ulimit -v, REPRISE_ARENA)");
            made.inside.push_back(reinterpret_cast<uintptr_t>(block) + random() % size);
        }
        std::shuffle(made.inside.begin(), made.inside.end(), random);
        return made;
    }();
    return blocks;
}

const Blocks &small_blocks() {
    static const Blocks blocks = [] {
        Blocks made;
        std::mt19937_64 random(2);
        for (size_t i = 0; i < kBlocks; i++) {
            size_t size = 64 + random() % 16384;
            void *block = malloc(size);
            reprise::note_heap(block, size);
            made.inside.push_back(reinterpret_cast<uintptr_t>(block) + random() % size);
        }
        std::shuffle(made.inside.begin(), made.inside.end(), random);
        return made;
    }();
    return blocks;
}

// One lookup that cannot begin before the last one ended: the address is mixed with a zero made from the last answer.
inline uintptr_t look_up(uintptr_t address, uintptr_t last) {
    uintptr_t zero = last;
    asm volatile("and $0, %0" : "+r"(zero)::"cc");
    BlockInfo info;
    if (!reprise::allocator_port()->find(address + zero, &info)) [[unlikely]]
        stop("a live block was not found");
    return info.range.begin;
}

void warm(benchmark::State &state, const Blocks &blocks, size_t distinct) {
    uintptr_t last = 0;
    size_t i = 0;
    for (auto _ : state) {
        last = look_up(blocks.inside[i], last);
        if (++i == distinct) i = 0;
    }
    benchmark::DoNotOptimize(last);
}

void sweep_caches() {
    static char *memory = bench::map_memory(kSweep, true);
    unsigned sum = 0;
    for (size_t i = 0; i < kSweep; i += 64) sum += static_cast<unsigned char>(memory[i]++);
    benchmark::DoNotOptimize(sum);
}

void cold(benchmark::State &state, const Blocks &blocks) {
    size_t i = 0;
    for (auto _ : state) {
        sweep_caches();
        uintptr_t addresses[kBatch];
        for (uintptr_t &address : addresses) {
            address = blocks.inside[i];
            if (++i == kBlocks) i = 0;
        }
        uintptr_t last = 0;
        uint64_t began = bench::now_ns();
        for (uintptr_t address : addresses) last = look_up(address, last);
        state.SetIterationTime(static_cast<double>(bench::now_ns() - began) * 1e-9 / kBatch);
        benchmark::DoNotOptimize(last);
    }
}

// 10,000 lines, one in each 4 KiB page, linked in random order.
void cold_load(benchmark::State &state) {
    static char *memory = bench::map_memory(kBlocks * 4096, false);
    static void **start = [] {
        std::vector<size_t> order(kBlocks);
        std::iota(order.begin(), order.end(), size_t{0});
        std::shuffle(order.begin(), order.end(), std::mt19937_64(3));
        auto line = [&](size_t i) { return reinterpret_cast<void **>(memory + order[i] * 4096 + order[i] * 64 % 4096); };
        for (size_t i = 0; i < kBlocks; i++) *line(i) = line((i + 1) % kBlocks);
        return line(0);
    }();
    void **at = start;
    for (auto _ : state) {
        sweep_caches();
        uint64_t began = bench::now_ns();
        for (size_t i = 0; i < kBatch; i++) at = static_cast<void **>(*at);
        benchmark::DoNotOptimize(at);
        state.SetIterationTime(static_cast<double>(bench::now_ns() - began) * 1e-9 / kBatch);
    }
}

constexpr size_t kHot = 64;
BENCHMARK_CAPTURE(warm, arena_hot, arena_blocks(), kHot);
BENCHMARK_CAPTURE(warm, arena_random, arena_blocks(), kBlocks);
BENCHMARK_CAPTURE(warm, small_hot, small_blocks(), kHot);
BENCHMARK_CAPTURE(warm, small_random, small_blocks(), kBlocks);
BENCHMARK_CAPTURE(cold, arena_cold, arena_blocks())->UseManualTime()->Iterations(10);
BENCHMARK_CAPTURE(cold, small_cold, small_blocks())->UseManualTime()->Iterations(10);
BENCHMARK(cold_load)->UseManualTime()->Iterations(10);

}  // namespace

int main(int argc, char **argv) {
    if (!reprise::allocator_start()) stop("no address space for arenas (ulimit -v, overcommit, REPRISE_ARENA)");
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
