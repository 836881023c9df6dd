// Every way the kernels know to move and compare bytes, one table per operation. Internal: the public functions in copy.cpp,
// swap.cpp, compare.cpp and digest.cpp pick from these tables (tuner.h says how); tests and benchmarks walk them to try each one.
//
// Entry 0 of each table is plain C and runs anywhere; the others say which instructions they need. All are stateless and callable
// from any thread. Chosen by a table and not by IFUNC: a library that is preloaded must not run code while it is relocated.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernels.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define REPRISE_KERNELS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define REPRISE_KERNELS_SANITIZED 1
#endif
#endif
#ifndef REPRISE_KERNELS_SANITIZED
#define REPRISE_KERNELS_SANITIZED 0
#endif

namespace reprise::kernels::detail {

enum class Isa : uint8_t { base, movsb, avx2, avx512 };
// Whether this CPU (and this build: assembler is invisible to sanitizers, so `movsb` is left out under them) has it.
bool has(Isa isa);

template <class Function>
struct Variant {
    const char *name;
    Isa needs;
    Function run;
};

// At most this many variants in a table; the tuner's arrays are that long.
inline constexpr unsigned kMaxVariants = 8;

template <class Function>
struct Variants {
    const Variant<Function> *entries;
    unsigned count;
    // Bit i: entry i runs here.
    unsigned usable() const {
        unsigned mask = 0;
        for (unsigned i = 0; i < count; i++) mask |= static_cast<unsigned>(has(entries[i].needs)) << i;
        return mask;
    }
    // As usable(), without the narrower of two vector widths: fewer to try. They stay for CPUs that have nothing else.
    unsigned worth_trying() const {
        unsigned mask = usable();
        if (!has(Isa::avx512)) return mask;
        for (unsigned i = 0; i < count; i++)
            if (entries[i].needs == Isa::avx2) mask &= ~(1u << i);
        return mask;
    }
};

using CopyFunction = void (*)(void *to, const void *from, size_t size);
using SwapFunction = void (*)(void *live, void *save_to, const void *load_from, size_t size);
using EqualFunction = bool (*)(const void *a, const void *b, size_t size);
using DigestFunction = uint64_t (*)(const void *data, size_t size);
using Digest128Function = Digest128 (*)(const void *data, size_t size, uint64_t seed);
using MergeFunction = size_t (*)(void *live, const void *loaded, const void *present, size_t size, size_t element);

// For what is in the caches anyway, short or a list of short ones (cached.cpp).
void copy_cached(void *to, const void *from, size_t size);

Variants<CopyFunction> copy_variants();
Variants<SwapFunction> swap_variants();
Variants<EqualFunction> equal_variants();
Variants<DigestFunction> digest_variants();        // XXH3-64, seed 0: same value from each
Variants<Digest128Function> digest128_variants();  // XXH3-128 of one piece: same value from each
Variants<MergeFunction> merge_variants();

}  // namespace reprise::kernels::detail
