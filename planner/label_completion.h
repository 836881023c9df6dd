// What the items of a label program that are still to come add at least, told by how much memory is taken already: a small knapsack solved
// backwards over cells of memory, for slots to which the items add (nearly) alike. The bound counts with the room that is left being
// filled, in several slots at the same time; with a few large items to come it cannot be, and labels that would find that out at the end
// are cut where they arise.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/label_program.h"

namespace reprise::planner {

// What there is to decide, and in which order; per active slot its multiplier, and the pages that the items may use.
struct LabelItems {
    const std::vector<LabelItem> &items;
    const std::vector<int> &order;
    const std::vector<LabelGroup> &groups;
    const std::vector<int64_t> &multipliers, &room;
};

class Completion {
  public:
    // An active slot, and how many pages more than the first one of its chain it has at least when it is over, in all labels.
    struct Row {
        int slot;
        int64_t more = 0;
        int64_t room = 0, multiplier = 0;
    };
    // Those of `slots` to which the items from `first` on (by their place in the order) add nearly as much as to the one that is over last,
    // until they are over. That one comes first. Empty where nothing is to come, or prices are that several items share.
    static std::vector<Row> chain(const LabelItems &all, int first, const std::vector<int> &slots);

    // `rows`: a chain, of whose first row the labels hold `low` to `high` pages. gap: more than that (scaled) is of no interest.
    Completion(const LabelItems &all, int first, std::vector<Row> rows, int64_t low, int64_t high, int64_t gap);

    const std::vector<Row> &rows() const { return rows_; }
    bool counts(int slot, int step) const { return closes_[slot] >= step; }  // it is a row, and not over before item `step`
    bool alive(int step) const { return step <= last_; }

    // The items from `step` on add at least this to the bound (scaled) of a label with `memory` pages in the first row and in the others,
    // what stays free in the rows and is paid for in vain included. Where another row has more pages than the first, its multiplier times
    // these is to be taken off. kNever: nothing to come fits.
    int64_t least(int step, int64_t memory) const {
        const Table &table = tables_[step - first_];
        int64_t over = memory - table.base, cell = over / width_;
        if (cell >= static_cast<int64_t>(table.cells.size())) return kNever;
        int64_t value = table.cells[cell] * unit_ - table.weight * (over - cell * width_);
        return table.offset + (value > 0 ? value : 0);
    }
    uint64_t work() const { return work_; }

    static constexpr int64_t kNever = INT64_MAX / 8;

  private:
    // One way to decide an item: what it adds to the bound, and to the first row, and to those that end with this item.
    struct Way {
        int64_t extra, memory;
        std::vector<int64_t> closing;
    };
    // Per cell of memory, in the unit: what least() says for the least memory in it.
    struct Table {
        int64_t base = 0, reach = 0;  // memory of the first cell, and what is possible above it
        int64_t offset = 0;           // what every label gets
        int64_t weight = 0;           // multipliers of the rows that are not over
        std::vector<int16_t> cells;
        std::vector<Way> ways;
    };
    std::vector<Way> ways(const LabelItems &all, int step) const;
    void end_rows(int step);
    void measure(const LabelItems &all, int64_t low, int64_t high);
    void fill(int step);

    int first_, last_;
    std::vector<Row> rows_;
    std::vector<int> closes_;    // per active slot the last item that adds to it, -1 where it is no row
    std::vector<Row> ending_;    // those that end with the item at hand
    int64_t unit_, width_ = 1;   // of a cell's value; pages of a cell
    std::vector<Table> tables_;  // per step from first_ on
    uint64_t work_ = 0;
};

}  // namespace reprise::planner
