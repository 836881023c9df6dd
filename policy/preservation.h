// Which mechanism preserves a buffer: the rules that stand until the planner prices them. Called at every forward, so it only looks at
// what the buffer already knows.
#pragma once

#include "policy/config.h"
#include "tracker/tracker.h"

namespace reprise {

// Parameters beyond this much in all are watched instead of preserved.
inline constexpr uint64_t kWatchParametersBeyond = uint64_t{64} << 20;
// In the first windows everything is preserved where headroom allows, so that what a job really changes is exact from the start.
inline constexpr uint32_t kCalibrationWindows = 2;

class Preservation {
  public:
    Preservation(Policy policy, const ImagePool &pool) : policy_(policy), pool_(pool) {}

    // `learned`: the buffer is in scope only because nothing was declared.
    MechanismKind choose(Buffer &buffer, bool learned) const;
    // A large parameter was seen for the first time.
    void count_parameter(const Buffer &buffer) { parameter_bytes_ += buffer.range.size(); }

  private:
    Policy policy_;
    const ImagePool &pool_;
    uint64_t parameter_bytes_ = 0;
};

}  // namespace reprise
