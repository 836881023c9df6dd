// All buffers that a contract ever named, by address. Creates them, gives them their mechanism, forgets them when their memory is gone and
// no instance needs them. Under the engine's mutex.
#pragma once

#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "tracker/buffer.h"
#include "tracker/dirty_source.h"
#include "tracker/image_pool.h"
#include "tracker/range_index.h"

namespace reprise {

class BufferRegistry {
  public:
    // `guard` may be null: then everything is compared.
    BufferRegistry(const AllocatorPort &port, ImagePool &pool, std::unique_ptr<DirtySource> guard);
    ~BufferRegistry();
    BufferRegistry(const BufferRegistry &) = delete;
    BufferRegistry &operator=(const BufferRegistry &) = delete;

    // The buffer for exactly these bytes in their present generation, made if there is none. Null when its memory cannot be identified
    // (the allocator's table of declarations is full).
    Buffer *obtain(AddressRange range, const char *name, BufferFlags flags);
    // The live buffer that holds `address`, null when none does. Where several overlap: a declared one, then the smallest.
    Buffer *find(uintptr_t address);

    // Gives an idle buffer (no outstanding versions) the mechanism `kind`; one that has it already keeps it, with what it learned.
    void use(Buffer &buffer, MechanismKind kind);
    // Captures the next version; 0 in *version when it failed (the Status says why).
    Status capture(Buffer &buffer, Version *version, CaptureCost &cost);
    void release(Buffer &buffer, Version version);

    // Window ended: forgets buffers that are dead, or unused for long, and hold nothing that is needed.
    void window_ended(uint64_t window);
    void forget(Buffer &buffer);
    // How many generations have ended so far.
    uint64_t endings() const;
    bool live(const Buffer &buffer) const { return still_live(port_, buffer); }
    // Every buffer that meets `range`, dead ones too.
    void for_each_meeting(AddressRange range, const std::function<void(Buffer &)> &visit);

    void hold_by_plan(Buffer &buffer, bool held);
    // Held for buffers of which no version is outstanding, without those that are held by plan; and lets it go: their next capture fills it
    // anew.
    size_t idle_bytes() const { return idle_bytes_; }
    void let_idle_go();

    DirtySource *guard() const { return guard_.get(); }
    size_t size() const { return by_address_.size(); }

  private:
    struct Key {
        uintptr_t begin;
        size_t size;
        friend bool operator==(Key, Key) = default;
    };
    struct KeyHash {
        size_t operator()(Key key) const { return (key.begin >> 4) * 0x9e3779b97f4a7c15ULL ^ key.size; }
    };
    bool claim_guard(const Buffer &buffer);
    void retire(std::unique_ptr<Buffer> buffer);
    void destroy(Buffer &buffer);
    void count_idle(Buffer &buffer);

    const AllocatorPort &port_;
    ImagePool &pool_;
    std::unique_ptr<DirtySource> guard_;
    std::unique_ptr<DirtySource> compare_;
    std::unordered_map<Key, std::unique_ptr<Buffer>, KeyHash> by_address_;
    RangeIndex index_;                                      // of by_address_
    std::unordered_map<Generation, uint64_t> guard_owner_;  // block -> buffer id: get+reset of one buffer must not eat another's bits
    std::vector<std::unique_ptr<Buffer>> retired_;          // another generation lives at their address; instances still name them
    uint64_t next_id_ = 1;
    size_t idle_bytes_ = 0;
    uint64_t swept_at_ = ~uint64_t{0};
};

}  // namespace reprise
