#include "planner/label_run.h"

#include <algorithm>
#include <iterator>
#include <map>

namespace reprise::planner {

namespace {

// Labels before dominance, of one step: more is memory that no plan is worth.
constexpr size_t kMostRaw = 600'000;
constexpr size_t kAlone = 4;    // times the labels that a strict program may have, where nothing is shared
constexpr size_t kMany = 1000;  // from so many labels on it is worth knowing what is to come

uint64_t field(const LabelProgram::Bits &bits, int bit, int width) { return bits[bit >> 6] >> (bit & 63) & ((uint64_t{1} << width) - 1); }

}  // namespace

LabelRun::LabelRun(LabelProgram &program, size_t width, bool strict)
    : p_(program), width_(width), strict_(strict), steps_(static_cast<int>(program.items_.size())) {}

void LabelRun::prepare() {
    int slots = p_.slots_;
    least_.assign(steps_ + 1, std::vector<int64_t>(slots, 0));
    most_ = least_;
    for (int j = steps_ - 1; j >= 0; j--) {
        const LabelItem &item = p_.items_[p_.order_[j]];
        for (int k = 0; k < slots; k++) {
            int64_t low = INT64_MAX, high = 0;
            for (const LabelOption &option : item.options) low = std::min(low, option.memory[k]), high = std::max(high, option.memory[k]);
            least_[j][k] = least_[j + 1][k] + low;
            most_[j][k] = most_[j + 1][k] + high;
        }
    }
    for (const LabelGroup &group : p_.groups_) {
        if (group.bit < 0) continue;
        for (int k : group.slots)
            for (int j = 0; j <= group.last; j++) most_[j][k] += group.pages;
    }
    over_.assign(steps_, {});
    for (const LabelChoice &choice : p_.choices_) over_[choice.last].emplace_back(choice.bit, choice.width);
    for (const LabelGroup &group : p_.groups_)
        if (group.bit >= 0) over_[group.last].emplace_back(group.bit, 1);
    parents_.assign(steps_, {});
    options_.assign(steps_, {});
    live_.clear();
    for (int k = 0; k < slots; k++) live_.push_back(k);
    class_of_.assign(slots, 0);
    now_.clear(1);
    now_.bound.push_back(p_.start_bound_);
    now_.promise.push_back(p_.start_bound_);
    now_.time.push_back(p_.fixed_time_);
    now_.memory.push_back(0);
    now_.parent.push_back(0);
    now_.option.push_back(0);
    states_.assign(1, {});
    states_[0].end = 1;
    p_.work_.used += static_cast<uint64_t>(steps_) * static_cast<uint64_t>(slots) * 8;
    find_alike();
}

void LabelRun::find_alike() {
    alike_.assign(steps_ + 1, std::vector<int>(p_.slots_, 0));
    std::vector<int> first;
    for (int j = steps_ - 1; j >= 0; j--) {
        const LabelItem &item = p_.items_[p_.order_[j]];
        std::vector<int> &now = alike_[j];
        std::vector<std::vector<uint8_t>> in(item.groups.size(), std::vector<uint8_t>(p_.slots_, 0));
        for (size_t z = 0; z < item.groups.size(); z++)
            for (int k : p_.groups_[item.groups[z]].slots) in[z][k] = 1;
        auto same = [&](int a, int b) {
            if (alike_[j + 1][a] != alike_[j + 1][b]) return false;
            for (const LabelOption &option : item.options)
                if (option.memory[a] != option.memory[b]) return false;
            for (const auto &slots : in)
                if (slots[a] != slots[b]) return false;
            return true;
        };
        first.clear();
        for (int k = 0; k < p_.slots_; k++) {
            size_t c = first.size();
            while (c > 0 && !same(first[c - 1], k)) c--;
            if (c == 0) first.push_back(k), c = first.size();
            now[k] = static_cast<int>(c - 1);
        }
        p_.work_.used += static_cast<uint64_t>(p_.slots_) * (4 + first.size());
    }
}

// By what labels of one state are compared after this step.
void LabelRun::choose_columns() {
    columns_ = kept_classes_;
    compared_ = raw_.memory.data();
    stride_ = static_cast<size_t>(raw_.classes);
    if (kept_classes_.size() < 2) return;
    // Per set of slots that are alike from here on: its classes, each with the least room of its slots.
    std::vector<std::map<int, int64_t>> sets;
    for (int k : live_) {
        auto set = static_cast<size_t>(alike_[step_ + 1][k]);
        if (set >= sets.size()) sets.resize(set + 1);
        auto [at, fresh] = sets[set].emplace(kept_classes_[class_of_[k]], p_.room_[k]);
        at->second = std::min(at->second, p_.room_[k]);
    }
    std::vector<std::vector<std::pair<int, int64_t>>> kept;
    std::vector<int> single;
    for (const auto &set : sets) {
        if (set.empty()) continue;
        if (set.size() == 1) {
            int c = set.begin()->first;
            if (std::find(single.begin(), single.end(), c) != single.end()) continue;
            single.push_back(c);
        }
        kept.emplace_back(set.begin(), set.end());
    }
    if (kept.size() >= kept_classes_.size()) return;
    left_.resize(raw_.size() * kept.size());
    for (size_t a = 0; a < raw_.size(); a++)
        for (size_t s = 0; s < kept.size(); s++) {
            int64_t most = INT64_MIN;
            for (auto [c, room] : kept[s]) most = std::max(most, raw_.memory[a * stride_ + static_cast<size_t>(c)] - room);
            left_[a * kept.size() + s] = most;
        }
    p_.work_.used += raw_.size() * (2 + kept_classes_.size());
    compared_ = left_.data();
    stride_ = kept.size();
    columns_.clear();
    for (size_t s = 0; s < kept.size(); s++) columns_.push_back(static_cast<int>(s));
}

// Slots to which every option of this item, and every price it may open, adds the same stay in one class.
void LabelRun::refine_classes(const LabelItem &item) {
    size_t groups = item.groups.size();
    fine_.assign(p_.slots_, -1);
    representative_.clear();
    std::vector<std::vector<uint8_t>> in(groups, std::vector<uint8_t>(p_.slots_, 0));
    for (size_t z = 0; z < groups; z++)
        for (int k : p_.groups_[item.groups[z]].slots) in[z][k] = 1;
    auto same = [&](int a, int b) {
        if (class_of_[a] != class_of_[b]) return false;
        for (const LabelOption &option : item.options)
            if (option.memory[a] != option.memory[b]) return false;
        for (size_t z = 0; z < groups; z++)
            if (in[z][a] != in[z][b]) return false;
        return true;
    };
    for (int k : live_) {
        // Neighbours in time are alike most often: newest class first.
        for (size_t c = representative_.size(); c-- > 0 && fine_[k] < 0;)
            if (same(representative_[c], k)) fine_[k] = static_cast<int>(c);
        if (fine_[k] >= 0) continue;
        fine_[k] = static_cast<int>(representative_.size());
        representative_.push_back(k);
    }
    in_group_.assign(groups, std::vector<uint8_t>(representative_.size()));
    for (size_t z = 0; z < groups; z++)
        for (size_t c = 0; c < representative_.size(); c++) in_group_[z][c] = in[z][representative_[c]];
}

bool LabelRun::effect(const LabelItem &item, int number, const Bits &bits, Effect &out) const {
    const LabelOption &option = item.options[number];
    out.bits = bits;
    for (auto [choice, value] : option.picks) {
        const LabelChoice &it = p_.choices_[choice];
        uint64_t has = field(bits, it.bit, it.width);
        if (has != 0 && has != static_cast<uint64_t>(value)) return false;
        if (has == 0) out.bits[it.bit >> 6] |= static_cast<uint64_t>(value) << (it.bit & 63);
    }
    out.time = option.time;
    out.bound = option.bound;
    size_t classes = representative_.size();
    out.memory.resize(classes);
    for (size_t c = 0; c < classes; c++) out.memory[c] = option.memory[representative_[c]];
    for (size_t z = 0; z < item.groups.size(); z++) {
        const LabelGroup &group = p_.groups_[item.groups[z]];
        if (field(bits, group.bit, 1)) {
            // Already paid for in full, less what this item was to pay: that payment is now withdrawn from the item's own account.
            out.bound += own_share_[z];
        } else if (std::find(option.groups.begin(), option.groups.end(), item.groups[z]) != option.groups.end()) {
            out.time += group.capture;
            out.bound += group.full - later_shares_[z];
            out.bits[group.bit >> 6] |= uint64_t{1} << (group.bit & 63);
            for (size_t c = 0; c < classes; c++)
                if (in_group_[z][c]) out.memory[c] += group.pages;
        }
    }
    for (auto [bit, width] : over_[step_]) out.bits[bit >> 6] &= ~(((uint64_t{1} << width) - 1) << (bit & 63));
    return true;
}

// Every label of every state, decided every way: raw_ and runs_.
void LabelRun::expand(int step) {
    step_ = step;
    int number = p_.order_[step];
    const LabelItem &item = p_.items_[number];
    refine_classes(item);
    size_t classes = representative_.size();
    limit_.assign(classes, INT64_MAX);
    for (int k : live_) limit_[fine_[k]] = std::min(limit_[fine_[k]], p_.room_[k] - least_[step + 1][k]);
    highest_.assign(classes, INT64_MIN);
    wanted_.assign(classes, {});
    for (int k : live_)
        if (p_.multipliers_[k] > 0 && p_.room_[k] > most_[step + 1][k])
            wanted_[fine_[k]].emplace_back(p_.room_[k] - most_[step + 1][k], p_.multipliers_[k]);
    aim_ahead(step);
    own_share_.assign(item.groups.size(), 0);
    later_shares_.assign(item.groups.size(), 0);
    for (size_t z = 0; z < item.groups.size(); z++)
        for (auto [reader, share] : p_.groups_[item.groups[z]].readers) {
            if (reader == number) own_share_[z] = share;
            if (p_.position_[reader] > step) later_shares_[z] += share;
        }
    raw_.clear(static_cast<int>(classes));
    runs_.clear();
    cutoff_ = p_.incumbent_.cutoff();
    Effect effect_of;
    std::vector<int> old_class(classes);
    for (size_t c = 0; c < classes; c++) old_class[c] = class_of_[representative_[c]];
    auto old_classes = static_cast<size_t>(now_.classes);
    for (const LabelState &state : states_)
        for (int q = 0; q < static_cast<int>(item.options.size()); q++) {
            if (!effect(item, q, state.bits, effect_of)) continue;
            if (raw_.size() > kMostRaw) {
                overflow_ = true;
                return;
            }
            const size_t begin = raw_.size();
            size_t next = begin;
            raw_.resize(begin + static_cast<size_t>(state.end - state.begin));
            for (int a = state.begin; a < state.end; a++) {
                int64_t bound = now_.bound[a] + effect_of.bound;
                if (bound > cutoff_) continue;
                const int64_t *from = now_.memory.data() + static_cast<size_t>(a) * old_classes;
                int64_t *memory = raw_.memory.data() + next * classes;
                bool fits = true;
                for (size_t c = 0; c < classes && fits; c++) {
                    memory[c] = from[old_class[c]] + effect_of.memory[c];
                    fits = memory[c] <= limit_[c];
                }
                if (!fits) continue;
                int64_t promise = bound;
                for (size_t c = 0; c < classes; c++)
                    for (auto [pages, multiplier] : wanted_[c]) promise += multiplier * std::max<int64_t>(0, pages - memory[c]);
                if (promise > cutoff_) continue;
                for (const Ahead &ahead : ahead_) {
                    if (ahead.fine < 0) continue;
                    const int64_t mine = memory[ahead.fine];
                    int64_t more = bound + ahead.completion.least(step + 1, mine);
                    for (size_t other = 0; other < classes; other++)
                        for (auto [pages, multiplier] : ahead.wanted[other])
                            more += multiplier * std::max<int64_t>(0, pages - memory[other]);
                    for (auto [other, multiplier] : ahead.others) more -= multiplier * (memory[other] - mine);
                    promise = std::max(promise, more);
                }
                if (promise > cutoff_) continue;
                raw_.bound[next] = bound;
                raw_.promise[next] = promise;
                raw_.time[next] = now_.time[a] + effect_of.time;
                raw_.parent[next] = static_cast<uint32_t>(a);
                raw_.option[next] = static_cast<uint8_t>(q);
                for (size_t c = 0; c < classes; c++) highest_[c] = std::max(highest_[c], memory[c]);
                next++;
            }
            raw_.resize(next);
            if (next > begin) runs_.push_back({effect_of.bits, static_cast<int>(begin), static_cast<int>(next)});
            p_.work_.used += static_cast<uint64_t>(state.end - state.begin) * (7 + 2 * classes) + 60 + 6 * (classes + item.groups.size());
        }
}

// What stays free of a slot has been paid for at its multiplier in vain.
void LabelRun::forget(int fine_class, int64_t pages, int64_t multiplier) {
    if (multiplier == 0) return;
    auto stride = static_cast<size_t>(raw_.classes);
    for (size_t a = 0; a < raw_.size(); a++)
        raw_.bound[a] += multiplier * std::max<int64_t>(0, pages - raw_.memory[a * stride + static_cast<size_t>(fine_class)]);
    p_.work_.used += raw_.size();
}

// Slots that nothing can fill any more are forgotten; what is left are the classes of the next step.
void LabelRun::close_classes(int step) {
    std::vector<int> still, renumber(representative_.size(), -1);
    kept_classes_.clear();
    for (int k : live_) {
        int c = fine_[k];
        if (highest_[c] == INT64_MIN || highest_[c] + most_[step + 1][k] <= p_.room_[k]) {
            forget(c, p_.room_[k] - most_[step + 1][k], p_.multipliers_[k]);
            continue;
        }
        still.push_back(k);
        if (renumber[c] < 0) {
            renumber[c] = static_cast<int>(kept_classes_.size());
            kept_classes_.push_back(c);
        }
    }
    for (int k : still) class_of_[k] = renumber[fine_[k]];
    live_ = std::move(still);
}

// Keeps of `labels` (of one state, sorted by time) those that no other one beats in time and in all classes that go on.
void LabelRun::drop_dominated(std::vector<int> &labels) {
    size_t kept = 0;
    size_t kept_classes = columns_.size();
    const int64_t *memory = compared_;
    size_t stride = stride_;
    if (kept_classes == 0) {
        labels.resize(1);
    } else if (kept_classes == 1) {
        int64_t least = INT64_MAX;
        auto c = static_cast<size_t>(columns_[0]);
        for (int a : labels) {
            int64_t m = memory[static_cast<size_t>(a) * stride + c];
            if (m >= least) continue;
            // Equal times: the later one is smaller.
            if (kept > 0 && raw_.time[labels[kept - 1]] == raw_.time[a]) kept--;
            least = m;
            labels[kept++] = a;
        }
        labels.resize(kept);
    } else if (kept_classes == 2) {
        // The kept labels' staircase: the second memory falls as the first one rises.
        std::map<int64_t, int64_t> stairs;
        auto first = static_cast<size_t>(columns_[0]), second = static_cast<size_t>(columns_[1]);
        for (int a : labels) {
            int64_t x = memory[static_cast<size_t>(a) * stride + first], y = memory[static_cast<size_t>(a) * stride + second];
            auto above = stairs.upper_bound(x);
            if (above != stairs.begin() && std::prev(above)->second <= y) continue;
            auto at = stairs.lower_bound(x);
            while (at != stairs.end() && at->second >= y) at = stairs.erase(at);
            stairs.emplace_hint(at, x, y);
            labels[kept++] = a;
        }
        p_.work_.used += labels.size() * 50;
        labels.resize(kept);
    } else {
        drop_dominated_by_blocks(labels);
    }
}

// The same for many classes: every label is looked for among all earlier ones, of which stretches are skipped whose least memory already is
// too much in some class.
void LabelRun::drop_dominated_by_blocks(std::vector<int> &labels) {
    constexpr size_t kBlock = 16, kSuper = kBlock * kBlock;
    constexpr uint64_t kMostCompared = 400;  // for one label; only speed depends on it
    size_t classes = columns_.size(), kept = 0;
    uint64_t compared = 0;
    rows_.clear();
    block_least_.clear();
    super_least_.clear();
    std::vector<int64_t> mine(classes);
    auto within = [&](const int64_t *least) {
        compared++;
        for (size_t c = 0; c < classes; c++)
            if (least[c] > mine[c]) return false;
        return true;
    };
    auto beaten = [&] {
        uint64_t stop = compared + kMostCompared;
        for (size_t s = (kept + kSuper - 1) / kSuper; s-- > 0 && compared < stop;) {
            if (!within(&super_least_[s * classes])) continue;
            for (size_t b = std::min((s + 1) * kBlock, (kept + kBlock - 1) / kBlock); b-- > s * kBlock;) {
                if (!within(&block_least_[b * classes])) continue;
                for (size_t z = std::min((b + 1) * kBlock, kept); z-- > b * kBlock;)
                    if (within(&rows_[z * classes])) return true;
            }
        }
        return false;
    };
    for (int a : labels) {
        const int64_t *row = compared_ + static_cast<size_t>(a) * stride_;
        for (size_t c = 0; c < classes; c++) mine[c] = row[columns_[c]];
        if (beaten()) continue;
        rows_.insert(rows_.end(), mine.begin(), mine.end());
        if (kept % kBlock == 0) block_least_.insert(block_least_.end(), mine.begin(), mine.end());
        if (kept % kSuper == 0) super_least_.insert(super_least_.end(), mine.begin(), mine.end());
        for (size_t c = 0; c < classes; c++) {
            int64_t &block = block_least_[block_least_.size() - classes + c], &super = super_least_[super_least_.size() - classes + c];
            block = std::min(block, mine[c]);
            super = std::min(super, mine[c]);
        }
        labels[kept++] = a;
    }
    labels.resize(kept);
    p_.work_.used += compared * 5 + labels.size() * 12;
}

void LabelRun::sort_by_memory(std::vector<int> &labels) {
    std::vector<std::pair<int64_t, int>> keys;
    for (int a : labels) {
        int64_t sum = 0;
        for (int c : columns_) sum += compared_[static_cast<size_t>(a) * stride_ + static_cast<size_t>(c)];
        keys.emplace_back(sum, a);
    }
    std::sort(keys.begin(), keys.end());
    for (size_t z = 0; z < keys.size(); z++) labels[z] = keys[z].second;
    p_.work_.used += labels.size() * 16;
}

// The runs [first, last) have the same bits: one state, sorted by time, without what is dominated.
void LabelRun::merge_state(const std::vector<Run> &runs, size_t first, size_t last) {
    std::vector<int> &labels = scratch_;
    labels.clear();
    auto earlier = [&](int a, int b) { return raw_.time[a] < raw_.time[b]; };
    std::vector<size_t> ends;
    for (size_t r = first; r < last; r++) {
        for (int a = runs[r].begin; a < runs[r].end; a++) labels.push_back(a);
        ends.push_back(labels.size());
    }
    if (p_.incumbent_.feasibility()) {
        // All times are zero: what dominates must come first in another order.
        sort_by_memory(labels);
        ends.assign(1, labels.size());
    }
    std::vector<size_t> starts{0};
    starts.insert(starts.end(), ends.begin(), ends.end());
    while (starts.size() > 2) {
        scratch2_.resize(labels.size());
        std::vector<size_t> next{0};
        size_t z = 0;
        for (; z + 2 < starts.size(); z += 2) {
            auto at = [&](size_t x) { return labels.begin() + static_cast<long>(x); };
            std::merge(at(starts[z]), at(starts[z + 1]), at(starts[z + 1]), at(starts[z + 2]),
                       scratch2_.begin() + static_cast<long>(starts[z]), earlier);
            next.push_back(starts[z + 2]);
        }
        if (z + 1 < starts.size()) {
            std::copy(labels.begin() + static_cast<long>(starts[z]), labels.end(), scratch2_.begin() + static_cast<long>(starts[z]));
            next.push_back(starts[z + 1]);
        }
        labels.swap(scratch2_);
        starts.swap(next);
        p_.work_.used += labels.size() * 3;
    }
    drop_dominated(labels);
    LabelState state{runs[first].bits, static_cast<int>(now_.size()), 0};
    now_.append(raw_, labels, kept_classes_);
    state.end = static_cast<int>(now_.size());
    states_.push_back(state);
    p_.work_.used += labels.size() * (10 + kept_classes_.size());
}

void LabelRun::merge() {
    std::stable_sort(runs_.begin(), runs_.end(), [](const Run &a, const Run &b) { return a.bits < b.bits; });
    now_.clear(static_cast<int>(kept_classes_.size()));
    states_.clear();
    choose_columns();
    for (size_t first = 0; first < runs_.size();) {
        size_t last = first + 1;
        while (last < runs_.size() && runs_[last].bits == runs_[first].bits) last++;
        merge_state(runs_, first, last);
        first = last;
    }
    p_.work_.used += runs_.size() * 40;
}

// Keeps width_ labels: half of them those of the least bound. Where segments' times are in proportion to their memory the bound tells
// hardly anything, and how much room is left decides what the last items can still fill: the other half are the best of equal stretches of
// memory, weighted by the multipliers. false: there were more, and none may be dropped.
bool LabelRun::narrow() {
    size_t count = now_.size();
    if (count <= width_) return true;
    // Labels of a single state cost little: none is compared with other states'.
    if (strict_) return states_.size() == 1 && count <= kAlone * width_;
    std::vector<uint8_t> keep(count, 0);
    std::vector<int64_t> bounds = now_.promise;
    size_t by_bound = width_ - width_ / 2;
    std::nth_element(bounds.begin(), bounds.begin() + static_cast<long>(by_bound), bounds.end());
    int64_t threshold = bounds[by_bound];
    size_t equals = by_bound;
    for (int64_t b : now_.promise) equals -= b < threshold;
    for (size_t a = 0; a < count; a++) {
        keep[a] = now_.promise[a] < threshold || (now_.promise[a] == threshold && equals > 0);
        equals -= keep[a] && now_.promise[a] == threshold;
    }
    std::vector<double> weight(now_.classes, 0.0), filled(count, 0.0);
    for (int k : live_) weight[class_of_[k]] += static_cast<double>(p_.multipliers_[k]) + 1e-3;
    double low = 1e300, high = 0;
    for (size_t a = 0; a < count; a++) {
        for (size_t c = 0; c < weight.size(); c++) filled[a] += weight[c] * static_cast<double>(now_.memory[a * weight.size() + c]);
        low = std::min(low, filled[a]);
        high = std::max(high, filled[a]);
    }
    std::vector<size_t> best(width_ / 2, count);
    for (size_t a = 0; a < count; a++) {
        if (keep[a]) continue;
        auto at = static_cast<size_t>((filled[a] - low) / (high - low + 1) * static_cast<double>(best.size()));
        size_t &other = best[std::min(at, best.size() - 1)];
        if (other == count || now_.promise[a] < now_.promise[other]) other = a;
    }
    for (size_t a : best)
        if (a < count) keep[a] = 1;
    for (size_t a = 0; a < count; a++)
        if (!keep[a]) lost_ = std::min(lost_, now_.promise[a]);
    result_.end = LabelEnd::cut;
    p_.work_.used += count * (12 + weight.size());
    keep_only(keep);
    return true;
}

// Of the labels as they are now.
void LabelRun::keep_only(const std::vector<uint8_t> &keep) {
    size_t kept = 0, states = 0;
    for (const LabelState &state : states_) {
        LabelState next{state.bits, static_cast<int>(kept), 0};
        for (int a = state.begin; a < state.end; a++)
            if (keep[a]) now_.move(static_cast<size_t>(a), kept++);
        next.end = static_cast<int>(kept);
        if (next.end > next.begin) states_[states++] = next;
    }
    now_.resize(kept);
    states_.resize(states);
}

// What is known when the labels become too many: that nothing is better than the most promising one.
void LabelRun::stop() {
    result_.end = LabelEnd::too_many;
    result_.bound = lost_;
    for (int64_t bound : now_.promise) result_.bound = std::min(result_.bound, bound);
}

// The cheapest label at the end, turned back into a plan and checked against all slots.
void LabelRun::finish() {
    result_.bound = lost_;
    if (now_.size() == 0) return;
    size_t best = 0;
    for (size_t a = 1; a < now_.size(); a++)
        if (now_.time[a] < now_.time[best]) best = a;
    result_.bound = std::min(result_.bound, now_.time[best] << kShift);
    Choice choice = p_.fixed_;
    auto a = static_cast<uint32_t>(best);
    for (int j = steps_ - 1; j >= 0; j--) {
        const LabelItem &item = p_.items_[p_.order_[j]];
        const LabelOption &option = item.options[options_[j][a]];
        if (item.instance >= 0) choice.replay[item.instance] = option.replay;
        for (auto [w, m] : option.windows) choice.mechanism[w] = static_cast<uint8_t>(m);
        a = parents_[j][a];
    }
    Occupancy plan(p_.core_);
    plan.set(choice);
    result_.violated = plan.violated(p_.lagrangian_.budget());
    if (result_.violated.empty())
        p_.incumbent_.offer(plan);
    else
        p_.incumbent_.repair(plan, p_.reduced_, p_.fixing_);
}

LabelResult LabelRun::run() {
    prepare();
    // What is fixed may already be too much, with nothing left to decide.
    for (int k = 0; k < p_.slots_; k++)
        if (least_[0][k] > p_.room_[k]) return result_;
    for (int j = 0; j < steps_; j++) {
        expand(j);
        if (overflow_) {
            stop();
            return result_;
        }
        close_classes(j);
        merge();
        p_.counters_.labels += now_.size();
        across_states();
        if (!looked_ahead_ && now_.size() > kMany) look_ahead(j + 1);
        if (!narrow() || p_.work_.spent()) {
            stop();
            return result_;
        }
        parents_[j] = now_.parent;
        options_[j] = now_.option;
        if (now_.size() == 0) break;
    }
    finish();
    return result_;
}

LabelResult LabelProgram::run(size_t width, bool strict) {
    counters_.programs++;
    LabelResult none;
    none.end = LabelEnd::too_many;
    if (!built_) return none;
    choose_order(strict);
    if (!place_bits()) return none;
    return LabelRun(*this, width, strict).run();
}

}  // namespace reprise::planner
