// What the label program decides about: items with their options, shared prices, and the windows whose mechanism is open.
#include <algorithm>

#include "planner/label_program.h"

namespace reprise::planner {

namespace {

constexpr size_t kMostOptions = 243;   // of one item
constexpr size_t kMostEntries = 6000;  // options times active slots

}  // namespace

LabelProgram::LabelProgram(const Core &core, Lagrangian &lagrangian, Work &work, Counters &counters, Incumbent &incumbent,
                           const Fixing &fixing, const std::vector<int64_t> &multipliers, const Relaxed &relaxed)
    : core_(core),
      lagrangian_(lagrangian),
      work_(work),
      counters_(counters),
      incumbent_(incumbent),
      fixing_(fixing),
      multipliers_(multipliers),
      reduced_(relaxed.reduced),
      slots_(lagrangian.count()),
      start_bound_(relaxed.bound) {
    built_ = build(relaxed);
}

void LabelProgram::take(int begin, int end, int64_t pages) {
    for (int k = lagrangian_.index(begin); k < lagrangian_.index(end); k++) room_[k] -= pages;
}

void LabelProgram::extend(LabelOption &option, int begin, int end, int64_t pages) const {
    for (int k = lagrangian_.index(begin); k < lagrangian_.index(end); k++) option.memory[k] += pages;
}

void LabelProgram::classify_instances() {
    for (int i = 0; i < core_.size(); i++) {
        const CoreInstance &it = core_.instances[i];
        if (fixing_.choice[i] == 0) {
            take(it.forward_end, it.replay_end, it.keep);
        } else if (fixing_.choice[i] == 1) {
            fixed_.replay[i] = 1;
            fixed_time_ += it.time;
            take(it.replay_begin, it.replay_end, it.transient);
        } else {
            item_of_[i] = static_cast<int>(items_.size());
            items_.emplace_back().instance = i;
        }
    }
}

// Pots of an element that the fixed replays open whatever happens: no longer shared, simply there.
void LabelProgram::open_by_fixed(const CoreElement &element, const std::vector<uint8_t> &open, bool capture_open) {
    if (capture_open) fixed_time_ += element.capture;
    for (int k = 0; k < slots_; k++)
        if (open[k]) room_[k] -= element.pages;
}

// intro: the item that stands for the fixed replays of an undecided window, or -1.
void LabelProgram::build_groups(int window, int mechanism, bool decided_, int intro) {
    const CoreMechanism &it = core_.mechanism(window, mechanism);
    std::vector<uint8_t> open(slots_ + 1);
    std::vector<int> bounds, cover;
    for (int e = it.element_begin; e < it.element_end; e++) {
        const CoreElement &element = core_.elements[e];
        std::fill(open.begin(), open.end(), 0);
        bounds.clear();
        bool capture_open = false;
        for (int u = element.use_begin; u < element.use_end; u++) {
            const CoreUse &use = core_.uses[u];
            int b = lagrangian_.index(use.begin), f = lagrangian_.index(use.end);
            if (fixed_.replay[use.instance]) {
                capture_open = true;
                std::fill(open.begin() + b, open.begin() + std::max(b, f), 1);
            }
            bounds.push_back(b);
            bounds.push_back(std::max(b, f));
        }
        std::sort(bounds.begin(), bounds.end());
        bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());
        if (decided_) open_by_fixed(element, open, capture_open);
        size_t first_group = groups_.size();
        // One stretch of slots with the same readers, or (begin == end) the capture.
        auto stretch = [&](int begin, int end) {
            bool capture = begin == end;
            bool opened = capture ? capture_open : open[begin] != 0;
            if (capture && element.capture == 0) return;
            if (decided_ && opened) return;
            cover.clear();
            if (opened) cover.push_back(intro);
            for (int u = element.use_begin; u < element.use_end; u++) {
                const CoreUse &use = core_.uses[u];
                bool here = capture || (lagrangian_.index(use.begin) <= begin && begin < lagrangian_.index(use.end));
                if (item_of_[use.instance] >= 0 && here) cover.push_back(item_of_[use.instance]);
            }
            if (cover.empty()) return;
            std::sort(cover.begin(), cover.end());
            size_t g = first_group;
            auto same = [&](const LabelGroup &group) {
                return std::equal(cover.begin(), cover.end(), group.readers.begin(), group.readers.end(),
                                  [](int item, const std::pair<int, int64_t> &reader) { return item == reader.first; });
            };
            while (g < groups_.size() && !same(groups_[g])) g++;
            if (g == groups_.size()) {
                groups_.emplace_back().pages = element.pages;
                for (int item : cover) {
                    groups_[g].readers.emplace_back(item, 0);
                    groups_of_[item].emplace_back(window * 16 + mechanism, static_cast<int>(g));
                }
            }
            LabelGroup &group = groups_[g];
            if (capture) {
                group.capture = element.capture;
                group.full += element.capture << kShift;
                group_of_pot_[lagrangian_.capture_pot(e)] = static_cast<int>(g);
            }
            for (int k = begin; k < end; k++) {
                group.slots.push_back(k);
                group.full += element.pages * multipliers_[k];
            }
            for (int y = lagrangian_.first_pot(e); y < lagrangian_.capture_pot(e); y++)
                if (lagrangian_.pot_begin(y) >= begin && lagrangian_.pot_begin(y) < end) group_of_pot_[y] = static_cast<int>(g);
        };
        for (size_t z = 0; z + 1 < bounds.size(); z++) stretch(bounds[z], bounds[z + 1]);
        stretch(0, 0);
    }
    work_.used += (8 * static_cast<uint64_t>(slots_) + 100) * static_cast<uint64_t>(it.element_end - it.element_begin) + 64;
}

bool LabelProgram::build_window(int w) {
    const CoreWindow &window = core_.windows[w];
    int open = 0, fixed = 0;
    for (int k = 0; k < window.size(); k++) {
        int reader = core_.readers[window.reader_begin + k];
        open += item_of_[reader] >= 0;
        fixed += fixed_.replay[reader];
    }
    uint32_t mask = fixing_.mechanisms[w];
    int only = __builtin_ctz(mask);
    fixed_.mechanism[w] = static_cast<uint8_t>(only);
    if (open == 0 && fixed == 0) return true;
    if (open == 1 && fixed == 0) {
        sharing_[w] = Sharing::own;
        return true;
    }
    if (decided(mask)) {
        sharing_[w] = Sharing::decided;
        for (int k = 0; k < window.size(); k++) {
            int reader = core_.readers[window.reader_begin + k];
            if (!fixed_.replay[reader]) continue;
            const CoreCost &cost = core_.cost(w, only, k);
            fixed_time_ += cost.time;
            take(core_.instances[reader].replay_begin, core_.instances[reader].replay_end, cost.pages);
        }
        build_groups(w, only, true, -1);
        return true;
    }
    sharing_[w] = Sharing::open;
    if (fixed > 0) {
        intro_of_[w] = static_cast<int>(items_.size());
        items_.emplace_back().window = w;
        groups_of_.emplace_back();
    }
    if (open > 0) {
        choice_of_[w] = static_cast<int>(choices_.size());
        LabelChoice &choice = choices_.emplace_back();
        choice.width = 32 - __builtin_clz(static_cast<uint32_t>(__builtin_popcount(mask)));
        if (intro_of_[w] >= 0) choice.items.push_back(intro_of_[w]);
        for (int k = 0; k < window.size(); k++) {
            int item = item_of_[core_.readers[window.reader_begin + k]];
            if (item >= 0) choice.items.push_back(item);
        }
    }
    for (uint32_t set = mask; set; set &= set - 1) build_groups(w, __builtin_ctz(set), false, intro_of_[w]);
    return true;
}

void LabelProgram::add_shares(const Relaxed &relaxed) {
    for (const Share &share : relaxed.shares) {
        int item = item_of_[share.instance], g = group_of_pot_[share.pot];
        if (g < 0) continue;
        // What a fixed replay pays, the item that stands for it pays.
        for (auto &[reader, amount] : groups_[g].readers)
            if (reader == item || (item < 0 && items_[reader].instance < 0)) amount += share.amount;
    }
}

void LabelProgram::add_reader(LabelOption &option, int window, int mechanism, int place) {
    const CoreCost &cost = core_.cost(window, mechanism, place);
    const CoreInstance &it = core_.instances[core_.readers[core_.windows[window].reader_begin + place]];
    option.time += cost.time;
    if (cost.pages) extend(option, it.replay_begin, it.replay_end, cost.pages);
}

// A group with one reader is nobody else's: part of the option.
void LabelProgram::add_groups(LabelOption &option, const std::vector<int> &groups) {
    for (int g : groups) {
        const LabelGroup &group = groups_[g];
        if (group.readers.size() > 1) {
            option.groups.push_back(g);
            continue;
        }
        option.time += group.capture;
        for (int k : group.slots) option.memory[k] += group.pages;
    }
}

// Stands for the fixed replays of a window whose mechanism is open.
void LabelProgram::intro_options(LabelItem &item, const Relaxed &relaxed) {
    int w = item.window;
    const CoreWindow &window = core_.windows[w];
    int64_t paid = 0;
    for (int k = 0; k < window.size(); k++)
        if (fixed_.replay[core_.readers[window.reader_begin + k]]) paid += relaxed.level[window.reader_begin + k];
    for (uint32_t set = fixing_.mechanisms[w]; set; set &= set - 1) {
        int m = __builtin_ctz(set);
        LabelOption option;
        option.replay = 1;
        option.memory.assign(slots_, 0);
        option.windows.emplace_back(w, m);
        if (choice_of_[w] >= 0) option.picks.emplace_back(choice_of_[w], 1 + rank(w, m));
        for (int k = 0; k < window.size(); k++)
            if (fixed_.replay[core_.readers[window.reader_begin + k]]) add_reader(option, w, m, k);
        std::vector<int> opened;
        for (auto [key, g] : groups_of_[&item - items_.data()])
            if (key == w * 16 + m) opened.push_back(g);
        add_groups(option, opened);
        option.bound = (option.time << kShift) - paid;
        for (int k = 0; k < slots_; k++) option.bound += multipliers_[k] * option.memory[k];
        item.options.push_back(std::move(option));
    }
}

// Options that differ in nothing others can feel, and cost at least as much everywhere as another.
void LabelProgram::drop_pointless(std::vector<LabelOption> &options) {
    std::vector<uint8_t> dead(options.size(), 0);
    for (size_t a = 0; a < options.size(); a++)
        for (size_t b = 0; b < options.size() && !dead[a]; b++) {
            if (a == b || dead[b] || options[a].picks != options[b].picks || options[a].groups != options[b].groups ||
                options[b].time > options[a].time)
                continue;
            bool covers = true;
            for (size_t k = 0; k < options[a].memory.size() && covers; k++) covers = options[b].memory[k] <= options[a].memory[k];
            dead[a] = covers;
        }
    size_t kept = 0;
    for (size_t a = 0; a < options.size(); a++)
        if (!dead[a]) {
            if (kept != a) options[kept] = std::move(options[a]);
            kept++;
        }
    options.resize(kept);
}

bool LabelProgram::instance_options(int number, const Relaxed &relaxed) {
    LabelItem &item = items_[number];
    const CoreInstance &it = core_.instances[item.instance];
    int64_t share = std::min<int64_t>(0, relaxed.reduced[item.instance]);
    LabelOption retain;
    retain.memory.assign(slots_, 0);
    extend(retain, it.forward_end, it.replay_end, it.keep);
    retain.bound = -share;
    LabelOption replay;
    replay.replay = 1;
    replay.time = it.time;
    replay.memory.assign(slots_, 0);
    extend(replay, it.replay_begin, it.replay_end, it.transient);
    std::vector<LabelOption> options{replay}, next;
    for (int z = it.window_begin; z < it.window_end; z++) {
        auto [w, k] = core_.windows_of[z];
        next.clear();
        for (uint32_t set = fixing_.mechanisms[w]; set; set &= set - 1) {
            int m = __builtin_ctz(set);
            std::vector<int> opened;
            for (auto [key, g] : groups_of_[number])
                if (key == w * 16 + m) opened.push_back(g);
            for (const LabelOption &from : options) {
                LabelOption &option = next.emplace_back(from);
                add_reader(option, w, m, k);
                if (sharing_[w] == Sharing::own) {
                    option.windows.emplace_back(w, m);
                    const int *offset = &core_.reader_offsets[core_.mechanism(w, m).reader_use_begin + k];
                    for (int u = offset[0]; u < offset[1]; u++) {
                        const ReaderUse &use = core_.reader_uses[u];
                        option.time += core_.elements[use.element].capture;
                        extend(option, use.begin, use.end, core_.elements[use.element].pages);
                    }
                } else {
                    if (choice_of_[w] >= 0) {
                        option.picks.emplace_back(choice_of_[w], 1 + rank(w, m));
                        option.windows.emplace_back(w, m);
                    }
                    add_groups(option, opened);
                }
            }
        }
        options.swap(next);
        work_.used += options.size() * (static_cast<uint64_t>(slots_) + 150);
        if (options.size() > 1) drop_pointless(options);
        if (options.size() > kMostOptions || options.size() * static_cast<size_t>(slots_) > kMostEntries) return false;
    }
    int64_t kept = it.keep * price(it.forward_end, it.replay_end);
    for (LabelOption &option : options) {
        option.bound = (option.time << kShift) - share - kept - lagrangian_.bonus(item.instance);
        for (int k = 0; k < slots_; k++) option.bound += multipliers_[k] * option.memory[k];
    }
    item.options.push_back(std::move(retain));
    for (LabelOption &option : options) item.options.push_back(std::move(option));
    return true;
}

bool LabelProgram::build(const Relaxed &relaxed) {
    prefix_.assign(slots_ + 1, 0);
    room_.resize(slots_);
    for (int k = 0; k < slots_; k++) {
        prefix_[k + 1] = prefix_[k] + multipliers_[k];
        room_[k] = lagrangian_.budget() - core_.base[lagrangian_.slots()[k]];
    }
    fixed_.replay.assign(core_.instances.size(), 0);
    fixed_.mechanism.assign(core_.windows.size(), 0);
    item_of_.assign(core_.instances.size(), -1);
    sharing_.assign(core_.windows.size(), Sharing::none);
    choice_of_.assign(core_.windows.size(), -1);
    intro_of_.assign(core_.windows.size(), -1);
    group_of_pot_.assign(lagrangian_.pots(), -1);
    classify_instances();
    groups_of_.resize(items_.size());
    for (int w = 0; w < core_.window_count(); w++)
        if (!build_window(w)) return false;
    add_shares(relaxed);
    for (int j = 0; j < static_cast<int>(items_.size()); j++) {
        if (items_[j].instance < 0)
            intro_options(items_[j], relaxed);
        else if (!instance_options(j, relaxed))
            return false;
    }
    for (int g = 0; g < static_cast<int>(groups_.size()); g++)
        if (groups_[g].readers.size() > 1)
            for (auto [item, share] : groups_[g].readers) items_[item].groups.push_back(g);
    return true;
}

}  // namespace reprise::planner
