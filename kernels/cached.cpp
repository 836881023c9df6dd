// Moving bytes that are in the caches: ordinary stores, and nothing chosen by measurement. The C library's memcpy spends as long on getting
// started as on a kilobyte; small state (50 buffers of a kilobyte or so) took a third longer with it.
#include <atomic>
#include <cstring>

#include "kernels/variants.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace reprise::kernels::detail {
namespace {

void copy_plain(void *to, const void *from, size_t size) {
    if (size != 0) memcpy(to, from, size);
}

#if defined(__x86_64__)
#define REPRISE_AVX2 __attribute__((target("avx2")))

// Shorter ones are a handful of instructions in the C library.
constexpr size_t kShortest = 128;

REPRISE_AVX2 inline __m256i get(const char *from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i *>(from)); }
REPRISE_AVX2 inline void put(char *to, __m256i value) { _mm256_storeu_si256(reinterpret_cast<__m256i *>(to), value); }
// How far it is to the next multiple of 32.
inline size_t to_aligned(const char *at) { return -reinterpret_cast<uintptr_t>(at) & 31; }

// The ends by unaligned vectors that overlap the aligned middle.
REPRISE_AVX2 void copy_avx2(void *to_, const void *from_, size_t size) {
    if (size < kShortest) return copy_plain(to_, from_, size);
    auto *to = static_cast<char *>(to_);
    auto *from = static_cast<const char *>(from_);
    char *const to_end = to + size;
    const char *const from_end = from + size;
    put(to, get(from));
    const size_t head = to_aligned(to);
    to += head, from += head, size -= head;
    for (; size >= 128; size -= 128, to += 128, from += 128) {
        const __m256i v0 = get(from), v1 = get(from + 32), v2 = get(from + 64), v3 = get(from + 96);
        put(to, v0), put(to + 32, v1), put(to + 64, v2), put(to + 96, v3);
    }
    if (size > 96) put(to_end - 128, get(from_end - 128));
    if (size > 64) put(to_end - 96, get(from_end - 96));
    if (size > 32) put(to_end - 64, get(from_end - 64));
    put(to_end - 32, get(from_end - 32));
}
#endif

CopyFunction best_copy() {
#if defined(__x86_64__)
    if (has(Isa::avx2)) return copy_avx2;
#endif
    return copy_plain;
}

// The first call finds out.
void first_copy(void *to, const void *from, size_t size);
constinit std::atomic<CopyFunction> g_copy{first_copy};

void first_copy(void *to, const void *from, size_t size) {
    const CopyFunction best = best_copy();
    g_copy.store(best, std::memory_order_relaxed);
    best(to, from, size);
}

}  // namespace

void copy_cached(void *to, const void *from, size_t size) { g_copy.load(std::memory_order_relaxed)(to, from, size); }

}  // namespace reprise::kernels::detail
