#include "tracker/mechanisms/image_mechanism.h"

#include <algorithm>

#include "kernels/kernels.h"

namespace reprise {

ImageMechanism::Record *ImageMechanism::find(Version version) {
    for (Record *record = records_.data() + records_.size(); record != records_.data();) {
        if ((--record)->version == version) return record;
    }
    return nullptr;
}

const ImageMechanism::Record *ImageMechanism::find(Version version) const { return const_cast<ImageMechanism *>(this)->find(version); }

void ImageMechanism::add(Version version) {
    records_.push_back({version, Wrote::kUnknown, latest_, latest_->image.data()});
    ++latest_->versions;
}

Status ImageMechanism::capture(Version version, CaptureCost &cost) {
    const size_t size = buffer_.range.size();
    const bool small = kind_ == MechanismKind::kSmall;
    // Small ones always; large ones where the plan says that the comparison will go through and saves a copy that others share.
    const bool compare = small || (buffer_.expect_unchanged && latest_ != nullptr && latest_->versions != 0);
    if (latest_ != nullptr && compare && kernels::equal(live(), latest_->image.data(), size)) {
        add(version);
        return {};
    }
    // A small copy that no outstanding version needs is written over.
    if (latest_ == nullptr || latest_->versions != 0) {
        auto copy = std::make_unique<Copy>(Copy{pool_.allocate(size, LedgerKind::kImages)});
        if (!copy->image) {
            return Status::error(REPRISE_OUT_OF_MEMORY,
                                 "buffer '%s' (%zu bytes at %#zx) was not preserved: too little memory is left for a copy; "
                                 "raise the memory limit or keep this segment's activations",
                                 buffer_.name.c_str(), size, static_cast<size_t>(buffer_.range.begin));
        }
        copies_.push_back(std::move(copy));
        latest_ = copies_.back().get();
    }
    kernels::copy(latest_->image.data(), live(), size);
    cost.copied += size;
    if (cost.pages != nullptr && filled_ && small) append_run(*cost.pages, 0, page_count());
    if (!filled_) cost.first_fill += size;
    filled_ = true;
    add(version);
    return {};
}

void ImageMechanism::forward_ended(Version version) {
    if (kind_ != MechanismKind::kSmall) return;  // a comparison of everything: not worth what it would tell
    if (Record *record = find(version)) {
        record->wrote = kernels::equal(live(), record->bytes, buffer_.range.size()) ? Wrote::kNo : Wrote::kYes;
    }
}

bool ImageMechanism::forward_wrote(Version version) const {
    const Record *record = find(version);
    return record != nullptr && record->wrote == Wrote::kYes;
}

Status ImageMechanism::changed(Version version, ReplayView &view) {
    view.version = version;
    Record *record = find(version);
    if (record == nullptr) {
        return Status::error(REPRISE_REJECTED, "buffer '%s' was not preserved when the forward began", buffer_.name.c_str());
    }
    const AddressRange range = buffer_.range;
    const std::byte *image = record->bytes;
    if (kind_ == MechanismKind::kSmall) {
        if (record->wrote == Wrote::kYes || !kernels::equal(live(), image, range.size())) {
            view.pieces.push_back({range.begin, image, range.size(), record->wrote == Wrote::kNo});
            if (view.note_written) append_run(view.since_capture, 0, page_count());
        }
        return {};
    }
    for (size_t offset = 0; offset < range.size(); offset += kHugePageSize) {
        size_t size = std::min(kHugePageSize, range.size() - offset);
        if (kernels::equal(reinterpret_cast<const void *>(range.begin + offset), image + offset, size)) continue;
        if (view.note_written && view.since_capture.empty()) append_run(view.since_capture, 0, page_count());
        if (!view.pieces.empty() && view.pieces.back().range().end == range.begin + offset) {
            view.pieces.back().size += size;
        } else {
            view.pieces.push_back({range.begin + offset, image + offset, size, false});
        }
    }
    return {};
}

void ImageMechanism::strays(const ReplayView &view, std::vector<Piece> &out) {
    Record *record = find(view.version);
    if (record == nullptr) return;
    if (kind_ == MechanismKind::kWhole && buffer_.flags.parameter && !view.deep) return;
    // What lies between the pieces must still be the version's bytes.
    const std::byte *image = record->bytes;
    uintptr_t at = buffer_.range.begin;
    auto check = [&](uintptr_t end) {
        while (at < end) {
            size_t size = std::min<size_t>(end - at, kHugePageSize);
            const std::byte *expected = image + (at - buffer_.range.begin);
            if (!kernels::equal(reinterpret_cast<const void *>(at), expected, size)) out.push_back({at, expected, size, true});
            at += size;
        }
    };
    for (const Piece &piece : view.pieces) {
        check(piece.live);
        at = piece.range().end;
    }
    check(buffer_.range.end);
}

void ImageMechanism::release(Version version) {
    Record *record = find(version);
    if (record == nullptr) return;
    Copy *copy = record->copy;
    records_.erase(records_.begin() + (record - records_.data()));
    // The last small one is kept to compare with. A large one is worth its memory only while somebody needs it, and no plan counts more;
    // its memory is there for the next capture.
    if (--copy->versions != 0 || (copy == latest_ && kind_ == MechanismKind::kSmall)) return;
    if (copy == latest_) latest_ = nullptr;
    std::erase_if(copies_, [&](const auto &owned) { return owned.get() == copy; });
}

void ImageMechanism::written_since_capture(std::vector<AddressRange> &runs) {
    if (!filled_ || (latest_ != nullptr && kernels::equal(live(), latest_->image.data(), buffer_.range.size()))) return;
    runs.push_back(buffer_.range);
}

}  // namespace reprise
