#include "planner/incumbent.h"

#include <algorithm>
#include <numeric>

namespace reprise::planner {

Incumbent::Incumbent(const Core &core, Work &work, Goal goal, int64_t budget, uint32_t tolerance_ppm)
    : core_(core), work_(work), goal_(goal), budget_(budget), tolerance_(tolerance_ppm) {}

int64_t Incumbent::cutoff() const {
    if (goal_ == Goal::any_plan) return found_ ? -1 : 0;
    if (time_ >= kNone) return INT64_MAX / 4;
    // Times are whole units: better means at least one less.
    return (time_ - 1 - slack()) * (int64_t{1} << kShift);
}

void Incumbent::offer(const Occupancy &plan) {
    work_.used += static_cast<uint64_t>(core_.slots) / 4;
    if (plan.time() >= time_ || !plan.fits(budget_)) return;
    found_ = true;
    time_ = plan.time();
    choice_ = plan.choice();
}

void Incumbent::repair(Occupancy &plan, const std::vector<int64_t> &weight, const Fixing &fixing) {
    std::vector<int> order(core_.instances.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](int a, int b) { return weight[a] != weight[b] ? weight[a] < weight[b] : a < b; });
    auto flip_cost = static_cast<uint64_t>(core_.slots) + 40;
    for (int step = 0; step < core_.size() && !plan.fits(budget_); step++) {
        if (work_.spent()) return;
        int worst = plan.peak_slot();
        int64_t was = plan.memory()[worst];
        bool helped = false;
        for (int i : order) {
            const CoreInstance &it = core_.instances[i];
            bool candidate = !plan.choice().replay[i] && fixing.choice[i] != 0 && it.forward_end <= worst && worst < it.replay_end &&
                             worst < it.replay_begin;
            if (!candidate) continue;
            work_.used += flip_cost;
            plan.set_replay(i, true);
            if (plan.memory()[worst] < was) {
                helped = true;
                break;
            }
            plan.set_replay(i, false);
        }
        if (!helped) return;
    }
    if (!plan.fits(budget_)) return;
    offer(plan);
    // Retain again, dearest first, whatever still fits.
    for (size_t z = order.size(); z-- > 0;) {
        int i = order[z];
        const CoreInstance &it = core_.instances[i];
        if (!plan.choice().replay[i] || fixing.choice[i] == 1 || work_.spent()) continue;
        // Retaining it frees at most what it uses of its windows.
        int64_t freed = 0;
        for (int x = it.window_begin; x < it.window_end; x++) {
            auto [w, k] = core_.windows_of[x];
            const int *offset = &core_.reader_offsets[core_.mechanism(w, plan.choice().mechanism[w]).reader_use_begin + k];
            for (int u = offset[0]; u < offset[1]; u++) freed += core_.elements[core_.reader_uses[u].element].pages;
        }
        int64_t most = 0;
        for (int t = it.forward_end; t < it.replay_begin; t++) most = std::max(most, plan.memory()[t]);
        bool hopeless = most + it.keep - freed > budget_;
        if (hopeless) continue;
        int64_t before = plan.time();
        work_.used += flip_cost;
        plan.set_replay(i, false);
        if (plan.time() > before || !plan.fits(budget_)) plan.set_replay(i, true);
    }
    offer(plan);
}

void Incumbent::descend(Occupancy &plan, const Fixing &fixing) {
    auto flip_cost = static_cast<uint64_t>(core_.slots) + 40;
    for (bool better = true; better && !work_.spent();) {
        better = false;
        int worst = plan.peak_slot();
        int64_t peak = plan.memory()[worst];
        auto lower = [&] {
            work_.used += flip_cost;
            return plan.peak() < peak;
        };
        for (int i = 0; i < core_.size() && !better; i++) {
            const CoreInstance &it = core_.instances[i];
            if (worst < it.forward_begin || worst >= it.replay_end || fixing.choice[i] >= 0) continue;
            plan.set_replay(i, !plan.choice().replay[i]);
            if (lower())
                better = true;
            else
                plan.set_replay(i, !plan.choice().replay[i]);
        }
        for (int w = 0; w < core_.window_count() && !better; w++)
            for (uint32_t set = fixing.mechanisms[w]; set && !better; set &= set - 1) {
                int m = __builtin_ctz(set), was = plan.choice().mechanism[w];
                if (m == was) continue;
                plan.set_mechanism(w, m);
                if (lower())
                    better = true;
                else
                    plan.set_mechanism(w, was);
            }
    }
    offer(plan);
}

}  // namespace reprise::planner
