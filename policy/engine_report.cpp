// What people get to see: rejections, records, audit findings, statistics, the line at exit.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "allocator/base/quiet_signals.h"
#include "policy/clock.h"
#include "policy/engine.h"
#include "policy/log.h"

namespace reprise {
namespace {

constexpr size_t kRunsPerRecord = 32;
// Different messages of this kind are bounded, so that a job with thousands of buffers does not drown its own output.
constexpr size_t kMessages = 64;

}  // namespace

void Engine::say_once(LogLevel level, const std::string &key, const std::string &text) {
    if (!log_wants(level) || said_.size() >= kMessages || !said_.insert(key).second) return;
    log_line(level, text);
    if (said_.size() == kMessages) log_line(LogLevel::kWarn, "more messages of this kind are not shown; REPRISE_RECORDS keeps every one");
}

// A replay that cannot be made right. Under `fail` it is refused; under `warn` it is said once and runs on the present state.
reprise_segment Engine::reject(const Status &why, Segment *segment, Instance *instance, pthread_t thread) {
    ++statistics_.rejections;
    const std::string name = segment != nullptr ? segment->name : "?";
    const std::string text = format("segment '%s': %s", name.c_str(), why.text());
    say_once(warn_only() ? LogLevel::kWarn : LogLevel::kError, "reject " + name + why.text(),
             text + (warn_only() ? " (REPRISE_ON_REJECT=warn: the replay runs on the present state, its gradient may be wrong)" : ""));
    if (instance != nullptr) {
        // What was only watched and changed is preserved from the next window on.
        for (const ScopeEntry &entry : instance->scope) {
            if (entry.buffer->mechanism->kind() != MechanismKind::kWatch) continue;
            if (!registry_.live(*entry.buffer) || !can_read(*entry.buffer)) continue;
            ReplayView view;
            if (!entry.buffer->mechanism->changed(entry.version, view).ok()) entry.buffer->promoted = true;
        }
        Execution refused;
        refused.instance = instance->id;
        record_replay(*instance, refused, "rejection", why.text(), nullptr);
    }
    if (!warn_only() || instance == nullptr || why.code() == REPRISE_BUSY) {
        snprintf(thread_state().error, sizeof thread_state().error, "%s", text.c_str());
        return {0, 0, REPRISE_RETAIN, why.code() == REPRISE_OUT_OF_MEMORY ? REPRISE_REJECTED : why.code()};
    }
    auto execution = std::make_unique<Execution>();
    execution->id = next_execution_++;
    execution->instance = instance->id;
    execution->is_replay = true;
    execution->unprotected = true;
    execution->thread = thread;
    const reprise_segment result{instance->id, execution->id, REPRISE_REPLAY, REPRISE_OK};
    instance->open_replays += 1;
    thread_state().open_replays.push_back(execution->id);
    executions_.emplace(execution->id, std::move(execution));
    return result;
}

void Engine::record_replay(const Instance &instance, const Execution &execution, const char *outcome, const std::string &reason,
                           const ReplayOutcome *result) {
    if (!records_.wanted()) return;
    const uint64_t digest = contract_digest(instance);
    if (instance.segment->contract_digest != digest) {
        if (instance.segment->contracts != 0) {
            log_line(LogLevel::kInfo,
                     format("segment '%s': its contract changed (other buffers, sizes or mechanisms)", instance.segment->name.c_str()));
        }
        instance.segment->contract_digest = digest;
        ++instance.segment->contracts;
        records_.write(contract_json(instance, records_.run()));
    }
    nlohmann::json line;
    line["schema"] = "reprise.record/1";
    line["run"] = records_.run();
    line["segment"] = instance.segment->name;
    line["instance"] = instance.id;
    line["replay"] = instance.replays;
    line["step"] = statistics_.steps;
    line["policy"] = to_string(config_.policy);
    line["contract"] = format("%016llx", static_cast<unsigned long long>(digest));
    line["outcome"] = outcome;
    line["reason"] = reason;
    line["bytes_changed"] = execution.bytes_changed;
    line["nanoseconds"] = execution.spent_ns;
    line["bytes_held"] = pool_.live();
    line["bytes_tracked"] = port_.ledger_live(LedgerKind::kTensors) + port_.ledger_live(LedgerKind::kHeapTensors);
    nlohmann::json mechanisms = nlohmann::json::object();
    for (const ScopeEntry &entry : instance.scope) {
        const char *kind = to_string(entry.buffer->mechanism->kind());
        mechanisms[kind] = mechanisms.value(kind, 0) + 1;
    }
    line["mechanisms"] = mechanisms;
    if (result != nullptr) {
        line["bytes_put_back"] = result->bytes_put_back;
        if (result->merged_elements != 0) line["merged_elements"] = result->merged_elements;
        nlohmann::json strays = nlohmann::json::array();
        for (const auto *list : {&result->strays, &result->possible}) {
            for (const Stray &stray : *list)
                strays.push_back({{"buffer", stray.buffer->name}, {"bytes", stray.bytes}, {"runs", stray.runs}});
        }
        if (!strays.empty()) line["strays"] = strays;
    }
    records_.write(line);
}

void Engine::note_audit(const Instance &instance, const Replay &replay) {
    if (replay.bytes_changed() == 0) return;
    ++statistics_.replays_on_changed_state;
    ++instance.segment->replays_on_changed_state;
    nlohmann::json changed = nlohmann::json::array();
    replay.for_each_changed([&](const Buffer &buffer, uint64_t bytes, const std::vector<Piece> &pieces) {
        Finding &finding = findings_[{instance.segment->name, buffer.name}];
        ++finding.replays;
        finding.bytes += bytes;
        finding.size = buffer.range.size();
        if (!records_.wanted()) return;
        nlohmann::json runs = nlohmann::json::array();
        for (size_t i = 0; i < pieces.size() && i < kRunsPerRecord; ++i)
            runs.push_back({pieces[i].live - buffer.range.begin, pieces[i].size});
        changed.push_back({{"buffer", buffer.name}, {"bytes", bytes}, {"runs", runs}});
    });
    if (!records_.wanted()) return;
    records_.write({{"schema", "reprise.record/1"},
                    {"run", records_.run()},
                    {"segment", instance.segment->name},
                    {"instance", instance.id},
                    {"step", statistics_.steps},
                    {"policy", "audit"},
                    {"outcome", "audit"},
                    {"bytes_changed", replay.bytes_changed()},
                    {"changed", changed}});
}

void Engine::print_audit() {
    if (config_.policy != Policy::kAudit) return;
    if (findings_.empty()) {
        log_line(LogLevel::kError,
                 format("audit: no replay ran on changed state (%llu replays)", static_cast<unsigned long long>(statistics_.replays)));
        return;
    }
    for (const auto &[key, finding] : findings_) {
        log_line(LogLevel::kError,
                 format("audit: segment '%s' replayed on changed state: buffer '%s' (%s): %llu replays, %s changed on average",
                        key.first.c_str(), key.second.c_str(), human_bytes(finding.size).c_str(),
                        static_cast<unsigned long long>(finding.replays), human_bytes(finding.bytes / finding.replays).c_str()));
    }
    log_line(LogLevel::kError,
             "audit: the gradients of these segments are not those of the forward; run with REPRISE_POLICY=selective to have their state "
             "restored");
}

Status Engine::report(uint64_t id, reprise_status kind, const char *message) {
    Lock lock(mutex_);
    auto found = instances_.find(id);
    Instance *instance = found == instances_.end() ? nullptr : found->second.get();
    const bool divergence = kind == REPRISE_DIVERGED;
    ++(divergence ? statistics_.divergences : statistics_.rejections);
    const std::string name = instance != nullptr ? instance->segment->name : "?";
    const std::string text = format("segment '%s': %s", name.c_str(), message != nullptr ? message : "");
    say_once(warn_only() ? LogLevel::kWarn : LogLevel::kError, "report " + text, text);
    if (instance != nullptr) {
        Execution refused;
        refused.instance = id;
        record_replay(*instance, refused, divergence ? "divergence" : "rejection", text, nullptr);
    }
    if (warn_only()) return {};
    return Status::error(kind == REPRISE_OK ? REPRISE_REJECTED : kind, "%s", text.c_str());
}

void Engine::fill(reprise_statistics &statistics) const {
    statistics = statistics_;
    statistics.instances_outstanding = instances_.size();
    statistics.bytes_held = pool_.live();
    statistics.bytes_held_peak = pool_.live_peak();
    statistics.bytes_tracked = port_.ledger_live(LedgerKind::kTensors) + port_.ledger_live(LedgerKind::kHeapTensors);
    statistics.bytes_tracked_peak = port_.ledger_peak_of(LedgerKind::kTensors) + port_.ledger_peak_of(LedgerKind::kHeapTensors);
}

Status Engine::stats(reprise_statistics *out) {
    if (out == nullptr) return Status::error(REPRISE_INVALID_ARGUMENT, "statistics is NULL");
    if (out->struct_size < sizeof(size_t) || out->struct_size > 65536) {
        return Status::error(REPRISE_INVALID_ARGUMENT, "set statistics->struct_size to sizeof(reprise_statistics) first (it is %zu)",
                             out->struct_size);
    }
    reprise_statistics all{};
    {
        Lock lock(mutex_);
        fill(all);
    }
    size_t size = std::min(out->struct_size, sizeof all);
    all.struct_size = out->struct_size;
    memcpy(out, &all, size);
    return {};
}

void Engine::write_report() const {
    if (config_.report.empty()) return;
    reprise_statistics s{};
    fill(s);
    nlohmann::json json = {{"schema", "reprise.report/1"},
                           {"run", records_.run()},
                           {"policy", to_string(config_.policy)},
                           {"dirty_source", registry_.guard() != nullptr ? registry_.guard()->name() : "compare"},
                           {"forwards", s.forwards},
                           {"replays", s.replays},
                           {"replays_on_changed_state", s.replays_on_changed_state},
                           {"rejections", s.rejections},
                           {"divergences", s.divergences},
                           {"instances_outstanding", s.instances_outstanding},
                           {"steps", s.steps},
                           {"bytes_preserved", s.bytes_preserved},
                           {"bytes_first_fill", s.bytes_first_fill},
                           {"bytes_loaded", s.bytes_loaded},
                           {"bytes_put_back", s.bytes_put_back},
                           {"bytes_held", s.bytes_held},
                           {"bytes_held_peak", s.bytes_held_peak},
                           {"bytes_tracked", s.bytes_tracked},
                           {"bytes_tracked_peak", s.bytes_tracked_peak},
                           {"nanoseconds_forward", s.nanoseconds_forward},
                           {"nanoseconds_replay", s.nanoseconds_replay}};
    json["ledger_peak"] = port_.ledger_peak();
    fill_plan(json);
    json["segments"] = nlohmann::json::array();
    for (const auto &[name, segment] : segments_) {
        json["segments"].push_back({{"name", name},
                                    {"forwards", segment->forwards},
                                    {"replays", segment->replays},
                                    {"replays_on_changed_state", segment->replays_on_changed_state}});
    }
    const std::string text = json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
    const QuietSignals quiet;
    // As for the records: a pipe without a reader must not keep the job from ending.
    const int file = ::open(config_.report.c_str(), O_WRONLY | O_TRUNC | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0644);
    size_t done = 0;
    while (file >= 0 && done < text.size()) {
        const ssize_t written = ::write(file, text.data() + done, text.size() - done);
        if (written <= 0) break;
        done += static_cast<size_t>(written);
    }
    if (done < text.size()) {
        log_line(LogLevel::kError, format("the report '%s' cannot be written (%s): give REPRISE_REPORT a path that can be written",
                                          config_.report.c_str(), strerror(errno)));
    }
    if (file >= 0) ::close(file);
}

void Engine::at_exit() {
    // A thread that holds the lock at exit may never run again: try for a while, then leave.
    Lock lock(mutex_, std::defer_lock);
    for (int attempt = 0; attempt < 200 && !lock.try_lock(); ++attempt) {
        timespec pause{0, 5000000};
        nanosleep(&pause, nullptr);
    }
    if (!lock.owns_lock() || exited_) return;
    exited_ = true;
    for (uint64_t id : executions_where([](const Execution &e) { return e.is_replay; })) put_back_states(lock, abandon(id));
    print_audit();
    write_report();
    if (config_.policy == Policy::kOff) return;
    reprise_statistics s{};
    fill(s);
    const double ms = static_cast<double>(s.nanoseconds_forward + s.nanoseconds_replay) / 1e6;
    log_line(LogLevel::kWarn, format("%zu segments, %llu replays, %llu of them on changed state; %s preserved, %s loaded, %s put back; "
                                     "%llu rejections, %llu divergences; "
                                     "%.1f ms (%s, %s)",
                                     segments_.size(), static_cast<unsigned long long>(s.replays),
                                     static_cast<unsigned long long>(s.replays_on_changed_state), human_bytes(s.bytes_preserved).c_str(),
                                     human_bytes(s.bytes_loaded).c_str(), human_bytes(s.bytes_put_back).c_str(),
                                     static_cast<unsigned long long>(s.rejections), static_cast<unsigned long long>(s.divergences), ms,
                                     to_string(config_.policy), registry_.guard() != nullptr ? registry_.guard()->name() : "compare"));
}

}  // namespace reprise
