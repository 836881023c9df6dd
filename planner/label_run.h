// One run of a label program: the labels of the present step, and the step to the next. Private to label_*.cpp.
#pragma once

#include <algorithm>

#include "planner/label_completion.h"
#include "planner/label_program.h"

namespace reprise::planner {

// Labels [begin, end) of equal bits, sorted by time.
struct LabelState {
    LabelProgram::Bits bits{};
    int begin = 0, end = 0;
};

// Columns, because a step reads a few of them for very many labels.
struct LabelTable {
    int classes = 0;
    std::vector<int64_t> bound, promise, time, memory;  // promise: the bound and what must stay free in vain; memory: per label and class
    std::vector<uint32_t> parent;
    std::vector<uint8_t> option;
    size_t size() const { return bound.size(); }
    void clear(int count) {
        classes = count;
        bound.clear();
        promise.clear();
        time.clear();
        memory.clear();
        parent.clear();
        option.clear();
    }
    void resize(size_t count) {
        bound.resize(count);
        promise.resize(count);
        time.resize(count);
        parent.resize(count);
        option.resize(count);
        memory.resize(count * static_cast<size_t>(classes));
    }
    void move(size_t from, size_t to) {
        bound[to] = bound[from];
        promise[to] = promise[from];
        time[to] = time[from];
        parent[to] = parent[from];
        option[to] = option[from];
        auto width = static_cast<size_t>(classes);
        std::copy_n(memory.data() + from * width, width, memory.data() + to * width);
    }
    // Those labels of `from`, with what they take in its classes `source`.
    void append(const LabelTable &from, const std::vector<int> &labels, const std::vector<int> &source) {
        size_t to = size();
        resize(to + labels.size());
        for (int a : labels) {
            auto label = static_cast<size_t>(a);
            bound[to] = from.bound[label];
            promise[to] = from.promise[label];
            time[to] = from.time[label];
            parent[to] = from.parent[label];
            option[to] = from.option[label];
            const int64_t *row = from.memory.data() + label * static_cast<size_t>(from.classes);
            int64_t *mine = memory.data() + to++ * static_cast<size_t>(classes);
            for (int c : source) *mine++ = row[c];
        }
    }
};

class LabelRun {
  public:
    LabelRun(LabelProgram &program, size_t width, bool strict);
    LabelResult run();

  private:
    using Bits = LabelProgram::Bits;
    // What one option does to every label of one state.
    struct Effect {
        Bits bits{};
        int64_t time = 0, bound = 0;
        std::vector<int64_t> memory;  // per new class
    };
    // Labels of raw_ that came from one state by one option, and where they belong.
    struct Run {
        Bits bits{};
        int begin = 0, end = 0;
    };

    void prepare();
    void refine_classes(const LabelItem &item);
    void find_alike();
    void choose_columns();
    bool effect(const LabelItem &item, int option, const Bits &bits, Effect &out) const;
    void expand(int step);
    void close_classes(int step);
    void look_ahead(int first);
    void aim_ahead(int step);
    void forget(int fine_class, int64_t pages, int64_t multiplier);
    void merge();
    void merge_state(const std::vector<Run> &runs, size_t first, size_t last);
    void sort_by_memory(std::vector<int> &labels);
    void drop_dominated(std::vector<int> &labels);
    void drop_dominated_by_blocks(std::vector<int> &labels);
    void across_states();
    void list_alive();
    bool catch_up(const LabelState &from, const LabelState &to, int64_t &time, std::vector<int64_t> &memory) const;
    bool narrow();
    void keep_only(const std::vector<uint8_t> &keep);
    void stop();
    void finish();

    LabelProgram &p_;
    size_t width_;
    bool strict_;
    int steps_;
    bool overflow_ = false;
    int64_t lost_ = INT64_MAX;  // least bound of a dropped label
    LabelResult result_;
    int64_t cutoff_ = 0;
    std::vector<std::vector<int64_t>> least_, most_;      // per step and active slot: what the items from there on add
    std::vector<std::vector<std::pair<int, int>>> over_;  // per step: (bit, width) that end with it
    LabelTable now_, raw_;
    std::vector<LabelState> states_;
    std::vector<Run> runs_;
    std::vector<int> live_, class_of_;  // active slots not over yet; per slot its class
    // The step at hand.
    int step_ = 0;
    std::vector<int> fine_, representative_;  // per slot its class after this item; per fine class a slot
    std::vector<int64_t> limit_, highest_;    // per fine class
    // Per fine class and slot that the items to come cannot fill alone: the pages that are to be filled before, and the multiplier. In
    // plans that leave them free the bound counts on memory that does not exist.
    std::vector<std::vector<std::pair<int64_t, int64_t>>> wanted_;
    std::vector<int64_t> own_share_, later_shares_;  // per group of the item
    std::vector<std::vector<uint8_t>> in_group_;     // per group of the item, per fine class
    std::vector<int> kept_classes_;                  // fine classes that go on
    // Slots to which all items to come add the same, per step. Of these only the fullest matters, and labels are compared by what it has
    // left: fewer numbers where items that tell slots apart are decided early.
    std::vector<std::vector<int>> alike_;
    std::vector<int64_t> left_;  // per label of raw_ and set of such slots, where that is fewer than the classes
    std::vector<int> columns_;   // what labels are compared by: of left_ or raw_.memory
    const int64_t *compared_ = nullptr;
    size_t stride_ = 0;
    std::vector<int> scratch_, scratch2_;
    std::vector<int64_t> rows_, block_least_, super_least_;  // per label, block of labels and block of blocks: memory per kept class
    // Looking across states.
    struct AliveGroup {
        int64_t capture;
        std::vector<int64_t> memory;  // per class
    };
    std::vector<AliveGroup> alive_groups_;
    std::vector<std::pair<int, uint64_t>> alive_choices_;  // word, mask
    Bits group_mask_{};
    std::vector<int> group_at_;  // bit -> alive group
    int idle_ = 0;               // steps in which looking across states removed next to nothing
    // What is to come, once there are many labels: none or one.
    struct Ahead {
        Completion completion;
        int fine;                                                      // the class that tells its memory, -1 when its slots are over
        std::vector<std::vector<std::pair<int64_t, int64_t>>> wanted;  // as wanted_, without its slots
        std::vector<std::pair<int, int64_t>> others;                   // classes and multipliers of its slots that differ
    };
    std::vector<Ahead> ahead_;
    bool looked_ahead_ = false;
    std::vector<std::vector<uint32_t>> parents_;
    std::vector<std::vector<uint8_t>> options_;
};

}  // namespace reprise::planner
