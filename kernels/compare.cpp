#include <atomic>
#include <cstring>

#include "kernels/kernels.h"
#include "kernels/split.h"
#include "kernels/tuner.h"

namespace reprise::kernels {
namespace {

using namespace detail;

constexpr size_t kPage = 4096;

constinit Tuners g_ranges, g_pages;
unsigned usable() { return equal_variants().worth_trying(); }

// Fills the bits of whole bytes of the bitmap: pages [first, last), first a multiple of 8.
size_t compare_span(const char *a, const char *b, size_t first, size_t last, uint8_t *differs, EqualFunction equal_page) {
    size_t differing = 0;
    for (size_t page = first; page < last;) {
        unsigned bits = 0;
        for (unsigned bit = 0; bit < 8 && page < last; bit++, page++) {
            if (!equal_page(a + page * kPage, b + page * kPage, kPage)) bits |= 1u << bit;
        }
        differs[(page - 1) / 8] = static_cast<uint8_t>(bits);
        differing += static_cast<size_t>(__builtin_popcount(bits));
    }
    return differing;
}

}  // namespace

bool equal(const void *a_, const void *b_, size_t size) {
    if (size < kMedium) {
        // What differs mostly differs at once: no call for that.
        uint64_t first_a, first_b;
        if (size < sizeof first_a) return size == 0 || memcmp(a_, b_, size) == 0;
        memcpy(&first_a, a_, sizeof first_a);
        memcpy(&first_b, b_, sizeof first_b);
        return first_a == first_b && memcmp(a_, b_, size) == 0;
    }
    auto *a = static_cast<const char *>(a_), *b = static_cast<const char *>(b_);
    Tuner &tuner = g_ranges.get(class_of(size));
    while (size != 0) {
        const size_t batch = batch_size(Kind::equal, tuner, size);
        Trial trial(Kind::equal, tuner, usable, batch);
        EqualFunction run = equal_variants().entries[trial.choice().variant].run;
        std::atomic<bool> differs{false};
        for_pieces(reinterpret_cast<uintptr_t>(a), batch, trial.choice().parallel, [&](size_t offset, size_t n) {
            constexpr size_t kStep = size_t{64} << 10;  // between looks at what the others found
            for (size_t end = offset + n; offset < end && !differs.load(std::memory_order_relaxed); offset += kStep) {
                size_t step = end - offset < kStep ? end - offset : kStep;
                if (!run(a + offset, b + offset, step)) differs.store(true, std::memory_order_relaxed);
            }
        });
        if (differs.load(std::memory_order_relaxed)) {
            trial.discard();
            return false;
        }
        a += batch, b += batch, size -= batch;
    }
    return true;
}

size_t compare_pages(const void *a_, const void *b_, size_t pages, uint8_t *differs) {
    auto *a = static_cast<const char *>(a_), *b = static_cast<const char *>(b_);
    if (pages * kPage < kMedium) return compare_span(a, b, 0, pages, differs, equal_variants().entries[0].run);
    Tuner &tuner = g_pages.get(class_of(pages * kPage));
    size_t differing = 0;
    // Batches and pieces are multiples of 8 pages counted from the start, so that no two threads write one byte of the bitmap.
    static_assert(kTrialBytes % (8 * kPage) == 0 && kPiece % (8 * kPage) == 0);
    for (size_t done = 0; done < pages;) {
        const size_t batch = batch_size(Kind::equal, tuner, (pages - done) * kPage) / kPage;
        Trial trial(Kind::equal, tuner, usable, batch * kPage);
        EqualFunction run = equal_variants().entries[trial.choice().variant].run;
        std::atomic<size_t> found{0};
        for_pieces(0, batch * kPage, trial.choice().parallel, [&](size_t offset, size_t n) {
            size_t first = done + offset / kPage;
            found.fetch_add(compare_span(a, b, first, first + n / kPage, differs, run), std::memory_order_relaxed);
        });
        const size_t in_batch = found.load(std::memory_order_relaxed);
        if (in_batch > batch / 8) trial.discard();  // differing pages end early: not the typical work
        differing += in_batch;
        done += batch;
    }
    return differing;
}

}  // namespace reprise::kernels
