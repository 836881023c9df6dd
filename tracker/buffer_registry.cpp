#include "tracker/buffer_registry.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "tracker/mechanisms/image_mechanism.h"
#include "tracker/mechanisms/shadow_mechanism.h"
#include "tracker/mechanisms/watch_mechanism.h"

namespace reprise {
namespace {

// A buffer that no window used for this long is forgotten; if it comes back it is filled anew.
constexpr uint64_t kForgetWindows = 64;

// Small, and not on a page of its own: it lies in a heap, and whoever took its pages away would take other things with them.
bool shares_its_pages(AddressRange range) { return range.size() < kSmallBuffer && range.begin % kPageSize != 0; }

}  // namespace

BufferRegistry::BufferRegistry(const AllocatorPort &port, ImagePool &pool, std::unique_ptr<DirtySource> guard)
    : port_(port), pool_(pool), guard_(std::move(guard)), compare_(make_compare_source()) {}

BufferRegistry::~BufferRegistry() {
    for (auto &[key, buffer] : by_address_) destroy(*buffer);
    for (auto &buffer : retired_) destroy(*buffer);
}

void BufferRegistry::destroy(Buffer &buffer) {
    buffer.dead = !live(buffer);
    buffer.mechanism.reset();
    count_idle(buffer);
    auto owner = guard_owner_.find(buffer.generation);
    if (owner != guard_owner_.end() && owner->second == buffer.id) guard_owner_.erase(owner);
    if (buffer.own_declaration) port_.undeclare(buffer.range.begin, buffer.generation);
    buffer.own_declaration = false;
}

void BufferRegistry::count_idle(Buffer &buffer) {
    const size_t now = buffer.mechanism && !buffer.held_by_plan ? buffer.mechanism->idle_bytes() : 0;
    idle_bytes_ += now - buffer.idle_bytes;
    buffer.idle_bytes = now;
}

void BufferRegistry::hold_by_plan(Buffer &buffer, bool held) {
    buffer.held_by_plan = held;
    count_idle(buffer);
}

void BufferRegistry::let_idle_go() {
    if (idle_bytes_ == 0) return;
    for (auto &[key, buffer] : by_address_) {
        if (buffer->idle_bytes != 0) use(*buffer, MechanismKind::kWatch);
    }
    for (auto &buffer : retired_) {
        if (buffer->idle_bytes != 0) use(*buffer, MechanismKind::kWatch);
    }
}

void BufferRegistry::retire(std::unique_ptr<Buffer> buffer) {
    buffer->dead = true;
    if (buffer->outstanding() == 0 && !buffer->flags.declared) {
        destroy(*buffer);
        return;
    }
    retired_.push_back(std::move(buffer));
}

Buffer *BufferRegistry::obtain(AddressRange range, const char *name, BufferFlags flags) {
    const Key key{range.begin, range.size()};
    auto found = by_address_.find(key);
    if (found != by_address_.end()) {
        Buffer &buffer = *found->second;
        if (live(buffer)) {
            buffer.flags.parameter = flags.parameter;
            buffer.flags.concurrent |= flags.concurrent;
            buffer.flags.declared |= flags.declared;
            buffer.flags.argument &= flags.argument;
            if (flags.concurrent) buffer.flags.element = flags.element;
            if (flags.declared && name != nullptr) buffer.name = name;
            return &buffer;
        }
        std::unique_ptr<Buffer> old = std::move(found->second);
        index_.remove(*old);
        by_address_.erase(found);
        retire(std::move(old));
    }
    auto buffer = std::make_unique<Buffer>();
    buffer->id = next_id_++;
    buffer->range = range;
    buffer->flags = flags;
    BlockInfo block;
    // Not another declaration's generation: that one may be withdrawn before this.
    if (port_.find(range.begin, &block) && block.origin != Origin::kDeclared && range.end <= block.range.end) {
        buffer->generation = block.generation;
        buffer->origin = block.origin;
    } else {
        buffer->generation = port_.declare(range);
        if (buffer->generation == 0) return nullptr;
        buffer->origin = Origin::kDeclared;
        buffer->own_declaration = true;
        buffer->may_fault = !shares_its_pages(range) || !readable(range);
    }
    if (name != nullptr && *name != 0) {
        buffer->name = name;
    } else {
        char text[48];
        snprintf(text, sizeof text, "%#zx+%zu", static_cast<size_t>(range.begin), range.size());
        buffer->name = text;
    }
    index_.add(*buffer);
    return by_address_.emplace(key, std::move(buffer)).first->second.get();
}

Buffer *BufferRegistry::find(uintptr_t address) {
    Buffer *best = nullptr;
    index_.for_each_meeting({address, address + 1}, [&](Buffer &buffer) {
        if (!live(buffer)) return;
        const bool better = best == nullptr || (buffer.flags.declared != best->flags.declared ? buffer.flags.declared
                                                                                              : buffer.range.size() < best->range.size());
        if (better) best = &buffer;
    });
    return best;
}

bool BufferRegistry::claim_guard(const Buffer &buffer) {
    if (guard_ == nullptr || buffer.origin != Origin::kArena) return false;
    auto [owner, fresh] = guard_owner_.emplace(buffer.generation, buffer.id);
    return fresh || owner->second == buffer.id;
}

void BufferRegistry::use(Buffer &buffer, MechanismKind kind) {
    if (buffer.mechanism && (buffer.mechanism->kind() == kind || buffer.mechanism->outstanding() != 0)) return;
    if (buffer.mechanism) ++buffer.write_version;  // what it knew about writes goes with it
    buffer.mechanism.reset();
    switch (kind) {
        case MechanismKind::kSmall:
        case MechanismKind::kWhole:
            buffer.mechanism = std::make_unique<ImageMechanism>(buffer, pool_, kind);
            break;
        case MechanismKind::kShadow:
            buffer.mechanism = std::make_unique<ShadowMechanism>(buffer, pool_, claim_guard(buffer) ? guard_.get() : nullptr, *compare_);
            break;
        case MechanismKind::kWatch:
            buffer.mechanism = std::make_unique<WatchMechanism>(buffer);
            break;
        case MechanismKind::kNone:
            break;
    }
    count_idle(buffer);
}

Status BufferRegistry::capture(Buffer &buffer, Version *version, CaptureCost &cost) {
    *version = 0;
    const Version next = buffer.newest + 1;
    const uint64_t before = cost.copied - cost.first_fill;
    cost.written = false;
    const Status status = buffer.mechanism->capture(next, cost);
    count_idle(buffer);
    if (!status.ok()) return status;
    buffer.newest = next;
    if (cost.written || cost.copied - cost.first_fill != before) ++buffer.write_version;
    *version = next;
    return {};
}

void BufferRegistry::release(Buffer &buffer, Version version) {
    if (buffer.mechanism && version != 0) buffer.mechanism->release(version);
    count_idle(buffer);
    // An argument lives for one instance: nothing of it is worth keeping.
    if (buffer.flags.argument && !buffer.flags.declared && buffer.outstanding() == 0) forget(buffer);
}

void BufferRegistry::forget(Buffer &buffer) {
    auto found = by_address_.find(Key{buffer.range.begin, buffer.range.size()});
    if (found != by_address_.end() && found->second.get() == &buffer) {
        index_.remove(buffer);
        destroy(buffer);
        by_address_.erase(found);
        return;
    }
    auto retired = std::find_if(retired_.begin(), retired_.end(), [&](const auto &b) { return b.get() == &buffer; });
    if (retired == retired_.end()) return;
    destroy(buffer);
    retired_.erase(retired);
}

uint64_t BufferRegistry::endings() const {
    uint64_t endings = 0;
    for (Origin origin : {Origin::kArena, Origin::kHeap, Origin::kDeclared}) endings += port_.endings(origin);
    return endings;
}

void BufferRegistry::window_ended(uint64_t window) {
    // Nothing can be dead while no generation ended, and what is merely unused may wait.
    const uint64_t ended = endings();
    if (ended == swept_at_ && window % kForgetWindows != 0) return;
    swept_at_ = ended;
    std::erase_if(retired_, [&](const auto &buffer) {
        if (buffer->outstanding() != 0 || buffer->flags.declared) return false;
        destroy(*buffer);
        return true;
    });
    std::erase_if(by_address_, [&](const auto &entry) {
        Buffer &buffer = *entry.second;
        if (buffer.outstanding() != 0) return false;
        if (buffer.flags.declared) return false;  // until whoever declared it has let it go
        const bool unused = buffer.last_window + kForgetWindows < window;
        if (!unused && live(buffer)) return false;
        index_.remove(buffer);
        destroy(buffer);
        return true;
    });
}

void BufferRegistry::for_each_meeting(AddressRange range, const std::function<void(Buffer &)> &visit) {
    index_.for_each_meeting(range, visit);
}

Status cannot_read(const Buffer &buffer) {
    return Status::error(
        REPRISE_REJECTED,
        "buffer '%s' (%zu bytes at %#zx) cannot be read: it is not mapped, has no read permission, or its file was cut short; "
        "call reprise_untrack before its memory is taken away",
        buffer.name.c_str(), buffer.range.size(), static_cast<size_t>(buffer.range.begin));
}

Status cannot_write(const Buffer &buffer) {
    return Status::error(REPRISE_REJECTED,
                         "buffer '%s' (%zu bytes at %#zx) has changed since the forward and cannot be written back: it was made read-only, "
                         "unmapped, or its file was cut short; keep it writable until the backward has run",
                         buffer.name.c_str(), buffer.range.size(), static_cast<size_t>(buffer.range.begin));
}

}  // namespace reprise
