// The kernels' door: moving and comparing bytes. Stateless; callable from any thread; no allocation, no locks, no exceptions.
//
// Used by tracker/ for every copy of preserved state. The variant (rep movsb, non-temporal AVX, plain) is chosen once by a short
// measurement at first use, per size class, because which is fastest differs by CPU and hypervisor (docs/tracking.md has the table).
// Large operations are split over the workers of `Parallel` when that pays; under fork or without the TBB plugin they run alone.
// Source and destination must not overlap unless said.
#pragma once

#include <cstddef>
#include <cstdint>

namespace reprise::kernels {

// Runs body(context, i) for i in [0, count), maybe on several threads, and returns when all are done. Bodies must not throw.
// The default runs them in a loop; the engine installs one that uses oneTBB (private copy), a forked child the default again.
using ParallelFor = void (*)(size_t count, void (*body)(void *context, size_t index), void *context);
void set_parallel(ParallelFor run, unsigned workers);  // workers: how many run at once, 1 = serial
unsigned parallel_workers();

// One piece of a copy list. Lists let scattered page runs be spread over threads in one go.
struct CopyItem {
    void *to;
    const void *from;
    size_t size;
};

void copy(void *to, const void *from, size_t size);
void copy_list(const CopyItem *items, size_t count);  // items must not overlap each other
// Saves `live` to `save_to`, then `load_from` to `live`, in one pass over the cache lines: what a load needs. All three of `size` bytes.
struct SwapItem {
    void *live;
    void *save_to;
    const void *load_from;
    size_t size;
};
void save_and_load_list(const SwapItem *items, size_t count);

// For reports: the variant that copies of this size use now ("memcpy", "rep-movsb", "nt-avx2", ...), and whether it is settled and uses
// the workers. The choice settles itself while large copies run.
struct CopyChoice {
    const char *variant;
    bool parallel;
    bool settled;
};
CopyChoice copy_choice(size_t size);

bool equal(const void *a, const void *b, size_t size);
// Sets bit i of `differs` (little-endian bits, (pages + 7) / 8 bytes, written whole) when page i of 4096 bytes differs; returns how many
// do.
size_t compare_pages(const void *a, const void *b, size_t pages, uint8_t *differs);

// Puts the bytes out of every cache, so that a measurement finds them as a job does that used them a step ago. Does nothing on
// processors other than x86-64.
void evict(const void *data, size_t size);

uint64_t digest(const void *data, size_t size);  // XXH3-64, seed 0: the same on every machine
struct Digest128 {
    uint64_t low, high;
    friend bool operator==(const Digest128 &, const Digest128 &) = default;
};
Digest128 digest128(const void *data,
                    size_t size);  // XXH3-128; large inputs are digested in fixed 8 MiB pieces, so that threads do not change it
// XXH3-64 of every page.
void digest_pages(const void *data, size_t pages, uint64_t *out);

// Element-wise three-way merge at put-back of a buffer declared concurrent: where live differs from `loaded` (another writer's), keep live;
// elsewhere `present`. Compares elements of 1, 2, 4, 8 or 16 bytes; returns the number of elements kept from live. `size` is a multiple of
// `element`.
size_t merge_elements(void *live, const void *loaded, const void *present, size_t size, size_t element);

}  // namespace reprise::kernels
