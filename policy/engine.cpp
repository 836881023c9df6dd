#include "policy/engine.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "policy/log.h"

namespace reprise {
namespace {

pthread_key_t state_key;
__thread ThreadState *state_of_thread __attribute__((tls_model("initial-exec"))) = nullptr;

std::unique_ptr<DirtySource> choose_guard(const AllocatorPort &port, const Config &config) {
    if (config.force_compare || config.policy == Policy::kOff) return nullptr;
    std::unique_ptr<DirtySource> guard = make_write_protect_source(port);
    if (!guard) {
        GuardCapabilities capabilities;
        port.guard_probe(&capabilities);
        log_line(LogLevel::kWarn,
                 format("page writes cannot be tracked here (%s): buffers are compared instead, at the cost of reading them",
                        capabilities.reason));
    }
    return guard;
}

}  // namespace

ThreadState &thread_state() {
    if (state_of_thread == nullptr) {
        static const int created = pthread_key_create(&state_key, [](void *state) {
            auto *leaving = static_cast<ThreadState *>(state);
            if (leaving->engine != nullptr) leaving->engine->thread_exits();
            delete leaving;
            state_of_thread = nullptr;
        });
        state_of_thread = new ThreadState;
        if (created == 0) pthread_setspecific(state_key, state_of_thread);
    }
    return *state_of_thread;
}

Engine::Engine(const AllocatorPort &port, Config config)
    : port_(port),
      config_(std::move(config)),
      pool_(port),
      registry_(port, pool_, choose_guard(port, config_)),
      preservation_(config_.plans() ? Policy::kSelective : config_.policy, pool_),
      records_(config_.records),
      planning_(port_, config_, records_) {
    planning_.costs().set_watches(registry_.guard() != nullptr);
    for (const std::string &complaint : config_.complaints) log_line(LogLevel::kError, complaint);
}

int Engine::mode() const {
    switch (config_.policy) {
        case Policy::kOff:
            return 0;
        case Policy::kAudit:
            return 1;
        default:
            return planning_.on() ? 3 : 2;
    }
}

size_t Engine::replay_dirty(uint64_t execution, reprise_range *ranges, size_t capacity) {
    Lock lock(mutex_);
    auto found = executions_.find(execution);
    if (found == executions_.end() || !found->second->replay) return 0;
    std::vector<AddressRange> dirty = found->second->replay->ranges();
    for (size_t i = 0; i < dirty.size() && i < capacity; ++i) ranges[i] = {reinterpret_cast<void *>(dirty[i].begin), dirty[i].size()};
    return dirty.size();
}

Status Engine::note_generator(uint64_t id, const char *provider, const void *state, size_t size) {
    if (provider == nullptr || (state == nullptr && size != 0)) return Status::error(REPRISE_INVALID_ARGUMENT, "provider or state is NULL");
    Lock lock(mutex_);
    if (!records_.wanted()) return {};
    Status why;
    Instance *instance = find_instance(id, &why);
    if (instance == nullptr) return why;
    instance->generators.push_back({provider, kernels::digest(state, size)});
    return {};
}

void Engine::fork_child() {
    Lock lock(mutex_, std::adopt_lock);  // by fork_prepare()
    kernels::set_parallel(nullptr, 1);
    new (&replay_ended_) std::condition_variable();
    forget_other_threads();
    // Its records are a run of their own, which names its contracts itself.
    records_.new_run();
    work_depth_ = 0;
    boundary_pending_ = false;
    planning_.fork_child(own_bytes());
    for (const auto &[name, segment] : segments_) {
        segment->contract_digest = 0;
        segment->contracts = 0;
    }
}

}  // namespace reprise
