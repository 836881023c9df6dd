#include "cli/check.h"

#include <algorithm>

#include "cli/text.h"
#include "kernels/kernels.h"

namespace reprise::cli {
namespace {

enum class Type : uint8_t { kText, kNumber, kArray, kObject };
struct Field {
    const char *name;
    Type type;
};

const char *type_name(Type type) {
    switch (type) {
        case Type::kText:
            return "text";
        case Type::kNumber:
            return "a whole number that is not negative";
        case Type::kArray:
            return "an array";
        case Type::kObject:
            break;
    }
    return "an object";
}

bool has_type(const Json &value, Type type) {
    switch (type) {
        case Type::kText:
            return value.is_string();
        case Type::kNumber:
            return value.is_number_unsigned();
        case Type::kArray:
            return value.is_array();
        case Type::kObject:
            break;
    }
    return value.is_object();
}

std::string quote(const std::string &text) { return "'" + printable(text.substr(0, 80)) + "'"; }

bool is_hex(const std::string &text, size_t digits) {
    return text.size() == digits && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

const std::vector<std::string> kOutcomes = {"match", "rejection", "divergence", "unprotected", "audit"};
constexpr size_t kRunsPerRecord = 32;

// Calls say(text) for every field that is missing or of another type.
template <class Say>
bool check_fields(const Json &json, const std::vector<Field> &fields, const std::string &what, Say say) {
    bool good = true;
    for (const Field &field : fields) {
        const auto found = json.find(field.name);
        if (found != json.end() && has_type(*found, field.type)) continue;
        say(what + (found == json.end() ? " has no field '" : "'s field '") + field.name + "'" +
            (found == json.end() ? "" : std::string(" is not ") + type_name(field.type)));
        good = false;
    }
    return good;
}

}  // namespace

void Check::line(const Line &line) {
    switch (line.kind) {
        case LineKind::kRecord:
            ++records_;
            text_of(line.json, "outcome") == "audit" ? check_audit(line.number, line.json) : check_record(line.number, line.json);
            return;
        case LineKind::kContract:
            ++contracts_;
            check_contract(line.number, line.json);
            return;
        case LineKind::kProfile:
            check_profile(line.number, line.json);
            return;
        case LineKind::kPlan:
            check_plan(line.number, line.json);
            return;
        case LineKind::kTimeline:
            check_timeline(line.number, line.json);
            return;
        case LineKind::kTorn:
            torn_.push_back(line.number);
            notes_.push_back({line.number, "the line " + line.problem});
            return;
        case LineKind::kReport:
            violation(line.number, "this is a report, not a record: give it with --report");
            return;
        case LineKind::kForeign:
        case LineKind::kBroken:
            break;
    }
    violation(line.number, "the line " + line.problem);
}

void Check::end() {
    // A run that is killed leaves one half line at most (docs/formats.md).
    const size_t allowed = std::max<size_t>(runs_.size(), 1);
    for (size_t i = allowed; i < torn_.size(); ++i) {
        violation(torn_[i], format("half a line too many: %zu of them, and %zu runs leave one each at most", torn_.size(), allowed));
    }
    end_planning();
}

void Check::check_counters(uint64_t line, const Json &json, Run &run) {
    const uint64_t step = number_of(json, "step"), id = number_of(json, "instance");
    if (step < run.last_step) {
        violation(line, format("step %llu comes after step %llu of the same run", static_cast<unsigned long long>(step),
                               static_cast<unsigned long long>(run.last_step)));
    }
    run.last_step = std::max(run.last_step, step);
    if (id == 0) violation(line, "instance 0: instances count from 1");
    const std::string segment = text_of(json, "segment");
    const auto [found, fresh] = run.instances.try_emplace(id, Instance{segment, 0});
    if (!fresh && found->second.segment != segment) {
        violation(line, format("instance %llu is of segment %s here and of %s before", static_cast<unsigned long long>(id),
                               quote(segment).c_str(), quote(found->second.segment).c_str()));
    }
}

void Check::check_record(uint64_t line, const Json &json) {
    const auto say = [&](const std::string &text) { violation(line, text); };
    static const std::vector<Field> kFields = {
        {"run", Type::kText},    {"segment", Type::kText},      {"instance", Type::kNumber},      {"replay", Type::kNumber},
        {"step", Type::kNumber}, {"policy", Type::kText},       {"contract", Type::kText},        {"outcome", Type::kText},
        {"reason", Type::kText}, {"mechanisms", Type::kObject}, {"bytes_changed", Type::kNumber}, {"nanoseconds", Type::kNumber}};
    if (!check_fields(json, kFields, "the record", say)) return;
    const std::string outcome = text_of(json, "outcome"), reason = text_of(json, "reason"), policy = text_of(json, "policy");
    if (std::find(kOutcomes.begin(), kOutcomes.end(), outcome) == kOutcomes.end()) say("unknown outcome " + quote(outcome));
    if (text_of(json, "segment").empty()) say("the segment has no name");
    if (policy.empty()) say("the policy is empty");
    if ((outcome == "rejection" || outcome == "divergence") && reason.empty()) say("outcome " + outcome + " without a reason");
    if (!is_hex(text_of(json, "contract"), 16))
        say("the contract is not named by 16 hexadecimal digits: " + quote(text_of(json, "contract")));
    Run &run = runs_[text_of(json, "run")];
    check_counters(line, json, run);

    const uint64_t replay = number_of(json, "replay"), changed = number_of(json, "bytes_changed");
    Instance &instance = run.instances[number_of(json, "instance")];
    if (replay < instance.replay) {
        violation(line,
                  format("replay %llu of instance %llu comes after its replay %llu", static_cast<unsigned long long>(replay),
                         static_cast<unsigned long long>(number_of(json, "instance")), static_cast<unsigned long long>(instance.replay)));
    }
    instance.replay = std::max(instance.replay, replay);
    if (outcome == "match" && replay == 0) say("a match that is no replay: replays count from 1");
    for (const Json &stray : array_of(json, "strays")) {
        if (!check_fields(stray, {{"buffer", Type::kText}, {"bytes", Type::kNumber}, {"runs", Type::kNumber}}, "a stray", say)) continue;
        if (number_of(stray, "bytes") == 0 || number_of(stray, "runs") == 0) say("a stray of no bytes or no runs");
    }
    const auto put_back = json.find("bytes_put_back");
    if (put_back != json.end() && !put_back->is_number_unsigned())
        say("the record's field 'bytes_put_back' is not a whole number that is not negative");
    if (policy == "audit" && number_of(json, "bytes_put_back") != 0) say("bytes were put back under audit, which changes nothing");
    check_against_contract(line, json, run);

    SegmentSums &sums = run.segments[text_of(json, "segment")];
    run.rejections += outcome == "rejection";
    run.divergences += outcome == "divergence";
    run.bytes_put_back += number_of(json, "bytes_put_back");
    if (put_back == json.end()) return;  // decided before, or beside, a replay
    ++sums.executed;
    sums.on_changed_state += changed != 0;
}

void Check::check_against_contract(uint64_t line, const Json &json, const Run &run) {
    const std::string key = text_of(json, "segment") + '\n' + text_of(json, "contract");
    const auto found = run.contracts.find(key);
    if (found == run.contracts.end()) {
        violation(line, "refers to contract " + quote(text_of(json, "contract")) + " of segment " + quote(text_of(json, "segment")) +
                            ", which this run has not written before");
        return;
    }
    const Contract &contract = found->second;
    std::map<std::string, uint64_t> mechanisms;
    for (const auto &[name, count] : object_of(json, "mechanisms").items()) {
        if (!count.is_number_unsigned()) violation(line, "mechanism " + quote(name) + " does not count buffers");
        mechanisms[name] = count.is_number_unsigned() ? count.get<uint64_t>() : 0;
    }
    if (mechanisms != contract.mechanisms) {
        violation(line, "its mechanisms are not those of its contract (" + outcomes_text(mechanisms) +
                            "; contract: " + outcomes_text(contract.mechanisms) + ")");
    }
    if (contract.arguments) return;
    for (const char *field : {"bytes_changed", "bytes_put_back"}) {
        if (number_of(json, field) <= contract.bytes) continue;
        violation(line, format("%s %llu is more than all buffers of its contract have (%llu)", field,
                               static_cast<unsigned long long>(number_of(json, field)), static_cast<unsigned long long>(contract.bytes)));
    }
}

void Check::check_audit(uint64_t line, const Json &json) {
    const auto say = [&](const std::string &text) { violation(line, text); };
    static const std::vector<Field> kFields = {{"run", Type::kText},     {"segment", Type::kText}, {"instance", Type::kNumber},
                                               {"step", Type::kNumber},  {"policy", Type::kText},  {"bytes_changed", Type::kNumber},
                                               {"changed", Type::kArray}};
    if (!check_fields(json, kFields, "the finding", say)) return;
    Run &run = runs_[text_of(json, "run")];
    check_counters(line, json, run);
    ++run.audited_changed;
    uint64_t sum = 0;
    for (const Json &buffer : array_of(json, "changed")) {
        if (!check_fields(buffer, {{"buffer", Type::kText}, {"bytes", Type::kNumber}, {"runs", Type::kArray}}, "a changed buffer", say))
            continue;
        const Json &runs = array_of(buffer, "runs");
        const uint64_t bytes = number_of(buffer, "bytes");
        uint64_t in_runs = 0;
        bool whole = true;
        for (const Json &piece : runs) {
            whole = piece.is_array() && piece.size() == 2 && piece[0].is_number_unsigned() && piece[1].is_number_unsigned();
            if (!whole) break;
            in_runs += piece[1].get<uint64_t>();
        }
        const std::string name = quote(text_of(buffer, "buffer"));
        if (!whole) say("a run of buffer " + name + " is not [offset, size]");
        // What could not have been loaded at all has its whole size, and maybe no runs; beyond 32 runs the rest are not listed.
        if (whole && (in_runs > bytes || (in_runs < bytes && runs.size() < kRunsPerRecord && !runs.empty()))) {
            say(format("the runs of buffer %s are %llu bytes, and it says %llu", name.c_str(), static_cast<unsigned long long>(in_runs),
                       static_cast<unsigned long long>(bytes)));
        }
        sum += bytes;
    }
    if (sum != number_of(json, "bytes_changed")) {
        say(format("its buffers changed in %llu bytes, and it says %llu", static_cast<unsigned long long>(sum),
                   static_cast<unsigned long long>(number_of(json, "bytes_changed"))));
    }
}

void Check::check_contract(uint64_t line, const Json &json) {
    const auto say = [&](const std::string &text) { violation(line, text); };
    static const std::vector<Field> kFields = {{"run", Type::kText},        {"segment", Type::kText}, {"instance", Type::kNumber},
                                               {"step", Type::kNumber},     {"digest", Type::kText},  {"buffers", Type::kArray},
                                               {"generators", Type::kArray}};
    if (!check_fields(json, kFields, "the contract", say)) return;
    static const std::vector<Field> kBuffer = {
        {"name", Type::kText},      {"address", Type::kText},         {"size", Type::kNumber},    {"generation", Type::kNumber},
        {"version", Type::kNumber}, {"write_version", Type::kNumber}, {"mechanism", Type::kText}, {"alias_group", Type::kNumber}};
    Contract contract;
    bool whole = true;
    for (const Json &buffer : array_of(json, "buffers")) {
        if (!check_fields(buffer, kBuffer, "a buffer", say)) {
            whole = false;
            continue;
        }
        const std::string name = quote(text_of(buffer, "name")), address = text_of(buffer, "address");
        if (number_of(buffer, "size") == 0) say("buffer " + name + " has no bytes");
        if (address.size() < 3 || address.compare(0, 2, "0x") != 0 ||
            address.find_first_not_of("0123456789abcdef", 2) != std::string::npos) {
            say("buffer " + name + "'s address is not hexadecimal: " + quote(address));
        }
        if (buffer.contains("digest") && !is_hex(text_of(buffer, "digest"), 32))
            say("buffer " + name + "'s digest is not 32 hexadecimal digits");
        ++contract.mechanisms[text_of(buffer, "mechanism")];
        contract.bytes += number_of(buffer, "size");
        contract.arguments = contract.arguments || buffer.contains("argument");
    }
    for (const Json &generator : array_of(json, "generators")) {
        if (!check_fields(generator, {{"provider", Type::kText}, {"digest", Type::kText}}, "a generator", say)) {
            whole = false;
        } else if (!is_hex(text_of(generator, "digest"), 16)) {
            say("generator " + quote(text_of(generator, "provider")) + "'s digest is not 16 hexadecimal digits");
        }
    }
    const std::string digest = text_of(json, "digest");
    if (!is_hex(digest, 16)) {
        say("the digest is not 16 hexadecimal digits: " + quote(digest));
    } else if (whole) {
        ++digests_;
        if (!digest_agrees(json)) say("the digest " + digest + " is not that of its segment, buffers, mechanisms and generators");
    }
    Run &run = runs_[text_of(json, "run")];
    check_counters(line, json, run);
    run.contracts[text_of(json, "segment") + '\n' + digest] = std::move(contract);
}

// What a contract's digest is made of: docs/formats.md. Providers of the C API and generators of an adapter stand in one list in the file,
// the adapter's first; which are which is not said, so each split is tried.
bool Check::digest_agrees(const Json &json) const {
    std::string text = text_of(json, "segment");
    for (const Json &buffer : array_of(json, "buffers")) {
        text += '\n' + text_of(buffer, "name");
        if (!buffer.contains("argument")) text += " " + std::to_string(number_of(buffer, "size"));
        text += ' ' + text_of(buffer, "mechanism");
    }
    // A name that was not UTF-8 is written with replacement characters: its digest cannot be made again.
    if (text.find("\xef\xbf\xbd") != std::string::npos) return true;
    const Json &generators = array_of(json, "generators");
    for (size_t split = 0; split <= generators.size(); ++split) {
        std::string all = text;
        for (size_t i = split; i < generators.size(); ++i) all += "\nstate " + text_of(generators[i], "provider");
        for (size_t i = 0; i < split; ++i) all += "\ngenerator " + text_of(generators[i], "provider");
        if (format("%016llx", static_cast<unsigned long long>(kernels::digest(all.data(), all.size()))) == text_of(json, "digest"))
            return true;
    }
    return false;
}

void Check::report(const Json &report) {
    const std::string name = text_of(report, "run");
    const auto found = runs_.find(name);
    if (found == runs_.end()) {
        violation(0, "the report is of run " + quote(name) + ", of which there is no record");
        return;
    }
    const Run &run = found->second;
    // A replay that was aborted, or whose instance was unknown, is counted and leaves no record: the report may say more, never less.
    const auto at_least = [&](const std::string &what, uint64_t reported, uint64_t recorded) {
        const std::string text = format("the report says %llu %s, the records of the run say %llu",
                                        static_cast<unsigned long long>(reported), what.c_str(), static_cast<unsigned long long>(recorded));
        if (reported < recorded) violation(0, text);
        if (reported > recorded) notes_.push_back({0, text + " (replays that were aborted leave no record)"});
    };
    at_least("rejections", number_of(report, "rejections"), run.rejections);
    at_least("divergences", number_of(report, "divergences"), run.divergences);
    at_least("bytes put back", number_of(report, "bytes_put_back"), run.bytes_put_back);
    std::map<std::string, uint64_t> reported;
    for (const Json &segment : array_of(report, "segments"))
        reported[text_of(segment, "name")] = number_of(segment, "replays_on_changed_state");
    for (const auto &[segment, sums] : run.segments) {
        at_least("replays of segment " + quote(segment) + " on changed state", reported[segment], sums.on_changed_state);
    }
}

}  // namespace reprise::cli
