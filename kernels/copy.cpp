#include "kernels/kernels.h"
#include "kernels/split.h"
#include "kernels/tuner.h"

namespace reprise::kernels {
namespace {

using namespace detail;

constinit Tuners g_tuners;
unsigned usable() { return copy_variants().worth_trying(); }

// A list of short runs is worth a choice from this size on.
constexpr size_t kScattered = size_t{1} << 20;
constexpr size_t kLine = 64;

void copy_range(const Choice &choice, char *to, const char *from, size_t size) {
    CopyFunction run = copy_variants().entries[choice.variant].run;
    for_pieces(reinterpret_cast<uintptr_t>(to), size, choice.parallel,
               [=](size_t offset, size_t n) { run(to + offset, from + offset, n); });
}

void copy_batch(const CopyItem *items, size_t count, size_t bytes, SizeClass size_class) {
    Trial trial(Kind::copy, g_tuners.get(size_class), usable, bytes);
    const Choice choice = trial.choice();
    const Variant<CopyFunction> *entries = copy_variants().entries;
    // A list may mix lengths; those that the trial is not about use what is best for them so far.
    CopyFunction chosen = entries[choice.variant].run, runs = chosen, scattered = chosen;
    if (!forced(Kind::copy)) {
        if (size_class == kScatteredClass)
            runs = entries[g_tuners.get(class_of(bytes)).best().variant].run;
        else
            scattered = entries[g_tuners.get(kScatteredClass).best().variant].run;
    }
    for_list(items, count, bytes, choice.parallel, [=](size_t i, size_t offset, size_t size) {
        const CopyItem &item = items[i];
        auto *to = static_cast<char *>(item.to) + offset;
        auto *from = static_cast<const char *>(item.from) + offset;
        if (size >= kRun) return runs(to, from, size);
        // The hardware sees a stream only after a few lines: ask for the first of the next run while this one is copied.
        if (i + 1 < count && items[i + 1].size >= 4 * kLine) {
            auto *next = static_cast<const char *>(items[i + 1].from);
            for (size_t line = 0; line < 4; line++) __builtin_prefetch(next + line * kLine);
        }
        scattered(to, from, size);
    });
}

}  // namespace

void copy(void *to, const void *from, size_t size) {
    if (size < kMedium) return copy_cached(to, from, size);
    Tuner &tuner = g_tuners.get(class_of(size));
    auto *target = static_cast<char *>(to);
    auto *source = static_cast<const char *>(from);
    while (size != 0) {
        size_t batch = batch_size(Kind::copy, tuner, size);
        Trial trial(Kind::copy, tuner, usable, batch);
        copy_range(trial.choice(), target, source, batch);
        target += batch, source += batch, size -= batch;
    }
}

void copy_list(const CopyItem *items, size_t count) {
    size_t total = 0;
    for (size_t i = 0; i < count; i++) total += items[i].size;
    if (total == 0) return;
    const bool short_runs = total / count < kRun;
    if (total < (short_runs ? kScattered : kMedium)) {
        for (size_t i = 0; i < count; i++) copy_cached(items[i].to, items[i].from, items[i].size);
        return;
    }
    const SizeClass size_class = short_runs ? kScatteredClass : class_of(total);
    Tuner &tuner = g_tuners.get(size_class);
    for (size_t first = 0; first < count;) {
        const size_t limit = batch_size(Kind::copy, tuner, total);
        size_t bytes = 0, last = first;
        while (last < count && bytes < limit) bytes += items[last++].size;
        if (last - first == 1)
            copy(items[first].to, items[first].from, bytes);  // it may be huge: it cuts itself
        else
            copy_batch(items + first, last - first, bytes, size_class);
        total -= bytes;
        first = last;
        if (total == 0) break;  // only empty items left
    }
}

CopyChoice copy_choice(size_t size) {
    if (size < kMedium) return {copy_variants().entries[0].name, false, true};
    const Tuner &tuner = g_tuners.get(class_of(size));
    Choice choice = tuner.best();
    return {copy_variants().entries[choice.variant].name, choice.parallel, tuner.decided()};
}

}  // namespace reprise::kernels
