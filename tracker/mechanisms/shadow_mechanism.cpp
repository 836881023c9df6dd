#include "tracker/mechanisms/shadow_mechanism.h"

#include <algorithm>

#include "kernels/kernels.h"

namespace reprise {
namespace {

constexpr uint32_t kBlockPages = kHugePageSize / kPageSize;
// A block of which this share was written since the last capture is copied whole from then on: below it faults win, above it copies do.
constexpr uint32_t kDenseDivisor = 4;
// ... if it was so in that many captures in a row: a queue's writer passes a block once in a lap, and does not come back for long.
constexpr uint8_t kDenseHabit = 2;
// One in this many dense blocks is guarded again per capture.
constexpr uint32_t kReprobe = 64;

bool by_first(PageRun a, PageRun b) { return a.first < b.first; }

}  // namespace

ShadowMechanism::ShadowMechanism(const Buffer &buffer, ImagePool &pool, DirtySource *guard, DirtySource &compare)
    : buffer_(buffer),
      pool_(pool),
      guard_(guard),
      compare_(compare),
      pages_(buffer.range.pages()),
      block_base_(pages_.begin & ~(uintptr_t{kHugePageSize} - 1)),
      page_count_(static_cast<uint32_t>(pages_.size() / kPageSize)),
      since_(page_count_, 0),
      blocks_((pages_.end - block_base_ + kHugePageSize - 1) / kHugePageSize),
      restored_(page_count_) {}

ShadowMechanism::~ShadowMechanism() { detach(); }

void ShadowMechanism::detach() {
    // Memory that is gone may be armed for its next owner by now: only the allocator may disarm it.
    if (!detached_ && guard_ != nullptr && shadow_ && !buffer_.dead) {
        for_blocks(Mode::kGuarded, [&](size_t, size_t, PageRun run) { guard_->stop(addresses(run)); });
    }
    detached_ = true;
}

PageRun ShadowMechanism::block_pages(size_t block) const {
    AddressRange range{block_base_ + block * kHugePageSize, block_base_ + (block + 1) * kHugePageSize};
    range = range.intersect(pages_);
    return {page_of(range.begin), static_cast<uint32_t>(range.size() / kPageSize)};
}

template <class Fn>
void ShadowMechanism::for_blocks(Mode mode, Fn fn) const {
    for (size_t block = 0; block < blocks_.size();) {
        if (blocks_[block].mode != mode) {
            ++block;
            continue;
        }
        size_t last = block + 1;
        while (last < blocks_.size() && blocks_[last].mode == mode) ++last;
        PageRun first = block_pages(block);
        PageRun end = block_pages(last - 1);
        fn(block, last - block, PageRun{first.first, end.end() - first.first});
        block = last;
    }
}

ShadowMechanism::BlockCounts ShadowMechanism::block_counts() const {
    BlockCounts counts;
    for (const Block &block : blocks_) {
        ++(block.mode == Mode::kGuarded ? counts.guarded : block.mode == Mode::kCompared ? counts.compared : counts.dense);
    }
    return counts;
}

Status ShadowMechanism::first_fill(Version version, CaptureCost &cost) {
    shadow_ = pool_.allocate(pages_.size(), LedgerKind::kShadows);
    if (!shadow_) {
        return Status::error(
            REPRISE_OUT_OF_MEMORY,
            "buffer '%s' (%zu bytes at %#zx) was not preserved: too little memory is left for its shadow; raise the memory "
            "limit or keep this segment's activations",
            buffer_.name.c_str(), buffer_.range.size(), static_cast<size_t>(buffer_.range.begin));
    }
    if (guard_ != nullptr && guard_->start(pages_)) {
        for (Block &block : blocks_) block.mode = Mode::kGuarded;
    }
    // Armed before it is copied: a concurrent write after the copy is seen.
    kernels::copy(shadow_at(buffer_.range.begin), reinterpret_cast<const void *>(buffer_.range.begin), buffer_.range.size());
    std::fill(since_.begin(), since_.end(), version);
    cost.copied += buffer_.range.size();
    cost.first_fill += buffer_.range.size();
    return {};
}

void ShadowMechanism::compare_pages(PageRun run, PageRuns &out) {
    AddressRange bytes = bytes_of(run);
    std::vector<AddressRange> written;
    compare_.collect(addresses(run), buffer_.range, shadow_at(bytes.begin), false, written);
    for (AddressRange range : written) append_run(out, page_of(range.begin), static_cast<uint32_t>(range.size() / kPageSize));
}

// The guard knows nothing about these blocks any more: compare, and (at a capture) arm again or stop trying.
void ShadowMechanism::lost_track(PageRun run, bool reset, PageRuns &out) {
    if (reset) {
        Mode mode = guard_->start(addresses(run)) ? Mode::kGuarded : Mode::kCompared;
        for (size_t block = block_of(run.first); block <= block_of(run.end() - 1); ++block) blocks_[block].mode = mode;
    }
    compare_pages(run, out);
}

// Appends what was written since the last capture in the blocks of one mode (not dense), ascending.
void ShadowMechanism::collect(Mode mode, bool reset, PageRuns &out) {
    std::vector<PageRun> lost;
    std::vector<AddressRange> written;
    PageRuns found;
    for_blocks(mode, [&](size_t, size_t, PageRun run) {
        if (mode == Mode::kCompared) {
            compare_pages(run, found);
            return;
        }
        written.clear();
        if (!guard_->collect(addresses(run), buffer_.range, nullptr, reset, written)) {
            lost.push_back(run);
            return;
        }
        for (AddressRange range : written) append_run(found, page_of(range.begin), static_cast<uint32_t>(range.size() / kPageSize));
    });
    if (mode == Mode::kGuarded) drop_unchanged_restored(found, reset);
    for (PageRun run : lost) lost_track(run, reset, found);
    if (!lost.empty()) std::sort(found.begin(), found.end(), by_first);
    for (PageRun run : found) append_run(out, run.first, run.count);
}

// A page that only our own put-back wrote equals the shadow: it is neither changed nor worth another copy.
void ShadowMechanism::drop_unchanged_restored(PageRuns &runs, bool forget) {
    if (!restored_.any()) return;
    PageRuns kept;
    for (PageRun run : runs) {
        for (uint32_t page = run.first; page < run.end(); ++page) {
            if (restored_.test(page)) {
                AddressRange bytes = bytes_of({page, 1});
                bool same = kernels::equal(reinterpret_cast<const void *>(bytes.begin), shadow_at(bytes.begin), bytes.size());
                if (forget || !same) restored_.clear(page);
                if (same) continue;
            }
            append_run(kept, page, 1);
        }
    }
    runs = std::move(kept);
}

// Saves the shadow's bytes of pages that are about to be overwritten and that an outstanding version needs. False: no memory.
bool ShadowMechanism::save_needed(const PageRuns &written, Version version) {
    const Version newest_needed = versions_.newest();
    if (versions_.empty()) return true;
    std::vector<DeltaEntry> entries;
    for (PageRun run : written) {
        for (uint32_t page = run.first; page < run.end(); ++page) {
            if (since_[page] <= newest_needed) entries.push_back({page, since_[page], static_cast<uint32_t>(entries.size())});
        }
    }
    if (entries.empty()) return true;
    Image image = pool_.allocate(entries.size() * kPageSize, LedgerKind::kImages);
    if (!image) return false;
    std::vector<kernels::CopyItem> items;
    items.reserve(entries.size());
    for (const DeltaEntry &entry : entries) {
        std::byte *to = image.data() + size_t{entry.slot} * kPageSize;
        const std::byte *from = shadow_.data() + size_t{entry.page} * kPageSize;
        if (!items.empty() && static_cast<std::byte *>(items.back().to) + items.back().size == to &&
            static_cast<const std::byte *>(items.back().from) + items.back().size == from) {
            items.back().size += kPageSize;
        } else {
            items.push_back({to, from, kPageSize});
        }
    }
    kernels::copy_list(items.data(), items.size());
    Version oldest = version;
    for (const DeltaEntry &entry : entries) oldest = std::min(oldest, entry.from);
    deltas_.push_back({version, std::move(image), std::move(entries), oldest});
    return true;
}

void ShadowMechanism::update_shadow(const PageRuns &written, Version version, CaptureCost &cost) {
    std::vector<kernels::CopyItem> items;
    items.reserve(written.size());
    for (PageRun run : written) {
        AddressRange bytes = bytes_of(run);
        items.push_back({shadow_at(bytes.begin), reinterpret_cast<const void *>(bytes.begin), bytes.size()});
        cost.copied += bytes.size();
        std::fill(since_.begin() + run.first, since_.begin() + run.end(), version);
    }
    kernels::copy_list(items.data(), items.size());
}

void ShadowMechanism::set_mode(size_t block, Mode mode) {
    Block &b = blocks_[block];
    if (b.mode == mode) return;
    AddressRange range = addresses(block_pages(block));
    if (b.mode == Mode::kGuarded) guard_->stop(range);
    if (mode == Mode::kGuarded && (guard_ == nullptr || !guard_->start(range))) mode = Mode::kCompared;
    b.mode = mode;
}

// Blocks that turned out dense stop being watched.
void ShadowMechanism::adapt_blocks(const PageRuns &written) {
    std::vector<uint32_t> counts(blocks_.size());
    for (PageRun run : written) {
        uint32_t page = run.first;
        while (page < run.end()) {
            size_t block = block_of(page);
            uint32_t end = std::min(run.end(), block_pages(block).end());
            counts[block] += end - page;
            page = end;
        }
    }
    for (size_t block = 0; block < blocks_.size(); ++block) {
        if (blocks_[block].mode == Mode::kDense) continue;
        const bool much = counts[block] * kDenseDivisor >= block_pages(block).count;
        blocks_[block].habit = much ? static_cast<uint8_t>(blocks_[block].habit + 1) : uint8_t{0};
        if (blocks_[block].habit >= kDenseHabit) set_mode(block, Mode::kDense);
    }
}

// Armed before they are copied, so that no write falls between; the caller copies what is appended to `out` whole.
void ShadowMechanism::reprobe_dense(PageRuns &out) {
    for (size_t block = captures_ % kReprobe; block < blocks_.size(); block += kReprobe) {
        if (blocks_[block].mode != Mode::kDense) continue;
        set_mode(block, guard_ != nullptr ? Mode::kGuarded : Mode::kCompared);
        PageRun pages = block_pages(block);
        if (blocks_[block].mode == Mode::kGuarded) append_run(out, pages.first, pages.count);
    }
}

// Dense blocks that nobody wrote since the last capture are watched again. The comparison ends at the first difference: next to nothing
// where the block is written still.
void ShadowMechanism::leave_idle_dense(PageRuns &out) {
    for (size_t block = 0; block < blocks_.size(); ++block) {
        if (blocks_[block].mode != Mode::kDense) continue;
        const PageRun pages = block_pages(block);
        if (!block_equals(pages, {})) continue;
        set_mode(block, guard_ != nullptr ? Mode::kGuarded : Mode::kCompared);
        // A write between the comparison and the arming was not seen by either. Compared blocks are looked at by this capture anyway.
        if (blocks_[block].mode == Mode::kGuarded) compare_pages(pages, out);
    }
}

Status ShadowMechanism::capture(Version version, CaptureCost &cost) {
    if (!shadow_) {
        if (Status status = first_fill(version, cost); !status.ok()) return status;
    } else {
        PageRuns probed;
        leave_idle_dense(probed);
        if (versions_.empty()) reprobe_dense(probed);
        PageRuns guarded;
        PageRuns compared;
        collect(Mode::kGuarded, true, guarded);
        collect(Mode::kCompared, false, compared);
        const PageRuns watched = unite(guarded, compared);
        PageRuns dense;
        for_blocks(Mode::kDense, [&](size_t, size_t, PageRun run) {
            if (versions_.empty()) {
                append_run(dense, run.first, run.count);
            } else {
                compare_pages(run, dense);  // what did not change needs no before-image
            }
        });
        std::sort(probed.begin(), probed.end(), by_first);
        // What a concurrent writer touched in a block armed just now stands among the watched pages too.
        const PageRuns written = unite(watched, unite(dense, probed));
        if (!save_needed(written, version)) unsaved_until_ = version;
        update_shadow(written, version, cost);
        if (cost.pages != nullptr) *cost.pages = written;
        ++captures_;
        // A guarded block that becomes dense is compared or copied whole at the next chance: no write is lost by the change. A plan has
        // weighed faults against copies already, and counts on a replay to load what was written and no more.
        if (!cost.planned) adapt_blocks(watched);
    }
    newest_ = version;
    ++image_moves_;
    versions_.add(version);
    return {};
}

void ShadowMechanism::forward_ended(Version version) {
    ForwardWrites writes;
    writes.version = version;
    PageBits bits;
    PageRuns now;
    collect(Mode::kGuarded, false, now);
    PageRuns compared;
    collect(Mode::kCompared, false, compared);
    if (newest_ == version && compared.empty()) {
        writes.runs = std::move(now);
    } else {
        bits = PageBits(page_count_);
        for (PageRun run : now) bits.set(run);
        for (PageRun run : compared) bits.set(run);
        pages_since(version, bits);
        writes.runs = bits.runs();
    }
    if (!writes.runs.empty()) forward_writes_.push_back(std::move(writes));
}

// Sets the pages whose shadow was updated after `version`.
void ShadowMechanism::pages_since(Version version, PageBits &bits) const {
    if (newest_ == version) return;
    for (uint32_t page = 0; page < page_count_; ++page) {
        if (since_[page] > version) bits.set(page);
    }
}

const ShadowMechanism::ForwardWrites *ShadowMechanism::forward_writes(Version version) const {
    for (const ForwardWrites &writes : forward_writes_) {
        if (writes.version == version) return &writes;
    }
    return nullptr;
}

bool ShadowMechanism::forward_wrote(Version version) const {
    const ForwardWrites *writes = forward_writes(version);
    return writes != nullptr && !writes->runs.empty();
}

// The before-images of `version` that are no longer in the shadow, ascending by page.
void ShadowMechanism::delta_images(Version version, DeltaImages &out) const {
    if (newest_ == version) return;
    for (const Delta &delta : deltas_) {
        if (delta.until <= version) continue;
        for (const DeltaEntry &entry : delta.entries) {
            if (entry.from <= version) out.emplace_back(entry.page, delta.image.data() + size_t{entry.slot} * kPageSize);
        }
    }
    std::sort(out.begin(), out.end());
}

// Are the live bytes of these pages those that the shadow has, and has it them unchanged (no before-image among `deltas`)?
bool ShadowMechanism::block_equals(PageRun pages, const DeltaImages &deltas) const {
    auto delta = std::lower_bound(deltas.begin(), deltas.end(), pages.first, [](const auto &d, uint32_t page) { return d.first < page; });
    if (delta != deltas.end() && delta->first < pages.end()) return false;
    AddressRange bytes = bytes_of(pages);
    return kernels::equal(reinterpret_cast<const void *>(bytes.begin), shadow_at(bytes.begin), bytes.size());
}

// Turns runs of pages into pieces with the version's images, split where image or kind changes.
void ShadowMechanism::append_pieces(const PageRuns &runs, Version version, std::vector<Piece> &out) const {
    DeltaImages deltas;
    delta_images(version, deltas);
    auto delta = deltas.begin();
    const ForwardWrites *writes = forward_writes(version);
    size_t write_index = 0;
    for (PageRun run : runs) {
        for (uint32_t page = run.first; page < run.end();) {
            while (delta != deltas.end() && delta->first < page) ++delta;
            const bool from_delta = delta != deltas.end() && delta->first == page;
            const std::byte *image = from_delta ? delta->second : shadow_.data() + size_t{page} * kPageSize;
            bool checked = blocks_[block_of(page)].mode != Mode::kDense;
            if (writes != nullptr && checked) {
                while (write_index < writes->runs.size() && writes->runs[write_index].end() <= page) ++write_index;
                if (write_index < writes->runs.size() && writes->runs[write_index].first <= page) checked = false;
            }
            AddressRange bytes = bytes_of({page, 1});
            image += bytes.begin - addresses({page, 1}).begin;
            if (!out.empty() && out.back().range().end == bytes.begin && out.back().image + out.back().size == image &&
                out.back().stray_checked == checked) {
                out.back().size += bytes.size();
            } else {
                out.push_back({bytes.begin, image, bytes.size(), checked});
            }
            ++page;
        }
    }
}

Status ShadowMechanism::changed(Version version, ReplayView &view) {
    view.version = version;
    view.version_at_begin = newest_;
    view.moves_at_begin = image_moves_;
    if (version < unsaved_until_) {
        return Status::error(
            REPRISE_REJECTED,
            "buffer '%s' (%zu bytes): its before-images did not fit into the memory that was left; raise the memory limit or "
            "keep fewer forwards outstanding",
            buffer_.name.c_str(), buffer_.range.size());
    }
    PageRuns now;
    collect(Mode::kGuarded, false, now);
    collect(Mode::kCompared, false, now);
    DeltaImages deltas;
    delta_images(version, deltas);
    const ForwardWrites *writes = forward_writes(version);
    PageRuns dense;
    for (size_t block = 0; block < blocks_.size(); ++block) {
        if (blocks_[block].mode != Mode::kDense) continue;
        PageRun pages = block_pages(block);
        if (!block_equals(pages, deltas)) append_run(dense, pages.first, pages.count);
    }
    if (view.note_written) view.since_capture = unite(now, dense);
    if (now.empty() && dense.empty() && deltas.empty() && (writes == nullptr || writes->runs.empty())) return {};

    view.loaded = PageBits(page_count_);
    view.clean_before = PageBits(page_count_);
    for (const auto &delta : deltas) {
        view.loaded.set(delta.first);
        view.clean_before.set(delta.first);
    }
    if (writes != nullptr) {
        for (PageRun run : writes->runs) {
            view.loaded.set(run);
            view.clean_before.set(run);
        }
    }
    for (PageRun run : dense) {
        view.loaded.set(run);
        view.clean_before.clear(run);
    }
    for (PageRun run : now) {
        view.loaded.set(run);
        view.clean_before.clear(run);
    }
    append_pieces(view.loaded.runs(), version, view.pieces);
    return {};
}

void ShadowMechanism::refresh(ReplayView &view) const {
    if (image_moves_ == view.moves_at_begin || view.loaded.empty()) return;
    view.moves_at_begin = image_moves_;
    view.pieces.clear();
    append_pieces(view.loaded.runs(), view.version, view.pieces);
}

void ShadowMechanism::strays(const ReplayView &view, std::vector<Piece> &out) {
    PageRuns now;
    collect(Mode::kGuarded, false, now);
    collect(Mode::kCompared, false, now);
    const bool look_into_dense = view.deep || !buffer_.flags.parameter;
    if (look_into_dense) {
        for_blocks(Mode::kDense, [&](size_t, size_t, PageRun run) { append_run(now, run.first, run.count); });
    }
    PageBits candidates(page_count_);
    for (PageRun run : now) candidates.set(run);
    pages_since(view.version_at_begin, candidates);
    if (!view.loaded.empty()) {
        for (PageRun run : view.loaded.runs()) candidates.clear(run);
    }
    if (!candidates.any()) return;
    std::vector<Piece> pieces;
    append_pieces(candidates.runs(), view.version, pieces);
    for (const Piece &piece : pieces) {
        // By pages: a stray is what differs, not its neighbourhood.
        for (size_t offset = 0; offset < piece.size;) {
            uintptr_t at = piece.live + offset;
            size_t size = std::min(piece.size - offset, page_floor(at) + kPageSize - at);
            if (!kernels::equal(reinterpret_cast<const void *>(at), piece.image + offset, size)) {
                if (!out.empty() && out.back().range().end == at && out.back().image + out.back().size == piece.image + offset) {
                    out.back().size += size;
                } else {
                    out.push_back({at, piece.image + offset, size, true});
                }
            }
            offset += size;
        }
    }
}

void ShadowMechanism::put_back(const ReplayView &view, const std::vector<Piece> &restored_strays) {
    if (!view.clean_before.empty() && newest_ == view.version_at_begin) {
        for (PageRun run : view.clean_before.runs()) restored_.set(run);
    }
    if (newest_ != view.version_at_begin) return;
    for (const Piece &piece : restored_strays) {
        AddressRange range = piece.range().pages();
        restored_.set(PageRun{page_of(range.begin), static_cast<uint32_t>(range.size() / kPageSize)});
    }
}

void ShadowMechanism::release(Version version) {
    versions_.remove(version);
    std::erase_if(forward_writes_, [&](const ForwardWrites &writes) { return writes.version == version; });
    std::erase_if(deltas_, [&](Delta &delta) {
        if (version < delta.oldest || version >= delta.until) return false;  // it served others
        std::erase_if(delta.entries, [&](const DeltaEntry &entry) { return !versions_.any_in(entry.from, delta.until); });
        if (delta.entries.empty()) return true;
        // An image that is mostly dead is repacked: one instance that is never released must not pin what all the others needed.
        if (delta.entries.size() * kPageSize * 2 > delta.image.size()) return false;
        Image packed = pool_.allocate(delta.entries.size() * kPageSize, LedgerKind::kImages);
        if (!packed) return false;
        uint32_t slot = 0;
        for (DeltaEntry &entry : delta.entries) {
            kernels::copy(packed.data() + size_t{slot} * kPageSize, delta.image.data() + size_t{entry.slot} * kPageSize, kPageSize);
            entry.slot = slot++;
        }
        delta.image = std::move(packed);
        ++image_moves_;
        return false;
    });
}

void ShadowMechanism::written_since_capture(std::vector<AddressRange> &runs) {
    if (!shadow_) return;
    PageRuns now;
    collect(Mode::kGuarded, false, now);
    collect(Mode::kCompared, false, now);
    for_blocks(Mode::kDense, [&](size_t, size_t, PageRun run) { compare_pages(run, now); });
    std::sort(now.begin(), now.end(), by_first);
    for (PageRun run : now) {
        AddressRange bytes = bytes_of(run);
        if (!runs.empty() && runs.back().end == bytes.begin) {
            runs.back().end = bytes.end;
        } else {
            runs.push_back(bytes);
        }
    }
}

// The shadow already holds the before-images (they are the bytes of the last capture); stopping the guard makes the pages count as written.
void ShadowMechanism::write_intent(AddressRange bytes) {
    AddressRange range = bytes.intersect(buffer_.range);
    if (range.empty() || guard_ == nullptr || !shadow_ || detached_) return;
    for_blocks(Mode::kGuarded, [&](size_t, size_t, PageRun run) {
        AddressRange part = range.pages().intersect(addresses(run));
        if (!part.empty()) guard_->stop(part);
    });
}

}  // namespace reprise
