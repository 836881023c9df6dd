// A job's buffer and its writes: random pages, fresh ones for every window, one word in each.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bench {

class PageWriter {
  public:
    PageWriter(char *buffer, size_t size);

    // The pages of the next write() and what will be written: the same in every process for the same seed. Not timed.
    void choose(double fraction, uint64_t seed);
    size_t count() const { return count_; }
    // Does the writes, in random order; returns nanoseconds.
    uint64_t write();
    // The words written last are as they were before (old) or as written (new): false names the first that is not, on stderr.
    bool check_old() const { return check(before_, "before the writes"); }
    bool check_new() const { return check(after_, "after the writes"); }
    // Pages written by any write() since forget().
    size_t distinct() const { return distinct_; }
    void forget();

  private:
    uint64_t *word(size_t i) const;
    bool check(const uint64_t *expected, const char *when) const;

    char *buffer_;
    size_t pages_;
    size_t count_ = 0;
    size_t distinct_ = 0;
    uint32_t *order_;            // a permutation of all pages; the first count_ are the chosen ones
    uint16_t *offset_;           // of the word in each chosen page
    uint64_t *before_, *after_;  // of each chosen word
    uint8_t *seen_;
};

}  // namespace bench
