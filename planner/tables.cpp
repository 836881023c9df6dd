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
        for (int32_t user : history.users) captures_.push_back(instances[static_cast<size_t>(user)].forward_begin);
        std::sort(captures_.begin(), captures_.end());
        captures_.erase(std::unique(captures_.begin(), captures_.end()), captures_.end());
    }

    void windows(std::vector<Window> &out) const {
        std::vector<int32_t> readers = history_.users;
        if (std::none_of(readers.begin(), readers.end(), [&](int32_t i) { return differing(i) > 0; })) return;
        auto forward = [&](int32_t i) { return instances_[i].forward_begin; };
        std::sort(readers.begin(), readers.end(), [&](int32_t a, int32_t b) { return forward(a) < forward(b); });
        readers.erase(std::unique(readers.begin(), readers.end()), readers.end());
        int number = 0;
        const size_t first_window = out.size();
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
            first = last;
        }
        if (history_.pages < costs_.small_pages || !history_.selective) return;
        const std::vector<int64_t> found = found_at_captures();
        for (size_t w = first_window; w < out.size(); w++) {
            // Readers stand in the order of their forwards, and those of no other window lie between them.
            const size_t first = capture_at(out[w].readers.front()), last = capture_at(out[w].readers.back());
            int64_t pages = 0, looks = 0;
            for (size_t c = first; c <= last; c++) pages += found[c], looks += found[c] > 0;
            out[w].mechanisms[1].elements[0].capture_ns +=
                nanoseconds(pages, costs_.fault_ps) + nanoseconds(pages, costs_.page_copy_ps) + looks * costs_.look_fixed_ns;
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

    // The number of the first capture that sees what is written in that slot.
    size_t capture_after(int32_t slot) const {
        return static_cast<size_t>(std::upper_bound(captures_.begin(), captures_.end(), slot) - captures_.begin());
    }
    // The number of the one at that instance's forward.
    size_t capture_at(int32_t i) const { return capture_after(instances_[static_cast<size_t>(i)].forward_begin - 1); }
    // Does a capture find that write before the instance's replay? Then its before-image was saved, and its pages are watched again.
    bool captured_before_replay(int32_t i, const Group &group) const {
        const size_t capture = capture_after(slots_[static_cast<size_t>(group.write)]);
        return capture < captures_.size() && captures_[capture] < instances_[static_cast<size_t>(i)].replay_begin;
    }
    // Pages that each capture finds written since the one before it; the first one also what came after a cycle's last.
    std::vector<int64_t> found_at_captures() const {
        std::vector<std::vector<PageRun>> written(captures_.size());
        for (const BufferWrite &write : history_.writes) {
            auto &runs = written[capture_after(write.slot) % captures_.size()];
            runs.insert(runs.end(), write.pages.begin(), write.pages.end());
        }
        std::vector<int64_t> pages;
        for (auto &runs : written) {
            std::sort(runs.begin(), runs.end(), [](const PageRun &a, const PageRun &b) { return a.begin < b.begin; });
            int64_t count = 0, counted_to = 0;
            for (const PageRun &run : runs) {
                const int64_t end = std::min(run.end, history_.pages);
                count += std::max<int64_t>(0, end - std::max(run.begin, counted_to));
                counted_to = std::max(counted_to, end);
            }
            pages.push_back(count);
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
        // Who sees no change compares before and after its replay and loads nothing; who finds its version copied already (by an earlier
        // forward, taken to be replayed as well) compares at its forward.
        const int64_t comparing = nanoseconds(history_.pages, costs_.compare_ps);
        const int64_t loading = nanoseconds(history_.pages, costs_.copy_load_ps);
        int copied = -1;  // the newest version with a copy: readers stand in the order of their forwards
        for (int32_t i : readers) {
            const bool loads = differing(i) > 0;
            ReaderCost &reader = out.readers.emplace_back();
            if (loads) reader.pages = history_.pages;
            reader.ns = small ? costs_.small_ns : loads ? loading : 2 * comparing;
            if (!small && version(i, true) == copied) reader.ns += comparing;
            copied = version(i, true);
        }
        return out;
    }

    // from_forward: the element exists since the forward (predicted), otherwise since the write that it is about.
    void add_groups(Mechanism &out, const std::vector<int32_t> &readers, bool from_forward) const {
        for (const Group &group : groups_) {
            Element element;
            bool saved = false;
            for (int32_t i : readers) {
                if (!needs(i, group)) continue;
                saved = saved || captured_before_replay(i, group);
                int32_t begin = from_forward ? instances_[i].forward_begin : slots_[static_cast<size_t>(group.write)] + 1;
                element.uses.push_back({i, std::min(begin, instances_[i].replay_end), instances_[i].replay_end});
            }
            if (element.uses.empty()) continue;
            element.pages = group.pages;
            if (from_forward) {
                element.pages = std::min(history_.pages, group.pages + (group.pages * history_.over_predicted_ppm + 999'999) / 1'000'000);
                int64_t missed = (group.pages * history_.missed_ppm + 999'999) / 1'000'000;
                element.capture_ns = nanoseconds(element.pages, costs_.predicted_ps) + missed * costs_.miss_ns;
            } else if (saved) {
                element.capture_ns = nanoseconds(group.pages, costs_.page_copy_ps) + nanoseconds(group.pages, costs_.fault_ps);
            }
            out.elements.push_back(std::move(element));
        }
        for (int32_t i : readers) out.readers.push_back({nanoseconds(differing(i), costs_.page_load_ps), differing(i)});
    }

    Mechanism shadow(const std::vector<int32_t> &readers) const {
        Mechanism out;
        out.name = "shadow and deltas";
        out.kind = Kind::selective;
        Element &shadow = out.elements.emplace_back();
        shadow.pages = history_.pages;  // windows() adds what captures find
        for (int32_t i : readers) shadow.uses.push_back({i, instances_[i].forward_begin, instances_[i].replay_end});
        add_groups(out, readers, false);
        // At the capture, and at the replay before and after it.
        for (ReaderCost &reader : out.readers) reader.ns += 3 * nanoseconds(history_.pages, costs_.look_ps);
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
    std::vector<int32_t> captures_;  // forwards that use the buffer, ascending
};

}  // namespace

void append_windows(const std::vector<Instance> &instances, const BufferHistory &history, const MechanismCosts &costs,
                    std::vector<Window> &windows) {
    Tables(instances, history, costs).windows(windows);
}

}  // namespace reprise::planner
