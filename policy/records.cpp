#include "policy/records.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "allocator/base/quiet_signals.h"
#include "kernels/kernels.h"
#include "policy/log.h"

namespace reprise {

RecordFile::RecordFile(std::string path) : path_(std::move(path)), wanted_(!path_.empty()) {
    new_run();
    if (wanted_) open();
}

void RecordFile::new_run() {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    run_ = format("%llx-%d", static_cast<unsigned long long>(now.tv_sec) * 1000 + static_cast<unsigned long long>(now.tv_nsec) / 1000000,
                  getpid());
}

bool RecordFile::open() {
    const QuietSignals quiet;
    // Never waits: a pipe without a reader is an error, and one that is full loses lines.
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0644);
    if (descriptor_ < 0) {
        give_up("cannot be opened", errno);
        return false;
    }
    // High, where a program that closes or reuses small numbers does not look.
    if (int high = fcntl(descriptor_, F_DUPFD_CLOEXEC, 700); high >= 0) {
        close(descriptor_);
        descriptor_ = high;
    }
    struct stat status {};
    fstat(descriptor_, &status);
    device_ = status.st_dev;
    inode_ = status.st_ino;
    regular_ = S_ISREG(status.st_mode);
    size_ = 0;
    return true;
}

// A run that was killed leaves half a line, at most one: what follows must not be taken for its end.
void RecordFile::end_torn_line(uint64_t size) {
    char last = '\n';
    const int reader = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (reader < 0) return;
    struct stat status {};
    const bool ours = fstat(reader, &status) == 0 && status.st_dev == device_ && status.st_ino == inode_;
    if (ours && pread(reader, &last, 1, static_cast<off_t>(size - 1)) == 1 && last != '\n') {
        const ssize_t written = ::write(descriptor_, "\n", 1);
        (void)written;  // the line that follows will fail for the same reason, and say so
    }
    close(reader);
}

void RecordFile::give_up(const char *what, int error) {
    log_line(LogLevel::kError,
             format("the record file '%s' %s (%s): nothing more is recorded; the job goes on. Give REPRISE_RECORDS a path that "
                    "can be written",
                    path_.c_str(), what, strerror(error)));
    wanted_ = false;
}

void RecordFile::write(const nlohmann::json &line) {
    if (wanted_) write_line(line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

void RecordFile::write_line(std::string text) {
    if (!wanted_) return;
    struct stat status {};
    if (fstat(descriptor_, &status) != 0 || status.st_dev != device_ || status.st_ino != inode_) {
        // Somebody closed our descriptor; its number is not ours any more.
        if (!open()) return;
    }
    text += '\n';
    const QuietSignals quiet;
    if (regular_ && fstat(descriptor_, &status) == 0) {
        const auto size = static_cast<uint64_t>(status.st_size);
        if (size != 0 && size != size_) end_torn_line(size);
    }
    ssize_t written = ::write(descriptor_, text.data(), text.size());
    if (regular_ && written > 0 && fstat(descriptor_, &status) == 0) size_ = static_cast<uint64_t>(status.st_size);
    if (written < 0) {
        give_up("cannot be written", errno);
    } else if (static_cast<size_t>(written) != text.size()) {
        // A torn line would make the rest unreadable: take it back.
        struct stat now {};
        if (fstat(descriptor_, &now) == 0 && ftruncate(descriptor_, now.st_size - written) != 0) errno = ENOSPC;
        give_up("is full", ENOSPC);
    }
}

uint64_t contract_digest(const Instance &instance) {
    std::string text = instance.segment->name;
    for (const ScopeEntry &entry : instance.scope) {
        text += '\n';
        // An argument's name is stable, its address and size may not be: activations come and go.
        text += entry.buffer->name;
        text += entry.buffer->flags.argument ? "" : format(" %zu", entry.buffer->range.size());
        text += ' ';
        text += to_string(entry.buffer->mechanism->kind());
    }
    for (const SavedState &state : instance.states) text += "\nstate " + state.provider;
    for (const GeneratorNote &note : instance.generators) text += "\ngenerator " + note.provider;
    return kernels::digest(text.data(), text.size());
}

nlohmann::json contract_json(const Instance &instance, const std::string &run) {
    nlohmann::json json;
    json["schema"] = "reprise.contract/1";
    json["run"] = run;
    json["segment"] = instance.segment->name;
    json["instance"] = instance.id;
    json["step"] = instance.step;
    json["window"] = instance.window;
    json["digest"] = format("%016llx", static_cast<unsigned long long>(contract_digest(instance)));
    json["buffers"] = nlohmann::json::array();
    for (size_t i = 0; i < instance.scope.size(); ++i) {
        const ScopeEntry &entry = instance.scope[i];
        const Buffer &buffer = *entry.buffer;
        nlohmann::json line;
        line["name"] = buffer.name;
        line["address"] = format("%#zx", static_cast<size_t>(buffer.range.begin));
        line["size"] = buffer.range.size();
        line["generation"] = buffer.generation;
        line["version"] = entry.version;
        line["write_version"] = buffer.write_version;
        line["mechanism"] = to_string(buffer.mechanism->kind());
        // Entries whose bytes overlap are one alias group, named by the lowest buffer id in it.
        uint64_t group = buffer.id;
        for (const ScopeEntry &other : instance.scope) {
            if (other.buffer->range.meets(buffer.range)) group = std::min(group, other.buffer->id);
        }
        line["alias_group"] = group;
        if (buffer.flags.generator) line["generator"] = true;
        if (buffer.flags.parameter) line["parameter"] = true;
        if (buffer.flags.argument) line["argument"] = true;
        if (i < instance.witnesses.size() && instance.witnesses[i].present) {
            const kernels::Digest128 &digest = instance.witnesses[i].digest;
            line["digest"] =
                format("%016llx%016llx", static_cast<unsigned long long>(digest.high), static_cast<unsigned long long>(digest.low));
        }
        json["buffers"].push_back(std::move(line));
    }
    json["generators"] = nlohmann::json::array();
    for (const GeneratorNote &note : instance.generators) {
        json["generators"].push_back(
            {{"provider", note.provider}, {"digest", format("%016llx", static_cast<unsigned long long>(note.digest))}});
    }
    for (const SavedState &state : instance.states) {
        uint64_t digest = kernels::digest(state.bytes.data(), state.bytes.size());
        json["generators"].push_back(
            {{"provider", state.provider}, {"digest", format("%016llx", static_cast<unsigned long long>(digest))}});
    }
    return json;
}

}  // namespace reprise
