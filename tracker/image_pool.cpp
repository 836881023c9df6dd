#include "tracker/image_pool.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

namespace reprise {
namespace {

// From here on an image is a mapping of its own.
constexpr size_t kMappedImage = size_t{256} << 10;
// Left to the job when we take memory: its own allocations must not be the ones that fail.
constexpr size_t kReserve = size_t{32} << 20;
constexpr unsigned kPeakWindows = 16;
// After this many windows a job has shown its peak; before, preserving may take one part in so many of what its group still allows.
constexpr unsigned kPeakKnownAfter = 2;
constexpr uint64_t kShareBeforePeak = 16;
constexpr std::align_val_t kAlignment{64};

struct ResidentMemory {
    uint64_t now = 0;
    uint64_t peak = 0;
};

uint64_t kib_after(const char *text, const char *key) {
    const char *found = strstr(text, key);
    return found != nullptr ? strtoull(found + strlen(key), nullptr, 10) * 1024 : 0;
}

ResidentMemory resident_memory() {
    char text[4096];
    int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    if (file < 0) return {};
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    if (length <= 0) return {};
    text[length] = 0;
    return {kib_after(text, "VmRSS:"), kib_after(text, "VmHWM:")};
}

size_t mapping_size(size_t size) {
    size_t unit = size >= 8 * kHugePageSize ? kHugePageSize : kPageSize;
    return (size + unit - 1) / unit * unit;
}

}  // namespace

Image::Image(Image &&other) noexcept { *this = std::move(other); }

Image &Image::operator=(Image &&other) noexcept {
    if (this == &other) return *this;
    reset();
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    capacity_ = std::exchange(other.capacity_, 0);
    kind_ = other.kind_;
    pool_ = std::exchange(other.pool_, nullptr);
    return *this;
}

void Image::reset() {
    if (data_ == nullptr) return;
    pool_->give_back(*this);
    data_ = nullptr;
    size_ = 0;
    pool_ = nullptr;
}

ImagePool::~ImagePool() { trim(); }

bool ImagePool::has_headroom(size_t size, LedgerKind kind) const {
    const size_t free = std::min<size_t>(headroom_limit_, port_.headroom());
    if (free <= kReserve || size > free - kReserve) return false;
    const uint64_t group = port_.group_headroom();
    if (group == ~uint64_t{0} || kind == LedgerKind::kPresent) return true;
    // A control group kills at its limit. The job's peak decides, and it is not known before the job has gone round once.
    if (windows_ < kPeakKnownAfter) return live_ + kept_bytes_ + size <= (group + live_ + kept_bytes_) / kShareBeforePeak;
    const ResidentMemory resident = resident_memory();
    const uint64_t down_from_peak = resident.peak > resident.now ? resident.peak - resident.now : 0;
    return group > down_from_peak + kReserve && size <= group - down_from_peak - kReserve;
}

Image ImagePool::allocate(size_t size, LedgerKind kind) {
    Image image;
    if (size == 0) return image;
    if (size < kMappedImage) {
        if (headroom_limit_ < size) return image;
        image.data_ = static_cast<std::byte *>(::operator new(size, kAlignment, std::nothrow));
        if (image.data_ == nullptr) return image;
    } else {
        size_t capacity = mapping_size(size);
        auto kept = kept_.lower_bound(capacity);
        if (kept != kept_.end() && kept->first <= capacity + capacity / 8) {
            image.data_ = kept->second;
            capacity = kept->first;
            kept_bytes_ -= capacity;
            port_.ledger_add(LedgerKind::kPools, -static_cast<int64_t>(capacity));
            kept_.erase(kept);
        } else {
            // What is kept for reuse must not push the sum over what was needed at once.
            while (!kept_.empty() && live_ + kept_bytes_ + capacity > recent_peak_) unmap(kept_.begin());
            if (!has_headroom(capacity, kind)) {
                trim();
                port_.trim();
                if (!has_headroom(capacity, kind)) return image;
            }
            void *mapping = mmap(nullptr, capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            if (mapping == MAP_FAILED) return image;
            if (capacity >= kHugePageSize) madvise(mapping, capacity, MADV_HUGEPAGE);
            image.data_ = static_cast<std::byte *>(mapping);
        }
        image.capacity_ = capacity;
    }
    image.size_ = size;
    image.kind_ = kind;
    image.pool_ = this;
    size_t held = image.capacity_ != 0 ? image.capacity_ : size;
    live_ += held;
    live_peak_ = std::max(live_peak_, live_);
    window_peak_ = std::max(window_peak_, live_);
    recent_peak_ = std::max(recent_peak_, live_);
    port_.ledger_add(kind, static_cast<int64_t>(held));
    return image;
}

void ImagePool::give_back(Image &image) {
    size_t held = image.capacity_ != 0 ? image.capacity_ : image.size_;
    live_ -= held;
    port_.ledger_add(image.kind_, -static_cast<int64_t>(held));
    if (image.capacity_ == 0) {
        ::operator delete(image.data_, kAlignment);
        return;
    }
    kept_.emplace(image.capacity_, image.data_);
    kept_bytes_ += image.capacity_;
    port_.ledger_add(LedgerKind::kPools, static_cast<int64_t>(image.capacity_));
}

void ImagePool::unmap(std::multimap<size_t, std::byte *>::iterator kept) {
    munmap(kept->second, kept->first);
    kept_bytes_ -= kept->first;
    port_.ledger_add(LedgerKind::kPools, -static_cast<int64_t>(kept->first));
    kept_.erase(kept);
}

void ImagePool::window_ended() {
    if (++windows_ % kPeakWindows != 0) return;
    recent_peak_ = std::max(window_peak_, live_);
    window_peak_ = live_;
    while (!kept_.empty() && live_ + kept_bytes_ > recent_peak_) unmap(kept_.begin());
}

void ImagePool::trim() {
    while (!kept_.empty()) unmap(kept_.begin());
}

}  // namespace reprise
