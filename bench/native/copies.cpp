// The yardstick: what copying costs on this machine with the very kernel and threads that the engine uses (the plugin is opened as the
// engine opens it). Reads commands from standard input and answers each with one line of JSON:
//
//   copies BYTES      four copies of BYTES, as record, save, load and put-back would make them: nanoseconds of each
//   capabilities      what the page guard can do here, and which copy was chosen
//
//   bench_copies --bytes=N     the largest copy
//
// Copies smaller than that wander through the memory, so that none finds its bytes in a cache.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "allocator/allocator.h"
#include "bench/native/clock.h"
#include "kernels/kernels.h"
#include "policy/parallel_plugin.h"

namespace {

using namespace reprise;

void capabilities(size_t size, unsigned workers) {
    GuardCapabilities guard;
    if (allocator_start()) {
        allocator_port()->guard_probe(&guard);
    } else {
        snprintf(guard.reason, sizeof guard.reason, "no address space for arenas");
    }
    kernels::CopyChoice choice = kernels::copy_choice(size);
    for (char *c = guard.reason; *c != 0; c++) {
        if (*c == '"' || *c == '\\') *c = '\'';
    }
    printf(
        "{\"wp_async\": %s, \"kernel_writes_seen\": %s, \"hole_seen\": %s, \"reason\": \"%s\", \"workers\": %u, \"copy\": \"%s\", "
        "\"copy_parallel\": %s, \"copy_settled\": %s}\n",
        guard.write_protect_async ? "true" : "false", guard.kernel_writes_seen ? "true" : "false", guard.hole_seen ? "true" : "false",
        guard.reason, workers, choice.variant, choice.parallel ? "true" : "false", choice.settled ? "true" : "false");
}

struct Memory {
    char *live, *image, *present;
};

void four_copies(const Memory &m, size_t offset, size_t size, uint64_t (&times)[4]) {
    char *live = m.live + offset, *image = m.image + offset, *present = m.present + offset;
    struct {
        char *to, *from;
    } const copies[4] = {{image, live}, {present, live}, {live, image}, {live, present}};
    for (int i = 0; i < 4; i++) {
        uint64_t began = bench::now_ns();
        kernels::copy(copies[i].to, copies[i].from, size);
        times[i] = bench::now_ns() - began;
    }
}

}  // namespace

int main(int argc, char **argv) {
    size_t size = size_t{1} << 30;
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--bytes=", 8) == 0) {
            size = strtoull(argv[i] + 8, nullptr, 10);
        } else {
            fprintf(stderr, "usage: bench_copies [--bytes=N]\n");
            return 2;
        }
    }
    unsigned workers = open_parallel_plugin();
    Memory memory{bench::map_memory(size, true), bench::map_memory(size, true), bench::map_memory(size, true)};
    uint64_t times[4];
    for (int i = 0; i < 16 && !kernels::copy_choice(size).settled; i++) four_copies(memory, 0, size, times);
    setvbuf(stdout, nullptr, _IOLBF, 0);
    printf("{\"ready\": true}\n");

    size_t offset = 0;
    char line[256];
    while (fgets(line, sizeof line, stdin) != nullptr) {
        unsigned long long bytes = 0;
        if (sscanf(line, "copies %llu", &bytes) == 1 && bytes > 0 && bytes <= size) {
            if (offset + bytes > size) offset = 0;
            four_copies(memory, offset, bytes, times);
            offset += (bytes + 4095) & ~4095ull;
            printf("{\"copies\": [%llu, %llu, %llu, %llu]}\n", static_cast<unsigned long long>(times[0]),
                   static_cast<unsigned long long>(times[1]), static_cast<unsigned long long>(times[2]),
                   static_cast<unsigned long long>(times[3]));
        } else if (strncmp(line, "capabilities", 12) == 0) {
            capabilities(size, workers);
        } else {
            fprintf(stderr, "bench_copies: not a command: %s", line);
            return 2;
        }
    }
    return 0;
}
