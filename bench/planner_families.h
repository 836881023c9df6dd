// The published generator of planner problems: families of jobs, seeded. Used by bench/planner_bench.cpp and by the planner's tests; the
// numbers in docs/planner.md speak of these families.
#pragma once

#include <cstdint>

#include "planner/model.h"

namespace reprise::planner {

enum Family : int { kTransformer, kResnet, kMoe, kQueue, kPerSegment, kVq, kGradientAccumulation, kPipeline, kRandom, kFamilies };

const char *family_name(int family);

// `tightness`: where the budget lies between a simple plan of low memory (0) and retaining everything (1).
Problem make_problem(int family, uint64_t seed, int instances, int buffers, double tightness);

// A small reproducible stream of random numbers.
class Random {
  public:
    explicit Random(uint64_t seed) : state_(seed) {}
    uint64_t next() {
        uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
        return z ^ (z >> 31);
    }
    double unit() { return static_cast<double>(next() >> 11) * (1.0 / 9007199254740992.0); }
    int below(int n) { return n <= 0 ? 0 : static_cast<int>(next() % static_cast<uint64_t>(n)); }
    double log_uniform(double low, double high);

  private:
    uint64_t state_;
};

}  // namespace reprise::planner
