// Watch: no copy, a change is detected by digest. For what is large and does not change between F and B (parameters, arguments).
// Written is not changed: only other bytes reject a replay.
#pragma once

#include <vector>

#include "kernels/kernels.h"
#include "tracker/buffer.h"
#include "tracker/mechanism.h"

namespace reprise {

class WatchMechanism final : public Mechanism {
  public:
    explicit WatchMechanism(const Buffer &buffer) : buffer_(buffer) {}

    MechanismKind kind() const override { return MechanismKind::kWatch; }
    Status capture(Version version, CaptureCost &cost) override;
    void forward_ended(Version) override {}
    Status changed(Version version, ReplayView &view) override;
    void strays(const ReplayView &view, std::vector<Piece> &out) override;
    bool forward_wrote(Version) const override { return false; }
    void release(Version version) override;
    void written_since_capture(std::vector<AddressRange> &runs) override;
    size_t outstanding() const override { return records_.size(); }

  private:
    struct Record {
        Version version = 0;
        kernels::Digest128 digest{};
    };
    kernels::Digest128 digest_now() const;

    const Buffer &buffer_;
    std::vector<Record> records_;
    kernels::Digest128 last_{};  // of the last capture, also when its version was released
    bool captured_ = false;
};

}  // namespace reprise
