// Dominance across states: a label of one state may catch up with another state by paying now for what that one has already paid, and by
// making the same picks where it has made none. What that costs is the same for all labels of the two states.
#include <algorithm>

#include "planner/label_run.h"

namespace reprise::planner {

namespace {

constexpr size_t kFewest = 100;  // labels: below that it is not worth looking
constexpr size_t kPivots = 48;   // states that others are compared with
constexpr int kLook = 40;        // labels of a pivot that one label is compared with
constexpr int kIdle = 4;         // steps in a row without gain after which it is given up

}  // namespace

// The prices and picks that are alive after this step.
void LabelRun::list_alive() {
    alive_groups_.clear();
    alive_choices_.clear();
    group_mask_ = {};
    group_at_.assign(64 * LabelProgram::kWords, -1);
    for (const LabelChoice &choice : p_.choices_)
        if (choice.first <= step_ && choice.last > step_)
            alive_choices_.emplace_back(choice.bit >> 6, ((uint64_t{1} << choice.width) - 1) << (choice.bit & 63));
    for (const LabelGroup &group : p_.groups_) {
        if (group.bit < 0 || group.first > step_ || group.last <= step_) continue;
        AliveGroup alive{group.capture, std::vector<int64_t>(static_cast<size_t>(now_.classes), 0)};
        // Slots of one class come with a price all or none.
        for (int k : group.slots)
            if (std::binary_search(live_.begin(), live_.end(), k)) alive.memory[class_of_[k]] = group.pages;
        group_mask_[group.bit >> 6] |= uint64_t{1} << (group.bit & 63);
        group_at_[group.bit] = static_cast<int>(alive_groups_.size());
        alive_groups_.push_back(std::move(alive));
    }
}

// What a label of `from` must add to have everything that `to` has. false: it cannot, having picked differently.
bool LabelRun::catch_up(const LabelState &from, const LabelState &to, int64_t &time, std::vector<int64_t> &memory) const {
    for (auto [word, mask] : alive_choices_) {
        uint64_t a = from.bits[word] & mask;
        if (a != 0 && a != (to.bits[word] & mask)) return false;
    }
    time = 0;
    std::fill(memory.begin(), memory.end(), 0);
    for (int word = 0; word < LabelProgram::kWords; word++)
        for (uint64_t left = to.bits[word] & ~from.bits[word] & group_mask_[word]; left; left &= left - 1) {
            const AliveGroup &group = alive_groups_[group_at_[word * 64 + __builtin_ctzll(left)]];
            time += group.capture;
            for (size_t c = 0; c < memory.size(); c++) memory[c] += group.memory[c];
        }
    return true;
}

void LabelRun::across_states() {
    if (states_.size() < 2 || now_.size() <= kFewest || idle_ >= kIdle) return;
    size_t count = states_.size();
    auto classes = static_cast<size_t>(now_.classes);
    list_alive();
    // Pivots: the states with the most promising labels.
    std::vector<int64_t> promise(count, INT64_MAX);
    for (size_t s = 0; s < count; s++)
        for (int a = states_[s].begin; a < states_[s].end; a++) promise[s] = std::min(promise[s], now_.promise[a]);
    std::vector<int> pivots(count);
    for (size_t s = 0; s < count; s++) pivots[s] = static_cast<int>(s);
    std::stable_sort(pivots.begin(), pivots.end(), [&](int a, int b) { return promise[a] < promise[b]; });
    if (pivots.size() > kPivots) pivots.resize(kPivots);

    // Per pivot and class the least memory of the labels that are looked at: where even that is too much none of them beats another.
    std::vector<int64_t> least_of_pivot;
    for (int p : pivots)
        for (size_t c = 0; c < classes; c++) {
            int64_t least = INT64_MAX;
            for (int a = states_[p].begin; a < std::min(states_[p].end, states_[p].begin + kLook); a++)
                least = std::min(least, now_.memory[static_cast<size_t>(a) * classes + c]);
            least_of_pivot.push_back(least);
        }
    std::vector<uint8_t> keep(now_.size(), 1);
    std::vector<int64_t> extra(classes);
    uint64_t steps = 0;
    for (size_t s = 0; s < count; s++)
        for (size_t z = 0; z < pivots.size(); z++) {
            const int p = pivots[z];
            if (static_cast<size_t>(p) == s) continue;
            const LabelState &from = states_[p], &to = states_[s];
            int64_t time = 0;
            steps += 40;
            if (!catch_up(from, to, time, extra)) continue;
            if (classes <= 1) {
                // Both are sorted by time with falling memory: one sweep.
                int a = from.begin;
                int64_t least = INT64_MAX;
                for (int b = to.begin; b < to.end; b++) {
                    while (a < from.end && now_.time[a] + time <= now_.time[b]) {
                        if (keep[a]) least = classes ? std::min(least, now_.memory[a] + extra[0]) : INT64_MIN;
                        a++;
                    }
                    // Mutual: two states that can catch up for nothing must not remove each other; removed ones do not count.
                    if (least <= (classes ? now_.memory[b] : 0)) keep[b] = 0;
                }
                steps += static_cast<uint64_t>(to.end - to.begin + from.end - from.begin);
                continue;
            }
            const int64_t *lowest = least_of_pivot.data() + z * classes;
            for (int b = to.begin; b < to.end; b++) {
                if (!keep[b]) continue;
                const int64_t *memory = now_.memory.data() + static_cast<size_t>(b) * classes;
                bool possible = true;
                for (size_t c = 0; c < classes && possible; c++) possible = lowest[c] + extra[c] <= memory[c];
                steps++;
                if (!possible) continue;
                for (int a = from.begin, looked = 0; a < from.end && now_.time[a] + time <= now_.time[b] && looked < kLook; a++, looked++) {
                    if (!keep[a]) continue;
                    bool beats = true;
                    for (size_t c = 0; c < classes && beats; c++)
                        beats = now_.memory[static_cast<size_t>(a) * classes + c] + extra[c] <= memory[c];
                    steps += 3;
                    if (beats) {
                        keep[b] = 0;
                        break;
                    }
                }
            }
        }
    p_.work_.used += steps;
    const size_t count_before = now_.size();
    keep_only(keep);
    idle_ = now_.size() * 10 > count_before * 9 ? idle_ + 1 : 0;
}

}  // namespace reprise::planner
