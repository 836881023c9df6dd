// Cover inequalities, one more thing to dualise. Where the budget of a slot wants `need` pages freed, some of the instances alive there
// must be replayed; whatever is saved by a set of them, the others must free the rest, and none of them can free more than all of it: a
// segment that is far larger than what is missing counts as what is missing. The linear bound replays a small part of it instead.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/core.h"

namespace reprise::planner {

// In every plan within the budget the replayed instances' pages add up to `need` at least.
struct Cut {
    int64_t need = 0;
    std::vector<std::pair<int, int64_t>> saved;  // instance, pages
    friend bool operator==(const Cut &, const Cut &) = default;
};

// The cut of this slot that `replayed` (per instance, between 0 and 1) misses most, by `missed` (as a part of need; 0: by none).
struct Found {
    Cut cut;
    double missed = 0;
};
Found find_cut(const Core &core, int64_t budget, int slot, const std::vector<double> &replayed);

}  // namespace reprise::planner
