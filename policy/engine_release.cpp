// How instances end: released, aborted, left behind by a thread, let go because nobody will replay them; and the window with the last.
#include <algorithm>

#include "policy/engine.h"
#include "policy/log.h"

namespace reprise {
namespace {

constexpr uint64_t kUnmanagedSteps = 2;
constexpr uint64_t kUnmanagedForwards = 256;

}  // namespace

// Providers run without the lock: whatever the caller holds by reference must be found again.
void Engine::put_back_states(Lock &lock, const std::vector<SavedState> &present) {
    if (present.empty()) return;
    const OthersWork others(*this);
    lock.unlock();
    Status status = load_states(present, {});
    lock.lock();
    if (!status.ok()) log_line(LogLevel::kError, format("%s (putting back after a replay)", status.text()));
}

// Forgets an execution that will never be ended. A replay's bytes are put back; what its providers are to be put back to is returned.
std::vector<SavedState> Engine::abandon(uint64_t id) {
    auto found = executions_.find(id);
    if (found == executions_.end()) return {};
    const std::unique_ptr<Execution> execution = std::move(found->second);
    executions_.erase(found);
    std::erase(thread_state().open_replays, id);
    auto instance = instances_.find(execution->instance);
    if (!execution->is_replay) {
        if (instance != instances_.end()) end_forward(*instance->second);
        return {};
    }
    finish_replay(*execution);
    if (instance != instances_.end()) {
        instance->second->open_replays -= 1;
        if (instance->second->release_pending && instance->second->open_replays == 0) drop(*instance->second);
    }
    return std::move(execution->present_states);
}

// Innermost first.
std::vector<uint64_t> Engine::executions_where(const std::function<bool(const Execution &)> &wanted) const {
    std::vector<uint64_t> ids;
    for (const auto &[id, execution] : executions_) {
        if (wanted(*execution)) ids.push_back(id);
    }
    std::sort(ids.rbegin(), ids.rend());
    return ids;
}

// Those of the instance, after those that were begun inside them: they hold what it had loaded as their present.
void Engine::abandon_open_replays(Lock &lock, uint64_t instance) {
    const std::vector<uint64_t> outer = executions_where([&](const Execution &e) { return e.is_replay && e.instance == instance; });
    auto inside = [&](const Execution &e) {
        return e.is_replay && std::any_of(outer.begin(), outer.end(), [&](uint64_t id) {
                   return id <= e.id && pthread_equal(executions_.at(id)->thread, e.thread) != 0;
               });
    };
    for (uint64_t id : executions_where(inside)) put_back_states(lock, abandon(id));
}

// Nobody else may end what this thread began, and the next thread may get its pthread_t: its replays are put back, its forwards ended.
void Engine::thread_exits() {
    Lock lock(mutex_);
    for (uint64_t id : executions_where([](const Execution &e) { return pthread_equal(e.thread, pthread_self()) != 0; })) {
        auto found = executions_.find(id);
        auto instance = found != executions_.end() ? instances_.find(found->second->instance) : instances_.end();
        if (instance != instances_.end() && found->second->is_replay) {
            const std::string &name = instance->second->segment->name;
            say_once(LogLevel::kWarn, "thread " + name,
                     format("segment '%s': a thread exited without ending its replay, which was put back; end or abort it on that thread",
                            name.c_str()));
        }
        put_back_states(lock, abandon(id));
    }
}

// In a forked child only the forking thread goes on: what the others had loaded is put back, or the child would keep old bytes for ever.
// States of providers stay as they are: a handler of fork is no place for the job's code.
void Engine::forget_other_threads() {
    for (uint64_t id : executions_where([](const Execution &e) { return pthread_equal(e.thread, pthread_self()) == 0; })) {
        (void)abandon(id);
    }
}

Status Engine::segment_abort(uint64_t id) {
    Lock lock(mutex_);
    Status why;
    if (instances_.find(id) == instances_.end()) {
        find_instance(id, &why);
        return why;
    }
    abandon_open_replays(lock, id);
    std::erase_if(executions_, [&](const auto &entry) { return !entry.second->is_replay && entry.second->instance == id; });
    // While providers were put back, another thread may have let it go, or may have begun a replay: that one ends first.
    auto found = instances_.find(id);
    if (found == instances_.end()) return {};
    found->second->release_pending = true;
    if (found->second->open_replays == 0) drop(*found->second);
    return {};
}

Status Engine::release(uint64_t id) {
    Lock lock(mutex_);
    auto found = instances_.find(id);
    if (found == instances_.end()) {
        Status why;
        find_instance(id, &why);
        return why.code() == REPRISE_RELEASED ? Status() : why;
    }
    Instance &instance = *found->second;
    if (instance.open_replays != 0) {
        instance.release_pending = true;
        return {};
    }
    if (instance.state == Instance::State::kForward) {
        std::erase_if(executions_, [&](const auto &entry) { return entry.second->instance == id; });
    }
    drop(instance);
    return {};
}

void Engine::drop(Instance &instance) {
    OwnWork work(*this);
    const bool retained = instance.retained;
    if (retained) remember_retained(instance.id);
    for (const ScopeEntry &entry : instance.scope) registry_.release(*entry.buffer, entry.version);
    instance.segment->unmanaged.erase(instance.id);
    instances_.erase(instance.id);
    if (retained && !in_window_) boundary_if_due(false);  // it had no window that could end
    window_may_have_ended();
}

void Engine::window_may_have_ended() {
    if (!in_window_) return;
    if (std::any_of(instances_.begin(), instances_.end(), [](const auto &entry) { return entry.second->awaited(); })) return;
    in_window_ = false;
    const OwnWork work(*this);
    pool_.window_ended();
    // None can be dead while no generation ended.
    if (const uint64_t endings = registry_.endings(); endings != declared_swept_at_) {
        declared_swept_at_ = endings;
        forget_dead_declarations({0, UINTPTR_MAX});
    }
    registry_.window_ended(window_);
    if (planning_.on()) boundary_if_due(false);
}

// Programs that make only the two calls never say when an instance is done. It is let go when its segment begins a new forward and it was
// replayed, or so many younger ones began that its replay cannot be outstanding in any schedule that also replays (evaluation); and by
// step(). At every forward, so it looks only at those up to the youngest that was replayed: a few hundred at most.
void Engine::retire_unmanaged(Segment &segment) {
    if (segment.unmanaged.size() >= std::max(segment.let_go_at, segment.most_unmanaged + segment.most_unmanaged / 4))
        let_oldest_go(segment);
    std::vector<Instance *> done;
    for (uint64_t id : segment.unmanaged) {
        if (id > segment.last_replayed) break;
        Instance &instance = *instances_.find(id)->second;
        if (instance.open_replays != 0 || instance.state == Instance::State::kForward) continue;
        const bool overtaken = segment.last_replayed > id && segment.forwards > instance.ordinal + kUnmanagedForwards;
        if (instance.replays != 0 || overtaken) done.push_back(&instance);
    }
    for (Instance *instance : done) drop(*instance);
}

// A program that makes only the two calls and neither replays nor steps (an evaluation) says nothing at all: its oldest instances go by
// their number, many at a time. An open forward keeps its instance, unless even those add up: forwards that threw and were never ended.
void Engine::let_oldest_go(Segment &segment) {
    const bool open_ones_too = segment.unmanaged.size() >= 2 * segment.most_unmanaged;
    std::vector<Instance *> oldest;
    for (uint64_t id : segment.unmanaged) {
        if (segment.unmanaged.size() - oldest.size() <= segment.most_unmanaged) break;
        Instance &instance = *instances_.find(id)->second;
        if (instance.open_replays != 0 || (instance.state == Instance::State::kForward && !open_ones_too)) continue;
        oldest.push_back(&instance);
    }
    if (open_ones_too && !oldest.empty()) {
        std::erase_if(executions_, [&](const auto &entry) {
            const uint64_t id = entry.second->instance;
            auto at = std::lower_bound(oldest.begin(), oldest.end(), id, [](const Instance *i, uint64_t wanted) { return i->id < wanted; });
            return at != oldest.end() && (*at)->id == id;
        });
    }
    if (!oldest.empty()) segment.youngest_let_go = std::max(segment.youngest_let_go, oldest.back()->id);
    for (Instance *instance : oldest) drop(*instance);
    segment.let_go_at = segment.unmanaged.size() + segment.unmanaged.size() / 4;  // those that could not go are not looked at every time
}

bool Engine::let_go_by_age(const char *name, uint64_t id) const {
    auto segment = segments_.find(name);
    return id != 0 && segment != segments_.end() && id <= segment->second->youngest_let_go;
}

// It is wanted after all: refused this once, and so many more are kept from now on.
Status Engine::keep_longer(const char *name, uint64_t id) {
    Segment &segment = segment_named(name);
    const uint64_t kept = segment.most_unmanaged;
    if (id > segment.kept_longer_since) {  // not once more for each of those that have gone already
        segment.most_unmanaged = std::max(kept, std::min<uint64_t>(2 * kept, uint64_t{1} << 20));
        segment.kept_longer_since = next_instance_ - 1;
    }
    Status why = Status::error(REPRISE_RELEASED,
                               "instance %llu was let go: more than %llu younger forwards of segment '%s' began, and it was neither "
                               "replayed nor was there a step. From "
                               "now on %llu are kept; call reprise_step() after each step, or reprise_release() for what is not replayed, "
                               "to have none let go early",
                               static_cast<unsigned long long>(id), static_cast<unsigned long long>(kept), name,
                               static_cast<unsigned long long>(segment.most_unmanaged));
    say_once(LogLevel::kError, std::string("let go ") + name, why.text());
    return why;
}

// The second step after an instance lets it go; also one whose forward threw and was never ended, when the step is on its thread.
Status Engine::step() {
    Lock lock(mutex_);
    ++statistics_.steps;
    auto open_here = [&](uint64_t id) {
        return std::any_of(executions_.begin(), executions_.end(), [&](const auto &entry) {
            return entry.second->instance == id && pthread_equal(entry.second->thread, pthread_self()) != 0;
        });
    };
    std::vector<Instance *> done;
    for (const auto &[id, instance] : instances_) {
        if (instance->managed || instance->open_replays != 0 || instance->step + kUnmanagedSteps > statistics_.steps) continue;
        if (instance->state != Instance::State::kForward || open_here(id)) done.push_back(instance.get());
    }
    for (Instance *instance : done) {
        if (instance->state == Instance::State::kForward) {
            std::erase_if(executions_, [&](const auto &entry) { return entry.second->instance == instance->id; });
        }
        drop(*instance);
    }
    if (planning_.on()) boundary_if_due(true);
    return {};
}

}  // namespace reprise
