#include "bench/native/pages.h"

#include <cstring>

#include "bench/native/clock.h"

namespace bench {
namespace {

constexpr size_t kPage = 4096;

// splitmix64
uint64_t next_random(uint64_t &state) {
    uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

template <class T>
T *array(size_t count) {
    return reinterpret_cast<T *>(map_memory(count * sizeof(T), true));
}

}  // namespace

// The arrays are mapped, not allocated: under the preload a program's own allocations are its state.
PageWriter::PageWriter(char *buffer, size_t size)
    : buffer_(buffer),
      pages_(size / kPage),
      order_(array<uint32_t>(pages_)),
      offset_(array<uint16_t>(pages_)),
      before_(array<uint64_t>(pages_)),
      after_(array<uint64_t>(pages_)),
      seen_(array<uint8_t>(pages_)) {
    for (size_t i = 0; i < pages_; i++) order_[i] = static_cast<uint32_t>(i);
    forget();
}

void PageWriter::forget() {
    memset(seen_, 0, pages_);
    distinct_ = 0;
}

uint64_t *PageWriter::word(size_t i) const { return reinterpret_cast<uint64_t *>(buffer_ + size_t{order_[i]} * kPage + offset_[i]); }

void PageWriter::choose(double fraction, uint64_t seed) {
    uint64_t random = seed;
    count_ = static_cast<size_t>(fraction * static_cast<double>(pages_) + 0.5);
    for (size_t i = 0; i < pages_; i++) order_[i] = static_cast<uint32_t>(i);
    for (size_t i = 0; i < count_; i++) {
        size_t other = i + next_random(random) % (pages_ - i);
        uint32_t page = order_[other];
        order_[other] = order_[i];
        order_[i] = page;
        offset_[i] = static_cast<uint16_t>(next_random(random) % (kPage / 8) * 8);
    }
    for (size_t i = 0; i < count_; i++) {
        before_[i] = *word(i);
        after_[i] = next_random(random) | 1;
        if (after_[i] == before_[i]) after_[i] += 2;
        distinct_ += !seen_[order_[i]];
        seen_[order_[i]] = 1;
    }
}

uint64_t PageWriter::write() {
    uint64_t began = now_ns();
    for (size_t i = 0; i < count_; i++) *reinterpret_cast<volatile uint64_t *>(word(i)) = after_[i];
    return now_ns() - began;
}

bool PageWriter::check(const uint64_t *expected, const char *when) const {
    for (size_t i = 0; i < count_; i++) {
        if (*word(i) == expected[i]) continue;
        fprintf(stderr, "page %u, offset %u: holds %llx, not the %llx that was there %s\n", order_[i], offset_[i],
                static_cast<unsigned long long>(*word(i)), static_cast<unsigned long long>(expected[i]), when);
        return false;
    }
    return true;
}

}  // namespace bench
