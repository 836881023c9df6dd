// C++ on top of reprise.h: scopes instead of pairs of calls. Header-only, C++11 and later, needs no more than reprise.h does.
//
//     reprise::Segment forward("layer3");                    a forward; ends with the scope
//     ...
//     reprise::Segment again("layer3", forward.instance());  its replay; put back when the scope is left, also by an exception
//     if (!again.ok()) throw std::runtime_error(reprise::last_error());
//
// An object belongs to the thread that made it: it must be destroyed there, innermost first.
#ifndef REPRISE_REPRISE_HPP
#define REPRISE_REPRISE_HPP

#include "reprise/reprise.h"

namespace reprise {

inline const char *last_error() noexcept { return reprise_last_error(); }

// A forward, or the replay of an instance, as long as the object lives.
class Segment {
  public:
    explicit Segment(const char *name, uint64_t replay_of = 0) noexcept : segment_(reprise_segment_begin(name, replay_of)) {
        open_ = segment_.status == REPRISE_OK;
    }
    Segment(Segment &&other) noexcept : segment_(other.segment_), open_(other.open_) { other.open_ = false; }
    Segment &operator=(Segment &&) = delete;
    Segment(const Segment &) = delete;
    Segment &operator=(const Segment &) = delete;
    ~Segment() { (void)end(); }

    // False: a replay has loaded nothing and must not be run; a forward runs unprotected.
    bool ok() const noexcept { return segment_.status == REPRISE_OK; }
    reprise_status status() const noexcept { return segment_.status; }
    // What a later replay names; 0 when !ok().
    uint64_t instance() const noexcept { return segment_.instance; }
    // Should the activations of this forward be kept, because it will not be replayed?
    bool retain() const noexcept { return segment_.action == REPRISE_RETAIN; }

    // Ends it now and says how it went (REPRISE_DIVERGED among others); the destructor then does nothing. REPRISE_OK when already ended.
    reprise_status end() noexcept {
        if (!open_) return REPRISE_OK;
        open_ = false;
        return reprise_segment_end(segment_);
    }

  private:
    reprise_segment segment_;
    bool open_ = false;
};

// Declares a buffer as long as the object lives.
class Tracked {
  public:
    Tracked(void *address, size_t size, const char *name, unsigned flags = 0) noexcept
        : address_(address), status_(reprise_track(address, size, name, flags)) {}
    Tracked(Tracked &&other) noexcept : address_(other.address_), status_(other.status_) { other.status_ = REPRISE_NOT_FOUND; }
    Tracked &operator=(Tracked &&) = delete;
    Tracked(const Tracked &) = delete;
    Tracked &operator=(const Tracked &) = delete;
    ~Tracked() {
        if (ok()) (void)reprise_untrack(address_);
    }

    bool ok() const noexcept { return status_ == REPRISE_OK; }
    reprise_status status() const noexcept { return status_; }

  private:
    void *address_;
    reprise_status status_;
};

}  // namespace reprise

#endif
