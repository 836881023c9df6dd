// Verification that does not trust the tracker: REPRISE_VERIFY=bytes copies the scope by plain memcpy at F, =digest digests it, and both
// compare after the load of B.
#include <cstring>

#include "policy/engine.h"
#include "policy/log.h"

namespace reprise {

void Engine::witness(Instance &instance) {
    instance.witnesses.resize(instance.scope.size());
    for (size_t i = 0; i < instance.scope.size(); ++i) {
        AddressRange range = instance.scope[i].buffer->range;
        Witness &witness = instance.witnesses[i];
        if (!can_read(*instance.scope[i].buffer)) continue;
        const void *live = reinterpret_cast<const void *>(range.begin);
        witness.digest = kernels::digest128(live, range.size());
        witness.present = true;
        if (config_.verify != Verify::kBytes) continue;
        witness.bytes = pool_.allocate(range.size(), LedgerKind::kPools);
        if (witness.bytes) {
            memcpy(witness.bytes.data(), live, range.size());
        } else {
            say_once(LogLevel::kWarn, "verify memory",
                     "REPRISE_VERIFY=bytes: too little memory for a copy of everything; large buffers are verified by digest");
        }
    }
}

Status Engine::verify_loaded(const Instance &instance) const {
    for (size_t i = 0; i < instance.witnesses.size(); ++i) {
        const ScopeEntry &entry = instance.scope[i];
        const Witness &witness = instance.witnesses[i];
        const Buffer &buffer = *entry.buffer;
        if (!witness.present || !registry_.live(buffer) || !can_read(buffer)) continue;
        const void *live = reinterpret_cast<const void *>(buffer.range.begin);
        bool same = witness.bytes ? memcmp(witness.bytes.data(), live, buffer.range.size()) == 0
                                  : kernels::digest128(live, buffer.range.size()) == witness.digest;
        if (same) continue;
        size_t offset = 0;
        if (witness.bytes) {
            const auto *a = static_cast<const std::byte *>(live);
            while (offset < buffer.range.size() && a[offset] == witness.bytes.data()[offset]) ++offset;
        }
        return Status::error(
            REPRISE_REJECTED,
            "verification failed: after the load, buffer '%s' (%zu bytes, mechanism %s) does not hold the forward's bytes%s; please "
            "report this, and use REPRISE_POLICY=whole meanwhile",
            buffer.name.c_str(), buffer.range.size(), to_string(buffer.mechanism->kind()),
            witness.bytes ? format(" (first at offset %zu)", offset).c_str() : "");
    }
    return {};
}

}  // namespace reprise
