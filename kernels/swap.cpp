#include "kernels/kernels.h"
#include "kernels/split.h"
#include "kernels/tuner.h"

namespace reprise::kernels {
namespace {

using namespace detail;

constinit Tuners g_tuners;
unsigned usable() { return swap_variants().worth_trying(); }

void swap_one(const SwapItem &item, SwapFunction run, size_t offset, size_t size) {
    run(static_cast<char *>(item.live) + offset, static_cast<char *>(item.save_to) + offset,
        static_cast<const char *>(item.load_from) + offset, size);
}

// One long range: cut into trials while the choice is open, then done in one go.
void swap_range(const SwapItem &item) {
    Tuner &tuner = g_tuners.get(class_of(item.size));
    for (size_t done = 0; done < item.size;) {
        size_t batch = batch_size(Kind::swap, tuner, item.size - done);
        Trial trial(Kind::swap, tuner, usable, batch);
        SwapFunction run = swap_variants().entries[trial.choice().variant].run;
        for_pieces(reinterpret_cast<uintptr_t>(item.live) + done, batch, trial.choice().parallel,
                   [&item, run, done](size_t offset, size_t n) { swap_one(item, run, done + offset, n); });
        done += batch;
    }
}

}  // namespace

void save_and_load_list(const SwapItem *items, size_t count) {
    size_t total = 0;
    for (size_t i = 0; i < count; i++) total += items[i].size;
    if (total == 0) return;
    if (total < kMedium) {
        // In the caches: two copies are as fast as one loop over all three (measured: a little faster).
        for (size_t i = 0; i < count; i++) {
            copy_cached(items[i].save_to, items[i].live, items[i].size);
            copy_cached(items[i].live, items[i].load_from, items[i].size);
        }
        return;
    }
    const SizeClass size_class = total / count < kRun ? kScatteredClass : class_of(total);
    Tuner &tuner = g_tuners.get(size_class);
    for (size_t first = 0; first < count && total != 0;) {
        const size_t limit = batch_size(Kind::swap, tuner, total);
        size_t bytes = 0, last = first;
        while (last < count && bytes < limit) bytes += items[last++].size;
        if (last - first == 1 && bytes >= kMedium) {
            swap_range(items[first]);
        } else {
            Trial trial(Kind::swap, tuner, usable, bytes);
            SwapFunction run = swap_variants().entries[trial.choice().variant].run;
            const SwapItem *batch = items + first;
            for_list(batch, last - first, bytes, trial.choice().parallel,
                     [batch, run](size_t i, size_t offset, size_t size) { swap_one(batch[i], run, offset, size); });
        }
        total -= bytes;
        first = last;
    }
}

}  // namespace reprise::kernels
