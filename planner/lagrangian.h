// The bound. The budget of the *active* slots is dualised with integer multipliers; what is left is a facility location problem (replays
// gain by not being retained, and pay together for the elements they share), which is bounded by dual ascent: every reader offers a payment
// per window, raised as long as each allowed mechanism can absorb it. Any multipliers and any payments give a valid bound, and all of it is
// integer (times scaled by 2^kShift), so the bound is a proof and knows no tolerance. One object per search; no locking.
#pragma once

#include "planner/core.h"

namespace reprise::planner {

inline constexpr int kShift = 14;

// What one instance pays towards one pot (the price of an element in a stretch of slots, or its capture).
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

    // Pots are numbered by element: one per stretch of active slots in which the same readers need it, and the capture's comes last.
    int first_pot(int element) const { return pot_offset_[element]; }
    int capture_pot(int element) const { return pot_offset_[element + 1] - 1; }
    int pot_begin(int pot) const { return stretches_[pot].begin; }  // its first active slot; the capture's: none
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

    // Per instance (scaled) what the bound counts its replay as worth beyond the memory it frees, and what it counts in return (cuts.h).
    void set_bonus(std::vector<int64_t> bonus, int64_t owed) { bonus_ = std::move(bonus), owed_ = owed; }
    int64_t bonus(int instance) const { return bonus_.empty() ? 0 : bonus_[instance]; }

    // What the window's reader at `place` would pay for its mechanism m if nobody shared it, at the multipliers of the last evaluation.
    int64_t alone(int window, int m, int place) const;

    // Multipliers above this could overflow the sums.
    int64_t largest_total() const { return largest_total_; }

  private:
    // The first pot of reader use number `use`; those of several uses of one reader follow one another.
    const int *pots_of(int use) const { return use_pots_.data() + (use == 0 ? 0 : use_pots_end_[use - 1]); }
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
    uint64_t steps_ = 0;  // of this evaluation's payments
    int64_t budget_;
    int64_t largest_total_;
    int variant_ = 0;
    std::vector<int> order_;  // instances, short-lived first: they have the fewest elements to pay for
    std::vector<int> own_order_;
    std::vector<int> reverse_;  // long-lived first
    std::vector<int> slots_, index_;
    // Active slots [begin, end).
    struct Stretch {
        int begin, end;
    };
    std::vector<int> pot_offset_;
    std::vector<Stretch> stretches_;            // per pot
    std::vector<int> use_pots_, use_pots_end_;  // per ReaderUse: its pots, those that few share first and the capture's last
    std::vector<int64_t> prefix_;
    std::vector<int64_t> fees_, bonus_;
    int64_t owed_ = 0;
};

}  // namespace reprise::planner
