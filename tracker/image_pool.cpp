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
    home_ = other.home_;
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
    image.size_ = size;
    if (!take(image, kind)) return {};
    image.kind_ = kind;
    image.pool_ = this;
    live_ += image.capacity_;
    live_peak_ = std::max(live_peak_, live_);
    peak_.reach(live_);
    if (kind != LedgerKind::kPresent) lasting_peak_.reach(lasting_ += image.capacity_);
    port_.ledger_add(kind, static_cast<int64_t>(image.capacity_));
    return image;
}

bool ImagePool::take(Image &image, LedgerKind kind) {
    if (image.size_ < kSmallBuffer) {
        if (headroom_limit_ < image.size_) return false;
        image.capacity_ = image.size_;
        image.data_ = static_cast<std::byte *>(::operator new(image.size_, kAlignment, std::nothrow));
        return image.data_ != nullptr;
    }
    if (take_kept(image)) return true;
    image.capacity_ = page_ceil(image.size_);
    // What is kept for reuse must not push the sum over what was needed at once.
    while (!kept_.empty() && live_ + kept_bytes_ + image.capacity_ > peak_.recent) unmap(kept_.begin());
    if (!make_room(image.capacity_, kind)) return false;
    image.home_ = Image::Home::kArena;
    image.data_ = static_cast<std::byte *>(port_.borrow(image.capacity_));
    if (image.data_ != nullptr) return true;
    const size_t capacity = mapping_size(image.size_);
    void *mapping = mmap(nullptr, capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) return false;
    if (capacity >= kHugePageSize) madvise(mapping, capacity, MADV_HUGEPAGE);
    image.home_ = Image::Home::kMapping;
    image.capacity_ = capacity;
    image.data_ = static_cast<std::byte *>(mapping);
    return true;
}

// Memory that the arenas have at hand is no exception: the job has freed it, and comes back for it. What was held lately is not asked for
// again, until there was too little once: it lies in the arenas, where asking would count it as taken.
bool ImagePool::make_room(size_t size, LedgerKind kind) {
    const bool held_lately = kind == LedgerKind::kPresent ? live_ + size <= peak_.recent : lasting_ + size <= lasting_peak_.recent;
    if ((held_lately && size <= headroom_limit_) || has_headroom(size, kind)) return true;
    peak_ = {live_, live_};
    lasting_peak_ = {lasting_, lasting_};
    trim();
    port_.trim();
    return has_headroom(size, kind);
}

bool ImagePool::take_kept(Image &image) {
    const size_t capacity = mapping_size(image.size_);
    auto kept = kept_.lower_bound(capacity);
    if (kept == kept_.end() || kept->first > capacity + capacity / 8) return false;
    image.home_ = Image::Home::kMapping;
    image.capacity_ = kept->first;
    image.data_ = kept->second;
    kept_bytes_ -= kept->first;
    port_.ledger_add(LedgerKind::kPools, -static_cast<int64_t>(kept->first));
    kept_.erase(kept);
    return true;
}

void ImagePool::give_back(Image &image) {
    live_ -= image.capacity_;
    if (image.kind_ != LedgerKind::kPresent) lasting_ -= image.capacity_;
    port_.ledger_add(image.kind_, -static_cast<int64_t>(image.capacity_));
    switch (image.home_) {
        case Image::Home::kHeap:
            ::operator delete(image.data_, kAlignment);
            break;
        case Image::Home::kArena:
            port_.give_back(image.data_);
            break;
        case Image::Home::kMapping:
            kept_.emplace(image.capacity_, image.data_);
            kept_bytes_ += image.capacity_;
            port_.ledger_add(LedgerKind::kPools, static_cast<int64_t>(image.capacity_));
            break;
    }
}

void ImagePool::unmap(std::multimap<size_t, std::byte *>::iterator kept) {
    munmap(kept->second, kept->first);
    kept_bytes_ -= kept->first;
    port_.ledger_add(LedgerKind::kPools, -static_cast<int64_t>(kept->first));
    kept_.erase(kept);
}

void ImagePool::window_ended() {
    if (++windows_ % kPeakWindows != 0) return;
    peak_.window_ended(live_);
    lasting_peak_.window_ended(lasting_);
    while (!kept_.empty() && live_ + kept_bytes_ > peak_.recent) unmap(kept_.begin());
}

void ImagePool::trim() {
    while (!kept_.empty()) unmap(kept_.begin());
}

}  // namespace reprise
