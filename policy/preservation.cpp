#include "policy/preservation.h"

namespace reprise {

MechanismKind Preservation::choose(Buffer &buffer, bool learned) const {
    const size_t size = buffer.range.size();
    buffer.watched_for_headroom = false;
    if (size < kSmallBuffer) return MechanismKind::kSmall;
    // Activations that come in as arguments are never armed or copied: they are as large as what recomputation saves.
    if (buffer.flags.argument && !buffer.flags.declared) return MechanismKind::kWatch;
    if (policy_ == Policy::kWhole) return MechanismKind::kWhole;

    const bool calibrating = buffer.windows < kCalibrationWindows;
    const bool changes = buffer.windows_changed != 0 || buffer.promoted;
    const bool expensive = (buffer.flags.parameter && parameter_bytes_ > kWatchParametersBeyond) || learned;
    if (expensive && !changes && !calibrating) return MechanismKind::kWatch;

    const bool preserved = buffer.mechanism && buffer.mechanism->kind() == MechanismKind::kShadow;
    buffer.watched_for_headroom = !preserved && !pool_.has_headroom(size);
    return buffer.watched_for_headroom ? MechanismKind::kWatch : MechanismKind::kShadow;
}

}  // namespace reprise
