// Helpers of the allocator's suites: what the kernel says about this process, seeds, child processes.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "allocator/allocator.h"

namespace reprise::test {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

inline const AllocatorPort &port() { return *allocator_port(); }
inline uintptr_t address_of(const void *p) { return reinterpret_cast<uintptr_t>(p); }

inline size_t resident_bytes() {
    size_t total = 0, resident = 0;
    FILE *f = std::fopen("/proc/self/statm", "r");
    if (f == nullptr || std::fscanf(f, "%zu %zu", &total, &resident) != 2) resident = 0;
    if (f != nullptr) std::fclose(f);
    return resident * kPageSize;
}

// Resident bytes of one stretch of address space: exact also under sanitizers, whose shadow counts in the whole process.
inline size_t resident_bytes_of(AddressRange range) {
    size_t total = 0;
    FILE *f = std::fopen("/proc/self/smaps", "r");
    char line[512];
    bool inside = false;
    while (f != nullptr && std::fgets(line, sizeof line, f) != nullptr) {
        unsigned long begin = 0, end = 0, kib = 0;
        if (std::sscanf(line, "%lx-%lx ", &begin, &end) == 2) {
            inside = range.contains(AddressRange{begin, end});
        } else if (inside && std::sscanf(line, "Rss: %lu kB", &kib) == 1) {
            total += kib * 1024;
        }
    }
    if (f != nullptr) std::fclose(f);
    return total;
}

// Mappings that meet a stretch of address space: the test's own containers, and a sanitizer's, come and go elsewhere.
inline size_t mapping_count(AddressRange range = {0, ~uintptr_t{0}}) {
    size_t count = 0;
    FILE *f = std::fopen("/proc/self/maps", "r");
    char line[512];
    while (f != nullptr && std::fgets(line, sizeof line, f) != nullptr) {
        unsigned long begin = 0, end = 0;
        if (std::sscanf(line, "%lx-%lx ", &begin, &end) == 2) count += range.meets(AddressRange{begin, end});
    }
    if (f != nullptr) std::fclose(f);
    return count;
}

// Printed with every failure; REPRISE_SEED repeats a run.
inline uint64_t seed() {
    static const uint64_t value = [] {
        const char *text = std::getenv("REPRISE_SEED");
        return text != nullptr ? std::strtoull(text, nullptr, 10) : std::random_device{}();
    }();
    return value;
}
#define REPRISE_SEEDED SCOPED_TRACE("REPRISE_SEED=" + std::to_string(::reprise::test::seed()))

// Runs `body` in a forked child; it returns 0 for success, or the number of the check that failed.
template <class Body>
int in_child(Body body, bool through_handlers = true) {
    if (through_handlers) allocator_fork_prepare();
    const pid_t child = fork();
    if (child == 0) {
        if (through_handlers) allocator_fork_child();
        alarm(60);
        _exit(body());
    }
    if (through_handlers) allocator_fork_parent();
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

class Started : public ::testing::Test {
  protected:
    void SetUp() override { ASSERT_TRUE(allocator_start()); }
};

}  // namespace reprise::test
