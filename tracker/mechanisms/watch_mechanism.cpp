#include "tracker/mechanisms/watch_mechanism.h"

#include <algorithm>

namespace reprise {

kernels::Digest128 WatchMechanism::digest_now() const {
    return kernels::digest128(reinterpret_cast<const void *>(buffer_.range.begin), buffer_.range.size());
}

Status WatchMechanism::capture(Version version, CaptureCost &cost) {
    const kernels::Digest128 now = digest_now();
    cost.written = captured_ && now != last_;
    captured_ = true;
    last_ = now;
    records_.push_back({version, now});
    return {};
}

Status WatchMechanism::changed(Version version, ReplayView &view) {
    view.version = version;
    auto found = std::find_if(records_.begin(), records_.end(), [&](const Record &r) { return r.version == version; });
    if (found != records_.end() && found->digest == digest_now()) return {};
    const char *remedy = buffer_.flags.argument ? "pass a copy of this argument, or do not write it between the forward and the backward"
                         : buffer_.watched_for_headroom
                             ? "give the job more memory (see the limits of its control group), or let it go on with REPRISE_ON_REJECT=warn"
                             : "it is preserved from the next window on; REPRISE_POLICY=whole preserves it from the start";
    return Status::error(REPRISE_REJECTED,
                         "buffer '%s' (%zu bytes at %#zx) was only watched%s and has changed since the forward: its old bytes are gone; %s",
                         buffer_.name.c_str(), buffer_.range.size(), static_cast<size_t>(buffer_.range.begin),
                         buffer_.watched_for_headroom ? " (too little memory was left for a copy)" : "", remedy);
}

void WatchMechanism::strays(const ReplayView & /*view*/, std::vector<Piece> & /*out*/) {
    // Nothing to put back with; a write during the replay shows at the next replay or the next verification.
}

void WatchMechanism::release(Version version) {
    std::erase_if(records_, [&](const Record &r) { return r.version == version; });
}

void WatchMechanism::written_since_capture(std::vector<AddressRange> &runs) {
    if (!captured_ || last_ == digest_now()) return;
    runs.push_back(buffer_.range);
}

}  // namespace reprise
