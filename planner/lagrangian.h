// The bound. The budget of the *active* slots is dualised with integer multipliers; what is left is a facility location problem (replays
// gain by not being retained, and pay together for the elements they share), which is bounded by dual ascent: every reader offers a payment
// per window, raised as long as each allowed mechanism can absorb it. Any multipliers and any payments give a valid bound, and all of it is
// integer (times scaled by 2^kShift), so the bound is a proof and knows no tolerance. One object per search; no locking.
#pragma once

#include "planner/core.h"

namespace reprise::planner {

inline constexpr int kShift = 14;

// What one instance pays towards one pot (the price of an element in one active slot, or its capture).
struct Share {
    int instance, pot;
    int64_t amount;
};

struct Relaxed {
    int64_t bound = 0;             // scaled
    std::vector<int64_t> reduced;  // per instance: what replaying it would add to the bound (scaled); negative: it is replayed
    std::vector<uint8_t> replay, mechanism;
    std::vector<double> excess;  // per active slot: memory of the relaxed plan over the budget; a subgradient
    // The other end: those replayed as well that have paid all they would gain, and whose elements are all paid for. Both plans are best.
    std::vector<uint8_t> other_replay;
    std::vector<double> other_excess;  // empty: the same
    std::vector<int64_t> level;        // per reader place (CoreWindow::reader_begin + place): what it pays for the window (scaled)
    std::vector<Share> shares;         // only when asked for
    std::vector<int64_t> rest;         // per pot: not yet paid
    std::vector<int64_t> window_cost;  // per window: what its relaxed replays would pay with one mechanism, the cheapest (scaled)
};

class Lagrangian {
  public:
    Lagrangian(const Core &core, Work &work);

    void set_slots(std::vector<int> slots);
    const std::vector<int> &slots() const { return slots_; }
    int count() const { return static_cast<int>(slots_.size()); }
    // The number of the first active slot >= slot.
    int index(int slot) const { return index_[slot]; }

    int64_t budget() const { return budget_; }
    void set_budget(int64_t pages) { budget_ = pages; }

    // The first pot of an element, and the active slots [pot_begin, pot_end) in which it can be alive; the capture's pot comes after these.
    int first_pot(int element) const { return pot_offset_[element]; }
    int pot_begin(int element) const { return ranges_[element].first; }
    int pot_end(int element) const { return ranges_[element].second; }
    int pots() const { return pot_offset_.back(); }

    void evaluate(const std::vector<int64_t> &multipliers, const Fixing &fixing, Relaxed &out, bool keep_shares = false);

    // In what order, and in how many rounds, the readers raise their offers: none is best everywhere, each gives a valid bound.
    static constexpr int kVariants = 4, kOwnOrder = 4;
    void set_variant(int variant) { variant_ = variant; }
    int variant() const { return variant_; }
    // The readers in the order of the variant; an order of one's own, in as many rounds, is a variant until the next set_variant().
    const std::vector<int> &order() const { return variant_ & kOwnOrder ? own_order_ : variant_ & 1 ? reverse_ : order_; }
    void set_order(std::vector<int> order) { own_order_ = std::move(order), variant_ |= kOwnOrder; }

    // Per window (scaled): what opening a mechanism of it costs, and no plan opens more than one, so that the bound counts with having it
    // back once. Readers that prefer different mechanisms would pay it several times.
    void set_fees(std::vector<int64_t> fees) { fees_ = std::move(fees); }
    const std::vector<int64_t> &fees() const { return fees_; }

    // What the window's reader at `place` would pay for its mechanism m if nobody shared it, at the multipliers of the last evaluation.
    int64_t alone(int window, int m, int place) const;

    // Multipliers above this could overflow the sums.
    int64_t largest_total() const { return largest_total_; }

  private:
    int64_t replay_pages(int i, const std::vector<uint8_t> &mechanism) const;
    int64_t price(int begin, int end) const { return prefix_[index_[end]] - prefix_[index_[begin]]; }
    void prices(const std::vector<int64_t> &multipliers);
    void start(const Fixing &fixing, Relaxed &out);
    void raise(int instance, bool must, int64_t want, const Fixing &fixing, Relaxed &out, bool keep_shares);
    // For the relaxed plan's replays, per window the allowed mechanism that is cheapest.
    void cheapest(const Fixing &fixing, Relaxed &out);
    void find_other(const Fixing &fixing, Relaxed &out) const;
    void finish(const std::vector<int64_t> &multipliers, const Fixing &fixing, Relaxed &out);

    const Core &core_;
    Work &work_;
    int64_t budget_;
    int64_t largest_total_;
    int variant_ = 0;
    std::vector<int> order_;  // instances, short-lived first: they have the fewest elements to pay for
    std::vector<int> own_order_;
    std::vector<int> reverse_;  // long-lived first
    std::vector<int> slots_, index_;
    std::vector<int> pot_offset_;
    std::vector<std::pair<int, int>> ranges_;
    std::vector<int> pot_order_, pot_order_offset_;  // per element: its active slots that few share first
    std::vector<int64_t> prefix_;
    std::vector<int64_t> fees_;
};

}  // namespace reprise::planner
