#include "kernels/digest_variant.h"

namespace reprise::kernels::detail {

uint64_t digest_avx512(const void *data, size_t size);
Digest128 digest128_avx512(const void *data, size_t size, uint64_t seed);

uint64_t digest_avx512(const void *data, size_t size) { return xxh3_64(data, size); }
Digest128 digest128_avx512(const void *data, size_t size, uint64_t seed) { return xxh3_128(data, size, seed); }

}  // namespace reprise::kernels::detail
