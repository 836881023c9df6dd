// Begin and end of forwards and replays: the replay rule itself.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "policy/clock.h"
#include "policy/engine.h"
#include "policy/log.h"

namespace reprise {
namespace {

reprise_segment failed(const Status &why) {
    snprintf(thread_state().error, sizeof thread_state().error, "%s", why.text());
    return {0, 0, REPRISE_RETAIN, why.code()};
}

Status check_name(const char *name) {
    if (name == nullptr) return Status::error(REPRISE_INVALID_ARGUMENT, "a segment needs a name, NULL was given");
    if (strnlen(name, REPRISE_NAME_MAX) >= REPRISE_NAME_MAX) {
        return Status::error(REPRISE_INVALID_ARGUMENT, "the segment's name is longer than %d bytes: '%.40s...'; give a shorter one",
                             REPRISE_NAME_MAX - 1, name);
    }
    return {};
}

}  // namespace

Segment &Engine::segment_named(const char *name) {
    auto found = segments_.find(name);
    if (found == segments_.end()) {
        found = segments_.emplace(name, std::make_unique<Segment>()).first;
        found->second->name = name;
    }
    return *found->second;
}

Instance *Engine::find_instance(uint64_t id, Status *why) {
    auto found = instances_.find(id);
    if (found != instances_.end() && !found->second->release_pending) return found->second.get();
    if (id != 0 && id < next_instance_) {
        *why = Status::error(REPRISE_RELEASED, "instance %llu was released or aborted: it cannot be replayed any more",
                             static_cast<unsigned long long>(id));
    } else {
        *why = Status::error(REPRISE_UNKNOWN_INSTANCE, "there is no instance %llu: pass the `instance` of a segment that a forward began",
                             static_cast<unsigned long long>(id));
    }
    return nullptr;
}

reprise_segment Engine::forward_begin(const char *name, const reprise_scope_item *items, size_t count, bool items_given, uint32_t options) {
    if (Status status = check_name(name); !status.ok()) return failed(status);
    if (Status status = check_items(items, count); !status.ok()) return failed(status);
    const uint64_t began = now_ns();
    thread_state().engine = this;
    Lock lock(mutex_);
    if (planning_.on() && !planning_.refusal().empty()) {
        return failed(Status::error(REPRISE_REJECTED, "%s (REPRISE_ON_INFEASIBLE=fail)", planning_.refusal().c_str()));
    }
    OwnWork work(*this);
    if (idle_due_) let_idle_go();
    // Before anything is asked of the plan: the cycle may come round with the last instance that goes, and the plan with it.
    retire_unmanaged(segment_named(name));
    if ((options & REPRISE_FORWARD_RETAINED_ONLY) != 0 && !would_retain(name, options)) return {0, 0, REPRISE_REPLAY, REPRISE_NOT_FOUND};
    auto owned = std::make_unique<Instance>();
    Instance &instance = *owned;
    instance.id = next_instance_++;
    instance.segment = &segment_named(name);
    instance.step = statistics_.steps;
    instance.managed = items_given;
    if (!items_given) instance.segment->unmanaged.insert(instance.id);
    instance.ordinal = ++instance.segment->forwards;
    ++statistics_.forwards;
    auto execution = std::make_unique<Execution>();
    execution->id = next_execution_++;
    execution->instance = instance.id;
    execution->thread = pthread_self();
    reprise_segment result{instance.id, execution->id, REPRISE_REPLAY, REPRISE_OK};
    if (planning_.on() && decide(instance, options)) result.action = REPRISE_RETAIN;
    // One that is retained holds nothing: as a window of its own it would only make what others hold look unused.
    if (!instance.retained && !in_window_) {
        in_window_ = true;
        ++window_;
    }
    instance.window = window_;
    Execution &open = *execution;
    instances_.emplace(instance.id, std::move(owned));
    executions_.emplace(result.execution, std::move(execution));
    if (config_.policy != Policy::kOff && !instance.retained) {
        resolve_scope(instance, items, count, items_given);
        if (config_.verify != Verify::kOff) witness(instance);
    }
    const uint64_t ended = now_ns();
    open.began_ns = ended;
    const uint64_t spent = elapsed_ns(began, ended);
    statistics_.nanoseconds_forward += spent;
    if (planning_.on()) planning_.event(EventKind::kForwardBegin, instance, 0, spent - std::min(spent, forward_capture_ns_));
    work.end();
    if (providers_.empty() || config_.policy == Policy::kOff || instance.retained) return result;

    std::vector<Provider> providers = providers_;
    lock.unlock();
    std::string failed_provider;
    std::vector<SavedState> states = save_states(providers, &failed_provider);
    lock.lock();
    auto found = instances_.find(result.instance);
    if (found != instances_.end()) {
        found->second->states = std::move(states);
        if (!failed_provider.empty())
            found->second->refusals.push_back("the state provider '" + failed_provider + "' could not save its state");
    }
    return result;
}

void Engine::end_forward(Instance &instance) {
    instance.state = Instance::State::kOutstanding;
    for (const ScopeEntry &entry : instance.scope) {
        if (registry_.live(*entry.buffer) && can_read(*entry.buffer)) entry.buffer->mechanism->forward_ended(entry.version);
    }
}

// Another thread's replay whose bytes meet ours, in either direction: its loads in our scope, or ours in its scope.
const Execution *Engine::overlapping(const Instance &instance, const Replay &replay) const {
    if (open_replays_ == 0) return nullptr;
    for (const auto &[id, other] : executions_) {
        if (!other->is_replay || !other->replay || !other->replay->loaded() || pthread_equal(other->thread, pthread_self()) != 0) continue;
        auto theirs = instances_.find(other->instance);
        if (other->replay->meets(instance.scope)) return other.get();
        if (theirs != instances_.end() && replay.meets(theirs->second->scope)) return other.get();
    }
    return nullptr;
}

bool Engine::wait_for_overlaps(Lock &lock, const Instance &instance, Replay &replay, Status *why) {
    const uint64_t id = instance.id;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(config_.busy_timeout_ms);
    bool timed_out = false;
    while (const Execution *other = overlapping(instance, replay)) {
        if (timed_out) {
            *why =
                Status::error(REPRISE_BUSY,
                              "the replay of instance %llu on another thread has loaded bytes of this segment's scope and did not "
                              "end within %llu ms; end it first, or raise REPRISE_BUSY_TIMEOUT_MS",
                              static_cast<unsigned long long>(other->instance), static_cast<unsigned long long>(config_.busy_timeout_ms));
            return false;
        }
        // Everything may have changed after this: neither `other` nor `instance` is known to exist.
        {
            const OthersWork others(*this);
            timed_out = replay_ended_.wait_until(lock, deadline) == std::cv_status::timeout;
        }
        auto found = instances_.find(id);
        if (found == instances_.end() || found->second->release_pending) {
            *why =
                Status::error(REPRISE_RELEASED, "instance %llu was released while its replay waited", static_cast<unsigned long long>(id));
            return false;
        }
        // The other replay has put its bytes back: what differs now is another question.
        if (Status status = replay.prepare(instance.scope); !status.ok()) {
            *why = status;
            return false;
        }
    }
    return true;
}

reprise_segment Engine::replay_begin(const char *name, uint64_t id, uint32_t options) {
    if (Status status = check_name(name); !status.ok()) return failed(status);
    const uint64_t began = now_ns();
    ThreadState &self = thread_state();
    self.engine = this;
    Lock lock(mutex_);
    Status why;
    Instance *instance = find_instance(id, &why);
    if (instance == nullptr && was_retained(id)) {
        retains_ = false;
        why = Status::error(REPRISE_WRONG_STATE,
                            "instance %llu of segment '%s' was to be retained (its begin returned REPRISE_RETAIN), so nothing was recorded "
                            "that a replay could load; keep the activations of such instances. From now on every segment is replayed",
                            static_cast<unsigned long long>(id), name);
        say_once(LogLevel::kError, "retain", why.text());
        return failed(why);
    }
    if (instance == nullptr) return failed(let_go_by_age(name, id) ? keep_longer(name, id) : why);
    OwnWork work(*this);
    if (instance->segment->name != name) {
        return failed(Status::error(REPRISE_UNKNOWN_INSTANCE, "instance %llu belongs to segment '%s', not to '%s'",
                                    static_cast<unsigned long long>(id), instance->segment->name.c_str(), name));
    }
    // A replay inside a replay of the same instance makes no sense: the host saw an error and tries again.
    for (size_t i = self.open_replays.size(); i-- > 0;) {
        auto open = executions_.find(self.open_replays[i]);
        if (open != executions_.end() && open->second->instance == id) {
            say_once(
                LogLevel::kWarn, "reopened " + instance->segment->name,
                format("segment '%s': a replay was begun while an earlier one of the same instance was open; the earlier one was put back",
                       instance->segment->name.c_str()));
            abandon_open_replays(lock, id);
            instance = find_instance(id, &why);
            if (instance == nullptr) return failed(why);
            break;
        }
    }
    ++statistics_.replays;
    ++instance->segment->replays;
    ++instance->replays;
    instance->segment->last_replayed = std::max(instance->segment->last_replayed, id);

    auto execution = std::make_unique<Execution>();
    execution->id = next_execution_++;
    execution->instance = id;
    execution->is_replay = true;
    execution->thread = pthread_self();
    const reprise_segment result{id, execution->id, REPRISE_REPLAY, REPRISE_OK};
    auto enter = [&] {
        instance->open_replays += 1;
        self.open_replays.push_back(result.execution);
        execution->began_ns = now_ns();
        execution->spent_ns = elapsed_ns(began, execution->began_ns);
        statistics_.nanoseconds_replay += execution->spent_ns;
        if (planning_.on()) planning_.event(EventKind::kReplayBegin, *instance, 0, 0);
        executions_.emplace(result.execution, std::move(execution));
    };
    if (config_.policy == Policy::kOff) {
        enter();
        return result;
    }

    auto replay =
        take_replay({(options & REPRISE_REPLAY_GATED) != 0, config_.verify != Verify::kOff || instance->window <= kCalibrationWindows,
                     instance->state == Instance::State::kForward, config_.policy == Policy::kAudit, planning_.on()});
    if (!instance->refusals.empty() && config_.policy != Policy::kAudit) {
        why = Status::error(REPRISE_REJECTED, "%s", instance->refusals.front().c_str());
        return reject(why, instance->segment, instance, pthread_self());
    }
    if (why = replay->prepare(instance->scope); !why.ok()) return reject(why, instance->segment, instance, pthread_self());
    if (planning_.on()) note_changes(*instance, *replay);
    replay->for_each_changed([&](Buffer &buffer, uint64_t, const std::vector<Piece> &) {
        if (buffer.last_changed_window == window_) return;
        buffer.last_changed_window = window_;
        ++buffer.windows_changed;
    });
    if (config_.policy == Policy::kAudit) {
        note_audit(*instance, *replay);
        execution->bytes_changed = replay->bytes_changed();
        enter();
        return result;
    }
    instance->open_replays += 1;  // while it waits, too: nobody may let the instance go
    const bool free_of_others = wait_for_overlaps(lock, *instance, *replay, &why);
    if (auto again = instances_.find(id); again != instances_.end()) again->second->open_replays -= 1;
    if (!free_of_others) {
        auto again = instances_.find(id);
        if (again == instances_.end()) return reject(why, nullptr, nullptr, pthread_self());
        return refuse_and_let_go(why, *again->second);
    }
    const bool changed = replay->bytes_changed() != 0;
    const uint64_t load_began = now_ns();
    if (why = replay->load(); !why.ok()) return reject(why, instance->segment, instance, pthread_self());
    const uint64_t loading_ns = elapsed_ns(load_began);
    if (planning_.on() && changed) planning_.costs().loaded(replay->bytes_by_kind(), loading_ns);
    if (config_.verify != Verify::kOff) {
        if (why = verify_loaded(*instance); !why.ok()) {
            replay->finish();
            return reject(why, instance->segment, instance, pthread_self());
        }
    }
    if (changed) {
        ++statistics_.replays_on_changed_state;
        ++instance->segment->replays_on_changed_state;
        statistics_.bytes_loaded += replay->bytes_changed();
    }
    execution->bytes_changed = replay->bytes_changed();
    execution->replay = std::move(replay);
    ++open_replays_;
    const std::vector<SavedState> states = instance->states;
    enter();
    work.end();
    if (states.empty()) return result;

    // Providers run without the lock: they are the job's code. Another thread may abort the instance meanwhile.
    lock.unlock();
    std::string failed_provider;
    std::vector<SavedState> present = save_again(states, &failed_provider);
    if (failed_provider.empty()) {
        why = load_states(states, present);
    } else {
        why = Status::error(REPRISE_REJECTED, "the state provider '%s' could not save its present state", failed_provider.c_str());
    }
    if (!why.ok()) (void)load_states(present, {}).ok();  // what was set already goes back
    lock.lock();
    auto entered = executions_.find(result.execution);
    if (entered == executions_.end()) {
        std::erase(self.open_replays, result.execution);
        lock.unlock();
        if (why.ok()) (void)load_states(present, {}).ok();
        return failed(
            Status::error(REPRISE_RELEASED, "instance %llu was aborted while its replay began", static_cast<unsigned long long>(id)));
    }
    if (why.ok()) {
        entered->second->present_states = std::move(present);
        return result;
    }
    finish_replay(*entered->second);
    instance->open_replays -= 1;  // the execution exists, so the instance does
    std::erase(self.open_replays, result.execution);
    executions_.erase(entered);
    return refuse_and_let_go(why, *instance);
}

// Its release may have been waiting for this replay.
reprise_segment Engine::refuse_and_let_go(const Status &why, Instance &instance) {
    const reprise_segment refused = reject(why, instance.segment, &instance, pthread_self());
    if (instance.release_pending && instance.open_replays == 0) drop(instance);
    return refused;
}

namespace {

std::string unreachable_text(const Instance *instance, const Buffer &buffer) {
    return format(
        "segment '%s': buffer '%s' (%zu bytes) could not be put back after its replay, during which it was unmapped or made read-only, or "
        "its "
        "file was cut short: where it can be read, it holds the forward's bytes. Do not take memory away during a replay",
        instance != nullptr ? instance->segment->name.c_str() : "?", buffer.name.c_str(), buffer.range.size());
}

}  // namespace

// Puts back. The execution stays in the table.
ReplayOutcome Engine::finish_replay(Execution &execution) {
    ReplayOutcome outcome;
    if (!execution.replay) return outcome;
    const OwnWork work(*this);
    outcome = execution.replay->finish();
    statistics_.bytes_put_back += outcome.bytes_put_back;
    for (const Buffer *buffer : outcome.unreachable) {
        auto instance = instances_.find(execution.instance);
        say_once(LogLevel::kError, "unreachable " + buffer->name,
                 unreachable_text(instance != instances_.end() ? instance->second.get() : nullptr, *buffer));
    }
    give_back(std::move(execution.replay));
    --open_replays_;
    replay_ended_.notify_all();
    return outcome;
}

std::unique_ptr<Replay> Engine::take_replay(Replay::Options options) {
    std::unique_ptr<Replay> replay;
    if (spare_replays_.empty()) {
        replay = std::make_unique<Replay>(port_, pool_);
    } else {
        replay = std::move(spare_replays_.back());
        spare_replays_.pop_back();
    }
    replay->set_options(options);
    return replay;
}

void Engine::give_back(std::unique_ptr<Replay> replay) {
    constexpr size_t kSpare = 4;
    if (spare_replays_.size() < kSpare) spare_replays_.push_back(std::move(replay));
}

Status Engine::segment_end(reprise_segment segment, reprise_replay_result *result) {
    Lock lock(mutex_);
    auto found = executions_.find(segment.execution);
    if (found == executions_.end() || found->second->instance != segment.instance) {
        if (segment.execution != 0 && segment.execution < next_execution_) {
            return Status::error(REPRISE_WRONG_STATE, "this execution was ended already, or aborted (instance %llu)",
                                 static_cast<unsigned long long>(segment.instance));
        }
        if (segment.execution == 0)
            return Status::error(REPRISE_INVALID_ARGUMENT, "this segment was not begun (its begin failed, or it is zero)");
        return Status::error(REPRISE_UNKNOWN_INSTANCE, "there is no execution %llu", static_cast<unsigned long long>(segment.execution));
    }
    Execution &execution = *found->second;
    OwnWork work(*this);
    if (pthread_equal(execution.thread, pthread_self()) == 0) {
        return Status::error(REPRISE_WRONG_STATE, "a segment must be ended by the thread that began it (instance %llu)",
                             static_cast<unsigned long long>(segment.instance));
    }
    if (execution.is_replay) return end_replay(lock, execution, result);

    const uint64_t began = now_ns();
    auto instance = instances_.find(execution.instance);
    const uint64_t job_ns = elapsed_ns(execution.began_ns, began);
    executions_.erase(found);
    if (instance != instances_.end()) {
        Instance &ended = *instance->second;
        end_forward(ended);
        if (planning_.on()) planning_.event(EventKind::kForwardEnd, ended, job_ns, elapsed_ns(began));
        if (ended.retained || (ended.release_pending && ended.open_replays == 0)) drop(ended);
    }
    statistics_.nanoseconds_forward += elapsed_ns(began);
    return {};
}

Status Engine::end_replay(Lock &lock, Execution &execution, reprise_replay_result *result) {
    ThreadState &self = thread_state();
    const uint64_t id = execution.id;
    const uint64_t began = now_ns();
    if (!self.open_replays.empty() && self.open_replays.back() != id &&
        std::find(self.open_replays.begin(), self.open_replays.end(), id) != self.open_replays.end()) {
        auto inner = executions_.find(self.open_replays.back());
        if (inner != executions_.end()) {
            return Status::error(REPRISE_WRONG_STATE,
                                 "a replay of instance %llu was begun inside this one and is still open; end or abort it first",
                                 static_cast<unsigned long long>(inner->second->instance));
        }
    }
    if (!execution.present_states.empty()) {
        put_back_states(lock, std::vector<SavedState>(std::move(execution.present_states)));
        if (!executions_.contains(id)) {
            std::erase(self.open_replays, id);
            return Status::error(REPRISE_WRONG_STATE, "this execution was aborted by another thread while it ended");
        }
    }
    auto found = instances_.find(execution.instance);
    Instance *instance = found == instances_.end() ? nullptr : found->second.get();
    ReplayOutcome outcome = finish_replay(execution);
    std::erase(self.open_replays, id);
    const uint64_t spent = elapsed_ns(began);
    if (planning_.on() && instance != nullptr) {
        planning_.event(EventKind::kReplayEnd, *instance, elapsed_ns(execution.began_ns, began), 0);
    }
    execution.spent_ns += spent;
    statistics_.nanoseconds_replay += spent;

    uint64_t stray_bytes = 0;
    for (const Stray &stray : outcome.strays) stray_bytes += stray.bytes;
    if (result != nullptr) *result = {execution.bytes_changed, outcome.gated_kept, outcome.gated_conflict, stray_bytes};
    Status status;
    std::string reason;
    for (const auto *list : {&outcome.strays, &outcome.possible}) {
        for (const Stray &stray : *list) {
            reason = format(
                "segment '%s': the replay wrote buffer '%s' (%llu bytes, %llu runs, first at offset %zu) where the forward had not. Either "
                "the segment is "
                "not deterministic (its replay took another path), or another thread wrote the buffer meanwhile. The bytes were put back. "
                "Make the "
                "segment deterministic, or declare the buffer REPRISE_TRACK_CONCURRENT",
                instance != nullptr ? instance->segment->name.c_str() : "?", stray.buffer->name.c_str(),
                static_cast<unsigned long long>(stray.bytes), static_cast<unsigned long long>(stray.runs),
                static_cast<size_t>(stray.range.begin - stray.buffer->range.begin));
            say_once(list == &outcome.strays && !warn_only() ? LogLevel::kError : LogLevel::kWarn, "stray " + stray.buffer->name, reason);
        }
    }
    if (!outcome.unreachable.empty()) reason = unreachable_text(instance, *outcome.unreachable.front());
    const bool diverged = !outcome.strays.empty() || !outcome.unreachable.empty();
    if (diverged) {
        ++statistics_.divergences;
        if (!warn_only()) status = Status::error(REPRISE_DIVERGED, "%s", reason.c_str());
    }
    if (instance != nullptr) {
        record_replay(*instance, execution, diverged ? "divergence" : execution.unprotected ? "unprotected" : "match", reason, &outcome);
        instance->open_replays -= 1;
        executions_.erase(id);
        if (instance->release_pending && instance->open_replays == 0) {
            drop(*instance);
        } else {
            window_may_have_ended();
        }
    } else {
        executions_.erase(id);
    }
    return status;
}

}  // namespace reprise
