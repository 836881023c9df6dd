#include "planner/label_completion.h"

#include <algorithm>

namespace reprise::planner {

namespace {

constexpr int16_t kMost = 16383;                             // a cell's value: beyond the gap. The sum of two is a number still
constexpr int64_t kUnits = 8192;                             // of the gap
constexpr int64_t kCells = 131072, kMostCells = 24'000'000;  // a step; in all
constexpr int64_t kNearly = 16;                              // rows differ in at most this part of the memory that is to come

int64_t down(int64_t a, int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

// The least and the most that the item adds to a slot, less what it adds to another one (-1: nothing).
std::pair<int64_t, int64_t> range(const LabelItem &item, int slot, int other) {
    int64_t least = INT64_MAX, most = INT64_MIN;
    for (const LabelOption &option : item.options) {
        int64_t memory = option.memory[slot] - (other < 0 ? 0 : option.memory[other]);
        least = std::min(least, memory);
        most = std::max(most, memory);
    }
    return {least, most};
}

}  // namespace

std::vector<Completion::Row> Completion::chain(const LabelItems &all, int first, const std::vector<int> &slots) {
    auto steps = static_cast<int>(all.items.size());
    auto item = [&](int step) -> const LabelItem & { return all.items[all.order[step]]; };
    std::vector<uint8_t> shared(all.room.size(), 0);
    for (int step = first; step < steps; step++)
        for (int g : item(step).groups)
            for (int slot : all.groups[g].slots) shared[slot] = 1;
    std::vector<std::pair<int, int>> ends;  // last item that adds to it, slot
    for (int slot : slots) {
        int last = steps - 1;
        while (last >= first && range(item(last), slot, -1) == std::pair<int64_t, int64_t>{0, 0}) last--;
        if (last >= first && !shared[slot]) ends.emplace_back(last, slot);
    }
    std::vector<Row> out;
    if (ends.empty()) return out;
    std::sort(ends.rbegin(), ends.rend());
    int reference = ends[0].second;
    out.push_back({reference, 0, all.room[reference], all.multipliers[reference]});
    for (size_t z = 1; z < ends.size(); z++) {
        Row row{ends[z].second, 0, all.room[ends[z].second], all.multipliers[ends[z].second]};
        int64_t spread = 0, whole = 0;
        for (int step = first; step < ends[z].first; step++) {
            auto [least, most] = range(item(step), row.slot, reference);
            row.more += least;
            spread += most - least;
            auto [low, high] = range(item(step), reference, -1);
            whole += high - low;
        }
        if (spread * kNearly <= whole) out.push_back(row);
    }
    return out;
}

Completion::Completion(const LabelItems &all, int first, std::vector<Row> rows, int64_t low, int64_t high, int64_t gap)
    : first_(first), last_(first - 1), rows_(std::move(rows)), closes_(all.room.size(), -1), unit_(gap / kUnits + 1) {
    auto steps = static_cast<int>(all.items.size());
    for (int step = first; step < steps; step++)
        for (const Row &row : rows_)
            if (range(all.items[all.order[step]], row.slot, -1) != std::pair<int64_t, int64_t>{0, 0}) closes_[row.slot] = last_ = step;
    tables_.resize(static_cast<size_t>(last_ - first) + 2);
    measure(all, low, high);
    for (int step = last_; step >= first_; step--) fill(step);
}

void Completion::end_rows(int step) {
    ending_.clear();
    for (const Row &row : rows_)
        if (closes_[row.slot] == step) ending_.push_back(row);
}

std::vector<Completion::Way> Completion::ways(const LabelItems &all, int step) const {
    int number = all.order[step], reference = rows_[0].slot;
    const LabelItem &item = all.items[number];
    std::vector<Way> out;
    for (const LabelOption &option : item.options) {
        Way &way = out.emplace_back(Way{option.bound, step < last_ ? option.memory[reference] : 0, {}});
        // Prices of other slots: whoever finds them paid pays least.
        for (int g : option.groups)
            for (auto [reader, share] : all.groups[g].readers)
                if (reader == number) way.extra += share;
        for (const Row &row : ending_) way.closing.push_back(option.memory[row.slot]);
        // The rows' memory is told by the first one's; where they differ the multiplier says what that is worth.
        for (const Row &row : rows_)
            if (closes_[row.slot] > step) way.extra -= row.multiplier * (option.memory[row.slot] - option.memory[reference]);
    }
    return out;
}

// How much memory there can be before every item, how wide a cell must be, and what every label gets.
void Completion::measure(const LabelItems &all, int64_t low, int64_t high) {
    tables_[0].base = low;
    tables_[0].reach = high - low;
    int64_t widest = 0;
    for (int step = first_; step <= last_; step++) {
        Table &table = tables_[step - first_], &next = tables_[step + 1 - first_];
        end_rows(step);
        int64_t room = 0;
        for (const Row &row : rows_) {
            if (closes_[row.slot] < step) continue;
            table.weight += row.multiplier;
            room = std::max(room, row.room - row.more - table.base);
        }
        table.reach = std::min(table.reach, room);
        widest = std::max(widest, table.reach);
        table.ways = ways(all, step);
        int64_t least = INT64_MAX, most = 0, cheapest = INT64_MAX;
        for (const Way &way : table.ways) {
            least = std::min(least, way.memory);
            most = std::max(most, way.memory);
            cheapest = std::min(cheapest, way.extra);
        }
        for (Way &way : table.ways) way.memory -= least, way.extra -= cheapest;
        table.offset = cheapest;
        // Rows may be fuller by this than the first one says; the cells leave that room, and it is not in vain.
        for (const Row &row : ending_) table.offset += row.multiplier * row.more;
        next.base = table.base + least;
        next.reach = table.reach + most - least;
        work_ += table.ways.size() * (rows_.size() + 10);
    }
    for (int step = last_; step >= first_; step--) tables_[step - first_].offset += tables_[step + 1 - first_].offset;
    width_ = widest / std::min(kCells, kMostCells / static_cast<int64_t>(tables_.size())) + 1;
}

void Completion::fill(int step) {
    Table &table = tables_[step - first_];
    const Table &next = tables_[step + 1 - first_];
    if (table.reach < 0) return;
    end_rows(step);
    auto count = static_cast<int64_t>(table.reach / width_ + 1), others = static_cast<int64_t>(next.cells.size());
    table.cells.assign(static_cast<size_t>(count), kMost);
    int16_t *to = table.cells.data();
    for (const Way &way : table.ways) {
        // Rounded down to a cell's least memory: what that leaves free in addition may be paid in vain.
        int64_t shift = way.memory / width_, extra = way.extra - next.weight * (way.memory - shift * width_);
        int64_t end = step == last_ ? count : std::min(count, others - shift);
        int64_t free = 0, price = 0;
        for (size_t z = 0; z < ending_.size(); z++) {
            int64_t left = ending_[z].room - ending_[z].more - table.base - way.closing[z];
            end = std::min(end, left < 0 ? 0 : left / width_ + 1);
            free += ending_[z].multiplier * left;
            price += ending_[z].multiplier;
        }
        if (end <= 0) continue;
        const int16_t *from = step == last_ ? nullptr : next.cells.data() + shift;
        if (ending_.empty()) {
            int64_t units = std::max<int64_t>(down(extra, unit_), -kMost);
            if (units >= kMost) continue;
            auto add = static_cast<int16_t>(units);
            for (int64_t k = 0; k < end; k++) {
                auto value = static_cast<int16_t>(from[k] + add);
                to[k] = value < to[k] ? value : to[k];
            }
            work_ += static_cast<uint64_t>(end) / 16 + 20;
            continue;
        }
        for (int64_t k = 0; k < end; k++) {
            int64_t units = down(extra + free - price * k * width_, unit_) + (from ? from[k] : 0);
            if (units < to[k]) to[k] = static_cast<int16_t>(std::max<int64_t>(units, 0));
        }
        work_ += static_cast<uint64_t>(end) * 3;
    }
    // What is to come never adds less than nothing to what every label gets.
    for (int64_t k = 0; k < count; k++) to[k] = to[k] < 0 ? int16_t{0} : to[k];
    work_ += static_cast<uint64_t>(count) / 16 + 50;
}

}  // namespace reprise::planner
