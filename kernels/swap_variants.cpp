// The ways to save `live` and load other bytes into it. Block by block, so that the second write finds `live`'s lines in the cache.
#include <cstring>

#include "kernels/variants.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace reprise::kernels::detail {
namespace {

constexpr size_t kBlock = 8192;  // live + load_from + save_to of one block fit a 32 KiB first-level cache

void swap_plain(void *live_, void *save_, const void *load_, size_t size) {
    auto *live = static_cast<char *>(live_), *save = static_cast<char *>(save_);
    auto *load = static_cast<const char *>(load_);
    while (size) {
        size_t n = size < kBlock ? size : kBlock;
        memcpy(save, live, n);
        memcpy(live, load, n);
        live += n, save += n, load += n, size -= n;
    }
}

#if defined(__x86_64__)
void swap_movsb(void *live_, void *save_, const void *load_, size_t size) {
#if REPRISE_KERNELS_SANITIZED
    swap_plain(live_, save_, load_, size);
#else
    auto *live = static_cast<char *>(live_), *save = static_cast<char *>(save_);
    auto *load = static_cast<const char *>(load_);
    while (size) {
        size_t n = size < 4 * kBlock ? size : 4 * kBlock;  // the start-up of each `rep` costs tens of ns
        size_t count = n;
        void *to = save;
        const void *from = live;
        asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(count) : : "memory");
        count = n, to = live, from = load;
        asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(count) : : "memory");
        live += n, save += n, load += n, size -= n;
    }
#endif
}

// The saved bytes are not needed soon, so they are streamed past the cache; kStreamLive does so with the loaded ones too (then both
// must be equally aligned; else plain stores). Line by line: `live` is read right before it is written.
template <size_t kAhead, bool kStreamLive>
__attribute__((target("avx2"))) void swap_nt_avx2(void *live_, void *save_, const void *load_, size_t size) {
    auto *live = static_cast<char *>(live_), *save = static_cast<char *>(save_);
    auto *load = static_cast<const char *>(load_);
    size_t head = -reinterpret_cast<uintptr_t>(save) & 63;
    if (head > size) head = size;
    swap_plain(live, save, load, head);
    live += head, save += head, load += head, size -= head;
    const bool stream_live = kStreamLive && (reinterpret_cast<uintptr_t>(live) & 31) == 0;
    for (; size >= 128; size -= 128, live += 128, save += 128, load += 128) {
        if (kAhead != 0 && size >= kAhead + 128) {
            for (size_t i = 0; i < 128; i += 64) {
                _mm_prefetch(live + kAhead + i, _MM_HINT_T0);
                _mm_prefetch(load + kAhead + i, _MM_HINT_NTA);
            }
        }
        __m256i old[4], now[4];
        for (size_t i = 0; i < 4; i++) old[i] = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(live + 32 * i));
        for (size_t i = 0; i < 4; i++) now[i] = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(load + 32 * i));
        for (size_t i = 0; i < 4; i++) _mm256_stream_si256(reinterpret_cast<__m256i *>(save + 32 * i), old[i]);
        if (stream_live) {
            for (size_t i = 0; i < 4; i++) _mm256_stream_si256(reinterpret_cast<__m256i *>(live + 32 * i), now[i]);
        } else {
            for (size_t i = 0; i < 4; i++) _mm256_storeu_si256(reinterpret_cast<__m256i *>(live + 32 * i), now[i]);
        }
    }
    swap_plain(live, save, load, size);
    _mm_sfence();
}

template <size_t kAhead, bool kStreamLive>
__attribute__((target("avx512f"))) void swap_nt_avx512(void *live_, void *save_, const void *load_, size_t size) {
    auto *live = static_cast<char *>(live_), *save = static_cast<char *>(save_);
    auto *load = static_cast<const char *>(load_);
    size_t head = -reinterpret_cast<uintptr_t>(save) & 63;
    if (head > size) head = size;
    swap_plain(live, save, load, head);
    live += head, save += head, load += head, size -= head;
    const bool stream_live = kStreamLive && (reinterpret_cast<uintptr_t>(live) & 63) == 0;
    for (; size >= 128; size -= 128, live += 128, save += 128, load += 128) {
        if (kAhead != 0 && size >= kAhead + 128) {
            for (size_t i = 0; i < 128; i += 64) {
                _mm_prefetch(live + kAhead + i, _MM_HINT_T0);
                _mm_prefetch(load + kAhead + i, _MM_HINT_NTA);
            }
        }
        __m512i old[2], now[2];
        for (size_t i = 0; i < 2; i++) old[i] = _mm512_loadu_si512(live + 64 * i);
        for (size_t i = 0; i < 2; i++) now[i] = _mm512_loadu_si512(load + 64 * i);
        for (size_t i = 0; i < 2; i++) _mm512_stream_si512(reinterpret_cast<__m512i *>(save + 64 * i), old[i]);
        if (stream_live) {
            for (size_t i = 0; i < 2; i++) _mm512_stream_si512(reinterpret_cast<__m512i *>(live + 64 * i), now[i]);
        } else {
            for (size_t i = 0; i < 2; i++) _mm512_storeu_si512(live + 64 * i, now[i]);
        }
    }
    swap_plain(live, save, load, size);
    _mm_sfence();
}
#endif

constexpr Variant<SwapFunction> kSwap[] = {
    {"memcpy", Isa::base, swap_plain},
#if defined(__x86_64__)
    {"rep-movsb", Isa::movsb, swap_movsb},
    {"nt-avx2", Isa::avx2, swap_nt_avx2<1024, false>},
    {"nt-both-avx2", Isa::avx2, swap_nt_avx2<1024, true>},
    {"nt-avx512", Isa::avx512, swap_nt_avx512<1024, false>},
    {"nt-both-avx512", Isa::avx512, swap_nt_avx512<1024, true>},
#endif
};
static_assert(sizeof kSwap / sizeof kSwap[0] <= kMaxVariants);

}  // namespace

Variants<SwapFunction> swap_variants() { return {kSwap, sizeof kSwap / sizeof kSwap[0]}; }

}  // namespace reprise::kernels::detail
