#include "planner/lagrangian.h"

#include <algorithm>
#include <numeric>

namespace reprise::planner {

namespace {

// Rounds in which the offers are raised: one round lets the first reader pay for everything.
constexpr int kFewRounds = 3, kManyRounds = 8;

}  // namespace

Lagrangian::Lagrangian(const Core &core, Work &work) : core_(core), work_(work), budget_(core.budget), order_(core.instances.size()) {
    largest_total_ = std::max<int64_t>(1, (int64_t{1} << 60) / core.most_pages);
    std::iota(order_.begin(), order_.end(), 0);
    auto life = [&](int i) { return core.instances[i].replay_end - core.instances[i].forward_begin; };
    std::stable_sort(order_.begin(), order_.end(), [&](int a, int b) { return life(a) < life(b); });
    reverse_.assign(order_.rbegin(), order_.rend());
    set_slots({});
}

void Lagrangian::set_slots(std::vector<int> slots) {
    std::sort(slots.begin(), slots.end());
    slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
    slots_ = std::move(slots);
    int n = count();
    index_.assign(core_.slots + 1, n);
    for (int t = 0, k = 0; t <= core_.slots; t++) {
        while (k < n && slots_[k] < t) k++;
        index_[t] = k;
    }
    size_t elements = core_.elements.size();
    pot_offset_.assign(elements + 1, 0);
    stretches_.clear();
    std::vector<int> change(n + 1, 0), bounds, users;
    for (size_t e = 0; e < elements; e++) {
        const CoreElement &element = core_.elements[e];
        bounds.clear();
        for (int u = element.use_begin; u < element.use_end; u++) {
            int b = index_[core_.uses[u].begin], f = index_[core_.uses[u].end];
            if (b >= f) continue;
            if (change[b]++ == 0) bounds.push_back(b);
            if (change[f]-- == 0) bounds.push_back(f);
        }
        std::sort(bounds.begin(), bounds.end());
        bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());
        int alive = 0;
        for (size_t z = 0; z < bounds.size(); z++) {
            alive += change[bounds[z]];
            change[bounds[z]] = 0;
            if (alive == 0) continue;
            stretches_.push_back({bounds[z], bounds[z + 1]});
            users.push_back(alive);
        }
        stretches_.push_back({n, n});
        users.push_back(INT32_MAX);
        pot_offset_[e + 1] = static_cast<int>(stretches_.size());
    }
    use_pots_.clear();
    use_pots_end_.clear();
    for (const ReaderUse &use : core_.reader_uses) {
        auto first = static_cast<long>(use_pots_.size());
        int begin = index_[use.begin], end = index_[use.end];
        for (int y = pot_offset_[use.element]; y < capture_pot(use.element); y++)
            if (stretches_[y].begin >= begin && stretches_[y].end <= end) use_pots_.push_back(y);
        if (static_cast<long>(use_pots_.size()) > first + 1)
            std::sort(use_pots_.begin() + first, use_pots_.end(),
                      [&](int a, int b) { return users[a] != users[b] ? users[a] < users[b] : a < b; });
        use_pots_.push_back(capture_pot(use.element));
        use_pots_end_.push_back(static_cast<int>(use_pots_.size()));
    }
    work_.used += 10 * (static_cast<uint64_t>(pots()) + use_pots_.size()) + static_cast<uint64_t>(core_.slots);
}

void Lagrangian::prices(const std::vector<int64_t> &multipliers) {
    prefix_.assign(count() + 1, 0);
    for (int k = 0; k < count(); k++) prefix_[k + 1] = prefix_[k] + multipliers[k];
}

// Full pots, and every reader's offer at the least that any allowed mechanism costs it alone.
void Lagrangian::start(const Fixing &fixing, Relaxed &out) {
    out.reduced.assign(core_.instances.size(), 0);
    out.level.resize(core_.readers.size());
    for (int i = 0; i < core_.size(); i++) {
        const CoreInstance &it = core_.instances[i];
        int64_t keep = it.keep * price(it.forward_end, it.replay_end);
        out.bound += keep;
        if (fixing.choice[i] == 0) continue;
        int64_t running = price(it.replay_begin, it.replay_end);
        int64_t cost = (it.time << kShift) + it.transient * running - keep - bonus(i);
        for (int z = it.window_begin; z < it.window_end; z++) {
            auto [w, k] = core_.windows_of[z];
            int64_t least = INT64_MAX;
            for (uint32_t left = fixing.mechanisms[w]; left; left &= left - 1) {
                const CoreCost &c = core_.cost(w, __builtin_ctz(left), k);
                least = std::min(least, (c.time << kShift) + c.pages * running);
            }
            cost += least;
            out.level[core_.windows[w].reader_begin + k] = least;
        }
        out.reduced[i] = cost;
    }
}

// Raises instance's offers by up to `want` in all (each window gets an equal part of what the ones before it left), as far as every allowed
// mechanism can absorb them. `must`: the instance is replayed in any case, so nothing limits its offer but the pots.
void Lagrangian::raise(int instance, bool must, int64_t want, const Fixing &fixing, Relaxed &out, bool keep_shares) {
    const CoreInstance &it = core_.instances[instance];
    int64_t running = price(it.replay_begin, it.replay_end);
    int left = it.window_end - it.window_begin;
    int64_t alone[kMostMechanisms];
    bool last = !must && want < 0;  // the last round: everything that the instance would gain
    for (int z = it.window_begin; z < it.window_end; z++) {
        auto [w, k] = core_.windows_of[z];
        int64_t need = must ? INT64_MAX / 4 : last ? std::max<int64_t>(0, -out.reduced[instance]) : want / left;
        left--;
        if (need <= 0) continue;
        int64_t &level = out.level[core_.windows[w].reader_begin + k];
        int64_t target = level + need;
        for (uint32_t set = fixing.mechanisms[w]; set; set &= set - 1) {
            int m = __builtin_ctz(set);
            const CoreCost &c = core_.cost(w, m, k);
            alone[m] = (c.time << kShift) + c.pages * running;
            int64_t room = std::max(alone[m], level);
            const int *offset = &core_.reader_offsets[core_.mechanism(w, m).reader_use_begin + k];
            const int *pot = pots_of(offset[0]), *end = pots_of(offset[1]);
            steps_ += static_cast<uint64_t>(end - pot);
            for (; pot < end && room < target; pot++) room += out.rest[*pot];
            if (!fees_.empty()) room += out.rest[pots() + core_.windows[w].mechanism_begin + m];
            target = std::min(target, room);
        }
        if (target <= level) continue;
        out.reduced[instance] += target - level;
        if (!must && !last) want -= target - level;  // what this window cannot take the next ones are offered
        for (uint32_t set = fixing.mechanisms[w]; set; set &= set - 1) {
            int m = __builtin_ctz(set);
            int64_t take = target - std::max(alone[m], level);
            if (take <= 0) continue;
            auto from = [&](int pot) {
                if (take <= 0 || out.rest[pot] <= 0) return;
                int64_t amount = std::min(take, out.rest[pot]);
                out.rest[pot] -= amount;
                take -= amount;
                if (keep_shares) out.shares.push_back({instance, pot, amount});
            };
            const int *offset = &core_.reader_offsets[core_.mechanism(w, m).reader_use_begin + k];
            for (const int *pot = pots_of(offset[0]), *end = pots_of(offset[1]); pot < end && take > 0; pot++) from(*pot);
            if (!fees_.empty()) from(pots() + core_.windows[w].mechanism_begin + m);
        }
        level = target;
    }
}

int64_t Lagrangian::alone(int window, int m, int place) const {
    const CoreInstance &it = core_.instances[core_.readers[core_.windows[window].reader_begin + place]];
    const CoreCost &c = core_.cost(window, m, place);
    int64_t cost = (c.time << kShift) + c.pages * price(it.replay_begin, it.replay_end);
    const int *offset = &core_.reader_offsets[core_.mechanism(window, m).reader_use_begin + place];
    for (int u = offset[0]; u < offset[1]; u++) {
        const ReaderUse &use = core_.reader_uses[u];
        const CoreElement &element = core_.elements[use.element];
        cost += (element.capture << kShift) + (use.begin < use.end ? element.pages * price(use.begin, use.end) : 0);
    }
    return cost;
}

// What instance i takes while it is replayed.
int64_t Lagrangian::replay_pages(int i, const std::vector<uint8_t> &mechanism) const {
    const CoreInstance &it = core_.instances[i];
    int64_t pages = it.transient;
    for (int z = it.window_begin; z < it.window_end; z++) {
        auto [w, k] = core_.windows_of[z];
        pages += core_.cost(w, mechanism[w], k).pages;
    }
    return pages;
}

// The relaxed plan, and by how much it exceeds the budget. Of every window only the mechanism counts that is cheapest for the relaxed plan:
// payments go to the elements of all mechanisms at a time, but no plan has them all.
void Lagrangian::finish(const std::vector<int64_t> &multipliers, const Fixing &fixing, Relaxed &out) {
    int n = count();
    out.excess.assign(n + 1, 0.0);
    out.replay.assign(core_.instances.size(), 0);
    for (int i = 0; i < core_.size(); i++) out.replay[i] = fixing.choice[i] == 1 || (fixing.choice[i] < 0 && out.reduced[i] < 0);
    cheapest(fixing, out);
    auto add = [&](int begin, int end, double pages) {
        out.excess[index_[begin]] += pages;
        out.excess[index_[end]] -= pages;
    };
    for (int i = 0; i < core_.size(); i++) {
        const CoreInstance &it = core_.instances[i];
        if (!out.replay[i]) {
            add(it.forward_end, it.replay_end, static_cast<double>(it.keep));
            continue;
        }
        out.bound += out.reduced[i];
        add(it.replay_begin, it.replay_end, static_cast<double>(replay_pages(i, out.mechanism)));
    }
    for (int k = 0; k < n; k++) out.excess[k + 1] += out.excess[k];
    for (size_t e = 0; e < core_.elements.size(); e++) {
        const CoreElement &element = core_.elements[e];
        if (out.mechanism[element.window] != element.mechanism) continue;
        for (int y = pot_offset_[e]; y < capture_pot(static_cast<int>(e)); y++) {
            int64_t full = element.pages * (prefix_[stretches_[y].end] - prefix_[stretches_[y].begin]);
            if (full <= 0) continue;
            // The paid part of the price is the part of the element that the relaxed plan holds.
            double held = static_cast<double>(element.pages) * (1.0 - static_cast<double>(out.rest[y]) / static_cast<double>(full));
            for (int k = stretches_[y].begin; k < stretches_[y].end; k++)
                if (multipliers[k] > 0) out.excess[k] += held;
        }
    }
    for (int k = 0; k < n; k++) out.excess[k] -= static_cast<double>(budget_ - core_.base[slots_[k]]);
    find_other(fixing, out);
}

void Lagrangian::find_other(const Fixing &fixing, Relaxed &out) const {
    out.other_excess.clear();
    auto paid = [&](int i) {
        const CoreInstance &it = core_.instances[i];
        for (int z = it.window_begin; z < it.window_end; z++) {
            auto [w, k] = core_.windows_of[z];
            const int *offset = &core_.reader_offsets[core_.mechanism(w, out.mechanism[w]).reader_use_begin + k];
            for (const int *pot = pots_of(offset[0]), *end = pots_of(offset[1]); pot < end; pot++)
                if (out.rest[*pot] > 0) return false;
        }
        return true;
    };
    std::vector<double> change;
    for (int i = 0; i < core_.size(); i++) {
        if (fixing.choice[i] >= 0 || out.reduced[i] != 0 || !paid(i)) continue;
        const CoreInstance &it = core_.instances[i];
        if (change.empty()) {
            change.assign(static_cast<size_t>(count()) + 1, 0.0);
            out.other_replay = out.replay;
        }
        out.other_replay[i] = 1;
        const int64_t pages = replay_pages(i, out.mechanism);
        change[index_[it.forward_end]] -= static_cast<double>(it.keep);
        change[index_[it.replay_end]] += static_cast<double>(it.keep - pages);
        change[index_[it.replay_begin]] += static_cast<double>(pages);
    }
    if (change.empty()) return;
    out.other_excess = out.excess;
    double sum = 0;
    for (int k = 0; k < count(); k++) out.other_excess[k] += sum += change[k];
}

void Lagrangian::evaluate(const std::vector<int64_t> &multipliers, const Fixing &fixing, Relaxed &out, bool keep_shares) {
    work_.used += 4 * static_cast<uint64_t>(pots()) + 6 * (core_.reader_uses.size() + core_.instances.size() + core_.costs.size());
    steps_ = 0;
    prices(multipliers);
    out.bound = owed_;
    out.shares.clear();
    for (int k = 0; k < count(); k++) out.bound -= multipliers[k] * (budget_ - core_.base[slots_[k]]);
    out.rest.assign(pots(), 0);
    for (size_t e = 0; e < core_.elements.size(); e++) {
        const CoreElement &element = core_.elements[e];
        if (!(fixing.mechanisms[element.window] >> element.mechanism & 1)) continue;
        for (int y = pot_offset_[e]; y < capture_pot(static_cast<int>(e)); y++)
            out.rest[y] = element.pages * (prefix_[stretches_[y].end] - prefix_[stretches_[y].begin]);
        out.rest[capture_pot(static_cast<int>(e))] = element.capture << kShift;
    }
    if (!fees_.empty()) {
        out.rest.resize(pots() + core_.mechanisms.size(), 0);
        for (int w = 0; w < core_.window_count(); w++) {
            if (decided(fixing.mechanisms[w])) continue;
            out.bound -= fees_[w];
            for (int m = 0; m < core_.windows[w].mechanism_count; m++) out.rest[pots() + core_.windows[w].mechanism_begin + m] = fees_[w];
        }
    }
    start(fixing, out);
    int rounds = variant_ & 2 ? kManyRounds : kFewRounds;
    for (int i : order())
        if (fixing.choice[i] == 1) raise(i, true, 0, fixing, out, keep_shares);
    for (int round = 1; round <= rounds; round++)
        for (int i : order()) {
            if (fixing.choice[i] >= 0 || out.reduced[i] >= 0) continue;
            raise(i, false, round == rounds ? -1 : -out.reduced[i] / (rounds - round + 1), fixing, out, keep_shares);
        }
    finish(multipliers, fixing, out);
    work_.used += steps_;
}

void Lagrangian::cheapest(const Fixing &fixing, Relaxed &out) {
    const std::vector<uint8_t> &replay = out.replay;
    std::vector<uint8_t> &mechanism = out.mechanism;
    mechanism.assign(core_.windows.size(), 0);
    out.window_cost.assign(core_.windows.size(), 0);
    for (int w = 0; w < core_.window_count(); w++) {
        const CoreWindow &window = core_.windows[w];
        int64_t best = INT64_MAX;
        for (uint32_t set = fixing.mechanisms[w]; set; set &= set - 1) {
            int m = __builtin_ctz(set);
            const CoreMechanism &it = core_.mechanism(w, m);
            int64_t cost = 0;
            for (int k = 0; k < window.size(); k++) {
                int reader = core_.readers[window.reader_begin + k];
                if (!replay[reader]) continue;
                const CoreCost &c = core_.cost(w, m, k);
                cost += (c.time << kShift) + c.pages * price(core_.instances[reader].replay_begin, core_.instances[reader].replay_end);
            }
            for (int e = it.element_begin; e < it.element_end; e++) {
                const CoreElement &element = core_.elements[e];
                int low = INT32_MAX, high = 0;
                for (int u = element.use_begin; u < element.use_end; u++)
                    if (replay[core_.uses[u].instance]) low = std::min(low, core_.uses[u].begin), high = std::max(high, core_.uses[u].end);
                if (high > 0) cost += (element.capture << kShift) + (low < high ? element.pages * price(low, high) : 0);
            }
            if (cost < best) best = cost, mechanism[w] = static_cast<uint8_t>(m);
        }
        out.window_cost[w] = best;
    }
    work_.used += 4 * core_.uses.size();
}

}  // namespace reprise::planner
