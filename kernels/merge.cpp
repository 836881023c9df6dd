// The three-way merge at put-back of a buffer with another writer. That writer may be at it right now, so `live` is stored to only
// where bytes must change: writing back a kept element could undo its next write.
#include <atomic>
#include <cstring>

#include "kernels/kernels.h"
#include "kernels/split.h"
#include "kernels/tuner.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace reprise::kernels {
namespace detail {
namespace {

// Elements are compared as bytes, not as numbers: -0.0 differs from 0.0 and a NaN equals itself.
size_t merge_bytes(char *live, const char *loaded, const char *present, size_t size, size_t element) {
    size_t kept = 0;
    for (size_t i = 0; i < size; i += element) {
        size_t n = size - i < element ? size - i : element;
        if (memcmp(live + i, loaded + i, n) != 0)
            kept++;
        else if (memcmp(live + i, present + i, n) != 0)
            memcpy(live + i, present + i, n);
    }
    return kept;
}

// As merge_bytes with the size known, so that each element is loaded and stored in one go (no other thread sees half of one).
template <class Element>
size_t merge_elements_of(char *live, const char *loaded, const char *present, size_t size) {
    size_t kept = 0, i = 0;
    for (; i + sizeof(Element) <= size; i += sizeof(Element)) {
        Element now, old, next;
        memcpy(&now, live + i, sizeof now);
        memcpy(&old, loaded + i, sizeof old);
        memcpy(&next, present + i, sizeof next);
        if (now != old)
            kept++;
        else if (now != next)
            memcpy(live + i, &next, sizeof next);
    }
    return i < size ? kept + merge_bytes(live + i, loaded + i, present + i, size - i, sizeof(Element)) : kept;
}

size_t merge_plain(void *live_, const void *loaded_, const void *present_, size_t size, size_t element) {
    auto *live = static_cast<char *>(live_);
    auto *loaded = static_cast<const char *>(loaded_), *present = static_cast<const char *>(present_);
    switch (element) {
        case 1:
            return merge_elements_of<uint8_t>(live, loaded, present, size);
        case 2:
            return merge_elements_of<uint16_t>(live, loaded, present, size);
        case 4:
            return merge_elements_of<uint32_t>(live, loaded, present, size);
        case 8:
            return merge_elements_of<uint64_t>(live, loaded, present, size);
        case 0:
            return merge_bytes(live, loaded, present, size, 1);
        default:
            return merge_bytes(live, loaded, present, size, element);
    }
}

#if defined(__x86_64__)
// Passes over 64 bytes at a time in which nothing, or everything, is to be done; the rest goes element by element.
__attribute__((target("avx2"))) size_t merge_avx2(void *live_, const void *loaded_, const void *present_, size_t size, size_t element) {
    if (element == 0 || 64 % element != 0) return merge_plain(live_, loaded_, present_, size, element);
    auto *live = static_cast<char *>(live_);
    auto *loaded = static_cast<const char *>(loaded_), *present = static_cast<const char *>(present_);
    size_t kept = 0, i = 0;
    for (; i + 64 <= size; i += 64) {
        auto at = [](const char *p) { return reinterpret_cast<const __m256i *>(p); };
        __m256i live0 = _mm256_loadu_si256(at(live + i)), live1 = _mm256_loadu_si256(at(live + i + 32));
        __m256i next0 = _mm256_loadu_si256(at(present + i)), next1 = _mm256_loadu_si256(at(present + i + 32));
        __m256i foreign = _mm256_or_si256(_mm256_xor_si256(live0, _mm256_loadu_si256(at(loaded + i))),
                                          _mm256_xor_si256(live1, _mm256_loadu_si256(at(loaded + i + 32))));
        if (!_mm256_testz_si256(foreign, foreign)) {
            kept += merge_plain(live + i, loaded + i, present + i, 64, element);
            continue;
        }
        __m256i change = _mm256_or_si256(_mm256_xor_si256(live0, next0), _mm256_xor_si256(live1, next1));
        if (_mm256_testz_si256(change, change)) continue;
        _mm256_storeu_si256(reinterpret_cast<__m256i *>(live + i), next0);
        _mm256_storeu_si256(reinterpret_cast<__m256i *>(live + i + 32), next1);
    }
    return i < size ? kept + merge_plain(live + i, loaded + i, present + i, size - i, element) : kept;
}
#endif

constexpr Variant<MergeFunction> kMerge[] = {
    {"plain", Isa::base, merge_plain},
#if defined(__x86_64__)
    {"avx2", Isa::avx2, merge_avx2},
#endif
};

}  // namespace

Variants<MergeFunction> merge_variants() { return {kMerge, sizeof kMerge / sizeof kMerge[0]}; }

}  // namespace detail

namespace {

using namespace detail;

constinit Tuners g_tuners;
unsigned usable() { return merge_variants().usable(); }

}  // namespace

size_t merge_elements(void *live_, const void *loaded_, const void *present_, size_t size, size_t element) {
    if (size == 0) return 0;
    auto *live = static_cast<char *>(live_);
    auto *loaded = static_cast<const char *>(loaded_), *present = static_cast<const char *>(present_);
    if (element == 0 || kPiece % element != 0 || size < kMedium) {
        unsigned variant = usable() > 1 && element != 0 ? 1 : 0;
        return kMerge[variant].run(live, loaded, present, size, element);
    }
    size_t kept = 0;
    Tuner &tuner = g_tuners.get(class_of(size));
    for (size_t done = 0; done < size;) {
        const size_t batch = batch_size(Kind::merge, tuner, size - done);
        Trial trial(Kind::merge, tuner, usable, batch);
        const MergeFunction run = kMerge[trial.choice().variant].run;
        std::atomic<size_t> found{0};
        for_pieces(0, batch, trial.choice().parallel, [&](size_t offset, size_t n) {
            size_t at = done + offset;
            found.fetch_add(run(live + at, loaded + at, present + at, n, element), std::memory_order_relaxed);
        });
        if (found.load(std::memory_order_relaxed) > batch / element / 64) trial.discard();
        kept += found.load(std::memory_order_relaxed);
        done += batch;
    }
    return kept;
}

}  // namespace reprise::kernels
