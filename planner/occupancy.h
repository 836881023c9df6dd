// Memory per slot and added time of a plan that is being changed one decision at a time. Used by the heuristics and to check what the label
// program proposes: there the binding slots alone are looked at, here all of them.
#pragma once

#include "planner/core.h"

namespace reprise::planner {

class Occupancy {
  public:
    explicit Occupancy(const Core &core);

    void set(const Choice &choice);
    void set_replay(int instance, bool replay);
    void set_mechanism(int window, int mechanism);

    const Choice &choice() const { return choice_; }
    const std::vector<int64_t> &memory() const { return memory_; }
    int64_t time() const { return time_; }
    int64_t peak() const;
    int peak_slot() const;
    bool fits(int64_t budget) const;
    // The fullest slot of every stretch that is over the budget, in order.
    std::vector<int> violated(int64_t budget) const;

  private:
    void add(int begin, int end, int64_t pages) {
        if (bulk_) {
            memory_[begin] += pages;
            memory_[end] -= pages;
            return;
        }
        for (int t = begin; t < end; t++) memory_[t] += pages;
    }
    void instance_part(int instance, int sign);
    void reader_part(int window, int place, int sign);
    void element_part(int element, int sign);
    bool covered(const ReaderUse &use, int instance) const;

    const Core &core_;
    Choice choice_;
    std::vector<int64_t> memory_;
    int64_t time_ = 0;
    bool bulk_ = false;  // memory_ holds differences, to be summed up at the end
    std::vector<int> touched_;
};

}  // namespace reprise::planner
