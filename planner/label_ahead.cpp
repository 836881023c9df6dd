// What a label program with many labels knows of the items to come: a table over the memory of slots that are over one after the other.
#include <algorithm>

#include "planner/label_run.h"

namespace reprise::planner {

// A table for the slot that is over last and those that go with it, for the items from `first` on. Those of further chains of slots would
// cut next to nothing.
void LabelRun::look_ahead(int first) {
    looked_ahead_ = true;
    if (!p_.incumbent_.found() || first >= steps_) return;
    int64_t gap = p_.incumbent_.cutoff() - *std::min_element(now_.bound.begin(), now_.bound.end());
    LabelItems all{p_.items_, p_.order_, p_.groups_, p_.multipliers_, p_.room_};
    auto classes = static_cast<size_t>(now_.classes);
    std::vector<Completion::Row> rows = Completion::chain(all, first, live_);
    if (rows.empty()) return;
    auto at = [&](size_t a, int slot) { return now_.memory[a * classes + static_cast<size_t>(class_of_[slot])]; };
    int64_t low = INT64_MAX, high = 0;
    for (size_t a = 0; a < now_.size(); a++) {
        low = std::min(low, at(a, rows[0].slot));
        high = std::max(high, at(a, rows[0].slot));
    }
    for (Completion::Row &row : rows) {
        int64_t more = INT64_MAX;
        for (size_t a = 0; a < now_.size(); a++) more = std::min(more, at(a, row.slot) - at(a, rows[0].slot));
        row.more += more;
    }
    ahead_.push_back({Completion(all, first, std::move(rows), low, high, gap), -1, {}, {}});
    p_.work_.used += now_.size() * (2 + ahead_[0].completion.rows().size()) + ahead_[0].completion.work();
}

// Which class tells the memory that the tables ask for, and what other slots must not leave free in addition. A table is of no use any more
// when one of its slots was forgotten before its end: what that leaves free is in the labels' bounds already.
void LabelRun::aim_ahead(int step) {
    std::erase_if(ahead_, [&](const Ahead &ahead) {
        return std::any_of(ahead.completion.rows().begin(), ahead.completion.rows().end(), [&](const Completion::Row &row) {
            return ahead.completion.counts(row.slot, step) && !std::binary_search(live_.begin(), live_.end(), row.slot);
        });
    });
    for (Ahead &ahead : ahead_) {
        ahead.fine = -1;
        if (!ahead.completion.alive(step + 1)) continue;
        ahead.fine = fine_[ahead.completion.rows()[0].slot];
        ahead.others.clear();
        for (const Completion::Row &row : ahead.completion.rows())
            if (ahead.completion.counts(row.slot, step + 1) && fine_[row.slot] != ahead.fine)
                ahead.others.emplace_back(fine_[row.slot], p_.multipliers_[row.slot]);
        ahead.wanted.assign(wanted_.size(), {});
        for (int k : live_)
            if (p_.multipliers_[k] > 0 && p_.room_[k] > most_[step + 1][k] && !ahead.completion.counts(k, step + 1))
                ahead.wanted[fine_[k]].emplace_back(p_.room_[k] - most_[step + 1][k], p_.multipliers_[k]);
    }
}

}  // namespace reprise::planner
