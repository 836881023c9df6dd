// The ways to copy. Which is fastest depends on the CPU, the hypervisor, page size, and how many threads run: none wins everywhere
// (rep movsb on one thread and non-temporal stores on two were best on one machine, plain memcpy was half as fast on both).
#include <cstring>

#include "kernels/variants.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace reprise::kernels::detail {
namespace {

void copy_plain(void *to, const void *from, size_t size) {
    if (size) memcpy(to, from, size);  // memcpy must not be given null pointers, even for nothing
}

#if defined(__x86_64__)
void copy_movsb(void *to, const void *from, size_t size) {
#if REPRISE_KERNELS_SANITIZED
    copy_plain(to, from, size);
#else
    asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(size) : : "memory");
#endif
}

// Copies what precedes the first 64-byte boundary of `to` and moves both on: streaming stores need aligned destinations.
inline void align_destination(char *&to, const char *&from, size_t &size) {
    size_t head = -reinterpret_cast<uintptr_t>(to) & 63;
    if (head > size) head = size;
    copy_plain(to, from, head);
    to += head;
    from += head;
    size -= head;
}

// Non-temporal stores go past the cache: no read of the destination's lines, and the job's own data stay cached.
__attribute__((target("avx2"))) inline void stream_256_avx2(char *to, const char *from) {
    __m256i v[8];
    for (size_t i = 0; i < 8; i++) v[i] = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(from + 32 * i));
    for (size_t i = 0; i < 8; i++) _mm256_stream_si256(reinterpret_cast<__m256i *>(to + 32 * i), v[i]);
}

__attribute__((target("avx512f"))) inline void stream_256_avx512(char *to, const char *from) {
    __m512i v[4];
    for (size_t i = 0; i < 4; i++) v[i] = _mm512_loadu_si512(from + 64 * i);
    for (size_t i = 0; i < 4; i++) _mm512_stream_si512(reinterpret_cast<__m512i *>(to + 64 * i), v[i]);
}

// Two shapes. copy_nt: straight through; kAhead asks for the source that far ahead (0: leave it to the hardware, which stops at each 4 KiB
// boundary), never beyond the end, for in a list of single pages that would be wasted. copy_nt_pages: four pages side by side, which
// keeps more banks of memory busy (15-25 % faster on one of the machines measured).
constexpr size_t kStreams = 4, kStride = 4096;

template <size_t kAhead>
__attribute__((target("avx2"))) void copy_nt_avx2(void *to_, const void *from_, size_t size) {
    auto *to = static_cast<char *>(to_);
    auto *from = static_cast<const char *>(from_);
    align_destination(to, from, size);
    for (; size >= 256; size -= 256, to += 256, from += 256) {
        if (kAhead != 0 && size >= kAhead + 256) {
            for (size_t i = 0; i < 256; i += 64) _mm_prefetch(from + kAhead + i, _MM_HINT_NTA);
        }
        stream_256_avx2(to, from);
    }
    copy_plain(to, from, size);
    _mm_sfence();  // whoever is told that the copy is done may read it on another CPU
}

__attribute__((target("avx2"))) void copy_nt_pages_avx2(void *to_, const void *from_, size_t size) {
    auto *to = static_cast<char *>(to_);
    auto *from = static_cast<const char *>(from_);
    align_destination(to, from, size);
    for (; size >= kStreams * kStride; size -= kStreams * kStride, to += kStreams * kStride, from += kStreams * kStride) {
        for (size_t i = 0; i < kStride; i += 256) {
            for (size_t stream = 0; stream < kStreams; stream++) stream_256_avx2(to + stream * kStride + i, from + stream * kStride + i);
        }
    }
    copy_nt_avx2<0>(to, from, size);
}

template <size_t kAhead>
__attribute__((target("avx512f"))) void copy_nt_avx512(void *to_, const void *from_, size_t size) {
    auto *to = static_cast<char *>(to_);
    auto *from = static_cast<const char *>(from_);
    align_destination(to, from, size);
    for (; size >= 256; size -= 256, to += 256, from += 256) {
        if (kAhead != 0 && size >= kAhead + 256) {
            for (size_t i = 0; i < 256; i += 64) _mm_prefetch(from + kAhead + i, _MM_HINT_NTA);
        }
        stream_256_avx512(to, from);
    }
    copy_plain(to, from, size);
    _mm_sfence();  // whoever is told that the copy is done may read it on another CPU
}

__attribute__((target("avx512f"))) void copy_nt_pages_avx512(void *to_, const void *from_, size_t size) {
    auto *to = static_cast<char *>(to_);
    auto *from = static_cast<const char *>(from_);
    align_destination(to, from, size);
    for (; size >= kStreams * kStride; size -= kStreams * kStride, to += kStreams * kStride, from += kStreams * kStride) {
        for (size_t i = 0; i < kStride; i += 256) {
            for (size_t stream = 0; stream < kStreams; stream++) stream_256_avx512(to + stream * kStride + i, from + stream * kStride + i);
        }
    }
    copy_nt_avx512<0>(to, from, size);
}
#endif

constexpr Variant<CopyFunction> kCopy[] = {
    {"memcpy", Isa::base, copy_plain},
#if defined(__x86_64__)
    {"rep-movsb", Isa::movsb, copy_movsb},
    {"nt-avx2", Isa::avx2, copy_nt_avx2<0>},
    {"nt-avx2-prefetch", Isa::avx2, copy_nt_avx2<2048>},
    {"nt-avx2-4-pages", Isa::avx2, copy_nt_pages_avx2},
    {"nt-avx512", Isa::avx512, copy_nt_avx512<0>},
    {"nt-avx512-prefetch", Isa::avx512, copy_nt_avx512<2048>},
    {"nt-avx512-4-pages", Isa::avx512, copy_nt_pages_avx512},
#endif
};
static_assert(sizeof kCopy / sizeof kCopy[0] <= kMaxVariants);

}  // namespace

Variants<CopyFunction> copy_variants() { return {kCopy, sizeof kCopy / sizeof kCopy[0]}; }

}  // namespace reprise::kernels::detail
