// Where the best multipliers leave a gap: cuts that the mix of relaxed plans misses, and multipliers for slots and cuts together, in turn.
// The cuts' multipliers stay as they are then; what follows only sees that replaying some instances is worth more.
#include <algorithm>
#include <numeric>

#include "planner/search.h"

namespace reprise::planner {

namespace {

constexpr int kRounds = 12, kSteps = 60, kIdleRounds = 3, kMostBad = 5;
constexpr double kFirstStep = 0.1;
constexpr uint64_t kWorkShare = 10;  // of what is left: one part for this
constexpr size_t kMostCuts = 120, kFreshCuts = 15;
constexpr double kMissed = 0.01;  // cuts that are missed by less are not worth it
constexpr double kForget = 0.1;   // part of the newest relaxed plan in the mix
constexpr double kWorth = 0.002;  // what a round must gain, as a part of the gap
constexpr double kScale = 1 << kShift;

}  // namespace

// Charges the cuts, at these multipliers, to the instances.
void Search::hold(const std::vector<int64_t> &cut_multipliers) {
    std::vector<int64_t> bonus(core_.instances.size(), 0);
    int64_t owed = 0;
    for (size_t c = 0; c < cuts_.size(); c++) {
        if (cut_multipliers[c] == 0) continue;
        owed += cut_multipliers[c] * cuts_[c].need;
        for (auto [i, pages] : cuts_[c].saved) bonus[i] += cut_multipliers[c] * pages;
    }
    lagrangian_.set_bonus(std::move(bonus), owed);
}

// Cuts that the mix of plans misses most.
void Search::find_cuts(const std::vector<double> &mix) {
    std::vector<Found> found;
    for (int slot : lagrangian_.slots()) {
        found.push_back(find_cut(core_, budget_, slot, mix));
        if (found.back().missed < kMissed) found.pop_back();
    }
    work_.used += static_cast<uint64_t>(lagrangian_.count()) * core_.instances.size() * 60;
    std::stable_sort(found.begin(), found.end(), [](const Found &a, const Found &b) { return a.missed > b.missed; });
    size_t fresh = 0;
    for (Found &it : found) {
        if (fresh == kFreshCuts || cuts_.size() == kMostCuts) break;
        if (std::find(cuts_.begin(), cuts_.end(), it.cut) != cuts_.end()) continue;
        cuts_.push_back(std::move(it.cut));
        fresh++;
    }
}

// By how much the relaxed plan exceeds the slots and misses the cuts.
std::vector<double> Search::slope_with_cuts(const Relaxed &relaxed) {
    std::vector<double> slope(relaxed.excess.begin(), relaxed.excess.begin() + lagrangian_.count());
    for (const Cut &cut : cuts_) {
        int64_t missing = cut.need;
        for (auto [i, pages] : cut.saved) missing -= relaxed.replay[i] ? pages : 0;
        slope.push_back(static_cast<double>(missing));
        work_.used += cut.saved.size();
    }
    return slope;
}

void Search::cut(std::vector<int64_t> &multipliers, const Fixing &fixing, Relaxed &relaxed) {
    auto slots = static_cast<long>(lagrangian_.count());
    auto most = static_cast<double>(lagrangian_.largest_total());
    std::vector<double> point, direction, mix(core_.instances.size(), 0.0);
    std::vector<int64_t> best(multipliers), at;
    for (size_t i = 0; i < mix.size(); i++) mix[i] = relaxed.replay[i];
    int64_t best_bound = relaxed.bound;
    const uint64_t stop = work_.used + (work_.limit - work_.used) / kWorkShare;
    for (int round = 0, idle = 0; round < kRounds && idle < kIdleRounds && best_bound <= incumbent_.cutoff() && work_.used < stop;
         round++) {
        if (round > 0) find_cuts(mix);
        best.resize(static_cast<size_t>(slots) + cuts_.size(), 0);
        point.assign(best.begin(), best.end());
        int64_t before = best_bound;
        double step_size = round == 0 ? kFirstStep / 2 : kFirstStep;
        int bad = 0;
        direction.clear();
        for (int step = 0; step < kSteps && work_.used < stop; step++) {
            double total = std::accumulate(point.begin(), point.end(), 0.0);
            if (total > most)
                for (double &p : point) p *= most / total;
            at.resize(point.size());
            for (size_t k = 0; k < point.size(); k++) at[k] = static_cast<int64_t>(point[k]);
            hold({at.begin() + slots, at.end()});
            lagrangian_.evaluate({at.begin(), at.begin() + slots}, fixing, relaxed);
            counters_.evaluations++;
            bool better = relaxed.bound > best_bound;
            if (better) best_bound = relaxed.bound, best = at;
            if (best_bound > incumbent_.cutoff()) break;
            for (size_t i = 0; i < mix.size(); i++) mix[i] += kForget * (relaxed.replay[i] - mix[i]);
            bad = better ? 0 : bad + 1;
            if (bad == kMostBad) {
                step_size *= 0.6;
                bad = 0;
            }
            std::vector<double> slope = slope_with_cuts(relaxed);
            if (direction.size() != slope.size())
                direction = slope;
            else
                for (size_t k = 0; k < slope.size(); k++) direction[k] = 0.6 * direction[k] + 0.4 * slope[k];
            double norm = 0;
            for (size_t k = 0; k < point.size(); k++) norm += point[k] <= 0 && direction[k] < 0 ? 0 : direction[k] * direction[k];
            if (norm < 1e-9) break;
            double target = static_cast<double>(incumbent_.time()) * kScale;
            double length = step_size * std::max(target - static_cast<double>(relaxed.bound), kScale) / norm;
            for (size_t k = 0; k < point.size(); k++) point[k] = std::max(0.0, point[k] + length * direction[k]);
        }
        double gained = static_cast<double>(best_bound - before) / kScale;
        idle = gained < kWorth * gap(best_bound) * static_cast<double>(incumbent_.time()) ? idle + 1 : 0;
    }
    best.resize(static_cast<size_t>(slots) + cuts_.size(), 0);
    hold({best.begin() + slots, best.end()});
    multipliers.assign(best.begin(), best.begin() + slots);
    lagrangian_.evaluate(multipliers, fixing, relaxed, true);
    counters_.evaluations++;
}

}  // namespace reprise::planner
