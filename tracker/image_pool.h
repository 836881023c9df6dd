// Memory for preserved bytes: shadows, before-images, and the present of open replays.
//
// A copy into memory that was never touched runs at a tenth of the speed (docs/tracking.md). Big images therefore come from the arenas,
// where memory that the job has freed is reused without a page fault, and serves the job again afterwards: of a step's peak the two
// together take no more than the plan says. Where there are no arenas, or they are full, images are anonymous mappings that are kept for
// reuse; kept and live bytes together never exceed the live peak of the recent windows. Every byte is in the ledger, and nothing big is
// taken without headroom beyond what was held lately: memory at a cgroup's limit is a kill, not an ENOMEM.
#pragma once

#include <cstddef>
#include <map>
#include <memory>

#include "allocator/allocator.h"

namespace reprise {

class ImagePool;

// Move-only owner of preserved bytes.
class Image {
  public:
    Image() = default;
    Image(Image &&other) noexcept;
    Image &operator=(Image &&other) noexcept;
    Image(const Image &) = delete;
    Image &operator=(const Image &) = delete;
    ~Image() { reset(); }

    void reset();
    std::byte *data() const { return data_; }
    size_t size() const { return size_; }
    explicit operator bool() const { return data_ != nullptr; }

  private:
    friend class ImagePool;
    enum class Home : uint8_t { kHeap, kArena, kMapping };
    std::byte *data_ = nullptr;
    size_t size_ = 0;      // asked for
    size_t capacity_ = 0;  // taken
    Home home_ = Home::kHeap;
    LedgerKind kind_ = LedgerKind::kImages;
    ImagePool *pool_ = nullptr;
};

class ImagePool {
  public:
    explicit ImagePool(const AllocatorPort &port) : port_(port) {}
    ~ImagePool();
    ImagePool(const ImagePool &) = delete;
    ImagePool &operator=(const ImagePool &) = delete;

    // An empty Image when there is no headroom for it (or no memory at all). 64-byte aligned, big ones page-aligned; contents undefined.
    Image allocate(size_t size, LedgerKind kind);
    // Would `size` more bytes leave the job what it needs? kPresent is held only while a replay is open, when the job's own need has
    // passed its peak; everything else stays, so it must fit beside a peak that may be yet to come.
    bool has_headroom(size_t size, LedgerKind kind = LedgerKind::kShadows) const;
    // A window ended: mappings unused for many windows go back.
    void window_ended();
    // Gives every kept mapping back.
    void trim();

    size_t live() const { return live_; }
    size_t kept() const { return kept_bytes_; }  // for reuse, beside what is live
    size_t live_peak() const { return live_peak_; }
    // For tests: behave as if only this much were free (SIZE_MAX: ask the machine).
    void limit_headroom(size_t bytes) { headroom_limit_ = bytes; }

  private:
    friend class Image;
    bool take(Image &image, LedgerKind kind);
    bool take_kept(Image &image);
    bool make_room(size_t size, LedgerKind kind);
    void give_back(Image &image);
    void unmap(std::multimap<size_t, std::byte *>::iterator kept);

    const AllocatorPort &port_;
    std::multimap<size_t, std::byte *> kept_;  // capacity -> mapping
    size_t kept_bytes_ = 0;
    size_t live_ = 0;
    size_t live_peak_ = 0;
    // The most in the recent windows, and in this one.
    struct Peak {
        size_t recent = 0, window = 0;
        void reach(size_t value) {
            if (value > recent) recent = value;
            if (value > window) window = value;
        }
        void window_ended(size_t value) { recent = window > value ? window : value, window = value; }
    };
    Peak peak_;           // of live_: what kept_ may fill up to
    size_t lasting_ = 0;  // of live_, without kPresent
    Peak lasting_peak_;   // there was room for so much
    unsigned windows_ = 0;
    size_t headroom_limit_ = SIZE_MAX;
};

}  // namespace reprise
