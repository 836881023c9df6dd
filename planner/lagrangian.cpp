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
    pot_order_offset_.assign(elements + 1, 0);
    ranges_.assign(elements, {0, 0});
    pot_order_.clear();
    std::vector<int> users(n + 1), covered;
    for (size_t e = 0; e < elements; e++) {
        const CoreElement &element = core_.elements[e];
        int low = n, high = 0;
        for (int u = element.use_begin; u < element.use_end; u++) {
            int b = index_[core_.uses[u].begin], f = index_[core_.uses[u].end];
            if (b >= f) continue;
            low = std::min(low, b);
            high = std::max(high, f);
        }
        if (low > high) low = high = 0;
        ranges_[e] = {low, high};
        pot_offset_[e + 1] = pot_offset_[e] + high - low + 1;
        std::fill(users.begin() + low, users.begin() + high + 1, 0);
        for (int u = element.use_begin; u < element.use_end; u++) {
            int b = index_[core_.uses[u].begin], f = index_[core_.uses[u].end];
            for (int k = b; k < f; k++) users[k]++;
        }
        covered.clear();
        for (int k = low; k < high; k++)
            if (users[k]) covered.push_back(k);
        std::stable_sort(covered.begin(), covered.end(), [&](int a, int b) { return users[a] < users[b]; });
        pot_order_.insert(pot_order_.end(), covered.begin(), covered.end());
        pot_order_offset_[e + 1] = static_cast<int>(pot_order_.size());
    }
    work_.used += 4 * static_cast<uint64_t>(pots()) + static_cast<uint64_t>(core_.slots);
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
        int64_t cost = (it.time << kShift) + it.transient * running - keep;
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
            for (int u = offset[0]; u < offset[1] && room < target; u++) {
                const ReaderUse &use = core_.reader_uses[u];
                int first = pot_offset_[use.element] - ranges_[use.element].first;
                for (int y = first + index_[use.begin], end = first + index_[use.end]; y < end; y++) room += out.rest[y];
                room += out.rest[pot_offset_[use.element + 1] - 1];
            }
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
            for (int u = offset[0]; u < offset[1] && take > 0; u++) {
                const ReaderUse &use = core_.reader_uses[u];
                int first = pot_offset_[use.element] - ranges_[use.element].first, low = index_[use.begin], high = index_[use.end];
                if (low < high)
                    for (int o = pot_order_offset_[use.element]; o < pot_order_offset_[use.element + 1] && take > 0; o++)
                        if (pot_order_[o] >= low && pot_order_[o] < high) from(first + pot_order_[o]);
                from(pot_offset_[use.element + 1] - 1);
            }
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
        int first = pot_offset_[e] - ranges_[e].first;
        for (int k = ranges_[e].first; k < ranges_[e].second; k++) {
            int64_t full = element.pages * multipliers[k];
            // The paid part of the price is the part of the element that the relaxed plan holds.
            if (full > 0)
                out.excess[k] +=
                    static_cast<double>(element.pages) * (1.0 - static_cast<double>(out.rest[first + k]) / static_cast<double>(full));
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
            for (int u = offset[0]; u < offset[1]; u++) {
                const ReaderUse &use = core_.reader_uses[u];
                int first = pot_offset_[use.element] - ranges_[use.element].first;
                for (int y = first + index_[use.begin], end = first + index_[use.end]; y < end; y++)
                    if (out.rest[y] > 0) return false;
                if (out.rest[pot_offset_[use.element + 1] - 1] > 0) return false;
            }
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
    work_.used += 6 * static_cast<uint64_t>(pots()) + 24 * (core_.reader_uses.size() + core_.instances.size() + core_.costs.size());
    prices(multipliers);
    out.bound = 0;
    out.shares.clear();
    for (int k = 0; k < count(); k++) out.bound -= multipliers[k] * (budget_ - core_.base[slots_[k]]);
    out.rest.assign(pots(), 0);
    for (size_t e = 0; e < core_.elements.size(); e++) {
        const CoreElement &element = core_.elements[e];
        if (!(fixing.mechanisms[element.window] >> element.mechanism & 1)) continue;
        int first = pot_offset_[e] - ranges_[e].first;
        for (int o = pot_order_offset_[e]; o < pot_order_offset_[e + 1]; o++)
            out.rest[first + pot_order_[o]] = element.pages * multipliers[pot_order_[o]];
        out.rest[pot_offset_[e + 1] - 1] = element.capture << kShift;
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
