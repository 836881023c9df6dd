// In which order the items are decided: as the forwards come (few memory classes) or window by window (few open picks and prices),
// whichever promises the smaller state. Then every pick and shared price gets its place in the state's bits, reused when it is over.
#include <algorithm>
#include <cmath>

#include "planner/label_program.h"

namespace reprise::planner {

namespace {

// Takes the smallest unfinished group of items next, preferring those that are begun.
std::vector<int> clustered(const std::vector<std::vector<int>> &clusters, const std::vector<LabelItem> &items, std::vector<uint8_t> &done) {
    std::vector<int> order;
    size_t count = clusters.size();
    std::vector<int> remaining(count);
    std::vector<std::vector<int>> of(items.size());
    for (size_t c = 0; c < count; c++) {
        remaining[c] = static_cast<int>(clusters[c].size());
        for (int j : clusters[c]) of[j].push_back(static_cast<int>(c));
    }
    std::vector<uint8_t> taken(count, 0);
    for (size_t step = 0; step < count; step++) {
        size_t best = count;
        int best_score = INT32_MAX;
        for (size_t c = 0; c < count; c++) {
            if (taken[c]) continue;
            int begun = static_cast<int>(clusters[c].size()) - remaining[c];
            int score = remaining[c] - (begun ? 3 : 0) - 2 * begun;
            if (score < best_score) best_score = score, best = c;
        }
        taken[best] = 1;
        size_t from = order.size();
        for (int j : clusters[best])
            if (!done[j]) {
                done[j] = 1;
                order.push_back(j);
                for (int c : of[j]) remaining[c]--;
            }
        std::stable_sort(order.begin() + static_cast<long>(from), order.end(),
                         [&](int a, int b) { return (items[a].instance < 0) > (items[b].instance < 0); });
    }
    return order;
}

}  // namespace

// An estimate of the number of bits and memory classes that are alive at the same time.
double LabelProgram::strain(const std::vector<int> &order) const {
    size_t count = items_.size();
    std::vector<int> position(count);
    for (size_t j = 0; j < count; j++) position[order[j]] = static_cast<int>(j);
    std::vector<double> weight(count + 1, 0.0);
    auto span = [&](int first, int last, double w) {
        if (first >= last) return;
        weight[first] += w;
        weight[last] -= w;
    };
    for (const LabelChoice &choice : choices_) {
        int first = static_cast<int>(count), last = 0;
        for (int j : choice.items) first = std::min(first, position[j]), last = std::max(last, position[j]);
        span(first, last, 1.0);
    }
    for (const LabelGroup &group : groups_) {
        if (group.readers.size() < 2) continue;
        int first = static_cast<int>(count), last = 0;
        for (auto [j, share] : group.readers) first = std::min(first, position[j]), last = std::max(last, position[j]);
        span(first, last, 0.25);
    }
    std::vector<int> final(slots_, -1);
    for (size_t j = 0; j < count; j++) {
        const LabelItem &item = items_[order[j]];
        for (int k = 0; k < slots_; k++)
            for (const LabelOption &option : item.options)
                if (option.memory[k] != item.options[0].memory[k]) final[k] = static_cast<int>(j);
    }
    std::vector<uint64_t> hash(slots_, 0), alive;
    double worst = 0, running = 0;
    for (size_t j = 0; j < count; j++) {
        running += weight[j];
        const LabelItem &item = items_[order[j]];
        for (int k = 0; k < slots_; k++) {
            uint64_t h = 0;
            for (const LabelOption &option : item.options) h = h * 1000003 + static_cast<uint64_t>(option.memory[k]);
            hash[k] = hash[k] * 6364136223846793005ull + h;
        }
        if (j % 4 != 0 && count >= 60) continue;
        alive.clear();
        for (int k = 0; k < slots_; k++)
            if (final[k] > static_cast<int>(j)) alive.push_back(hash[k]);
        std::sort(alive.begin(), alive.end());
        auto classes = static_cast<double>(std::unique(alive.begin(), alive.end()) - alive.begin());
        worst = std::max(worst, running + std::max(0.0, classes - 1) * 1.5) + 0.01 * (running + classes);
    }
    return worst;
}

void LabelProgram::choose_order(bool strict) {
    auto count = static_cast<int>(items_.size());
    std::vector<int> by_time(count);
    std::vector<int> key(count);
    for (int j = 0; j < count; j++) {
        by_time[j] = j;
        if (items_[j].instance >= 0) {
            key[j] = core_.instances[items_[j].instance].forward_begin * 2 + 1;
            continue;
        }
        // With the first of its readers: slots are over as soon as they can be.
        key[j] = INT32_MAX;
        const CoreWindow &window = core_.windows[items_[j].window];
        for (int z = window.reader_begin; z < window.reader_end; z++)
            if (item_of_[core_.readers[z]] >= 0 || fixed_.replay[core_.readers[z]])
                key[j] = std::min(key[j], core_.instances[core_.readers[z]].forward_begin * 2);
    }
    std::stable_sort(by_time.begin(), by_time.end(), [&](int a, int b) { return key[a] < key[b]; });
    order_ = by_time;
    // Where nothing is shared, slots that are over one after the other tell most about what is to come (label_completion.h).
    bool shares =
        !choices_.empty() || std::any_of(groups_.begin(), groups_.end(), [](const LabelGroup &g) { return g.readers.size() > 1; });
    if (shares && (slots_ <= 6 || strict)) {
        std::vector<std::vector<int>> clusters;
        for (const LabelChoice &choice : choices_) clusters.push_back(choice.items);
        for (const LabelGroup &group : groups_) {
            if (group.readers.size() < 2) continue;
            auto &cluster = clusters.emplace_back();
            for (auto [j, share] : group.readers) cluster.push_back(j);
        }
        // Prices of one element nest: many groups have the very same items.
        std::sort(clusters.begin(), clusters.end());
        clusters.erase(std::unique(clusters.begin(), clusters.end()), clusters.end());
        std::vector<uint8_t> done(count, 0);
        std::vector<int> order = clustered(clusters, items_, done), rest;
        for (int j : by_time)
            if (!done[j]) rest.push_back(j);
        // The least decided last: they are what fills the remaining room.
        auto distance = [&](int j) { return items_[j].instance < 0 ? int64_t{0} : std::abs(reduced_[items_[j].instance]); };
        std::stable_sort(rest.begin(), rest.end(), [&](int a, int b) { return distance(a) > distance(b); });
        order.insert(order.end(), rest.begin(), rest.end());
        if (strain(order) < strain(by_time)) order_ = order;
        work_.used += static_cast<uint64_t>(count) * static_cast<uint64_t>(slots_) * 16 + clusters.size() * clusters.size() * 2;
    }
    position_.assign(count, 0);
    for (int j = 0; j < count; j++) position_[order_[j]] = j;
}

// false: more is alive at the same time than there are bits.
bool LabelProgram::place_bits() {
    struct Job {
        int first, last, width;
        int *bit;
    };
    std::vector<Job> jobs;
    for (LabelChoice &choice : choices_) {
        choice.first = static_cast<int>(items_.size());
        choice.last = 0;
        for (int j : choice.items) choice.first = std::min(choice.first, position_[j]), choice.last = std::max(choice.last, position_[j]);
        jobs.push_back({choice.first, choice.last, choice.width, &choice.bit});
    }
    for (LabelGroup &group : groups_) {
        group.bit = -1;
        if (group.readers.size() < 2) continue;
        group.first = static_cast<int>(items_.size());
        group.last = 0;
        for (auto [j, share] : group.readers)
            group.first = std::min(group.first, position_[j]), group.last = std::max(group.last, position_[j]);
        jobs.push_back({group.first, group.last, 1, &group.bit});
    }
    std::stable_sort(jobs.begin(), jobs.end(),
                     [](const Job &a, const Job &b) { return a.first != b.first ? a.first < b.first : a.width > b.width; });
    std::vector<int> busy_until(64 * kWords, -1);
    for (const Job &job : jobs) {
        int found = -1;
        for (int s = 0; s + job.width <= 64 * kWords && found < 0; s++) {
            if (s / 64 != (s + job.width - 1) / 64) continue;
            bool free = true;
            for (int b = s; b < s + job.width && free; b++) free = busy_until[b] < job.first;
            if (free) found = s;
        }
        if (found < 0) return false;
        for (int b = found; b < found + job.width; b++) busy_until[b] = job.last;
        *job.bit = found;
    }
    return true;
}

}  // namespace reprise::planner
