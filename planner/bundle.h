// A proximal bundle method's memory: values and subgradients of a concave function at the points where it was evaluated, and from them the
// next point. Where the bound has a ridge (segments whose times are in proportion to their memory) a subgradient method jumps from one side
// to the other for ever; the planes of both sides together show its direction. Plain floating point, a fixed number of steps: it only
// chooses where to look.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace reprise::planner {

class Bundle {
  public:
    // Forgets everything; `center` is where the function has `value`. exact: planes are never below the function, so that the value is the
    // least of theirs, and one that is below it at the center lowers it.
    void restart(const std::vector<double> &center, double value, bool exact);
    // The function has this value and this slope at `point`; `usage` is what there is to average. false: it cannot, having the center's
    // value there: the slope is not quite right.
    bool add(const std::vector<double> &point, double value, const std::vector<double> &slope, const std::vector<int64_t> &usage);
    // `point`, where the function has `value`, is the best one known.
    void move_center(const std::vector<double> &point, double value);
    // More coordinates: the slots `now` instead of `before` (sorted, all of these among them). The planes' usages tell their slopes there.
    void widen(const std::vector<int> &before, const std::vector<int> &now, int64_t budget);
    // Where all planes promise most within a step of about `step` (time / memory squared); no coordinate is negative. Returns by how much
    // more than at the center they promise.
    double propose(double step, std::vector<double> &point);

    // The planes' usages, mixed as they were for the last proposal.
    std::vector<double> usage();

    double value() const { return value_; }
    // The least of all planes.
    double value_at(const std::vector<double> &point);
    // Steps of work since the last call.
    uint64_t take_work();

  private:
    void solve(double step);
    void share_out(double step);
    size_t planes() const { return error_.size(); }
    double product(const std::vector<double> &a, const std::vector<double> &b);

    std::vector<double> center_;
    double value_ = 0;
    bool exact_ = false;
    std::vector<std::vector<double>> slope_, gram_;
    std::vector<std::vector<int64_t>> usage_;
    std::vector<double> error_, share_;  // per plane: how far it lies above the center's value; its part of the next direction
    std::vector<double> pull_;           // per coordinate: the planes' direction
    std::vector<uint8_t> zero_;          // coordinates that the step would make negative
    uint64_t work_ = 0;
};

}  // namespace reprise::planner
