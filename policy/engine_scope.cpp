// Scopes: which buffers a forward's contract names. Declared scope wins; with nothing declared it is learned.
#include <algorithm>
#include <cstring>

#include "policy/clock.h"
#include "policy/engine.h"
#include "policy/log.h"

namespace reprise {
namespace {

constexpr unsigned kKnownFlags = REPRISE_TRACK_CONCURRENT | 0xff00u;

BufferFlags flags_of(const reprise_scope_item &item) {
    BufferFlags flags;
    flags.parameter = (item.flags & REPRISE_ITEM_PARAMETER) != 0;
    flags.argument = (item.flags & REPRISE_ITEM_ARGUMENT) != 0;
    flags.generator = (item.flags & REPRISE_ITEM_GENERATOR) != 0;
    flags.concurrent = (item.flags & REPRISE_ITEM_CONCURRENT) != 0;
    auto element = static_cast<uint8_t>(item.flags >> 8 & 0xff);
    flags.element = element != 0 ? element : 1;
    return flags;
}

Status check_range(const void *address, size_t size) {
    if (address == nullptr) return Status::error(REPRISE_INVALID_ARGUMENT, "the address is NULL");
    if (size == 0) return Status::error(REPRISE_INVALID_ARGUMENT, "the size of the range at %p is 0", address);
    if (reinterpret_cast<uintptr_t>(address) + size < size) {
        return Status::error(REPRISE_INVALID_ARGUMENT, "the range %p + %zu wraps around the address space", address, size);
    }
    return {};
}

// Merging is by whole elements from the beginning of the buffer on.
Status check_element(const void *address, size_t size, unsigned element) {
    if (element > 16 || (element & (element - 1)) != 0) {
        return Status::error(REPRISE_INVALID_ARGUMENT, "the element size must be 1, 2, 4, 8 or 16, not %u", element);
    }
    if (element > 1 && (reinterpret_cast<uintptr_t>(address) % element != 0 || size % element != 0)) {
        return Status::error(
            REPRISE_INVALID_ARGUMENT,
            "the buffer at %p (%zu bytes) has elements of %u bytes: it must begin at a multiple of that and hold whole elements", address,
            size, element);
    }
    return {};
}

}  // namespace

Status Engine::check_items(const reprise_scope_item *items, size_t count) {
    if (items == nullptr && count != 0) return Status::error(REPRISE_INVALID_ARGUMENT, "items is NULL though count is %zu", count);
    for (size_t i = 0; i < count; ++i) {
        const reprise_scope_item &item = items[i];
        if (item.size == 0) continue;  // an empty tensor
        if (Status status = check_range(item.address, item.size); !status.ok()) return status;
        if ((item.flags & REPRISE_ITEM_CONCURRENT) == 0) continue;
        if (Status status = check_element(item.address, item.size, item.flags >> 8 & 0xff); !status.ok()) return status;
    }
    return {};
}

void Engine::add_range(Instance &instance, AddressRange range, const char *name, BufferFlags flags, bool optional, bool learned) {
    if (range.empty()) return;
    const size_t known = registry_.size();
    Buffer *buffer = registry_.obtain(range, name, flags);
    if (buffer == nullptr) {
        instance.refusals.push_back(format("buffer '%s' (%zu bytes) cannot be tracked: the table of declared ranges is full",
                                           name != nullptr ? name : "", range.size()));
        return;
    }
    if (registry_.size() != known && flags.parameter && range.size() >= kSmallBuffer) preservation_.count_parameter(*buffer);
    add_to_scope(instance, *buffer, optional, learned);
}

void Engine::add_to_scope(Instance &instance, Buffer &buffer, bool optional, bool learned) {
    if (buffer.last_window != window_) {
        buffer.last_window = window_;
        ++buffer.windows;
    }
    if (!can_read(buffer)) {
        instance.refusals.push_back(cannot_read(buffer).text());
        return;
    }
    if (buffer.outstanding() == 0) registry_.use(buffer, mechanism_for(buffer, instance, learned));

    Version version = 0;
    CaptureCost cost;
    PageRuns written;
    const bool measured = planning_.on();
    const uint64_t began = measured ? now_ns() : 0;
    if (measured) {
        planning_.uses(instance, buffer);
        cost.pages = &written;
        cost.planned = planning_.counts_on_pages();
        const auto planned = planning_.how(instance, buffer);
        buffer.expect_unchanged = planned && planned->unchanged;
    }
    Status status = registry_.capture(buffer, &version, cost);
    if (!status.ok() && buffer.outstanding() == 0) {
        buffer.watched_for_headroom = true;
        registry_.use(buffer, MechanismKind::kWatch);
        status = registry_.capture(buffer, &version, cost);
    }
    if (buffer.watched_for_headroom) {
        say_once(
            LogLevel::kWarn, "headroom " + buffer.name,
            format(
                "buffer '%s' (%s) is watched, not preserved: too little memory is left for a copy; if it changes, its replay is rejected",
                buffer.name.c_str(), human_bytes(buffer.range.size()).c_str()));
    }
    if (measured) {
        const uint64_t spent = elapsed_ns(began);
        forward_capture_ns_ += spent;
        planning_.wrote(buffer, written);
        if (buffer.mechanism->kind() == MechanismKind::kWhole) planning_.costs().copied(cost.copied, spent);
    }
    statistics_.bytes_preserved += cost.copied;
    statistics_.bytes_first_fill += cost.first_fill;
    if (status.ok()) {
        instance.scope.push_back({&buffer, version, optional});
    } else {
        instance.refusals.push_back(status.text());
    }
}

void Engine::learn_scope(Instance &instance) {
    struct Found {
        std::vector<AddressRange> blocks;
    } found;
    port_.for_each(
        [](void *context, const BlockInfo *block) {
            static_cast<Found *>(context)->blocks.push_back(block->range);
            return true;
        },
        &found);
    instance.scope.reserve(found.blocks.size());
    for (AddressRange block : found.blocks) add_range(instance, block, nullptr, {}, true, true);
    if (found.blocks.empty()) {
        say_once(
            LogLevel::kWarn, "nothing tracked",
            format(
                "segment '%s' began with nothing to protect: no allocation of this program is tracked and nothing is declared. Run it with "
                "LD_PRELOAD=libreprise.so, or declare its state with reprise_track()",
                instance.segment->name.c_str()));
    }
}

void Engine::resolve_scope(Instance &instance, const reprise_scope_item *items, size_t count, bool items_given) {
    ThreadState &self = thread_state();
    if (items_given) {
        instance.scope.reserve(count + declared_.size());
        for (size_t i = 0; i < count; ++i) {
            BufferFlags flags = flags_of(items[i]);
            add_range(instance, range_of(items[i].address, items[i].size), items[i].name, flags, flags.argument, false);
        }
    } else if (self.has_scope) {
        for (const reprise_range &range : self.scope) add_range(instance, range_of(range.address, range.size), nullptr, {}, false, false);
        self.has_scope = false;
        self.scope.clear();
    } else if (declared_.empty()) {
        learn_scope(instance);
        return;
    }
    instance.scope.reserve(instance.scope.size() + declared_.size());
    for (Buffer *buffer : declared_) {
        auto named = [&](const ScopeEntry &entry) { return entry.buffer == buffer; };
        if (items_given && std::any_of(instance.scope.begin(), instance.scope.end(), named)) continue;
        if (!registry_.live(*buffer)) {
            say_once(
                LogLevel::kWarn, "gone " + buffer->name,
                format(
                    "the declared buffer '%s' (%zu bytes) was freed or reallocated: it is no longer in scope; call reprise_untrack before "
                    "freeing, and reprise_track after allocating again",
                    buffer->name.c_str(), buffer->range.size()));
            continue;
        }
        add_to_scope(instance, *buffer, false, false);
    }
}

// The registry keeps declared buffers, dead ones too, until they are undeclared here.
void Engine::forget_dead_declarations(AddressRange range) {
    std::erase_if(declared_, [&](Buffer *buffer) {
        if (!buffer->range.meets(range) || registry_.live(*buffer)) return false;
        buffer->flags.declared = false;
        return true;
    });
}

Status Engine::track(void *address, size_t size, const char *name, unsigned flags) {
    if (Status status = check_range(address, size); !status.ok()) return status;
    if (name != nullptr && strnlen(name, REPRISE_NAME_MAX) >= REPRISE_NAME_MAX) {
        return Status::error(REPRISE_INVALID_ARGUMENT, "the buffer's name is longer than %d bytes: '%.40s...'", REPRISE_NAME_MAX - 1, name);
    }
    if ((flags & ~kKnownFlags) != 0) return Status::error(REPRISE_INVALID_ARGUMENT, "unknown flags %#x", flags & ~kKnownFlags);
    const unsigned element = flags >> 8 & 0xff;
    if (Status status = check_element(address, size, element); !status.ok()) return status;
    if (!readable(range_of(address, size))) {
        return Status::error(
            REPRISE_INVALID_ARGUMENT,
            "the range at %p (%zu bytes, '%s') cannot be read: it is not mapped, has no read permission, or lies behind the end "
            "of its file; declare memory that is mapped",
            address, size, name != nullptr ? name : "");
    }
    Lock lock(mutex_);
    forget_dead_declarations(range_of(address, size));  // of memory that was freed and given out again
    BufferFlags buffer_flags;
    buffer_flags.declared = true;
    buffer_flags.concurrent = (flags & REPRISE_TRACK_CONCURRENT) != 0;
    buffer_flags.element = static_cast<uint8_t>(element != 0 ? element : 1);
    Buffer *buffer = registry_.obtain(range_of(address, size), name, buffer_flags);
    if (buffer == nullptr) return Status::error(REPRISE_OUT_OF_MEMORY, "too many declared ranges; untrack those that are not needed");
    buffer->flags.concurrent = buffer_flags.concurrent;
    if (std::find(declared_.begin(), declared_.end(), buffer) == declared_.end()) declared_.push_back(buffer);
    return {};
}

Status Engine::untrack(void *address) {
    Lock lock(mutex_);
    auto found =
        std::find_if(declared_.begin(), declared_.end(), [&](Buffer *b) { return b->range.begin == reinterpret_cast<uintptr_t>(address); });
    if (found == declared_.end()) return Status::error(REPRISE_NOT_FOUND, "no declared buffer begins at %p", address);
    Buffer &buffer = **found;
    declared_.erase(found);
    const OwnWork work(*this);
    buffer.flags.declared = false;
    for (auto &[id, instance] : instances_) {
        for (const ScopeEntry &entry : instance->scope) {
            if (entry.buffer != &buffer) continue;
            instance->refusals.push_back(format("buffer '%s' was untracked (its generation ended) since the forward", buffer.name.c_str()));
            break;
        }
    }
    if (buffer.outstanding() == 0) registry_.forget(buffer);
    return {};
}

Status Engine::scope(const reprise_range *ranges, size_t count) {
    if (ranges == nullptr && count != 0) return Status::error(REPRISE_INVALID_ARGUMENT, "ranges is NULL though count is %zu", count);
    for (size_t i = 0; i < count; ++i) {
        if (Status status = check_range(ranges[i].address, ranges[i].size); !status.ok()) return status;
    }
    ThreadState &self = thread_state();
    self.scope.assign(ranges, ranges + count);
    self.has_scope = true;
    return {};
}

Status Engine::state(const char *name, reprise_state_save save, reprise_state_load load, void *context) {
    if (name == nullptr || *name == 0) return Status::error(REPRISE_INVALID_ARGUMENT, "a state provider needs a name");
    if (strnlen(name, REPRISE_NAME_MAX) >= REPRISE_NAME_MAX)
        return Status::error(REPRISE_INVALID_ARGUMENT, "the provider's name is too long");
    if ((save == nullptr) != (load == nullptr)) {
        return Status::error(REPRISE_INVALID_ARGUMENT, "provider '%s' needs both callbacks, or neither to be removed", name);
    }
    Lock lock(mutex_);
    auto found = std::find_if(providers_.begin(), providers_.end(), [&](const Provider &p) { return p.name == name; });
    if (save == nullptr) {
        if (found == providers_.end()) return Status::error(REPRISE_NOT_FOUND, "there is no state provider '%s'", name);
        providers_.erase(found);
        return {};
    }
    if (found == providers_.end()) found = providers_.insert(providers_.end(), Provider{name, nullptr, nullptr, nullptr});
    found->save = save;
    found->load = load;
    found->context = context;
    return {};
}

Status Engine::write_intent(const void *address, size_t size) {
    if (Status status = check_range(address, size); !status.ok()) return status;
    Lock lock(mutex_);
    const OwnWork work(*this);
    AddressRange range = range_of(address, size);
    registry_.for_each_meeting(range, [&](Buffer &buffer) {
        if (buffer.mechanism && registry_.live(buffer)) buffer.mechanism->write_intent(range);
    });
    return {};
}

Status Engine::buffer_info(const void *address, reprise_buffer *out, reprise_range *runs, size_t *run_count) {
    if (out == nullptr) return Status::error(REPRISE_INVALID_ARGUMENT, "buffer is NULL");
    if (runs != nullptr && run_count == nullptr) return Status::error(REPRISE_INVALID_ARGUMENT, "run_count is NULL though runs is not");
    Lock lock(mutex_);
    Buffer *buffer = registry_.find(reinterpret_cast<uintptr_t>(address));
    BlockInfo block;
    std::vector<AddressRange> dirty;
    reprise_buffer info{};
    if (buffer != nullptr) {
        info.address = reinterpret_cast<void *>(buffer->range.begin);
        info.size = buffer->range.size();
        info.generation = buffer->generation;
        if (buffer->mechanism && can_read(*buffer)) buffer->mechanism->written_since_capture(dirty);
        // A write since the last cut is a version of its own already.
        info.version = buffer->write_version + (dirty.empty() ? 0 : 1);
        snprintf(info.name, sizeof info.name, "%s", buffer->name.c_str());
        snprintf(info.mechanism, sizeof info.mechanism, "%s", buffer->mechanism ? to_string(buffer->mechanism->kind()) : "none");
    } else if (port_.find(reinterpret_cast<uintptr_t>(address), &block)) {
        info.address = reinterpret_cast<void *>(block.range.begin);
        info.size = block.range.size();
        info.generation = block.generation;
        info.version = 1;
        snprintf(info.mechanism, sizeof info.mechanism, "none");
    } else {
        return Status::error(REPRISE_NOT_FOUND, "no tracked buffer holds the address %p", address);
    }
    *out = info;
    if (run_count != nullptr) {
        for (size_t i = 0; runs != nullptr && i < dirty.size() && i < *run_count; ++i) {
            runs[i] = {reinterpret_cast<void *>(dirty[i].begin), dirty[i].size()};
        }
        *run_count = dirty.size();
    }
    return {};
}

}  // namespace reprise
