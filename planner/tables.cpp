#include "planner/tables.h"

#include <algorithm>
#include <map>

namespace reprise::planner {

namespace {

// What cannot be a time is made one that validate() refuses.
int64_t nanoseconds(int64_t pages, int64_t ps_per_page) {
    if (ps_per_page > 0 && pages > (INT64_MAX - 999) / ps_per_page) return INT64_MAX / 4;
    return (pages * ps_per_page + 999) / 1000;
}

// Pages whose write number `write` was preceded by `previous` (-1: by none that was seen).
struct Group {
    int write, previous;
    int64_t pages;
};

class Tables {
  public:
    Tables(const std::vector<Instance> &instances, const BufferHistory &history, const MechanismCosts &costs)
        : instances_(instances), history_(history), costs_(costs) {
        std::map<int32_t, std::vector<PageRun>> by_slot;
        for (const BufferWrite &write : history.writes) {
            auto &runs = by_slot[write.slot];
            runs.insert(runs.end(), write.pages.begin(), write.pages.end());
        }
        // The last write of every page, as runs: begin -> (end, write).
        std::map<int64_t, std::pair<int64_t, int>> last;
        if (history.pages > 0) last[0] = {history.pages, -1};
        for (auto &[slot, runs] : by_slot) {
            auto number = static_cast<int>(slots_.size());
            std::map<int, int64_t> by_previous;
            for (const PageRun &run : runs) {
                int64_t begin = std::max<int64_t>(0, run.begin), end = std::min(history.pages, run.end);
                if (begin < end) overwrite(last, begin, end, number, by_previous);
            }
            if (by_previous.empty()) continue;  // nothing of the buffer after all
            slots_.push_back(slot);
            for (auto [previous, pages] : by_previous) groups_.push_back({number, previous, pages});
        }
    }

    void windows(std::vector<Window> &out) const {
        std::vector<int32_t> readers = history_.users;
        if (std::none_of(readers.begin(), readers.end(), [&](int32_t i) { return differing(i) > 0; })) return;
        auto forward = [&](int32_t i) { return instances_[i].forward_begin; };
        std::sort(readers.begin(), readers.end(), [&](int32_t a, int32_t b) { return forward(a) < forward(b); });
        readers.erase(std::unique(readers.begin(), readers.end()), readers.end());
        int number = 0;
        const size_t first_window = out.size();
        std::vector<int32_t> ends;  // of the windows
        for (size_t first = 0; first < readers.size();) {
            size_t last = first + 1;
            int32_t end = instances_[readers[first]].replay_end;
            while (last < readers.size() && forward(readers[last]) < end) end = std::max(end, instances_[readers[last++]].replay_end);
            Window &window = out.emplace_back();
            window.name = history_.name + "." + std::to_string(number++);
            window.readers.assign(readers.begin() + static_cast<long>(first), readers.begin() + static_cast<long>(last));
            bool small = history_.pages < costs_.small_pages;
            window.mechanisms.push_back(copies(window.readers, small));
            if (!small && history_.selective) {
                window.mechanisms.push_back(shadow(window.readers));
                if (history_.predictable) window.mechanisms.push_back(predicted(window.readers));
            }
            ends.push_back(end);
            first = last;
        }
        if (history_.pages < costs_.small_pages || !history_.selective) return;
        for (size_t w = 0; w < ends.size(); w++) {
            Element &shadow = out[first_window + w].mechanisms[1].elements[0];
            shadow.capture_ns += nanoseconds(followed(w == 0 ? INT32_MIN : ends[w - 1], ends[w]), costs_.copy_ps);
            if (w == 0) shadow.capture_ns += nanoseconds(followed(ends.back(), INT32_MAX), costs_.copy_ps);
        }
    }

  private:
    static void overwrite(std::map<int64_t, std::pair<int64_t, int>> &last, int64_t begin, int64_t end, int number,
                          std::map<int, int64_t> &by_previous) {
        auto split = [&](int64_t at) {
            auto it = last.upper_bound(at);
            if (it == last.begin()) return;
            --it;
            if (it->first == at || it->second.first <= at) return;
            last[at] = it->second;
            it->second.first = at;
        };
        split(begin);
        split(end);
        for (auto it = last.lower_bound(begin); it != last.end() && it->first < end;) {
            auto [run_end, previous] = it->second;
            // Twice in one write is once.
            if (previous != number) by_previous[previous] += run_end - it->first;
            it = last.erase(it);
        }
        last[begin] = {end, number};
    }

    // The number of writes before the instance's forward, or before its replay: a write in the slot after an event comes after the event.
    int version(int32_t i, bool at_forward) const {
        int32_t event = at_forward ? instances_[i].forward_begin : instances_[i].replay_begin;
        return static_cast<int>(std::lower_bound(slots_.begin(), slots_.end(), event) - slots_.begin());
    }
    // Whether the instance needs the before-images of this group: its first overwrite after the forward is that write, before the replay.
    bool needs(int32_t i, const Group &group) const {
        int at = version(i, true);
        return group.previous < at && at <= group.write && group.write < version(i, false);
    }
    int64_t differing(int32_t i) const {
        int64_t pages = 0;
        for (const Group &group : groups_)
            if (needs(i, group)) pages += group.pages;
        return pages;
    }

    // Pages that a shadow copies for the writes in slots [begin, end).
    int64_t followed(int32_t begin, int32_t end) const {
        int64_t pages = 0;
        for (const Group &group : groups_) {
            int32_t slot = slots_[static_cast<size_t>(group.write)];
            if (begin <= slot && slot < end) pages += group.pages;
        }
        return pages;
    }

    Mechanism copies(const std::vector<int32_t> &readers, bool small) const {
        Mechanism out;
        out.name = small ? "small copy" : "whole copy";
        out.kind = small ? Kind::small : Kind::whole;
        std::map<int, Element> versions;
        for (int32_t i : readers) versions[version(i, true)].uses.push_back({i, instances_[i].forward_begin, instances_[i].replay_end});
        for (auto &[number, element] : versions) {
            element.pages = history_.pages;
            element.capture_ns = nanoseconds(history_.pages, costs_.copy_ps) + costs_.copy_fixed_ns;
            out.elements.push_back(std::move(element));
        }
        // Who sees no change compares and loads nothing.
        const ReaderCost loads{small ? costs_.small_ns : nanoseconds(2 * history_.pages, costs_.copy_ps), history_.pages};
        const ReaderCost compares{small ? costs_.small_ns : nanoseconds(history_.pages, costs_.copy_ps), 0};
        for (int32_t i : readers) out.readers.push_back(differing(i) > 0 ? loads : compares);
        return out;
    }

    // from_forward: the element exists since the forward (predicted), otherwise since the write that it is about.
    void add_groups(Mechanism &out, const std::vector<int32_t> &readers, bool from_forward) const {
        for (const Group &group : groups_) {
            Element element;
            for (int32_t i : readers) {
                if (!needs(i, group)) continue;
                int32_t begin = from_forward ? instances_[i].forward_begin : slots_[static_cast<size_t>(group.write)] + 1;
                element.uses.push_back({i, std::min(begin, instances_[i].replay_end), instances_[i].replay_end});
            }
            if (element.uses.empty()) continue;
            element.pages = group.pages;
            if (from_forward) {
                element.pages = std::min(history_.pages, group.pages + (group.pages * history_.over_predicted_ppm + 999'999) / 1'000'000);
                int64_t missed = (group.pages * history_.missed_ppm + 999'999) / 1'000'000;
                element.capture_ns = nanoseconds(element.pages, costs_.predicted_ps) + missed * costs_.miss_ns;
            } else {
                element.capture_ns = nanoseconds(group.pages, costs_.delta_ps);
            }
            out.elements.push_back(std::move(element));
        }
        for (int32_t i : readers) out.readers.push_back({nanoseconds(differing(i), costs_.selective_load_ps), differing(i)});
    }

    Mechanism shadow(const std::vector<int32_t> &readers) const {
        Mechanism out;
        out.name = "shadow and deltas";
        out.kind = Kind::selective;
        Element &shadow = out.elements.emplace_back();
        shadow.pages = history_.pages;
        shadow.capture_ns = nanoseconds(history_.pages, costs_.arm_ps);  // windows() adds what the shadow follows
        for (int32_t i : readers) shadow.uses.push_back({i, instances_[i].forward_begin, instances_[i].replay_end});
        add_groups(out, readers, false);
        return out;
    }

    Mechanism predicted(const std::vector<int32_t> &readers) const {
        Mechanism out;
        out.name = "predicted regions";
        out.kind = Kind::regions;
        add_groups(out, readers, true);
        return out;
    }

    const std::vector<Instance> &instances_;
    const BufferHistory &history_;
    const MechanismCosts &costs_;
    std::vector<int32_t> slots_;  // of the writes
    std::vector<Group> groups_;
};

}  // namespace

void append_windows(const std::vector<Instance> &instances, const BufferHistory &history, const MechanismCosts &costs,
                    std::vector<Window> &windows) {
    Tables(instances, history, costs).windows(windows);
}

}  // namespace reprise::planner
