#include "planner/plan_json.h"

#include <cinttypes>
#include <new>
#include <set>
#include <utility>

#include "planner/json_reading.h"

namespace reprise::planner {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char *kSchema = "reprise.plan";
constexpr const char *kDecisions[] = {"retain", "replay"};
constexpr const char *kVerdicts[] = {"planned", "infeasible", "undecided"};
constexpr const char *kProofs[] = {"none", "eps", "exact"};
constexpr const char *kPolicyNames[] = {"joint", "retain", "whole", "selective", "fixed", "eager-whole", "greedy"};

uint64_t read_shape(const Place &from) {
    const std::string text = from.text();
    if (text.size() != 16 || text.find_first_not_of("0123456789abcdef") != std::string::npos)
        from.refuse("is not a shape: 16 hexadecimal digits");
    return strtoull(text.c_str(), nullptr, 16);
}

PlannedWindow read_window(const Place &from, const JobPlan &plan) {
    PlannedWindow out;
    out.buffer = from.field("buffer").text();
    out.bytes = from.field("bytes").number();
    out.kind = static_cast<Kind>(from.field("kind").word(kKindNames, "kind of mechanism"));
    out.mechanism = from.has("mechanism") ? from.field("mechanism").text() : kKindNames[static_cast<int>(out.kind)];
    const Place readers = from.field("readers"), unchanged = from.field("unchanged");
    std::set<int32_t> seen;
    for (size_t k = 0; k < readers.size(); k++) {
        const int32_t reader = readers.at(k).small_number();
        if (static_cast<size_t>(reader) >= plan.instances.size()) readers.at(k).refuse("is no instance of the plan");
        if (!plan.instances[static_cast<size_t>(reader)].replay) readers.at(k).refuse("is an instance that the plan retains");
        if (!seen.insert(reader).second) readers.at(k).refuse("is there twice");
        out.readers.push_back(reader);
    }
    if (unchanged.size() != out.readers.size()) unchanged.refuse("must have an entry for each reader");
    for (size_t k = 0; k < unchanged.size(); k++) out.unchanged.push_back(unchanged.at(k).flag());
    if (!out.unchanged.empty() && out.unchanged[0]) unchanged.at(0).refuse("is true, and there is no reader before the first");
    return out;
}

JobPlan read(std::string_view text) {
    const nlohmann::json value = parse_text(text, kSchema);
    const Place from(value, "");
    JobPlan out;
    out.policy = static_cast<Policy>(from.field("policy").word(kPolicyNames, "policy"));
    out.shape = read_shape(from.field("shape"));
    out.budget_bytes = from.field("budget_bytes").number();
    out.verdict = static_cast<Verdict>(from.field("verdict").word(kVerdicts, "verdict"));
    out.proof = static_cast<Proof>(from.field("proof").word(kProofs, "proof"));
    const std::pair<const char *, int64_t *> numbers[] = {{"added_ns", &out.added_ns},
                                                          {"bound_ns", &out.bound_ns},
                                                          {"retained_bytes", &out.retained_bytes},
                                                          {"smallest_bytes", &out.smallest_bytes},
                                                          {"smallest_bound_bytes", &out.smallest_bound_bytes},
                                                          {"peak_bytes", &out.peak_bytes}};
    for (const auto &[name, number] : numbers) *number = from.field(name).number();
    out.peak_slot = from.field("peak_slot").small_number();
    if (from.has("work")) out.work = static_cast<uint64_t>(from.field("work").number());
    const Place instances = from.field("instances"), windows = from.field("windows"), memory = from.field("memory_bytes");
    std::set<std::pair<std::string, int32_t>> keys;
    for (size_t k = 0; k < instances.size(); k++) {
        const Place entry = instances.at(k);
        PlannedInstance &it = out.instances.emplace_back();
        it.segment = entry.field("segment").text();
        it.ordinal = entry.field("ordinal").small_number();
        it.replay = entry.field("decision").word(kDecisions, "decision") == 1;
        it.keep_bytes = entry.field("keep_bytes").number();
        it.replay_ns = entry.field("replay_ns").number();
        if (entry.has("measured_keep_bytes")) it.measured_keep_bytes = entry.field("measured_keep_bytes").number();
        if (entry.has("why")) it.why = entry.field("why").text();
        if (!keys.emplace(it.segment, it.ordinal).second) entry.refuse("is a forward that the plan has twice");
    }
    for (size_t k = 0; k < windows.size(); k++) out.windows.push_back(read_window(windows.at(k), out));
    for (size_t t = 0; t < memory.size(); t++) out.memory_bytes.push_back(memory.at(t).number());
    if (out.peak_slot != 0 && static_cast<size_t>(out.peak_slot) >= out.memory_bytes.size())
        from.field("peak_slot").refuse("is no slot of memory_bytes");
    if (from.has("binding")) {
        const Place binding = from.field("binding");
        for (size_t k = 0; k < binding.size(); k++) out.binding.push_back(binding.at(k).text());
    }
    return out;
}

}  // namespace

std::string write_plan(const JobPlan &plan, const std::string &run, uint64_t step) {
    char shape[17];
    snprintf(shape, sizeof shape, "%016" PRIx64, plan.shape);
    Json out{{"schema", std::string(kSchema) + "/1"}};
    if (!run.empty()) {
        out["run"] = run;
        out["step"] = step;
    }
    out["policy"] = policy_name(plan.policy);
    out["shape"] = shape;
    out["budget_bytes"] = plan.budget_bytes;
    out["verdict"] = verdict_name(plan.verdict);
    out["proof"] = proof_name(plan.proof);
    out["added_ns"] = plan.added_ns;
    out["bound_ns"] = plan.bound_ns;
    out["retained_bytes"] = plan.retained_bytes;
    out["smallest_bytes"] = plan.smallest_bytes;
    out["smallest_bound_bytes"] = plan.smallest_bound_bytes;
    out["peak_bytes"] = plan.peak_bytes;
    out["peak_slot"] = plan.peak_slot;
    out["work"] = plan.work;
    Json instances = Json::array(), windows = Json::array();
    for (const PlannedInstance &it : plan.instances) {
        instances.push_back({{"segment", it.segment},
                             {"ordinal", it.ordinal},
                             {"decision", kDecisions[it.replay]},
                             {"keep_bytes", it.keep_bytes},
                             {"replay_ns", it.replay_ns},
                             {"why", it.why}});
        if (it.measured_keep_bytes != 0) instances.back()["measured_keep_bytes"] = it.measured_keep_bytes;
    }
    for (const PlannedWindow &window : plan.windows) {
        Json unchanged = Json::array();
        for (uint8_t flag : window.unchanged) unchanged.push_back(flag != 0);
        windows.push_back({{"buffer", window.buffer},
                           {"bytes", window.bytes},
                           {"kind", kKindNames[static_cast<int>(window.kind)]},
                           {"mechanism", window.mechanism},
                           {"readers", window.readers},
                           {"unchanged", std::move(unchanged)}});
    }
    out["binding"] = plan.binding;
    out["instances"] = std::move(instances);
    out["windows"] = std::move(windows);
    out["memory_bytes"] = plan.memory_bytes;
    return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<JobPlan> read_plan(std::string_view text) noexcept {
    try {
        return read(text);
    } catch (const std::bad_alloc &) {
        return Status::error(REPRISE_OUT_OF_MEMORY, "there is not enough memory to read the plan");
    } catch (const std::exception &error) {
        return Status::error(REPRISE_INVALID_ARGUMENT, "this is no plan that can be read: %s", error.what());
    }
}

}  // namespace reprise::planner
