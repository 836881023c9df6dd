#include <algorithm>

#include "kernels/kernels.h"
#include "tracker/dirty_source.h"

namespace reprise {
namespace {

class CompareSource final : public DirtySource {
  public:
    const char *name() const override { return "compare"; }
    bool sees_writes_without_effect() const override { return false; }
    bool start(AddressRange) override { return true; }
    void stop(AddressRange) override {}

    bool collect(AddressRange pages, AddressRange bytes, const std::byte *reference, bool /*reset*/,
                 std::vector<AddressRange> &written) override {
        AddressRange readable = pages.intersect(bytes);
        if (readable.empty()) return true;
        // Only whole pages go to the page kernel; the partial ones at the ends of a buffer are compared by their own bytes.
        AddressRange whole{page_ceil(readable.begin), page_floor(readable.end)};
        if (whole.empty()) whole = {readable.end, readable.end};
        if (readable.begin < whole.begin) compare_part({readable.begin, std::min(whole.begin, readable.end)}, readable, reference, written);
        if (!whole.empty()) {
            size_t count = whole.size() / kPageSize;
            bits_.assign((count + 7) / 8, 0);
            if (kernels::compare_pages(reinterpret_cast<const void *>(whole.begin), at(reference, readable, whole.begin), count,
                                       bits_.data()) != 0) {
                for (size_t page = 0; page < count; ++page) {
                    if (page % 8 == 0 && bits_[page / 8] == 0) {
                        page += 7;
                        continue;
                    }
                    if ((bits_[page / 8] >> (page % 8) & 1) != 0) append(written, whole.begin + page * kPageSize);
                }
            }
            if (whole.end < readable.end) compare_part({whole.end, readable.end}, readable, reference, written);
        }
        return true;
    }

  private:
    static const std::byte *at(const std::byte *reference, AddressRange readable, uintptr_t address) {
        return reference + (address - readable.begin);
    }
    static void compare_part(AddressRange part, AddressRange readable, const std::byte *reference, std::vector<AddressRange> &written) {
        if (kernels::equal(reinterpret_cast<const void *>(part.begin), at(reference, readable, part.begin), part.size())) return;
        for (uintptr_t page = page_floor(part.begin); page < part.end; page += kPageSize) append(written, page);
    }
    static void append(std::vector<AddressRange> &written, uintptr_t page) {
        if (!written.empty() && written.back().end == page) {
            written.back().end += kPageSize;
        } else {
            written.push_back({page, page + kPageSize});
        }
    }

    std::vector<uint8_t> bits_;
};

}  // namespace

std::unique_ptr<DirtySource> make_compare_source() { return std::make_unique<CompareSource>(); }

}  // namespace reprise
