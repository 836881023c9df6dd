// The outstanding versions of one buffer, ascending. A handful in practice: a vector beats every tree.
#pragma once

#include <algorithm>
#include <vector>

#include "tracker/mechanism.h"

namespace reprise {

class VersionList {
  public:
    void add(Version version) { versions_.push_back(version); }  // versions only rise
    void remove(Version version) {
        auto found = std::lower_bound(versions_.begin(), versions_.end(), version);
        if (found != versions_.end() && *found == version) versions_.erase(found);
    }
    bool empty() const { return versions_.empty(); }
    size_t size() const { return versions_.size(); }
    Version newest() const { return versions_.empty() ? 0 : versions_.back(); }
    // Is any outstanding version in [from, until)?
    bool any_in(Version from, Version until) const {
        auto found = std::lower_bound(versions_.begin(), versions_.end(), from);
        return found != versions_.end() && *found < until;
    }

  private:
    std::vector<Version> versions_;
};

}  // namespace reprise
