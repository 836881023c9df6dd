// Pages of one buffer, by index from the buffer's first page: half-open runs, and a bit per page.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

namespace reprise {

struct PageRun {
    uint32_t first = 0;
    uint32_t count = 0;
    uint32_t end() const { return first + count; }
    friend bool operator==(PageRun, PageRun) = default;
};

using PageRuns = std::vector<PageRun>;

// Appends a run, merging it with the last one when they touch. Runs come in ascending order.
inline void append_run(PageRuns &runs, uint32_t first, uint32_t count) {
    if (count == 0) return;
    if (!runs.empty() && runs.back().end() == first) {
        runs.back().count += count;
    } else {
        runs.push_back({first, count});
    }
}

// The pages of both, each ascending; they may overlap.
inline PageRuns unite(const PageRuns &a, const PageRuns &b) {
    PageRuns both, out;
    std::merge(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both), [](PageRun x, PageRun y) { return x.first < y.first; });
    for (PageRun run : both) {
        if (!out.empty() && out.back().end() >= run.first) {
            if (run.end() > out.back().end()) out.back().count = run.end() - out.back().first;
        } else {
            out.push_back(run);
        }
    }
    return out;
}

class PageBits {
  public:
    PageBits() = default;
    explicit PageBits(size_t pages) : words_((pages + 63) / 64) {}

    bool empty() const { return words_.empty(); }
    bool test(uint32_t page) const { return !words_.empty() && (words_[page / 64] >> (page % 64) & 1) != 0; }
    void set(uint32_t page) { words_[page / 64] |= uint64_t{1} << (page % 64); }
    void clear(uint32_t page) { words_[page / 64] &= ~(uint64_t{1} << (page % 64)); }
    void set(PageRun run) { assign(run, true); }
    void clear(PageRun run) { assign(run, false); }
    bool any() const {
        for (uint64_t word : words_) {
            if (word != 0) return true;
        }
        return false;
    }

    // The set pages as runs, ascending.
    PageRuns runs() const {
        PageRuns out;
        for (size_t w = 0; w < words_.size(); ++w) {
            uint64_t word = words_[w];
            while (word != 0) {
                auto low = static_cast<uint32_t>(std::countr_zero(word));
                auto length = static_cast<uint32_t>(std::countr_one(word >> low));
                append_run(out, static_cast<uint32_t>(w * 64) + low, length);
                if (low + length >= 64) break;
                word &= ~uint64_t{0} << (low + length);
            }
        }
        return out;
    }

  private:
    void assign(PageRun run, bool value) {
        uint32_t page = run.first;
        uint32_t left = run.count;
        while (left != 0) {
            uint32_t bit = page % 64;
            uint32_t n = left < 64 - bit ? left : 64 - bit;
            uint64_t mask = (n == 64 ? ~uint64_t{0} : (uint64_t{1} << n) - 1) << bit;
            if (value) {
                words_[page / 64] |= mask;
            } else {
                words_[page / 64] &= ~mask;
            }
            page += n;
            left -= n;
        }
    }

    std::vector<uint64_t> words_;
};

}  // namespace reprise
