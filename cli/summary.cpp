#include "cli/summary.h"

#include <algorithm>

#include "cli/text.h"

namespace reprise::cli {

void Summary::add(const Line &line) {
    cycles.add(line);
    switch (line.kind) {
        case LineKind::kRecord:
            add_record(line.json);
            return;
        case LineKind::kContract: {
            ++contracts;
            Segment &segment = segments[text_of(line.json, "segment")];
            ++segment.contracts;
            segment.contract = line.json;
            if (const std::string run = text_of(line.json, "run"); !run.empty()) runs.insert(run);
            return;
        }
        case LineKind::kReport:
            add_report(line.json);
            return;
        case LineKind::kProfile:
        case LineKind::kPlan:
        case LineKind::kTimeline:
            if (const std::string run = text_of(line.json, "run"); !run.empty()) runs.insert(run);
            if (const std::string policy = text_of(line.json, "policy"); !policy.empty()) policies.insert(policy);
            return;
        case LineKind::kForeign:
        case LineKind::kBroken:
        case LineKind::kTorn:
            break;
    }
    if (problems.size() < kProblems) {
        problems.push_back({line.number, line.problem});
    } else {
        ++more_problems;
    }
}

void Summary::add_record(const Json &json) {
    ++records;
    Segment &segment = segments[text_of(json, "segment")];
    if (const std::string run = text_of(json, "run"); !run.empty()) runs.insert(run);
    if (const std::string policy = text_of(json, "policy"); !policy.empty()) policies.insert(policy);
    const std::string outcome = text_of(json, "outcome"), reason = text_of(json, "reason");
    ++segment.outcomes[outcome.empty() ? "?" : outcome];
    for (const Json &buffer : array_of(json, "changed")) {
        Finding &finding = segment.findings[text_of(buffer, "buffer")];
        const uint64_t bytes = number_of(buffer, "bytes");
        ++finding.replays;
        finding.bytes += bytes;
        finding.least = std::min(finding.least, bytes);
        finding.most = std::max(finding.most, bytes);
    }
    // Under audit a replay leaves what was found when it began, and the record of its end: its bytes are counted once.
    if (outcome == "audit") return;
    ++segment.records;
    const uint64_t nanoseconds = number_of(json, "nanoseconds"), changed = number_of(json, "bytes_changed");
    segment.on_changed_state += changed != 0;
    segment.bytes_changed += changed;
    segment.bytes_put_back += number_of(json, "bytes_put_back");
    segment.nanoseconds += nanoseconds;
    segment.longest_ns = std::max(segment.longest_ns, nanoseconds);
    last_step = std::max(last_step, number_of(json, "step"));
    if (!reason.empty()) {
        if (segment.reasons.size() < kReasons || segment.reasons.count(reason) != 0) {
            ++segment.reasons[reason];
        } else {
            ++segment.more_reasons;
        }
    }
    if (const Json &mechanisms = object_of(json, "mechanisms"); !mechanisms.empty()) {
        segment.mechanisms.clear();
        for (const auto &[name, count] : mechanisms.items()) {
            if (count.is_number_unsigned()) segment.mechanisms[name] = count.get<uint64_t>();
        }
    }
    for (const Json &buffer : array_of(json, "strays")) {
        Stray &stray = segment.strays[text_of(buffer, "buffer")];
        ++stray.replays;
        stray.bytes += number_of(buffer, "bytes");
        stray.runs += number_of(buffer, "runs");
    }
    if (json.contains("bytes_held")) add_memory({number_of(json, "step"), number_of(json, "bytes_held"), number_of(json, "bytes_tracked")});
}

void Summary::add_report(const Json &json) {
    reports.push_back(json);
    if (const std::string run = text_of(json, "run"); !run.empty()) runs.insert(run);
    if (const std::string policy = text_of(json, "policy"); !policy.empty()) policies.insert(policy);
    for (const Json &entry : array_of(json, "segments")) {
        Segment &segment = segments[text_of(entry, "name")];
        segment.forwards += number_of(entry, "forwards");
        segment.replays += number_of(entry, "replays");
    }
}

void Summary::add_memory(const MemoryPoint &point) {
    // The highest of each stretch stays: a timeline without its peaks would be a lie.
    if (memory_seen++ % memory_stride == 0 || memory.empty()) {
        memory.push_back(point);
    } else if (point.held > memory.back().held) {
        memory.back() = point;
    }
    if (memory.size() < kPoints) return;
    std::vector<MemoryPoint> kept;
    for (size_t i = 0; i + 1 < memory.size(); i += 2) kept.push_back(memory[i].held >= memory[i + 1].held ? memory[i] : memory[i + 1]);
    memory = std::move(kept);
    memory_stride *= 2;
}

uint64_t Summary::total(const char *outcome) const {
    uint64_t sum = 0;
    for (const auto &[name, segment] : segments) sum += segment.outcome(outcome);
    return sum;
}

std::string summarise(const std::string &path, Summary &summary) {
    return read_file(path, [&](Line &line) { summary.add(line); }).problem;
}

std::string outcomes_text(const std::map<std::string, uint64_t> &counts) {
    std::string text;
    for (const auto &[name, count] : counts) text += (text.empty() ? "" : ", ") + human_count(count) + " " + printable(name);
    return text;
}

std::string remedy_for(const std::string &outcome, const std::string &reason) {
    if (outcome == "audit") {
        return "run it under REPRISE_POLICY=selective (reprise run -- ...): these bytes are then restored for the replay and put back "
               "after it";
    }
    if (outcome == "divergence") {
        return "the replay wrote what its forward had not: another thread's writes (declare the buffer concurrent), or a segment that does "
               "not do the "
               "same twice (make it deterministic)";
    }
    if (reason.find("REPRISE_REENTRANT=convert") != std::string::npos)
        return "run with REPRISE_REENTRANT=convert (reprise run --reentrant convert)";
    return "what the sentence says; docs/limits.md lists what cannot be protected, and REPRISE_ON_REJECT=warn goes on with a gradient that "
           "may be wrong";
}

}  // namespace reprise::cli
