#include "tracker/dirty_source.h"

namespace reprise {
namespace {

constexpr size_t kBatch = 4096;

class WriteProtectSource final : public DirtySource {
  public:
    explicit WriteProtectSource(const AllocatorPort &port) : port_(port), batch_(kBatch) {}

    const char *name() const override { return "wp-async"; }
    bool sees_writes_without_effect() const override { return true; }
    bool start(AddressRange pages) override { return port_.guard_arm(pages) == GuardResult::kOk; }
    void stop(AddressRange pages) override { port_.guard_disarm(pages); }

    bool collect(AddressRange pages, AddressRange /*bytes*/, const std::byte * /*reference*/, bool reset,
                 std::vector<AddressRange> &written) override {
        AddressRange rest = pages;
        while (!rest.empty()) {
            size_t count = 0;
            if (port_.guard_collect(rest, reset, batch_.data(), batch_.size(), &count) != GuardResult::kOk) return false;
            size_t stored = count < batch_.size() ? count : batch_.size();
            written.insert(written.end(), batch_.begin(), batch_.begin() + static_cast<ptrdiff_t>(stored));
            if (stored < batch_.size()) break;
            rest.begin = batch_[stored - 1].end;
        }
        return true;
    }

  private:
    const AllocatorPort &port_;
    std::vector<AddressRange> batch_;
};

}  // namespace

std::unique_ptr<DirtySource> make_write_protect_source(const AllocatorPort &port) {
    GuardCapabilities capabilities;
    port.guard_probe(&capabilities);
    if (!capabilities.write_protect_async) return nullptr;
    return std::make_unique<WriteProtectSource>(port);
}

}  // namespace reprise
