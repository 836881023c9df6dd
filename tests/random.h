// Random numbers that a seed repeats, on every machine (splitmix64, Steele et al., OOPSLA 2014).
#pragma once

#include <cstdint>

namespace reprise::test {

inline uint64_t next_random(uint64_t &state) {
    uint64_t z = (state += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

}  // namespace reprise::test
