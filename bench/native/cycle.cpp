// A job with one large buffer, made for the preload: its settings (REPRISE_POLICY, REPRISE_DIRTY) come from the environment, as any job's
// do. Reads commands from standard input and answers each with one line of JSON, so that several such processes can take turns:
//
//   window FRACTION SEED     one forward, writes to that share of the pages, one replay, release; times of each part
//   versions COUNT FRACTION SEED   COUNT forwards with writes after each, then their replays, youngest first; memory held
//
//   bench_cycle --bytes=N [--unprotected]
//
// Every window checks that the replay saw the old words and that the new ones are back afterwards: what is fast must be right too.
// --unprotected: under REPRISE_POLICY=off, where no replay can see old bytes (the same writes on memory that is not armed).
#include <reprise/reprise.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "bench/native/clock.h"
#include "bench/native/pages.h"

namespace {

using bench::now_ns;

bool g_protected = true;

[[noreturn]] void fail(const char *what) {
    fprintf(stderr, "bench_cycle: %s: %s\n", what, reprise_last_error());
    exit(1);
}

void require(bool good, const char *what) {
    if (!good) fail(what);
}

reprise_segment forward() {
    reprise_segment segment = reprise_segment_begin("cycle", 0);
    if (segment.status != REPRISE_OK || reprise_segment_end(segment) != REPRISE_OK) fail("the forward");
    return segment;
}

void window(bench::PageWriter &writer) {
    uint64_t t0 = now_ns();
    reprise_segment segment = forward();
    uint64_t t1 = now_ns();
    uint64_t write = writer.write();
    uint64_t t2 = now_ns();
    reprise_segment again = reprise_segment_begin("cycle", segment.instance);
    uint64_t t3 = now_ns();
    require(again.status == REPRISE_OK, "the replay");
    require(!g_protected || writer.check_old(), "the replay did not see the forward's bytes");
    uint64_t t4 = now_ns();
    reprise_status ended = reprise_segment_end(again);
    uint64_t t5 = now_ns();
    require(ended == REPRISE_OK, "the end of the replay");
    require(writer.check_new(), "the present bytes are not back");
    uint64_t t6 = now_ns();
    reprise_status released = reprise_release(segment.instance);
    uint64_t t7 = now_ns();
    require(released == REPRISE_OK, "the release");
    printf("{\"forward\": %llu, \"write\": %llu, \"load\": %llu, \"put_back\": %llu, \"release\": %llu, \"pages\": %zu}\n",
           static_cast<unsigned long long>(t1 - t0), static_cast<unsigned long long>(write), static_cast<unsigned long long>(t3 - t2),
           static_cast<unsigned long long>(t5 - t4), static_cast<unsigned long long>(t7 - t6), writer.count());
}

size_t peak_resident() {
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    unsigned long kib = 0;
    while (file != nullptr && fgets(line, sizeof line, file) != nullptr) {
        if (sscanf(line, "VmHWM: %lu kB", &kib) == 1) break;
    }
    if (file != nullptr) fclose(file);
    return kib * 1024;
}

constexpr int kMostVersions = 16;

// Prints the bytes that Reprise held at most, and the parts of what it may hold, counted here.
void versions(bench::PageWriter &writer, int count, double fraction, uint64_t seed, size_t size) {
    reprise_segment segments[kMostVersions];
    size_t dirty = 0;
    writer.forget();
    for (int i = 0; i < count; i++) {
        writer.choose(fraction, seed + static_cast<uint64_t>(i));
        segments[i] = forward();
        writer.write();
        dirty += writer.count();
    }
    for (int i = count; i-- > 0;) {
        reprise_segment again = reprise_segment_begin("cycle", segments[i].instance);
        require(again.status == REPRISE_OK, "the replay");
        if (i == count - 1) require(!g_protected || writer.check_old(), "the replay did not see the forward's bytes");
        require(reprise_segment_end(again) == REPRISE_OK, "the end of the replay");
        require(writer.check_new(), "the present bytes are not back");
    }
    for (int i = 0; i < count; i++) require(reprise_release(segments[i].instance) == REPRISE_OK, "the release");
    reprise_statistics statistics;
    memset(&statistics, 0, sizeof statistics);
    statistics.struct_size = sizeof statistics;
    if (g_protected && reprise_stats(&statistics) != REPRISE_OK) fail("the statistics");
    printf("{\"held_peak\": %llu, \"buffer\": %zu, \"dirty_per_version\": %zu, \"changed\": %zu, \"resident_peak\": %zu}\n",
           static_cast<unsigned long long>(statistics.bytes_held_peak), size, dirty * 4096, writer.distinct() * 4096, peak_resident());
}

}  // namespace

int main(int argc, char **argv) {
    size_t size = size_t{1} << 30;
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--bytes=", 8) == 0) {
            size = strtoull(argv[i] + 8, nullptr, 10) & ~(size_t{2 << 20} - 1);
        } else if (strcmp(argv[i], "--unprotected") == 0) {
            g_protected = false;
        } else {
            fprintf(stderr, "usage: bench_cycle [--bytes=N] [--unprotected]\n");
            return 2;
        }
    }
    auto *buffer = static_cast<char *>(malloc(size));
    if (buffer == nullptr || size == 0) {
        fprintf(stderr, "bench_cycle: no memory for a buffer of %zu bytes\n", size);
        return 3;
    }
    memset(buffer, 1, size);
    if (g_protected && reprise_track(buffer, size, "state", 0) != REPRISE_OK) fail("tracking the buffer");
    bench::PageWriter writer(buffer, size);
    setvbuf(stdout, nullptr, _IOLBF, 0);
    printf("{\"ready\": true}\n");

    char line[256];
    while (fgets(line, sizeof line, stdin) != nullptr) {
        double fraction = 0;
        unsigned long long seed = 0;
        int count = 0;
        if (sscanf(line, "window %lf %llu", &fraction, &seed) == 2 && fraction >= 0 && fraction <= 1) {
            writer.choose(fraction, seed);
            window(writer);
        } else if (sscanf(line, "versions %d %lf %llu", &count, &fraction, &seed) == 3 && count > 0 && count <= kMostVersions &&
                   fraction >= 0 && fraction <= 1) {
            versions(writer, count, fraction, seed, size);
        } else {
            fprintf(stderr, "bench_cycle: not a command: %s", line);
            return 2;
        }
    }
    return 0;
}
