// How long programs take to start and end: runs a command many times, by turns without and with a library preloaded, and prints one JSON
// object with the nanoseconds of each. A program of its own, because a script's own process handling costs more than what is measured.
//
//   bench_start --library=PATH --pairs=N -- COMMAND ARGUMENTS...
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "bench/native/clock.h"

namespace {

uint64_t run(char **command, char **environment, const posix_spawn_file_actions_t *actions) {
    uint64_t began = bench::now_ns();
    pid_t child;
    int error = posix_spawnp(&child, command[0], actions, nullptr, command, environment);
    if (error != 0) {
        fprintf(stderr, "bench_start: cannot run %s: %s\n", command[0], strerror(error));
        exit(2);
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0) {
    }
    uint64_t took = bench::now_ns() - began;
    if (status != 0) {
        fprintf(stderr, "bench_start: %s ended with status %#x\n", command[0], static_cast<unsigned>(status));
        exit(1);
    }
    return took;
}

void print(const char *name, const std::vector<uint64_t> &times, const char *end) {
    printf("\"%s\": [", name);
    for (size_t i = 0; i < times.size(); i++) printf("%s%llu", i != 0 ? ", " : "", static_cast<unsigned long long>(times[i]));
    printf("]%s", end);
}

}  // namespace

int main(int argc, char **argv) {
    std::string preload;
    long pairs = 100;
    int i = 1;
    for (; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strncmp(argv[i], "--library=", 10) == 0) {
            preload = std::string("LD_PRELOAD=") + (argv[i] + 10);
        } else if (strncmp(argv[i], "--pairs=", 8) == 0) {
            pairs = atol(argv[i] + 8);
        } else {
            i = argc;
        }
    }
    if (i + 1 >= argc || preload.empty() || pairs <= 0) {
        fprintf(stderr, "usage: bench_start --library=PATH [--pairs=N] -- COMMAND ARGUMENTS...\n");
        return 2;
    }
    char **command = argv + i + 1;
    std::vector<char *> without, with;
    for (char **entry = environ; *entry != nullptr; entry++) {
        if (strncmp(*entry, "LD_PRELOAD=", 11) == 0) continue;
        without.push_back(*entry);
        with.push_back(*entry);
    }
    with.push_back(preload.data());
    without.push_back(nullptr);
    with.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);

    for (int warm = 0; warm < 3; warm++) run(command, without.data(), &actions), run(command, with.data(), &actions);
    std::vector<uint64_t> plain, preloaded;
    for (long k = 0; k < pairs; k++) {
        if (k % 2 == 0) plain.push_back(run(command, without.data(), &actions));
        preloaded.push_back(run(command, with.data(), &actions));
        if (k % 2 != 0) plain.push_back(run(command, without.data(), &actions));
    }
    printf("{");
    print("plain", plain, ", ");
    print("preloaded", preloaded, "}\n");
    return 0;
}
