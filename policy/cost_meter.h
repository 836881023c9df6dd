// What preserving costs on this machine: measured once at the first plan, then refined by what captures and replays of this very job took
// (medians of the last ones). Under the engine's mutex, except measure(), which the planner's thread calls.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "allocator/allocator.h"
#include "planner/tables.h"
#include "tracker/replay.h"

namespace reprise {

class CostMeter {
  public:
    // False: no page can be watched here, and a shadow's looks are comparisons.
    void set_watches(bool watches) { watches_ = watches; }
    bool watches() const { return watches_; }
    void copied(uint64_t bytes, uint64_t nanoseconds);
    // What a replay loaded and how long that took. Only one nearly all of whose bytes are of one kind tells what that kind costs. A load
    // is two copies, the put-back a third, whose time cannot be told from the rest of a replay's end.
    void loaded(LoadedBytes bytes, uint64_t nanoseconds);

    // `measured`, with what the job itself showed in place of it.
    planner::MechanismCosts refine(planner::MechanismCosts measured) const;

    // Some 60 ms on scratch memory of our own, put out of the caches (a job comes back to its state a step later), or what an earlier
    // process measured on this kernel and processor.
    // `watches`: as set_watches() says.
    static planner::MechanismCosts measure(const AllocatorPort &port, bool watches, const std::string &cache);
    // Where that is; "" for nowhere. On the job's thread: the environment may be changed while another thread reads it.
    static std::string cache_file();

  private:
    static constexpr size_t kSamples = 63;
    struct Samples {
        std::array<uint32_t, kSamples> ps_per_page{};  // a ring
        size_t count = 0;
    };
    static void add(Samples &samples, uint64_t bytes, uint64_t nanoseconds);
    static int64_t median(const Samples &samples, int64_t otherwise);

    Samples copy_, copy_load_, page_load_;
    bool watches_ = true;
};

}  // namespace reprise
