// Shadow and deltas: one copy of the buffer as it was at the newest capture, and the before-images of the pages that were overwritten since
// an older version that somebody still needs. docs/tracking.md draws it; in short:
//
//     shadow[p]          bytes of page p, valid for every version >= since[p]
//     delta (until u)    page p's older bytes, valid for versions in [from, u)
//
// so the bytes of page p at version v are the shadow's when since[p] <= v, else those of the one delta with from <= v < until.
//
// Blocks of 2 MiB choose how they learn what was written:
//     guarded    armed in the page guard: only written pages are copied
//     compared   no page faults possible (foreign memory, no userfaultfd): compared with the shadow
//     dense      most of it is written every time: a fault costs more than a copy, so it is copied blindly and left unarmed. At a replay a
//                comparison that stops at the first difference tells whether it has to be loaded. A block that nobody wrote in a window
//                is guarded again at once; a sixty-fourth of the others in every window, so that a writer that became sparse is noticed.
//                None becomes so under a plan, or while one is being made (CaptureCost::planned).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "tracker/buffer.h"
#include "tracker/dirty_source.h"
#include "tracker/image_pool.h"
#include "tracker/mechanism.h"
#include "tracker/version_list.h"

namespace reprise {

class ShadowMechanism final : public Mechanism {
  public:
    // `guard` may be null (no write protection here, or memory that cannot be armed).
    ShadowMechanism(const Buffer &buffer, ImagePool &pool, DirtySource *guard, DirtySource &compare);
    ~ShadowMechanism() override;

    MechanismKind kind() const override { return MechanismKind::kShadow; }
    Status capture(Version version, CaptureCost &cost) override;
    void forward_ended(Version version) override;
    Status changed(Version version, ReplayView &view) override;
    void refresh(ReplayView &view) const override;
    void strays(const ReplayView &view, std::vector<Piece> &out) override;
    void put_back(const ReplayView &view, const std::vector<Piece> &restored_strays) override;
    bool forward_wrote(Version version) const override;
    void release(Version version) override;
    void written_since_capture(std::vector<AddressRange> &runs) override;
    void write_intent(AddressRange bytes) override;
    void detach() override;
    bool sees_writes_exactly() const override { return guard_ != nullptr; }
    size_t outstanding() const override { return versions_.size(); }
    size_t idle_bytes() const override { return versions_.empty() ? shadow_.size() : 0; }

    // For tests and benchmarks: blocks by mode.
    struct BlockCounts {
        size_t guarded = 0, compared = 0, dense = 0;
    };
    BlockCounts block_counts() const;

  private:
    enum class Mode : uint8_t { kGuarded, kCompared, kDense };
    struct Block {
        Mode mode = Mode::kCompared;
        uint8_t habit = 0;  // captures in a row that found much of it written
    };
    using DeltaImages = std::vector<std::pair<uint32_t, const std::byte *>>;  // page, its bytes
    struct DeltaEntry {
        uint32_t page = 0;
        Version from = 0;
        uint32_t slot = 0;  // index of the page in the delta's image
    };
    struct Delta {
        Version until = 0;
        Image image;
        std::vector<DeltaEntry> entries;  // ascending pages
        Version oldest = 0;               // no entry serves an older version
    };
    struct ForwardWrites {
        Version version = 0;
        PageRuns runs;
    };

    uint32_t page_of(uintptr_t address) const { return static_cast<uint32_t>((address - pages_.begin) / kPageSize); }
    AddressRange addresses(PageRun run) const {
        return {pages_.begin + size_t{run.first} * kPageSize, pages_.begin + size_t{run.end()} * kPageSize};
    }
    AddressRange bytes_of(PageRun run) const { return addresses(run).intersect(buffer_.range); }
    std::byte *shadow_at(uintptr_t address) const { return shadow_.data() + (address - pages_.begin); }
    PageRun block_pages(size_t block) const;
    size_t block_of(uint32_t page) const { return (addresses({page, 1}).begin - block_base_) / kHugePageSize; }
    // Calls fn(first block, block count, run of pages) for every maximal run of blocks of that mode.
    template <class Fn>
    void for_blocks(Mode mode, Fn fn) const;

    Status first_fill(Version version, CaptureCost &cost);
    void collect(Mode mode, bool reset, PageRuns &out);
    void lost_track(PageRun run, bool reset, PageRuns &out);
    void drop_unchanged_restored(PageRuns &runs, bool forget);
    void compare_pages(PageRun run, PageRuns &out);
    bool save_needed(const PageRuns &written, Version version);
    void update_shadow(const PageRuns &written, Version version, CaptureCost &cost);
    void adapt_blocks(const PageRuns &guarded_or_compared);
    void leave_idle_dense(PageRuns &out);
    void reprobe_dense(PageRuns &out);
    void set_mode(size_t block, Mode mode);
    void pages_since(Version version, PageBits &bits) const;
    bool block_equals(PageRun pages, const DeltaImages &deltas) const;
    void delta_images(Version version, DeltaImages &out) const;
    const ForwardWrites *forward_writes(Version version) const;
    void append_pieces(const PageRuns &runs, Version version, std::vector<Piece> &out) const;

    const Buffer &buffer_;
    ImagePool &pool_;
    DirtySource *guard_;
    DirtySource &compare_;
    AddressRange pages_;
    uintptr_t block_base_;
    uint32_t page_count_;

    Image shadow_;
    std::vector<Version> since_;
    std::vector<Block> blocks_;
    std::vector<Delta> deltas_;  // ascending until
    std::vector<ForwardWrites> forward_writes_;
    VersionList versions_;
    PageBits restored_;  // written by our own put-back alone: equal to the shadow unless somebody wrote since
    Version newest_ = 0;
    uint64_t image_moves_ = 0;   // captures and repackings: after one, pointers into images are to be found again
    Version unsaved_until_ = 0;  // versions below it lost before-images for want of memory
    uint32_t captures_ = 0;
    bool detached_ = false;
};

}  // namespace reprise
