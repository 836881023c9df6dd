#include "planner/problem_json.h"

#include "planner/json_reading.h"

namespace reprise::planner {

namespace {

using nlohmann::json;

constexpr const char *kSchema = "reprise.problem/1";
json mechanism_json(const Mechanism &mechanism) {
    json elements = json::array(), costs = json::array();
    for (const Element &element : mechanism.elements) {
        json uses = json::array();
        for (const Use &use : element.uses) uses.push_back({use.instance, use.begin, use.end});
        elements.push_back({{"pages", element.pages}, {"capture_ns", element.capture_ns}, {"uses", std::move(uses)}});
    }
    for (const ReaderCost &cost : mechanism.readers) costs.push_back({cost.ns, cost.pages});
    return {{"name", mechanism.name},
            {"kind", kKindNames[static_cast<int>(mechanism.kind)]},
            {"elements", std::move(elements)},
            {"costs", std::move(costs)}};
}

Mechanism read_mechanism(const json &from) {
    Mechanism out;
    out.name = from.at("name").get<std::string>();
    out.kind = static_cast<Kind>(index_of(kKindNames, from.at("kind").get<std::string>(), "kind of mechanism"));
    for (const json &it : from.at("elements")) {
        Element &element = out.elements.emplace_back();
        element.pages = it.at("pages").get<int64_t>();
        element.capture_ns = it.at("capture_ns").get<int64_t>();
        for (const json &use : it.at("uses"))
            element.uses.push_back({use.at(0).get<int32_t>(), use.at(1).get<int32_t>(), use.at(2).get<int32_t>()});
    }
    for (const json &cost : from.at("costs")) out.readers.push_back({cost.at(0).get<int64_t>(), cost.at(1).get<int64_t>()});
    return out;
}

Problem read(const json &from) {
    std::string schema = from.at("schema").get<std::string>();
    if (schema != kSchema) throw std::runtime_error("schema '" + schema + "': this version reads " + kSchema);
    Problem out;
    out.budget_pages = from.at("budget").get<int64_t>();
    out.grid_ns = from.at("grid_ns").get<int64_t>();
    out.base = from.at("base").get<std::vector<int64_t>>();
    for (const json &it : from.at("instances")) {
        Instance &instance = out.instances.emplace_back();
        instance.name = it.at("name").get<std::string>();
        const json &events = it.at("events");
        instance.forward_begin = events.at(0).get<int32_t>();
        instance.forward_end = events.at(1).get<int32_t>();
        instance.replay_begin = events.at(2).get<int32_t>();
        instance.replay_end = events.at(3).get<int32_t>();
        instance.keep_pages = it.at("keep").get<int64_t>();
        instance.replay_ns = it.at("replay_ns").get<int64_t>();
        instance.transient_pages = it.at("transient").get<int64_t>();
        instance.freedom = static_cast<Freedom>(index_of(kFreedomNames, it.value("freedom", "open"), "freedom"));
    }
    for (const json &it : from.at("windows")) {
        Window &window = out.windows.emplace_back();
        window.name = it.at("name").get<std::string>();
        window.readers = it.at("readers").get<std::vector<int32_t>>();
        for (const json &mechanism : it.at("mechanisms")) window.mechanisms.push_back(read_mechanism(mechanism));
    }
    return out;
}

json binding_json(const Problem &problem, const std::vector<Binding> &bindings) {
    json out = json::array();
    for (const Binding &binding : bindings) {
        json instances = json::array(), windows = json::array();
        for (int32_t i : binding.instances) instances.push_back(problem.instances[i].name);
        for (int32_t w : binding.windows) windows.push_back(problem.windows[w].name);
        out.push_back({{"slot", binding.slot},
                       {"weight", binding.weight},
                       {"base", binding.base_pages},
                       {"instances", instances},
                       {"windows", windows}});
    }
    return out;
}

}  // namespace

std::string write_problem(const Problem &problem) {
    json out{{"schema", kSchema}, {"budget", problem.budget_pages}, {"grid_ns", problem.grid_ns}, {"base", problem.base}};
    out["instances"] = json::array();
    for (const Instance &it : problem.instances)
        out["instances"].push_back({{"name", it.name},
                                    {"events", {it.forward_begin, it.forward_end, it.replay_begin, it.replay_end}},
                                    {"keep", it.keep_pages},
                                    {"replay_ns", it.replay_ns},
                                    {"transient", it.transient_pages},
                                    {"freedom", kFreedomNames[static_cast<int>(it.freedom)]}});
    out["windows"] = json::array();
    for (const Window &window : problem.windows) {
        json mechanisms = json::array();
        for (const Mechanism &mechanism : window.mechanisms) mechanisms.push_back(mechanism_json(mechanism));
        out["windows"].push_back({{"name", window.name}, {"readers", window.readers}, {"mechanisms", std::move(mechanisms)}});
    }
    // Names come from the job: whatever bytes they hold, the text stays readable.
    return out.dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<Problem> read_problem(std::string_view text) noexcept {
    try {
        Problem problem = read(json::parse(text));
        if (Status status = validate(problem); !status.ok()) return status;
        return problem;
    } catch (const std::exception &error) {
        return Status::error(REPRISE_INVALID_ARGUMENT, "this is no planner problem: %s", error.what());
    }
}

std::string write_answer(const Problem &problem, const Answer &answer) {
    json out{{"schema", "reprise.answer/1"},
             {"verdict", verdict_name(answer.verdict)},
             {"proof", proof_name(answer.proof)},
             {"least_peak", answer.least_peak},
             {"objective_ns", answer.objective_ns},
             {"bound_ns", answer.bound_ns},
             {"time_ns", answer.time_ns},
             {"peak", answer.peak_pages},
             {"peak_slot", answer.peak_slot},
             {"memory", answer.memory},
             {"replay", answer.plan.replay},
             {"mechanism", answer.plan.mechanism},
             {"binding", binding_json(problem, answer.binding)},
             {"work", answer.work}};
    if (answer.verdict != Verdict::planned)
        out["smallest"] = {{"feasible", answer.smallest.feasible_pages},
                           {"bound", answer.smallest.bound_pages},
                           {"exact", answer.smallest.exact},
                           {"replay", answer.smallest.plan.replay},
                           {"mechanism", answer.smallest.plan.mechanism}};
    return out.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace reprise::planner
