#include "tracker/replay.h"

#include <algorithm>

#include "kernels/kernels.h"

namespace reprise {
namespace {

void *writable(uintptr_t address) { return reinterpret_cast<void *>(address); }

void add_stray(std::vector<Stray> &out, const Buffer &buffer, const std::vector<Piece> &pieces) {
    if (pieces.empty()) return;
    out.push_back({&buffer, pieces.front().range(), total_size(pieces), pieces.size()});
}

Status freed_since(const Buffer &buffer) {
    return Status::error(REPRISE_REJECTED,
                         "buffer '%s' (%zu bytes at %#zx) was freed, resized or reallocated since the forward (its generation ended): "
                         "keep it alive until the backward has run, or leave it out of the segment",
                         buffer.name.c_str(), buffer.range.size(), static_cast<size_t>(buffer.range.begin));
}

}  // namespace

const char *to_string(MechanismKind kind) {
    switch (kind) {
        case MechanismKind::kSmall:
            return "small";
        case MechanismKind::kWhole:
            return "whole";
        case MechanismKind::kShadow:
            return "shadow";
        case MechanismKind::kWatch:
            return "watch";
        case MechanismKind::kNone:
            break;
    }
    return "none";
}

Status Replay::prepare(std::span<const ScopeEntry> scope) {
    if (items_.size() < scope.size()) items_.resize(scope.size());
    count_ = 0;
    bytes_changed_ = 0;
    for (const ScopeEntry &entry : scope) {
        Buffer &buffer = *entry.buffer;
        if (!still_live(port_, buffer)) {
            if (entry.optional || options_.audit) continue;  // a nested replay recomputes its arguments
            return freed_since(buffer);
        }
        Item &item = items_[count_++];
        item.buffer = &buffer;
        item.lost = false;
        item.view.clear();
        item.view.deep = options_.deep || options_.gated;
        item.view.note_written = options_.note_written;
        Status status = can_read(buffer) ? buffer.mechanism->changed(entry.version, item.view) : cannot_read(buffer);
        if (!status.ok()) {
            if (!options_.audit) return status;
            item.lost = true;
            bytes_changed_ += buffer.range.size();
        }
        bytes_changed_ += total_size(item.view.pieces);
    }
    return {};
}

LoadedBytes Replay::bytes_by_kind() const {
    LoadedBytes bytes;
    for (const Item &item : items()) {
        if (item.view.pieces.empty()) continue;
        const MechanismKind kind = item.buffer->mechanism->kind();
        const bool unwatched = kind == MechanismKind::kShadow && item.view.version_at_begin == item.view.version;
        (kind == MechanismKind::kWhole ? bytes.copies : unwatched ? bytes.pages : bytes.other) += total_size(item.view.pieces);
    }
    return bytes;
}

// Two buffers of one scope may share bytes: overlapping declarations, or two mappings of one file.
bool Replay::scopes_may_alias() const {
    AddressRange last;
    size_t declared = 0;
    bool ascending = true;
    for (const Item &item : items()) {
        if (item.view.pieces.empty()) continue;
        declared += item.buffer->origin == Origin::kDeclared;
        ascending = ascending && item.buffer->range.begin >= last.end;
        last = item.buffer->range;
    }
    if (declared > 1) return true;
    if (ascending) return false;
    std::vector<AddressRange> ranges;
    for (const Item &item : items()) {
        if (!item.view.pieces.empty()) ranges.push_back(item.buffer->range);
    }
    last = {};
    std::sort(ranges.begin(), ranges.end(), [](AddressRange a, AddressRange b) { return a.begin < b.begin; });
    for (AddressRange range : ranges) {
        if (!last.empty() && last.meets(range)) return true;
        if (range.end > last.end) last = range;
    }
    return false;
}

bool Replay::can_write_pieces(const Item &item) const {
    const auto &pieces = item.view.pieces;
    return std::all_of(pieces.begin(), pieces.end(), [&](const Piece &piece) { return can_write(*item.buffer, piece.range()); });
}

Status Replay::load() {
    loaded_ = true;
    if (bytes_changed_ == 0) return {};
    for (const Item &item : items()) {
        if (can_write_pieces(item)) continue;
        loaded_ = false;
        return cannot_write(*item.buffer);
    }
    present_ = pool_.allocate(bytes_changed_, LedgerKind::kPresent);
    if (!present_) {
        loaded_ = false;
        return Status::error(
            REPRISE_REJECTED,
            "too little memory is left to keep the present bytes of %llu changed bytes during the replay; raise the memory limit "
            "or keep this segment's activations",
            static_cast<unsigned long long>(bytes_changed_));
    }
    // Freed since it was looked at: its memory may be what was taken just now.
    for (const Item &item : items()) {
        if (item.view.pieces.empty() || live(item)) continue;
        present_.reset();
        loaded_ = false;
        return freed_since(*item.buffer);
    }
    swaps_.clear();
    std::byte *save = present_.data();
    for (const Item &item : items()) {
        for (const Piece &piece : item.view.pieces) {
            swaps_.push_back({writable(piece.live), save, piece.image, piece.size});
            save += piece.size;
        }
    }
    if (!scopes_may_alias()) {
        kernels::save_and_load_list(swaps_.data(), swaps_.size());
        return {};
    }
    // Everything is saved before anything is loaded, or the second alias would save what the first one loaded.
    for (const kernels::SwapItem &swap : swaps_) kernels::copy(swap.save_to, swap.live, swap.size);
    for (const kernels::SwapItem &swap : swaps_) kernels::copy(swap.live, swap.load_from, swap.size);
    return {};
}

// Pages of D that the forward had not written and that no longer hold what was loaded.
void Replay::find_strays_in_pieces(const Item &item, std::vector<Piece> &out) const {
    for (const Piece &piece : item.view.pieces) {
        if (!piece.stray_checked) continue;
        for (size_t offset = 0; offset < piece.size;) {
            uintptr_t at = piece.live + offset;
            size_t size = std::min(piece.size - offset, page_floor(at) + kPageSize - at);
            if (!kernels::equal(writable(at), piece.image + offset, size)) out.push_back({at, piece.image + offset, size, true});
            offset += size;
        }
    }
}

// Finds and counts what one buffer's replay wrote where the forward had not. Returns what has to be undone outside D.
std::vector<Piece> Replay::judge_strays(Item &item, ReplayOutcome &outcome) {
    Mechanism &mechanism = *item.buffer->mechanism;
    const BufferFlags &flags = item.buffer->flags;
    mechanism.refresh(item.view);
    if (flags.concurrent) return {};  // what differs outside D is the other writer's
    std::vector<Piece> outside;
    std::vector<Piece> found;
    mechanism.strays(item.view, outside);
    find_strays_in_pieces(item, found);
    if (outside.empty() && found.empty()) return {};
    found.insert(found.end(), outside.begin(), outside.end());
    if (options_.gated && !flags.argument && !mechanism.forward_wrote(item.view.version)) {
        if (item.view.pieces.empty()) {
            ++outcome.gated_kept;
            return {};
        }
        ++outcome.gated_conflict;
    } else if (!flags.generator && !options_.forward_open) {
        add_stray(mechanism.sees_writes_exactly() ? outcome.strays : outcome.possible, *item.buffer, found);
    }
    return outside;
}

ReplayOutcome Replay::finish() {
    ReplayOutcome outcome;
    if (!loaded_) return outcome;
    loaded_ = false;

    // Strays first, D last, so that D wins where buffers overlap.
    std::vector<std::pair<size_t, std::vector<Piece>>> undone;
    for (size_t i = 0; i < count_; ++i) {
        Item &item = items_[i];
        item.alive = live(item);
        if (!item.alive) continue;  // the generation ended during the replay: these addresses are somebody else's now
        if (!can_read(*item.buffer) || !can_write_pieces(item)) {
            item.alive = false;
            outcome.unreachable.push_back(item.buffer);
            continue;
        }
        std::vector<Piece> outside = judge_strays(item, outcome);
        if (!outside.empty()) undone.emplace_back(i, std::move(outside));
    }
    for (const auto &[index, pieces] : undone) {
        for (const Piece &piece : pieces) {
            kernels::copy(writable(piece.live), piece.image, piece.size);
            outcome.bytes_put_back += piece.size;
        }
    }
    copies_.clear();
    const std::byte *saved = present_.data();
    for (const Item &item : items()) {
        for (const Piece &piece : item.view.pieces) {
            if (item.alive && item.buffer->flags.concurrent) {
                const size_t element = item.buffer->flags.element;
                const size_t whole = piece.size / element * element;
                outcome.merged_elements += kernels::merge_elements(writable(piece.live), piece.image, saved, whole, element);
                if (whole != piece.size) kernels::copy(writable(piece.live + whole), saved + whole, piece.size - whole);
            } else if (item.alive) {
                copies_.push_back({writable(piece.live), saved, piece.size});
            }
            if (item.alive) outcome.bytes_put_back += piece.size;
            saved += piece.size;
        }
    }
    kernels::copy_list(copies_.data(), copies_.size());
    static const std::vector<Piece> kNone;
    size_t next = 0;
    for (size_t i = 0; i < count_; ++i) {
        const bool has_undone = next < undone.size() && undone[next].first == i;
        const std::vector<Piece> &pieces = has_undone ? undone[next++].second : kNone;
        if (items_[i].alive) items_[i].buffer->mechanism->put_back(items_[i].view, pieces);
    }
    present_.reset();
    count_ = 0;
    return outcome;
}

std::vector<AddressRange> Replay::ranges() const {
    std::vector<AddressRange> ranges;
    for (const Item &item : items()) {
        for (const Piece &piece : item.view.pieces) ranges.push_back(piece.range());
    }
    std::sort(ranges.begin(), ranges.end(), [](AddressRange a, AddressRange b) { return a.begin < b.begin; });
    std::vector<AddressRange> merged;
    for (AddressRange range : ranges) {
        if (!merged.empty() && range.begin <= merged.back().end) {
            merged.back().end = std::max(merged.back().end, range.end);
        } else {
            merged.push_back(range);
        }
    }
    return merged;
}

bool Replay::meets(std::span<const ScopeEntry> scope) const {
    std::vector<AddressRange> mine = ranges();
    for (const ScopeEntry &entry : scope) {
        AddressRange range = entry.buffer->range;
        auto next = std::lower_bound(mine.begin(), mine.end(), range.begin, [](AddressRange a, uintptr_t begin) { return a.end <= begin; });
        if (next != mine.end() && next->meets(range)) return true;
    }
    return false;
}

}  // namespace reprise
