// The ways to tell whether two blocks are equal. They stop at the first difference, looked at every 256 bytes.
#include <cstring>

#include "kernels/variants.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace reprise::kernels::detail {
namespace {

bool equal_plain(const void *a, const void *b, size_t size) { return size == 0 || memcmp(a, b, size) == 0; }

#if defined(__x86_64__)
__attribute__((target("avx2"))) bool equal_avx2(const void *a_, const void *b_, size_t size) {
    auto *a = static_cast<const char *>(a_), *b = static_cast<const char *>(b_);
    for (; size >= 256; size -= 256, a += 256, b += 256) {
        __m256i any = _mm256_setzero_si256();
        for (size_t i = 0; i < 256; i += 32)
            any = _mm256_or_si256(any, _mm256_xor_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(a + i)),
                                                        _mm256_loadu_si256(reinterpret_cast<const __m256i *>(b + i))));
        if (!_mm256_testz_si256(any, any)) return false;
    }
    return equal_plain(a, b, size);
}

__attribute__((target("avx512f"))) bool equal_avx512(const void *a_, const void *b_, size_t size) {
    auto *a = static_cast<const char *>(a_), *b = static_cast<const char *>(b_);
    for (; size >= 256; size -= 256, a += 256, b += 256) {
        __m512i any = _mm512_setzero_si512();
        for (size_t i = 0; i < 256; i += 64)
            any = _mm512_or_si512(any, _mm512_xor_si512(_mm512_loadu_si512(a + i), _mm512_loadu_si512(b + i)));
        if (_mm512_test_epi64_mask(any, any) != 0) return false;
    }
    return equal_plain(a, b, size);
}
#endif

constexpr Variant<EqualFunction> kEqual[] = {
    {"memcmp", Isa::base, equal_plain},
#if defined(__x86_64__)
    {"avx2", Isa::avx2, equal_avx2},
    {"avx512", Isa::avx512, equal_avx512},
#endif
};
static_assert(sizeof kEqual / sizeof kEqual[0] <= kMaxVariants);

}  // namespace

Variants<EqualFunction> equal_variants() { return {kEqual, sizeof kEqual / sizeof kEqual[0]}; }

}  // namespace reprise::kernels::detail
