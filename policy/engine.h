// The policy's door: *what to do*. Segments, instances and executions; scopes; rejection; verification; records and reports.
//
// Who calls it. policy/boundary.cpp alone, which turns the C API into these calls: from any thread, each call under mutex_ except while the
// replayed code, a state provider or a wait runs. Nothing here is reached from a hook.
//
// How it is shaped. One Engine per process, never destroyed. Ids, not pointers, name instances and executions outside. Engine decides;
// tracker/ does. The replay rule that all of it serves is in docs/replay-rule.md.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "policy/config.h"
#include "policy/instance.h"
#include "policy/planning.h"
#include "policy/preservation.h"
#include "policy/providers.h"
#include "policy/records.h"

namespace reprise {

class Engine;

// What the engine remembers per thread.
struct ThreadState {
    std::vector<reprise_range> scope;  // of the next forward
    bool has_scope = false;
    std::vector<uint64_t> open_replays;  // executions, innermost last
    std::string reply;                   // of the last exchange
    char error[Status::kTextCapacity] = {};
    Engine *engine = nullptr;  // told when the thread exits; set once it has begun something
};
ThreadState &thread_state();

class Engine {
  public:
    Engine(const AllocatorPort &port, Config config);

    reprise_segment forward_begin(const char *name, const reprise_scope_item *items, size_t count, bool items_given, uint32_t options = 0);
    reprise_segment replay_begin(const char *name, uint64_t instance, uint32_t options);
    Status segment_end(reprise_segment segment, reprise_replay_result *result);
    Status segment_abort(uint64_t instance);
    Status release(uint64_t instance);
    Status step();

    Status track(void *address, size_t size, const char *name, unsigned flags);
    Status untrack(void *address);
    Status scope(const reprise_range *ranges, size_t count);
    Status state(const char *name, reprise_state_save save, reprise_state_load load, void *context);
    Status write_intent(const void *address, size_t size);
    Status buffer_info(const void *address, reprise_buffer *buffer, reprise_range *runs, size_t *run_count);
    Status stats(reprise_statistics *statistics);

    size_t replay_dirty(uint64_t execution, reprise_range *ranges, size_t capacity);
    Status note_generator(uint64_t instance, const char *provider, const void *state, size_t size);
    Status note_replay(uint64_t instance, uint64_t clone_bytes);
    std::string plan_exchange(uint32_t stage, const std::vector<std::string_view> &texts);
    Status report(uint64_t instance, reprise_status kind, const char *message);
    int mode() const;

    void at_exit();
    void thread_exits();
    void fork_prepare() { mutex_.lock(); }
    void fork_parent() { mutex_.unlock(); }
    void fork_child();

  private:
    using Lock = std::unique_lock<std::mutex>;

    // What changes the memory that we hold, or is an event of the planner's, happens while one of these lives. The mutex is held.
    class OwnWork {
      public:
        explicit OwnWork(Engine &engine) : engine_(&engine) {
            if (engine.planning_.on() && engine.work_depth_++ == 0) engine.planning_.enter();
        }
        ~OwnWork() { end(); }
        OwnWork(const OwnWork &) = delete;
        OwnWork &operator=(const OwnWork &) = delete;
        void end();

      private:
        Engine *engine_;
    };
    // Around what releases the mutex in the middle of that: meanwhile other threads have events of their own, and the job's code runs.
    // The mutex is held when it begins and when it ends.
    class OthersWork {
      public:
        explicit OthersWork(Engine &engine) : engine_(engine), depth_(std::exchange(engine.work_depth_, 0)) {
            if (depth_ != 0) engine_.planning_.leave(engine_.own_bytes());
        }
        ~OthersWork() {
            if (depth_ != 0) engine_.planning_.enter();
            engine_.work_depth_ = depth_;
        }
        OthersWork(const OthersWork &) = delete;
        OthersWork &operator=(const OthersWork &) = delete;

      private:
        Engine &engine_;
        int depth_;
    };

    // engine_plan.cpp
    OwnBytes own_bytes() const;
    void make_room();
    std::vector<Instance *> open_here() const;
    const char *replay_only(uint32_t options) const;
    bool would_retain(const char *name, uint32_t options) const;
    bool decide(Instance &instance, uint32_t options);
    void remember_retained(uint64_t instance);
    bool was_retained(uint64_t instance) const;
    void note_changes(const Instance &instance, const Replay &replay);
    void boundary_if_due(bool stepped);
    void let_idle_go();
    void fill_plan(nlohmann::json &report) const;
    MechanismKind mechanism_for(Buffer &buffer, const Instance &instance, bool learned);

    // engine_segments.cpp
    Instance *find_instance(uint64_t id, Status *why);
    Segment &segment_named(const char *name);
    void end_forward(Instance &instance);
    Status end_replay(Lock &lock, Execution &execution, reprise_replay_result *result);
    ReplayOutcome finish_replay(Execution &execution);
    bool wait_for_overlaps(Lock &lock, const Instance &instance, Replay &replay, Status *why);
    const Execution *overlapping(const Instance &instance, const Replay &replay) const;
    reprise_segment refuse_and_let_go(const Status &why, Instance &instance);
    std::unique_ptr<Replay> take_replay(Replay::Options options);
    void give_back(std::unique_ptr<Replay> replay);

    // engine_release.cpp
    void drop(Instance &instance);
    void retire_unmanaged(Segment &segment);
    void let_oldest_go(Segment &segment);
    bool let_go_by_age(const char *name, uint64_t id) const;
    Status keep_longer(const char *name, uint64_t id);
    void put_back_states(Lock &lock, const std::vector<SavedState> &present);
    std::vector<uint64_t> executions_where(const std::function<bool(const Execution &)> &wanted) const;
    std::vector<SavedState> abandon(uint64_t execution);
    void abandon_open_replays(Lock &lock, uint64_t instance);
    void forget_other_threads();
    void window_may_have_ended();

    // engine_scope.cpp
    static Status check_items(const reprise_scope_item *items, size_t count);
    void resolve_scope(Instance &instance, const reprise_scope_item *items, size_t count, bool items_given);
    void add_range(Instance &instance, AddressRange range, const char *name, BufferFlags flags, bool optional, bool learned);
    void add_to_scope(Instance &instance, Buffer &buffer, bool optional, bool learned);
    void learn_scope(Instance &instance);
    void forget_dead_declarations(AddressRange range);

    // engine_verify.cpp
    void witness(Instance &instance);
    Status verify_loaded(const Instance &instance) const;

    // engine_report.cpp
    reprise_segment reject(const Status &why, Segment *segment, Instance *instance, pthread_t thread);
    bool warn_only() const { return config_.on_reject == OnReject::kWarn; }
    void record_replay(const Instance &instance, const Execution &execution, const char *outcome, const std::string &reason,
                       const ReplayOutcome *result);
    void note_audit(const Instance &instance, const Replay &replay);
    void say_once(LogLevel level, const std::string &key, const std::string &text);
    void print_audit();
    void fill(reprise_statistics &statistics) const;
    void write_report() const;

    const AllocatorPort &port_;
    Config config_;
    std::mutex mutex_;
    std::condition_variable replay_ended_;
    ImagePool pool_;
    BufferRegistry registry_;
    Preservation preservation_;
    RecordFile records_;
    Planning planning_;
    int work_depth_ = 0;
    bool idle_due_ = false;            // a plan was adopted by which some buffers need not be held any more
    bool boundary_pending_ = false;    // the program stepped while an instance was outstanding
    std::deque<uint64_t> retained_;    // the last ones, for what is said when one of them is replayed after all
    bool retains_ = true;              // false: the program replays what it was told to retain
    uint64_t forward_capture_ns_ = 0;  // of the forward that begins: spent in captures

    std::unordered_map<std::string, std::unique_ptr<Segment>> segments_;
    std::unordered_map<uint64_t, std::unique_ptr<Instance>> instances_;
    std::unordered_map<uint64_t, std::unique_ptr<Execution>> executions_;
    std::vector<Provider> providers_;
    std::vector<std::unique_ptr<Replay>> spare_replays_;
    std::vector<Buffer *> declared_;  // by reprise_track, in order
    uint64_t declared_swept_at_ = 0;  // the count of endings when dead ones were last looked for

    uint64_t next_instance_ = 1;
    uint64_t next_execution_ = 1;
    uint64_t window_ = 0;
    bool in_window_ = false;
    bool exited_ = false;
    size_t open_replays_ = 0;
    reprise_statistics statistics_{};

    struct Finding {
        uint64_t replays = 0;
        uint64_t bytes = 0;
        size_t size = 0;
    };
    std::map<std::pair<std::string, std::string>, Finding> findings_;  // segment, buffer
    std::set<std::string> said_;
};

}  // namespace reprise
