// Multipliers: a deflected subgradient method with steps towards the best known plan's time (ascend), and where that leaves a gap a
// proximal bundle method (climb). Both make slots active as the plans they meet exceed them. Floating point decides where to look, never
// what is true: every bound comes from an integer evaluation.
#include <algorithm>
#include <cmath>

#include "planner/bundle.h"
#include "planner/search.h"

namespace reprise::planner {

namespace {

constexpr int kMostSlots = 200;  // active at a time
constexpr double kScale = 1 << kShift;
constexpr double kUsageSlack = 2e-5;
constexpr size_t kMostFresh = 4;      // slots made active at a time
constexpr int kMostLengthened = 12;   // how often the bundle method's step is changed while it promises nothing
constexpr double kSmallGap = 0.05;    // between a relaxed plan and the bound, as a part of the bound
constexpr double kBlindTarget = 1e9;  // when no plan is known and the bound says nothing yet

}  // namespace

// Slots that are not active and that the mix of relaxed plans exceeds which the bundle method ended with: at good multipliers one plan
// exceeds the active slots and the next one none, and only together they show which others would be too full.
std::vector<int> Search::exceeded(const std::vector<double> &usage) const {
    std::vector<int> out;
    auto limit = static_cast<double>(budget_) * (1 + kUsageSlack);
    int worst = -1;
    for (int t = 0; t <= core_.slots; t++) {
        if (t < core_.slots && usage[t] > limit) {
            if (worst < 0 || usage[t] > usage[worst]) worst = t;
        } else if (worst >= 0) {
            if (!std::binary_search(lagrangian_.slots().begin(), lagrangian_.slots().end(), worst)) out.push_back(worst);
            worst = -1;
        }
    }
    std::stable_sort(out.begin(), out.end(), [&](int x, int y) { return usage[x] > usage[y]; });
    if (out.size() > kMostFresh) out.resize(kMostFresh);
    return out;
}

// A plan that the relaxation made: what it takes in all slots, and whether it is the best so far.
void Search::meet(const Choice &choice) {
    plan_.set(choice);
    work_.used += static_cast<uint64_t>(core_.slots) * 2 + 8 * core_.uses.size();
    incumbent_.offer(plan_);
}

// The bound at `point`, which is brought into the region where a best one lies; `at`: the integers that it was evaluated at.
void Search::evaluate_at(std::vector<double> &point, const Fixing &fixing, std::vector<int64_t> &at, Relaxed &out) {
    auto most = static_cast<double>(lagrangian_.largest_total());
    double total = 0;
    for (double p : point) total += p;
    if (total > most)
        for (double &p : point) p *= most / total;
    at.resize(point.size());
    for (size_t k = 0; k < point.size(); k++) at[k] = static_cast<int64_t>(point[k]);
    lagrangian_.evaluate(at, fixing, out);
    counters_.evaluations++;
}

// Where an ascent ends: at the best multipliers, with the shares that fixing needs.
int64_t Search::keep_best(const std::vector<int64_t> &best, const Fixing &fixing, std::vector<int64_t> &multipliers, Relaxed &out) {
    multipliers = best;
    lagrangian_.evaluate(multipliers, fixing, out, true);
    counters_.evaluations++;
    counters_.most_events = std::max(counters_.most_events, static_cast<uint32_t>(lagrangian_.count()));
    return out.bound;
}

// Evaluates the relaxed plan in all slots; makes slots active that it exceeds. true: some were added, and the vectors fit the new set.
bool Search::grow_from_plan(const Fixing &fixing, std::vector<double> &point, std::vector<int64_t> &best, const Relaxed &relaxed,
                            bool repair) {
    meet({relaxed.replay, relaxed.mechanism});
    std::vector<int> fresh;
    for (int slot : plan_.violated(budget_))
        if (!std::binary_search(lagrangian_.slots().begin(), lagrangian_.slots().end(), slot)) fresh.push_back(slot);
    if (!fresh.empty() && lagrangian_.count() < kMostSlots) {
        std::stable_sort(fresh.begin(), fresh.end(), [&](int a, int b) { return plan_.memory()[a] > plan_.memory()[b]; });
        if (fresh.size() > kMostFresh) fresh.resize(kMostFresh);
        std::vector<int> old = lagrangian_.slots();
        std::vector<double> old_point = point;
        std::vector<int64_t> values = best;
        activate(fresh, values);
        best = values;
        point.assign(lagrangian_.count(), 0.0);
        for (size_t k = 0; k < old.size(); k++)
            point[std::lower_bound(lagrangian_.slots().begin(), lagrangian_.slots().end(), old[k]) - lagrangian_.slots().begin()] =
                old_point[k];
        return true;
    }
    if (repair) incumbent_.repair(plan_, relaxed.reduced, fixing);
    return false;
}

// Takes the variant of the inner bound that is best at these multipliers, unless it hardly matters.
void Search::pick_variant(const std::vector<int64_t> &multipliers, const Fixing &fixing, const Relaxed &relaxed) {
    int first = lagrangian_.variant(), best = first;
    int64_t best_bound = relaxed.bound + std::abs(relaxed.bound) / 10000;
    Relaxed trial;
    for (int variant = 0; variant < Lagrangian::kVariants; variant++) {
        if (variant == first) continue;
        lagrangian_.set_variant(variant);
        lagrangian_.evaluate(multipliers, fixing, trial);
        counters_.evaluations++;
        if (trial.bound > best_bound) best_bound = trial.bound, best = variant;
    }
    lagrangian_.set_variant(best);
    // Those that would have paid more come first, before the others have filled the pots that they share.
    lagrangian_.evaluate(multipliers, fixing, trial);
    std::vector<int> before = lagrangian_.order(), order = before;
    std::stable_partition(order.begin(), order.end(), [&](int i) { return trial.reduced[i] < 0; });
    best = lagrangian_.variant();
    lagrangian_.set_order(std::move(order));
    lagrangian_.evaluate(multipliers, fixing, trial);
    counters_.evaluations += 2;
    if (trial.bound > best_bound) return;
    lagrangian_.set_order(std::move(before));
    lagrangian_.set_variant(best);
}

// Windows whose readers the relaxation lets use several mechanisms get a fee: as much as a single one would cost more.
void Search::charge_fees(const std::vector<int64_t> &multipliers, const Fixing &fixing, Relaxed &relaxed) {
    std::vector<int64_t> fees(core_.windows.size(), 0);
    int64_t best = relaxed.bound;
    Relaxed trial;
    for (int w = 0; w < core_.window_count() && !work_.spent(); w++) {
        const CoreWindow &window = core_.windows[w];
        if (decided(fixing.mechanisms[w])) continue;
        int64_t paid = 0;
        int replays = 0;
        for (int r = window.reader_begin; r < window.reader_end; r++)
            if (relaxed.replay[core_.readers[r]]) paid += relaxed.level[r], replays++;
        if (replays < 2 || relaxed.window_cost[w] <= paid) continue;
        for (int part : {1, 4}) {
            fees[w] = (relaxed.window_cost[w] - paid) / part;
            lagrangian_.set_fees(fees);
            lagrangian_.evaluate(multipliers, fixing, trial);
            counters_.evaluations++;
            if (trial.bound > best) break;
            fees[w] = 0;
        }
        if (fees[w] > 0) best = trial.bound, relaxed = trial;
    }
    if (std::all_of(fees.begin(), fees.end(), [](int64_t fee) { return fee == 0; })) fees.clear();
    lagrangian_.set_fees(std::move(fees));
    lagrangian_.evaluate(multipliers, fixing, relaxed, true);
    counters_.evaluations++;
}

int64_t Search::ascend(std::vector<int64_t> &multipliers, const Fixing &fixing, int steps, bool grow, double step_size, Relaxed &out) {
    std::vector<double> point(multipliers.begin(), multipliers.end()), direction;
    std::vector<int64_t> best = multipliers, at = multipliers;
    int64_t best_bound = INT64_MIN;
    int bad = 0;
    Relaxed relaxed;
    for (int step = 0; step < steps && !work_.spent(); step++) {
        evaluate_at(point, fixing, at, relaxed);
        if (relaxed.bound > best_bound) {
            bad = best_bound != INT64_MIN && relaxed.bound - best_bound < std::abs(best_bound) / 20000 ? bad + 1 : 0;
            best_bound = relaxed.bound;
            best = at;
        } else {
            bad++;
        }
        if (best_bound > incumbent_.cutoff()) break;
        if (bad >= 4) {
            step_size *= 0.6;
            bad = 0;
            if (step_size < 0.004) break;
            for (size_t k = 0; k < point.size(); k++) point[k] = static_cast<double>(best[k]);
            direction.clear();
            lagrangian_.evaluate(best, fixing, relaxed);
            counters_.evaluations++;
        }
        if (grow && step % 2 == 0) {
            if (grow_from_plan(fixing, point, best, relaxed, step % 40 == 10)) {
                direction.clear();
                continue;
            }
            if (incumbent_.enough()) break;
        }
        auto count = static_cast<size_t>(lagrangian_.count());
        if (direction.size() != count)
            direction.assign(relaxed.excess.begin(), relaxed.excess.begin() + static_cast<long>(count));
        else
            for (size_t k = 0; k < count; k++) direction[k] = 0.6 * direction[k] + 0.4 * relaxed.excess[k];
        double norm = 0;
        for (size_t k = 0; k < count; k++) {
            double g = point[k] <= 0 && direction[k] < 0 ? 0 : direction[k];
            norm += g * g;
        }
        if (norm < 1e-9) break;
        auto bound = static_cast<double>(relaxed.bound);
        double target = kBlindTarget * kScale;
        if (!incumbent_.feasibility()) {
            if (incumbent_.time() < Incumbent::kNone)
                target = static_cast<double>(incumbent_.time()) * kScale;
            else if (best_bound > 0)
                target = static_cast<double>(best_bound) * 1.3;
        }
        double length = step_size * std::max(target - bound, kScale) / norm;
        for (size_t k = 0; k < count; k++) point[k] = std::max(0.0, point[k] + length * direction[k]);
    }
    return keep_best(best, fixing, multipliers, out);
}

// What the plan takes at any multipliers.
Search::Plane Search::plane_of(const Choice &choice, const std::vector<int64_t> &at) {
    meet(choice);
    Plane out{static_cast<double>(plan_.time()) * kScale, {}, plan_.memory()};
    for (size_t k = 0; k < at.size(); k++) {
        out.slope.push_back(static_cast<double>(out.usage[static_cast<size_t>(lagrangian_.slots()[k])] - budget_));
        out.value += out.slope[k] * static_cast<double>(at[k]);
    }
    return out;
}

// The same by a bundle method: fewer but dearer steps, for multipliers near the best. Where payments leave next to no gap a relaxed plan's
// own time and memory are a plane that no bound exceeds, also in slots that become active later: the mix of these plans that fits the
// active slots tells which others are missing. Elsewhere a relaxed plan says little about the bound, and the excess that its payments hold
// is used.
int64_t Search::climb(std::vector<int64_t> &multipliers, const Fixing &fixing, int steps, Relaxed &out) {
    Bundle bundle;
    Relaxed relaxed;
    std::vector<int64_t> best = multipliers, at = multipliers;
    std::vector<double> point(multipliers.begin(), multipliers.end());
    int64_t best_bound = INT64_MIN;
    double length = 0, promised = 0;
    int missed = 0, lengthened = 0;
    bool fresh = true, exact = false;
    for (int step = 0; step < steps && !work_.spent(); step++) {
        evaluate_at(point, fixing, at, relaxed);
        bool better = fresh || relaxed.bound > best_bound;
        if (better) {
            best_bound = relaxed.bound;
            best = at;
        }
        auto value = static_cast<double>(relaxed.bound);
        std::vector<Plane> planes{plane_of({relaxed.replay, relaxed.mechanism}, at)};
        double lowest = planes[0].value;
        if (!relaxed.other_excess.empty()) {
            planes.push_back(plane_of({relaxed.other_replay, relaxed.mechanism}, at));
            lowest = std::min(lowest, planes[1].value);
        }
        if (fresh) exact = lowest - value < kSmallGap * std::abs(value);
        if (exact) {
            value = lowest;
        } else {
            auto count = static_cast<size_t>(lagrangian_.count());
            relaxed.excess.resize(count);
            relaxed.other_excess.resize(count);
            planes[0].slope = relaxed.excess;
            if (planes.size() > 1) planes[1].slope = relaxed.other_excess;
            for (Plane &plane : planes) plane.value = value;
        }
        if (fresh) bundle.restart(point, value, exact);
        const std::vector<double> &slope = planes[0].slope;
        bool misleading = true;
        for (const Plane &plane : planes) misleading = !bundle.add(point, plane.value, plane.slope, plane.usage) && misleading;
        if (exact) value = bundle.value_at(point);
        if (best_bound > incumbent_.cutoff()) break;
        if (step % 20 == 10) incumbent_.repair(plan_, relaxed.reduced, fixing);
        if (incumbent_.enough()) break;
        double norm = 0;
        for (size_t k = 0; k < slope.size(); k++) norm += point[k] <= 0 && slope[k] < 0 ? 0 : slope[k] * slope[k];
        if (fresh && length == 0) {
            if (norm < 1e-9) break;
            // As far as would close a twentieth of the gap, were the function a plane.
            double target = incumbent_.found() && !incumbent_.feasibility() ? static_cast<double>(incumbent_.time()) * kScale : value * 1.1;
            length = 0.05 * std::max(target - value, kScale) / norm;
        }
        if (!fresh) {
            if ((exact || better) && value - bundle.value() > 0.1 * promised) {
                if (value - bundle.value() > 0.6 * promised) length *= 2;
                bundle.move_center(point, value);
                missed = 0;
            } else if (++missed % 4 == 0 || misleading) {
                length *= misleading ? 0.4 : 0.6;
            }
        }
        fresh = false;
        // On a ridge both sides' planes cancel out, and what is left asks for a far longer step; too long a one is hard to solve for.
        double least = 2e-5 * std::abs(bundle.value());
        double plain_length = length;
        promised = bundle.propose(length, point);
        for (; promised < least && lengthened < kMostLengthened; lengthened++)
            promised = bundle.propose(length *= promised < 0 ? 0.2 : 6, point);
        work_.used += bundle.take_work();
        if (promised >= least) continue;
        std::vector<int> more;
        if (lagrangian_.count() < kMostSlots) more = exceeded(bundle.usage());
        if (more.empty()) break;
        std::vector<int> old = lagrangian_.slots();
        activate(more, best);
        bundle.widen(old, lagrangian_.slots(), budget_);
        lengthened = 0;
        length = plain_length;
        promised = bundle.propose(length, point);
        work_.used += bundle.take_work();
    }
    return keep_best(best, fixing, multipliers, out);
}

}  // namespace reprise::planner
