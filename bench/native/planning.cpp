// A job of many short segments, made for the preload: what does measuring, and following a plan, add to each? Its settings (REPRISE_POLICY,
// REPRISE_BUDGET) come from the environment. Reads commands from standard input and answers each with one line of JSON, so that several
// such processes can take turns:
//
//   cycles COUNT     so many steps: all forwards, their replays youngest first, a step; nanoseconds of each, without the job's own writes
//
//   bench_planning [--segments=N]
//
// Every replay checks that it saw the forward's words.
#include <reprise/reprise.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "bench/native/clock.h"

namespace {

using bench::now_ns;

constexpr size_t kSmall = 16 << 10, kLarge = 1 << 20;

[[noreturn]] void fail(const char *what) {
    fprintf(stderr, "bench_planning: %s: %s\n", what, reprise_last_error());
    exit(1);
}

// Each segment reads a small buffer of its own, which changes whole after its forward, and a large one of all, of which a page does.
class Job {
  public:
    explicit Job(size_t segments) : names_(segments), small_(segments), saw_(segments), instances_(segments) {
        large_ = track(kLarge, "large");
        for (size_t i = 0; i < segments; ++i) {
            names_[i] = "segment " + std::to_string(i);
            small_[i] = track(kSmall, ("small " + std::to_string(i)).c_str());
        }
    }

    uint64_t cycle() {
        uint64_t spent = 0;
        for (size_t i = 0; i < names_.size(); ++i) {
            const uint64_t began = now_ns();
            const reprise_segment segment = reprise_segment_begin(names_[i].c_str(), 0);
            if (segment.status != REPRISE_OK || segment.action == REPRISE_RETAIN) fail("the forward");
            saw_[i] = *word(i);
            if (reprise_segment_end(segment) != REPRISE_OK) fail("the end of the forward");
            spent += now_ns() - began;
            instances_[i] = segment.instance;
            memset(small_[i], static_cast<int>(++value_ & 0xff), kSmall);
            memset(large_ + i % (kLarge / 4096) * 4096, static_cast<int>(value_ & 0xff), 4096);
        }
        for (size_t i = names_.size(); i-- > 0;) {
            const uint64_t began = now_ns();
            const reprise_segment again = reprise_segment_begin(names_[i].c_str(), instances_[i]);
            if (again.status != REPRISE_OK || *word(i) != saw_[i]) fail("the replay");
            if (reprise_segment_end(again) != REPRISE_OK) fail("the end of the replay");
            if (reprise_release(instances_[i]) != REPRISE_OK) fail("the release");
            spent += now_ns() - began;
        }
        const uint64_t began = now_ns();
        if (reprise_step() != REPRISE_OK) fail("the step");
        return spent + now_ns() - began;
    }

  private:
    static char *track(size_t size, const char *name) {
        auto *made = static_cast<char *>(aligned_alloc(4096, size));
        if (made == nullptr) fail("allocating");
        memset(made, 1, size);
        if (reprise_track(made, size, name, 0) != REPRISE_OK) fail("tracking");
        return made;
    }
    const uint64_t *word(size_t i) const { return reinterpret_cast<const uint64_t *>(small_[i]); }

    std::vector<std::string> names_;
    std::vector<char *> small_;
    char *large_ = nullptr;
    std::vector<uint64_t> saw_, instances_;
    uint64_t value_ = 1;
};

}  // namespace

int main(int argc, char **argv) {
    size_t segments = 24;
    for (int i = 1; i < argc; ++i) {
        if (strncmp(argv[i], "--segments=", 11) != 0 || (segments = strtoull(argv[i] + 11, nullptr, 10)) == 0) {
            fprintf(stderr, "usage: bench_planning [--segments=N]\n");
            return 2;
        }
    }
    Job job(segments);
    printf("{\"ready\": true}\n");
    fflush(stdout);
    char line[256];
    while (fgets(line, sizeof line, stdin) != nullptr) {
        unsigned long count = 0;
        if (sscanf(line, "cycles %lu", &count) != 1 || count == 0) {
            fprintf(stderr, "bench_planning: not a command: %s", line);
            return 2;
        }
        printf("{\"segments\": %zu, \"ns\": [", segments);
        for (unsigned long i = 0; i < count; ++i) printf("%s%llu", i == 0 ? "" : ", ", static_cast<unsigned long long>(job.cycle()));
        printf("]}\n");
        fflush(stdout);
    }
    return 0;
}
