#include "planner/search.h"

#include <algorithm>

#include "planner/presolve.h"

namespace reprise::planner {

namespace {

// Labels a step. Beams find plans, and are a proof when nothing had to be dropped; the strict program is the proof.
constexpr size_t kFirstBeam = 120, kSecondBeam = 400, kBeam = 1500, kInnerBeam = 400, kStrict = 30000;
constexpr int kMostDepth = 200;
constexpr uint64_t kProbeShare = 40;  // of the work that is left: one part for probing at a time
constexpr int kFirstClimb = 100, kSecondClimb = 60;
// Where the bound takes this part of the work and still leaves such a gap, better plans are looked for before the rest of it is spent.
constexpr uint64_t kDearShare = 8;
constexpr double kWideGap = 0.03;
constexpr int kManySlots = 4;
constexpr double kCutGap = 0.06;  // a smaller one the label program mostly closes as it is

bool idle(const Fixing &fixing, const Core &core, int window) {
    if (decided(fixing.mechanisms[window])) return true;
    const CoreWindow &w = core.windows[window];
    int open = 0, fixed = 0;
    for (int z = w.reader_begin; z < w.reader_end; z++) {
        open += fixing.choice[core.readers[z]] < 0;
        fixed += fixing.choice[core.readers[z]] == 1;
    }
    return open == 0 || open + fixed < 2;
}

}  // namespace

Search::Search(const Core &core, Goal goal, int64_t budget, uint32_t tolerance_ppm, uint64_t work_limit)
    : core_(core),
      work_{0, work_limit},
      budget_(std::min(budget, core.most_pages)),  // more can never be used, and could overflow
      incumbent_(core, work_, goal, budget_, tolerance_ppm),
      lagrangian_(core, work_),
      plan_(core) {
    lagrangian_.set_budget(budget_);
}

void Search::suggest(const Choice &choice) {
    plan_.set(choice);
    incumbent_.offer(plan_);
}

int64_t Search::bound() const {
    if (complete_) return incumbent_.found() || incumbent_.time() < Incumbent::kNone ? incumbent_.proven() : Incumbent::kNone;
    // Whole units: a bound of 7.2 is one of 8.
    int64_t scaled = std::max<int64_t>(0, open_bound_);
    int64_t units = (scaled >> kShift) + ((scaled & ((int64_t{1} << kShift) - 1)) != 0);
    return std::min(units, incumbent_.proven());
}

void Search::activate(const std::vector<int> &slots, std::vector<int64_t> &multipliers) {
    Multipliers old{lagrangian_.slots(), multipliers};
    std::vector<int> all = old.slots;
    all.insert(all.end(), slots.begin(), slots.end());
    lagrangian_.set_slots(std::move(all));
    multipliers = aligned(old);
}

std::vector<int64_t> Search::aligned(const Multipliers &from) const {
    std::vector<int64_t> values(lagrangian_.count(), 0);
    const std::vector<int> &slots = lagrangian_.slots();
    for (size_t q = 0; q < from.slots.size(); q++) {
        auto at = std::lower_bound(slots.begin(), slots.end(), from.slots[q]);
        if (at != slots.end() && *at == from.slots[q]) values[at - slots.begin()] = from.values[q];
    }
    return values;
}

LabelResult Search::label(const std::vector<int64_t> &multipliers, const Fixing &fixing, const Relaxed &relaxed, size_t width,
                          bool strict) {
    if (lagrangian_.fees().empty())
        return LabelProgram(core_, lagrangian_, work_, counters_, incumbent_, fixing, multipliers, relaxed).run(width, strict);
    // Labels know which mechanism they have, and no fees.
    std::vector<int64_t> fees = lagrangian_.fees();
    Relaxed plain;
    lagrangian_.set_fees({});
    lagrangian_.evaluate(multipliers, fixing, plain, true);
    counters_.evaluations++;
    LabelResult result = LabelProgram(core_, lagrangian_, work_, counters_, incumbent_, fixing, multipliers, plain).run(width, strict);
    lagrangian_.set_fees(std::move(fees));
    return result;
}

// Fixes what the bound decides, and lifts the bound again, until that brings little. true: refuted.
bool Search::reduce(std::vector<int64_t> &multipliers, Fixing &fixing, Relaxed &relaxed) {
    for (int round = 0; round < 6 && !work_.spent(); round++) {
        int fixed = fix_by_reduced_cost(relaxed, incumbent_.cutoff(), fixing);
        fixed += drop_private_mechanisms(core_, lagrangian_, relaxed, incumbent_.cutoff(), fixing);
        const uint64_t stop = work_.used + (work_.limit - work_.used) / kProbeShare;
        fixed += probe_mechanisms(core_, lagrangian_, multipliers, incumbent_.cutoff(), work_, stop, fixing);
        if (fixed == 0) return false;
        ascend(multipliers, fixing, 25, false, 1.0, relaxed);
        if (refuted(relaxed)) return true;
        if (fixed < 3) return false;
    }
    return false;
}

// Slots without a multiplier only make the label program larger; the plans it finds bring back those that matter.
void Search::drop_idle_slots(std::vector<int64_t> &multipliers, const Fixing &fixing, Relaxed &relaxed) {
    Multipliers kept;
    for (int k = 0; k < lagrangian_.count(); k++)
        if (multipliers[k] > 0) {
            kept.slots.push_back(lagrangian_.slots()[k]);
            kept.values.push_back(multipliers[k]);
        }
    if (kept.slots.empty() || static_cast<int>(kept.slots.size()) == lagrangian_.count()) return;
    lagrangian_.set_slots(kept.slots);
    multipliers = kept.values;
    lagrangian_.evaluate(multipliers, fixing, relaxed, true);
    counters_.evaluations++;
}

// Rounds 0 and 1 only look for plans.
Search::Outcome Search::beams(std::vector<int64_t> &multipliers, Fixing &fixing, Relaxed &relaxed, int first_round, int last_round,
                              size_t width, int64_t &bound) {
    for (int round = first_round; round < last_round; round++) {
        LabelResult result = label(multipliers, fixing, relaxed, round == 0 ? kFirstBeam : round == 1 ? kSecondBeam : width, false);
        bound = std::max(bound, std::min(result.bound, incumbent_.cutoff() + 1));
        if (result.end == LabelEnd::complete && result.violated.empty()) return Outcome::closed;
        if (work_.spent()) return Outcome::stopped;
        if (incumbent_.enough()) return Outcome::closed;
        if (!result.violated.empty()) activate(result.violated, multipliers);
        int64_t time = incumbent_.time();
        ascend(multipliers, fixing, 20, false, 1.0, relaxed);
        if (refuted(relaxed)) return Outcome::closed;
        int fixed = fix_by_reduced_cost(relaxed, incumbent_.cutoff(), fixing);
        if (round < 2) continue;
        if (result.violated.empty() && (round > 3 || (fixed == 0 && incumbent_.time() == time))) break;
    }
    return Outcome::open;
}

Search::Outcome Search::programs(std::vector<int64_t> &multipliers, Fixing &fixing, Relaxed &relaxed, int64_t &bound) {
    for (int round = 0; round < 50; round++) {
        LabelResult result = label(multipliers, fixing, relaxed, kStrict, true);
        bound = std::max(bound, std::min(result.bound, incumbent_.cutoff() + 1));
        if (work_.spent()) return Outcome::stopped;
        if (incumbent_.enough()) return Outcome::closed;
        if (result.end != LabelEnd::complete) return Outcome::open;
        if (result.violated.empty()) return Outcome::closed;
        activate(result.violated, multipliers);
        ascend(multipliers, fixing, 20, false, 1.0, relaxed);
        if (refuted(relaxed)) return Outcome::closed;
        fix_by_reduced_cost(relaxed, incumbent_.cutoff(), fixing);
    }
    return Outcome::open;
}

// On the mechanism that moves the bound most, else on the largest instance.
void Search::branch(const std::vector<int64_t> &multipliers, const Fixing &fixing, const Relaxed &relaxed, int64_t bound, int depth) {
    int best = -1;
    int64_t best_score = -1;
    std::vector<std::pair<int64_t, int>> children, chosen;
    Relaxed probe;
    Fixing trial = fixing;
    for (int w = 0; w < core_.window_count(); w++) {
        if (idle(fixing, core_, w)) continue;
        children.clear();
        for (uint32_t set = fixing.mechanisms[w]; set; set &= set - 1) {
            trial.mechanisms[w] = set & -set;
            lagrangian_.evaluate(multipliers, trial, probe);
            counters_.evaluations++;
            children.emplace_back(probe.bound, __builtin_ctz(set));
        }
        trial.mechanisms[w] = fixing.mechanisms[w];
        std::sort(children.begin(), children.end());
        int64_t score = (children[0].first - relaxed.bound) * 4 + (children[1].first - relaxed.bound);
        if (score > best_score) best_score = score, best = w, chosen = children;
    }
    Multipliers start{lagrangian_.slots(), multipliers};
    if (best >= 0) {
        for (auto [child_bound, m] : chosen) {
            if (child_bound > incumbent_.cutoff()) continue;
            trial.mechanisms[best] = 1u << m;
            node(start, trial, std::max(bound, child_bound), depth + 1);
            if (incumbent_.enough()) return;
        }
        return;
    }
    int64_t largest = -1;
    for (int i = 0; i < core_.size(); i++)
        if (fixing.choice[i] < 0 && core_.instances[i].keep > largest) largest = core_.instances[i].keep, best = i;
    if (best < 0) {
        give_up(bound);
        return;
    }
    for (int z = 0; z < 2 && !incumbent_.enough(); z++) {
        trial.choice[best] = static_cast<int8_t>(z == 0 ? relaxed.replay[best] : 1 - relaxed.replay[best]);
        node(start, trial, bound, depth + 1);
    }
}

// The root: multipliers, first plans, and, where these do not close it, better multipliers by the bundle method, twice: the
// better inner variant may be another one afterwards.
Search::Outcome Search::root(std::vector<int64_t> &multipliers, Fixing &fixing, Relaxed &relaxed, int64_t &bound) {
    bool warm = !warm_.empty();
    ascend(multipliers, fixing, warm ? 40 : 200, true, warm ? 0.25 : 1.0, relaxed);
    bound = std::max(bound, relaxed.bound);  // what follows evaluates anew, and may end lower
    for (int steps : {kFirstClimb, kSecondClimb}) {
        if (gap(relaxed.bound) < 0.001 || incumbent_.feasibility() || warm || work_.spent()) break;
        drop_idle_slots(multipliers, fixing, relaxed);
        pick_variant(multipliers, fixing, relaxed);
        climb(multipliers, fixing, steps, relaxed);
        bound = std::max(bound, relaxed.bound);
        if (steps == kFirstClimb && work_.used > work_.limit / kDearShare && gap(relaxed.bound) >= kWideGap && !work_.spent()) {
            improve(multipliers, fixing, relaxed, work_.used / 2);
            lagrangian_.evaluate(multipliers, fixing, relaxed, true);
        }
    }
    if (gap(relaxed.bound) >= 0.001 && !incumbent_.feasibility() && !warm) charge_fees(multipliers, fixing, relaxed);
    // Few slots are the label program's own: it sees what cannot be freed in parts, and better so without cuts.
    bool wide = gap(relaxed.bound) >= kCutGap && lagrangian_.count() >= kManySlots;
    if (wide && !incumbent_.feasibility() && !warm && !work_.spent()) cut(multipliers, fixing, relaxed);
    for (int k = 0; k < lagrangian_.count(); k++)
        if (multipliers[k] > 0) binding_.emplace_back(lagrangian_.slots()[k], multipliers[k]);
    bound = std::max(bound, relaxed.bound);
    if (refuted(relaxed) || incumbent_.enough() || reduce(multipliers, fixing, relaxed)) return Outcome::closed;
    bound = std::max(bound, relaxed.bound);
    if (work_.spent()) return Outcome::stopped;
    drop_idle_slots(multipliers, fixing, relaxed);
    Outcome outcome = beams(multipliers, fixing, relaxed, 0, 2, kBeam, bound);
    bound = std::max(bound, relaxed.bound);
    return outcome;
}

// When the program over everything overflows: better plans part by part, which move the multipliers and fix more.
Search::Outcome Search::refine(std::vector<int64_t> &multipliers, Fixing &fixing, Relaxed &relaxed, int64_t &bound) {
    if (gap(relaxed.bound) < 0.002) return Outcome::open;
    int64_t before = incumbent_.time();
    // Branching closes no wide gap: then plans get all of the work.
    improve(multipliers, fixing, relaxed, (work_.limit - work_.used) / (gap(relaxed.bound) >= kWideGap ? 1 : 3));
    lagrangian_.evaluate(multipliers, fixing, relaxed, true);  // slots may have become active
    if (work_.spent()) return Outcome::stopped;
    drop_idle_slots(multipliers, fixing, relaxed);
    if (incumbent_.time() == before) return Outcome::open;
    ascend(multipliers, fixing, 60, false, 0.25, relaxed);
    bound = std::max(bound, relaxed.bound);
    if (refuted(relaxed) || reduce(multipliers, fixing, relaxed)) return Outcome::closed;
    Outcome outcome = programs(multipliers, fixing, relaxed, bound);
    bound = std::max(bound, relaxed.bound);
    return outcome;
}

void Search::node(Multipliers start, Fixing fixing, int64_t known_bound, int depth) {
    if (work_.spent() || depth > kMostDepth) {
        give_up(known_bound);
        return;
    }
    counters_.nodes++;
    std::vector<int64_t> multipliers = aligned(start);
    Relaxed relaxed;
    int64_t bound = known_bound;
    Outcome outcome = Outcome::open;
    if (depth == 0)
        outcome = root(multipliers, fixing, relaxed, bound);
    else
        ascend(multipliers, fixing, 40, false, 1.0, relaxed);
    if (outcome == Outcome::open) {
        bound = std::max(bound, relaxed.bound);
        if (refuted(relaxed) || reduce(multipliers, fixing, relaxed)) return;
        bound = std::max(bound, relaxed.bound);
        outcome = work_.spent() ? Outcome::stopped : beams(multipliers, fixing, relaxed, 2, 12, depth == 0 ? kBeam : kInnerBeam, bound);
    }
    bound = std::max(bound, relaxed.bound);
    if (outcome == Outcome::open) outcome = programs(multipliers, fixing, relaxed, bound);
    bound = std::max(bound, relaxed.bound);
    if (outcome == Outcome::open && depth == 0) outcome = refine(multipliers, fixing, relaxed, bound);
    if (outcome == Outcome::closed) return;
    if (outcome == Outcome::stopped) {
        give_up(bound);
        return;
    }
    ascend(multipliers, fixing, 20, false, 1.0, relaxed);
    if (refuted(relaxed)) return;
    branch(multipliers, fixing, relaxed, std::max(bound, relaxed.bound), depth);
}

void Search::run() {
    Fixing fixing = all_open(core_);
    counters_.dominated += static_cast<uint32_t>(drop_dominated_mechanisms(core_, fixing));
    Choice choice{std::vector<uint8_t>(core_.instances.size(), 0), std::vector<uint8_t>(core_.windows.size(), 0)};
    for (int w = 0; w < core_.window_count(); w++) choice.mechanism[w] = static_cast<uint8_t>(__builtin_ctz(fixing.mechanisms[w]));
    for (int i = 0; i < core_.size(); i++) choice.replay[i] = fixing.choice[i] == 1;
    plan_.set(choice);
    incumbent_.offer(plan_);
    if (incumbent_.enough()) return;
    std::vector<int> slots{plan_.peak_slot()};
    for (auto [slot, value] : warm_) slots.push_back(slot);
    lagrangian_.set_slots(slots);
    // Everything replayed, with each mechanism in turn, repaired by time saved per page.
    std::vector<int64_t> weight(core_.instances.size());
    for (int i = 0; i < core_.size(); i++) {
        const CoreInstance &it = core_.instances[i];
        double per_page =
            static_cast<double>(it.time) / static_cast<double>(it.keep + 1) / (it.replay_end - it.forward_begin) * core_.slots;
        weight[i] = static_cast<int64_t>(std::min(per_page * 1e6, 4e18));
    }
    for (int rank = 2; rank >= 0; rank--) {
        for (int i = 0; i < core_.size(); i++) choice.replay[i] = fixing.choice[i] != 0;
        for (int w = 0; w < core_.window_count(); w++) {
            uint32_t set = fixing.mechanisms[w];
            for (int r = 0; r < rank && !decided(set); r++) set &= set - 1;
            choice.mechanism[w] = static_cast<uint8_t>(__builtin_ctz(set));
        }
        plan_.set(choice);
        incumbent_.repair(plan_, weight, fixing);
    }
    if (!incumbent_.found() && warm_.empty()) {
        // Hardly anything fits: lower the peak first.
        incumbent_.descend(plan_, fixing);
        if (incumbent_.found() && !incumbent_.feasibility()) incumbent_.repair(plan_, weight, fixing);
    }
    if (incumbent_.enough()) return;
    Multipliers start;
    for (auto [slot, value] : warm_) {
        start.slots.push_back(slot);
        start.values.push_back(value);
    }
    node(start, fixing, 0, 0);
}

}  // namespace reprise::planner
