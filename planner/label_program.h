// Exact search over what is still open: items (instances, and windows whose mechanism already-fixed replays wait for) are decided one after
// the other, and a label is a set of decisions so far, reduced to what the rest can feel: time, memory in the classes of binding slots that
// are not over yet, the mechanisms picked for windows that still have readers to come, and which shared elements are already paid for.
// Labels that another label makes pointless are dropped, also across different picks; labels whose bound reaches the cut-off are cut. In a
// job whose replays run in the reverse order of its forwards all binding slots form one class, and this is the nested knapsack it should
// be.
//
// Labels with equal picks and payments form a *state*. An option does the same to every label of a state, so that the labels of a state
// stay sorted by time and new states are merges of sorted runs: no label is ever searched for or hashed.
#pragma once

#include <array>

#include "planner/core.h"
#include "planner/incumbent.h"
#include "planner/lagrangian.h"

namespace reprise::planner {

// One way to decide an item.
struct LabelOption {
    int64_t time = 0, bound = 0;               // bound: what it adds to the (scaled) bound of the labels
    std::vector<int64_t> memory;               // per active slot
    std::vector<int> groups;                   // shared prices that it opens
    std::vector<std::pair<int, int>> picks;    // choice, value (1 + mechanism's rank)
    std::vector<std::pair<int, int>> windows;  // window, mechanism: for the plan
    uint8_t replay = 0;
};
struct LabelItem {
    int instance = -1, window = -1;  // one of them
    std::vector<LabelOption> options;
    std::vector<int> groups;  // that any option opens and others share
};
// Pots of one element with the same readers: one price, one bit.
struct LabelGroup {
    std::vector<int> slots;
    int64_t pages = 0, capture = 0, full = 0;      // full: scaled
    std::vector<std::pair<int, int64_t>> readers;  // item, what it pays in the relaxation
    int bit = -1, first = 0, last = 0;
};
// A window whose mechanism is open and shared.
struct LabelChoice {
    std::vector<int> items;
    int bit = -1, width = 2, first = 0, last = 0;
};

enum class LabelEnd : uint8_t { complete, cut, too_many };  // cut: a beam ran, labels were dropped unproven

struct LabelResult {
    LabelEnd end = LabelEnd::complete;
    int64_t bound = INT64_MIN;  // scaled: no plan of these decisions takes less, unless it is above the incumbent's cut-off
    std::vector<int> violated;  // slots that the best found plan exceeds: to be made active
};

class LabelProgram {
  public:
    // `relaxed` with shares, at `multipliers`.
    LabelProgram(const Core &core, Lagrangian &lagrangian, Work &work, Counters &counters, Incumbent &incumbent, const Fixing &fixing,
                 const std::vector<int64_t> &multipliers, const Relaxed &relaxed);

    // At most `width` labels a step. strict: stop when there are more; otherwise keep the most promising.
    LabelResult run(size_t width, bool strict);

    static constexpr int kWords = 4;
    using Bits = std::array<uint64_t, kWords>;

  private:
    friend class LabelRun;

    // label_items.cpp
    bool build(const Relaxed &relaxed);
    void classify_instances();
    bool build_window(int window);
    void build_groups(int window, int mechanism, bool decided, int intro);
    void open_by_fixed(const CoreElement &element, const std::vector<uint8_t> &open, bool capture_open);
    void add_shares(const Relaxed &relaxed);
    void intro_options(LabelItem &item, const Relaxed &relaxed);
    bool instance_options(int number, const Relaxed &relaxed);
    void add_reader(LabelOption &option, int window, int mechanism, int place);
    void add_groups(LabelOption &option, const std::vector<int> &groups);
    static void drop_pointless(std::vector<LabelOption> &options);
    int64_t price(int begin, int end) const { return prefix_[lagrangian_.index(end)] - prefix_[lagrangian_.index(begin)]; }
    void take(int begin, int end, int64_t pages);
    void extend(LabelOption &option, int begin, int end, int64_t pages) const;
    int rank(int window, int mechanism) const { return __builtin_popcount(fixing_.mechanisms[window] & ((1u << mechanism) - 1)); }

    // label_order.cpp
    void choose_order(bool strict);
    double strain(const std::vector<int> &order) const;
    bool place_bits();

    const Core &core_;
    Lagrangian &lagrangian_;
    Work &work_;
    Counters &counters_;
    Incumbent &incumbent_;
    const Fixing &fixing_;
    const std::vector<int64_t> &multipliers_;
    const std::vector<int64_t> &reduced_;
    int slots_;  // active
    std::vector<int64_t> prefix_;
    std::vector<int64_t> room_;  // per active slot: what the open decisions may use
    int64_t fixed_time_ = 0, start_bound_ = 0;
    bool built_ = false;
    Choice fixed_;
    std::vector<LabelItem> items_;
    std::vector<int> item_of_;  // instance -> item or -1
    std::vector<LabelGroup> groups_;
    std::vector<LabelChoice> choices_;
    enum class Sharing : uint8_t { none, own, decided, open };
    std::vector<Sharing> sharing_;  // per window
    std::vector<int> choice_of_;    // window -> choice or -1
    std::vector<int> intro_of_;     // window -> item or -1
    std::vector<int> group_of_pot_;
    std::vector<std::vector<std::pair<int, int>>> groups_of_;  // per item: (window * 16 + mechanism, group)
    std::vector<int> order_, position_;
};

}  // namespace reprise::planner
