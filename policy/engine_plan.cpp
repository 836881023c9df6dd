// The engine's side of planning: what it tells the planner, and what it asks.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "policy/clock.h"
#include "policy/engine.h"
#include "policy/log.h"

namespace reprise {
namespace {

constexpr size_t kRetainedRemembered = 4096;
constexpr char kNested[] = "nested: segments in one another are always replayed";

}  // namespace

void Engine::OwnWork::end() {
    Engine *engine = std::exchange(engine_, nullptr);
    if (engine == nullptr || !engine->planning_.on() || --engine->work_depth_ != 0) return;
    engine->planning_.leave(engine->own_bytes());
    engine->make_room();
}

OwnBytes Engine::own_bytes() const { return {pool_.live() + pool_.kept(), pool_.kept() + registry_.idle_bytes()}; }

// What could go at once goes when it would stand in the way of what the plan has for the next slots: first what is merely kept for reuse.
void Engine::make_room() {
    const size_t idle = registry_.idle_bytes();
    if (!planning_.short_of_room(pool_.kept() + idle)) return;
    pool_.trim();
    planning_.let_go(own_bytes());
    if (!planning_.short_of_room(idle)) return;
    registry_.let_idle_go();
    pool_.trim();
    planning_.let_go(own_bytes());
}

// Whose forwards and replays are open on this thread.
std::vector<Instance *> Engine::open_here() const {
    std::vector<Instance *> open;
    for (const auto &[id, execution] : executions_) {
        if (pthread_equal(execution->thread, pthread_self()) == 0) continue;
        if (auto found = instances_.find(execution->instance); found != instances_.end()) open.push_back(found->second.get());
    }
    return open;
}

// Why the job leaves no choice about a forward that begins on this thread now, or null. A forward inside another segment's is replayed with
// it: whether the inner one runs once more depends on the outer one's decision.
const char *Engine::replay_only(uint32_t options) const {
    if ((options & REPRISE_FORWARD_REPLAY_ONLY) != 0) return "a reentrant checkpoint: it sums in another order when it is not replayed";
    if (!retains_) return "the program replays what it was told to retain";
    const std::vector<Instance *> outer = open_here();
    return std::any_of(outer.begin(), outer.end(), [](const Instance *i) { return !i->retained; }) ? kNested : nullptr;
}

bool Engine::would_retain(const char *name, uint32_t options) const {
    if (!planning_.on()) return false;
    const std::vector<Instance *> outer = open_here();  // in another of its own: decide() is going to find that it contains one
    if (std::any_of(outer.begin(), outer.end(), [&](const Instance *i) { return i->segment->name == name; })) return false;
    return planning_.would_retain(name, replay_only(options));
}

// True: its activations are kept. A segment that contains another is always replayed, like those in it.
bool Engine::decide(Instance &instance, uint32_t options) {
    for (const Instance *outer : open_here()) planning_.must_replay(*outer, kNested);
    forward_capture_ns_ = 0;
    instance.retained = planning_.forward_begins(instance, replay_only(options));
    return instance.retained;
}

void Engine::remember_retained(uint64_t instance) {
    retained_.push_back(instance);
    if (retained_.size() > kRetainedRemembered) retained_.pop_front();
}

bool Engine::was_retained(uint64_t instance) const { return std::find(retained_.begin(), retained_.end(), instance) != retained_.end(); }

void Engine::note_changes(const Instance &instance, const Replay &replay) {
    replay.for_each_written([&](const Buffer &buffer, const PageRuns &pages) { planning_.wrote(buffer, pages); });
    replay.for_each_changed([&](const Buffer &buffer, uint64_t, const std::vector<Piece> &) { planning_.changed(instance, buffer); });
}

// The adapter tells what it could not leave out: clones of saved tensors that alias state which changes before their backward. Without the
// replay autograd would refuse such a tensor, so the segment's activations can never be kept.
Status Engine::note_replay(uint64_t id, uint64_t clone_bytes) {
    Lock lock(mutex_);
    Status why;
    Instance *instance = find_instance(id, &why);
    if (instance == nullptr) return why;
    if (planning_.on() && clone_bytes != 0) {
        planning_.must_replay(*instance, "saves tensors of state that changes before its backward");
    }
    return {};
}

std::string Engine::plan_exchange(uint32_t stage, const std::vector<std::string_view> &texts) {
    Lock lock(mutex_);
    return planning_.on() ? planning_.exchange(stage, texts) : std::string();
}

MechanismKind Engine::mechanism_for(Buffer &buffer, const Instance &instance, bool learned) {
    if (planning_.on()) {
        if (const auto planned = planning_.how(instance, buffer)) {
            if (buffer.range.size() < kSmallBuffer) return MechanismKind::kSmall;
            return planned->kind == planner::Kind::whole ? MechanismKind::kWhole : MechanismKind::kShadow;
        }
    }
    return preservation_.choose(buffer, learned);
}

// Where the job comes round: at its steps, if it has any and nothing of the cycle is outstanding then (else as soon as nothing is);
// otherwise whenever nothing is.
void Engine::boundary_if_due(bool stepped) {
    boundary_pending_ |= stepped;
    if (!boundary_pending_ && (statistics_.steps != 0 || !planning_.came_round())) return;
    if (std::any_of(instances_.begin(), instances_.end(), [](const auto &entry) { return entry.second->unfinished(); })) return;
    boundary_pending_ = false;
    const OwnWork work(*this);
    planning_.boundary(statistics_.steps, own_bytes());
    idle_due_ |= planning_.newly_adopted();
}

// What is held for buffers that nothing replayed uses any more is the first thing to go, before the first forward under a plan: else it
// stands in the way of what is to be retained, which is denied and replayed, and needs it again. And no buffer can be preserved as planned
// while an instance holds it in another way. Programs that make only the two calls say of no instance that it is done; one that was
// replayed, in a cycle that has come round, is.
void Engine::let_idle_go() {
    idle_due_ = false;
    if (planning_.adopted() == nullptr) return;
    const OwnWork work(*this);
    std::vector<uint64_t> done;
    for (const auto &[id, instance] : instances_) {
        if (!instance->managed && !instance->unfinished()) done.push_back(id);
    }
    for (uint64_t id : done) {
        if (auto found = instances_.find(id); found != instances_.end()) drop(*found->second);
    }
    const AdoptedPlan &plan = *planning_.adopted();
    registry_.for_each_meeting({0, UINTPTR_MAX}, [&](Buffer &buffer) {
        registry_.hold_by_plan(buffer, plan.held.contains(buffer.id));
        if (plan.idle.contains(buffer.id) && buffer.outstanding() == 0) registry_.use(buffer, MechanismKind::kWatch);
    });
    pool_.trim();
    planning_.let_go(own_bytes());
}

void Engine::fill_plan(nlohmann::json &report) const {
    if (!planning_.on()) return;
    const PlanningCounts &counts = planning_.counts();
    report["budget"] = planning_.budget_bytes();
    report["cycles"] = counts.cycles;
    report["plans"] = counts.plans;
    report["instances_retained"] = counts.retained;
    report["retain_denied"] = counts.denied;
    report["ledger_peak_planned"] = counts.peak_bytes;
    report["planning_ns"] = counts.planning_ns;
    if (planning_.adopted() == nullptr) return;
    const planner::JobPlan &plan = planning_.adopted()->plan;
    report["plan"] = {{"budget", plan.budget_bytes},
                      {"peak", plan.peak_bytes},
                      {"added_ns", plan.added_ns},
                      {"bound_ns", plan.bound_ns},
                      {"proof", planner::proof_name(plan.proof)},
                      {"verdict", planner::verdict_name(plan.verdict)},
                      {"smallest_bytes", plan.smallest_bytes},
                      {"retained_bytes", plan.retained_bytes},
                      {"segments", plan.instances.size()},
                      {"retained", std::count_if(plan.instances.begin(), plan.instances.end(), [](const auto &i) { return !i.replay; })}};
}

}  // namespace reprise
