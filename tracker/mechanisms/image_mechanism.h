// Copies of the whole buffer. Two uses: `small` (below 128 KiB, always: compared byte for byte, equal versions share one image) and `whole`
// (any size: copied blindly; at the replay a 2 MiB block is skipped when it compares equal, which costs nothing where it differs early).
#pragma once

#include <memory>

#include "tracker/buffer.h"
#include "tracker/image_pool.h"
#include "tracker/mechanism.h"
#include "tracker/version_list.h"

namespace reprise {

class ImageMechanism final : public Mechanism {
  public:
    ImageMechanism(const Buffer &buffer, ImagePool &pool, MechanismKind kind) : buffer_(buffer), pool_(pool), kind_(kind) {}

    MechanismKind kind() const override { return kind_; }
    Status capture(Version version, CaptureCost &cost) override;
    void forward_ended(Version version) override;
    Status changed(Version version, ReplayView &view) override;
    void strays(const ReplayView &view, std::vector<Piece> &out) override;
    bool forward_wrote(Version version) const override;
    void release(Version version) override;
    void written_since_capture(std::vector<AddressRange> &runs) override;
    size_t outstanding() const override { return records_.size(); }
    size_t idle_bytes() const override { return records_.empty() && latest_ != nullptr ? latest_->image.size() : 0; }

  private:
    enum class Wrote : uint8_t { kUnknown, kNo, kYes };
    // Bytes of one capture or of several that were equal.
    struct Copy {
        Image image;
        uint32_t versions = 0;  // outstanding ones whose bytes these are
    };
    struct Record {
        Version version = 0;
        Wrote wrote = Wrote::kUnknown;
        Copy *copy = nullptr;        // one of copies_
        std::byte *bytes = nullptr;  // of the copy: one step less on the way to them, for each of many small buffers
    };
    void add(Version version);
    const void *live() const { return reinterpret_cast<const void *>(buffer_.range.begin); }
    uint32_t page_count() const { return static_cast<uint32_t>(buffer_.range.pages().size() / kPageSize); }
    Record *find(Version version);
    const Record *find(Version version) const;

    const Buffer &buffer_;
    ImagePool &pool_;
    MechanismKind kind_;
    bool filled_ = false;
    Copy *latest_ = nullptr;  // of the last capture; a small one is kept, though no version needs it, to compare with and to write over
    std::vector<Record> records_;  // ascending versions
    std::vector<std::unique_ptr<Copy>> copies_;
};

}  // namespace reprise
