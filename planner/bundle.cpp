#include "planner/bundle.h"

#include <algorithm>
#include <cmath>

namespace reprise::planner {

namespace {

constexpr size_t kMostPlanes = 30;
constexpr int kTurns = 5, kExchanges = 60;

}  // namespace

uint64_t Bundle::take_work() {
    uint64_t work = work_;
    work_ = 0;
    return work;
}

double Bundle::product(const std::vector<double> &a, const std::vector<double> &b) {
    double sum = 0;
    for (size_t k = 0; k < a.size(); k++) sum += a[k] * b[k];
    work_ += a.size();
    return sum;
}

void Bundle::restart(const std::vector<double> &center, double value, bool exact) {
    exact_ = exact;
    center_ = center;
    value_ = value;
    slope_.clear();
    usage_.clear();
    gram_.clear();
    error_.clear();
    share_.clear();
}

bool Bundle::add(const std::vector<double> &point, double value, const std::vector<double> &slope, const std::vector<int64_t> &usage) {
    if (planes() == kMostPlanes) {
        // The one that contributes least, of these the highest.
        size_t worst = 0;
        for (size_t i = 1; i < planes(); i++)
            if (share_[i] != share_[worst] ? share_[i] < share_[worst] : error_[i] > error_[worst]) worst = i;
        auto at = static_cast<long>(worst);
        slope_.erase(slope_.begin() + at);
        usage_.erase(usage_.begin() + at);
        error_.erase(error_.begin() + at);
        share_.erase(share_.begin() + at);
        gram_.erase(gram_.begin() + at);
        for (auto &row : gram_) row.erase(row.begin() + at);
    }
    double error = value - value_;
    for (size_t k = 0; k < slope.size(); k++) error += slope[k] * (center_[k] - point[k]);
    if (exact_ && error < 0) {
        value_ += error;
        for (double &other : error_) other -= error;
        error = 0;
    }
    slope_.push_back(slope);
    usage_.push_back(usage);
    // The function is not quite concave: a plane below the center's value is one of the center.
    error_.push_back(std::max(0.0, error));
    share_.push_back(0);
    for (size_t i = 0; i + 1 < planes(); i++) gram_[i].push_back(product(slope_[i], slope));
    gram_.emplace_back();
    for (size_t i = 0; i + 1 < planes(); i++) gram_.back().push_back(gram_[i].back());
    gram_.back().push_back(product(slope, slope));
    return error >= 0;
}

void Bundle::move_center(const std::vector<double> &point, double value) {
    for (size_t i = 0; i < planes(); i++) {
        double moved = 0;
        for (size_t k = 0; k < point.size(); k++) moved += slope_[i][k] * (point[k] - center_[k]);
        error_[i] = std::max(0.0, error_[i] + moved + value_ - value);
    }
    work_ += planes() * point.size();
    center_ = point;
    value_ = value;
}

void Bundle::widen(const std::vector<int> &before, const std::vector<int> &now, int64_t budget) {
    std::vector<double> center(now.size(), 0.0);
    std::vector<std::vector<double>> slope(planes(), std::vector<double>(now.size()));
    for (size_t k = 0, old = 0; k < now.size(); k++) {
        bool known = old < before.size() && before[old] == now[k];
        if (known) center[k] = center_[old];
        for (size_t i = 0; i < planes(); i++)
            slope[i][k] = known ? slope_[i][old] : static_cast<double>(usage_[i][static_cast<size_t>(now[k])] - budget);
        old += known;
    }
    center_ = std::move(center);
    slope_ = std::move(slope);
    for (size_t i = 0; i < planes(); i++)
        for (size_t j = 0; j <= i; j++) gram_[i][j] = gram_[j][i] = product(slope_[i], slope_[j]);
}

// The shares that are best when the coordinates in zero_ become 0: exchanges between two planes.
void Bundle::share_out(double step) {
    size_t count = planes(), size = center_.size();
    std::vector<size_t> zero;
    for (size_t k = 0; k < size; k++)
        if (zero_[k]) zero.push_back(k);
    std::vector<std::vector<double>> gram = gram_;
    std::vector<double> slant = error_;
    for (size_t i = 0; i < count; i++)
        for (size_t k : zero) {
            slant[i] -= slope_[i][k] * center_[k];
            for (size_t j = 0; j < count; j++) gram[i][j] -= slope_[i][k] * slope_[j][k];
        }
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < count; j++) slant[i] += step * gram[i][j] * share_[j];
    work_ += count * count * (zero.size() + 2) / 2;
    for (int exchange = 0; exchange < kExchanges; exchange++) {
        size_t to = 0, from = count;
        for (size_t i = 0; i < count; i++) {
            if (slant[i] < slant[to]) to = i;
            if (share_[i] > 0 && (from == count || slant[i] > slant[from])) from = i;
        }
        double gain = slant[from] - slant[to], bend = step * (gram[to][to] + gram[from][from] - 2 * gram[to][from]);
        if (to == from || gain <= 1e-7 * std::abs(slant[from])) break;
        double amount = bend > 0 ? std::min(share_[from], gain / bend) : share_[from];
        share_[from] = amount == share_[from] ? 0.0 : share_[from] - amount;
        share_[to] += amount;
        for (size_t i = 0; i < count; i++) slant[i] += step * amount * (gram[i][to] - gram[i][from]);
        work_ += 4 * count;
    }
}

// min over shares (>= 0, sum 1) of step / 2 |sum share slope|^2 + sum share error, in the coordinates that do not become 0: which these are
// is found by trying.
void Bundle::solve(double step) {
    size_t count = planes(), size = center_.size();
    double sum = 0;
    for (double s : share_) sum += s;
    if (sum <= 0) {
        size_t lowest = 0;
        for (size_t i = 1; i < count; i++)
            if (error_[i] < error_[lowest]) lowest = i;
        share_[lowest] = sum = 1;
    }
    for (double &s : share_) s /= sum;
    zero_.assign(size, 0);
    for (size_t k = 0; k < size; k++) {
        zero_[k] = center_[k] <= 0;
        for (size_t i = 0; i < count && zero_[k]; i++) zero_[k] = slope_[i][k] <= 0;
    }
    for (int turn = 0; turn < kTurns; turn++) {
        share_out(step);
        pull_.assign(size, 0.0);
        for (size_t i = 0; i < count; i++)
            if (share_[i] > 0)
                for (size_t k = 0; k < size; k++) pull_[k] += share_[i] * slope_[i][k];
        bool same = true;
        for (size_t k = 0; k < size; k++) {
            auto zero = static_cast<uint8_t>(center_[k] + step * pull_[k] <= 0);
            same = same && zero == zero_[k];
            zero_[k] = zero;
        }
        work_ += count * size;
        if (same) break;
    }
}

std::vector<double> Bundle::usage() {
    std::vector<double> mixed(usage_.empty() ? 0 : usage_[0].size(), 0.0);
    for (size_t i = 0; i < planes(); i++)
        for (size_t t = 0; share_[i] > 0 && t < mixed.size(); t++) mixed[t] += share_[i] * static_cast<double>(usage_[i][t]);
    work_ += planes() * mixed.size();
    return mixed;
}

double Bundle::propose(double step, std::vector<double> &point) {
    solve(step);
    size_t size = center_.size();
    point.resize(size);
    for (size_t k = 0; k < size; k++) point[k] = std::max(0.0, center_[k] + step * pull_[k]);
    return value_at(point) - value_;
}

double Bundle::value_at(const std::vector<double> &point) {
    double least = 0;
    for (size_t i = 0; i < planes(); i++) {
        double promise = error_[i];
        for (size_t k = 0; k < point.size(); k++) promise += slope_[i][k] * (point[k] - center_[k]);
        least = i == 0 ? promise : std::min(least, promise);
    }
    work_ += planes() * point.size();
    return value_ + least;
}

}  // namespace reprise::planner
