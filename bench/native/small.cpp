// A forward and its replay through the C API, on a segment whose scope is 50 small declared buffers (64 KiB in all), all changed in
// between. Run under the preload (or alone: the library is linked). Timed by hand: the job's own writes are not counted.
#include <benchmark/benchmark.h>
#include <reprise/reprise.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "bench/native/clock.h"

namespace {

constexpr size_t kBuffers = 50;
constexpr size_t kBytes = 64 << 10;
constexpr size_t kEach = kBytes / kBuffers / 8 * 8;

void fail(benchmark::State &state, const char *what) {
    std::string text = std::string(what) + ": " + reprise_last_error();
    fprintf(stderr, "bench_small: %s\n", text.c_str());
    state.SkipWithError(text.c_str());
}

void forward_and_replay(benchmark::State &state, bool changed) {
    std::vector<char *> buffers;
    for (size_t i = 0; i < kBuffers; i++) {
        buffers.push_back(static_cast<char *>(calloc(1, kEach)));
        std::string name = "buffer" + std::to_string(i);
        if (reprise_track(buffers.back(), kEach, name.c_str(), 0) != REPRISE_OK) return fail(state, "tracking");
    }
    unsigned char value = 0;
    for (auto _ : state) {
        uint64_t began = bench::now_ns();
        reprise_segment segment = reprise_segment_begin("small", 0);
        reprise_status ended = reprise_segment_end(segment);
        uint64_t spent = bench::now_ns() - began;
        if (segment.status != REPRISE_OK || ended != REPRISE_OK) return fail(state, "the forward");
        unsigned char before = value;
        if (changed) {
            ++value;
            for (char *buffer : buffers) memset(buffer, value, kEach);
        }
        began = bench::now_ns();
        reprise_segment again = reprise_segment_begin("small", segment.instance);
        spent += bench::now_ns() - began;
        if (again.status != REPRISE_OK) return fail(state, "the replay");
        if (static_cast<unsigned char>(buffers[kBuffers - 1][kEach - 1]) != before) return fail(state, "the replay saw the wrong bytes");
        began = bench::now_ns();
        ended = reprise_segment_end(again);
        spent += bench::now_ns() - began;
        if (ended != REPRISE_OK) return fail(state, "the end of the replay");
        if (static_cast<unsigned char>(buffers[0][0]) != value) return fail(state, "the present bytes are not back");
        state.SetIterationTime(static_cast<double>(spent) * 1e-9);
    }
    for (char *buffer : buffers) {
        if (reprise_untrack(buffer) != REPRISE_OK) return fail(state, "untracking");
        free(buffer);
    }
}

void all_changed(benchmark::State &state) { forward_and_replay(state, true); }
void nothing_changed(benchmark::State &state) { forward_and_replay(state, false); }
BENCHMARK(all_changed)->UseManualTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(nothing_changed)->UseManualTime()->Unit(benchmark::kMicrosecond);

}  // namespace

BENCHMARK_MAIN();
