// What the kernels' tests share: seeded data, buffers of any alignment with guards around them, and a ParallelFor made of threads.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/tuner.h"
#include "kernels/variants.h"
#include "tests/effort.h"

namespace reprise::kernels::testing {

// REPRISE_TEST_SEED repeats a run; the seed is printed either way.
inline uint64_t seed() {
    static const uint64_t value = [] {
        const char *given = std::getenv("REPRISE_TEST_SEED");
        uint64_t s = given ? std::strtoull(given, nullptr, 0) : std::random_device{}();
        std::cout << "REPRISE_TEST_SEED=" << s << std::endl;
        return s;
    }();
    return value;
}

class Random {
  public:
    explicit Random(uint64_t salt) : engine_(seed() * 1000003 + salt) {}
    size_t below(size_t bound) { return bound == 0 ? 0 : static_cast<size_t>(engine_() % bound); }
    uint64_t word() { return engine_(); }
    void fill(void *to, size_t size) {
        auto *bytes = static_cast<unsigned char *>(to);
        uint64_t state = engine_();
        for (; size >= 8; size -= 8, bytes += 8) {  // splitmix64: hundreds of megabytes of it must not take the time of the test
            uint64_t word = state += 0x9e3779b97f4a7c15u;
            word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9u;
            word = (word ^ word >> 27) * 0x94d049bb133111ebu;
            word ^= word >> 31;
            memcpy(bytes, &word, 8);
        }
        for (; size != 0; size--) *bytes++ = static_cast<unsigned char>(engine_());
    }

  private:
    std::mt19937_64 engine_;
};

// `size` bytes at an address that is `skew` past a multiple of 4096, with guard bytes on both sides.
class Buffer {
  public:
    static constexpr size_t kGuard = 256;
    Buffer(size_t size, size_t skew = 0) : size_(size), block_(size + skew + 2 * kGuard + 2 * 4096, kFill) {
        auto base = reinterpret_cast<uintptr_t>(block_.data()) + kGuard;
        data_ = reinterpret_cast<unsigned char *>(((base + 4095) & ~uintptr_t{4095}) + skew);
    }
    unsigned char *data() { return data_; }
    size_t size() const { return size_; }
    void expect_guards() const {
        for (size_t i = 1; i <= kGuard; i++) ASSERT_EQ(data_[-static_cast<ptrdiff_t>(i)], kFill) << "written " << i << " before the start";
        for (size_t i = 0; i < kGuard; i++) ASSERT_EQ(data_[size_ + i], kFill) << "written " << i << " past the end";
    }
    std::vector<unsigned char> bytes() const { return {data_, data_ + size_}; }

  private:
    static constexpr unsigned char kFill = 0xA5u;
    size_t size_;
    std::vector<unsigned char> block_;
    unsigned char *data_;
};

inline constexpr unsigned kWorkers = 3;

inline void run_threads(size_t count, void (*body)(void *, size_t), void *context) {
    std::atomic<size_t> next{0};
    auto work = [&] {
        for (size_t i = next++; i < count; i = next++) body(context, i);
    };
    std::vector<std::thread> threads;
    for (unsigned i = 1; i < kWorkers; i++) threads.emplace_back(work);
    work();
    for (auto &thread : threads) thread.join();
}

// Workers while it lives.
struct WithWorkers {
    explicit WithWorkers(bool parallel = true) {
        if (parallel) set_parallel(run_threads, kWorkers);
    }
    ~WithWorkers() { set_parallel(nullptr, 1); }
};

// One variant of one kind while it lives.
struct Forced {
    Forced(detail::Kind kind, unsigned variant, bool parallel) : kind_(kind), workers_(parallel) { detail::force(kind, variant, parallel); }
    ~Forced() { detail::unforce(kind_); }
    detail::Kind kind_;
    WithWorkers workers_;
};

// Runs body(variant) for every variant that runs here, with and without workers, and names it in failures.
template <class Function, class Body>
void for_each_variant(detail::Kind kind, detail::Variants<Function> variants, Body body) {
    unsigned ran = 0;
    for (unsigned i = 0; i < variants.count; i++) {
        if (!detail::has(variants.entries[i].needs)) continue;
        for (bool parallel : {false, true}) {
            SCOPED_TRACE(std::string(variants.entries[i].name) + (parallel ? ", parallel" : ", serial"));
            Forced forced(kind, i, parallel);
            body();
            if (::testing::Test::HasFatalFailure()) return;
            ran++;
        }
    }
    ASSERT_GE(ran, 2u);
}

// Sizes around every boundary that the code has.
inline std::vector<size_t> sizes() {
    constexpr size_t k = 1024, m = k * k;
    if (test::kUnderThreads)
        return {0, 1, 31, 64, 4097, 64 * k, 256 * k + 1, 1 * m + 7, 4 * m + 13};  // how work is divided is what it looks at
    return {0,           1,       2,           31,        32,    63,        64,         65,         127,
            255,         256,     257,         4095,      4096,  4097,      64 * k - 1, 64 * k,     65 * k,
            256 * k - 1, 256 * k, 256 * k + 1, 1 * m + 7, 2 * m, 4 * m - 1, 4 * m,      4 * m + 13, 6 * m + 4095};
}

}  // namespace reprise::kernels::testing
