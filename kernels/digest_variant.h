// XXH3 for whatever instructions the including file is compiled for; included once each by digest_base.cpp, digest_avx2.cpp and
// digest_avx512.cpp, which CMake compiles with the flags. xxhash is inlined (every function static), so that the three do not meet at
// link time, and nothing but C headers is included before it, so that no inline C++ function compiled with those flags leaks out.
#pragma once

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "kernels/variants.h"

namespace reprise::kernels::detail {
namespace {

uint64_t xxh3_64(const void *data, size_t size) { return XXH3_64bits(data, size); }
Digest128 xxh3_128(const void *data, size_t size, uint64_t seed) {
    XXH128_hash_t hash = seed == 0 ? XXH3_128bits(data, size) : XXH3_128bits_withSeed(data, size, seed);
    return {hash.low64, hash.high64};
}

}  // namespace
}  // namespace reprise::kernels::detail
