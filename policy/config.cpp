#include "policy/config.h"

#include <unistd.h>

#include <cctype>
#include <cmath>
#include <cstdlib>
#include <utility>

namespace reprise {
namespace {

template <class Value>
void choose(Config &config, const char *variable, const char *text, const std::vector<std::pair<const char *, Value>> &choices,
            Value *out) {
    if (text == nullptr || *text == 0) return;
    std::string allowed;
    for (const auto &[name, value] : choices) {
        if (std::string(text) == name) {
            *out = value;
            return;
        }
        allowed += allowed.empty() ? "" : ", ";
        allowed += name;
    }
    config.complaints.push_back(std::string(variable) + "=" + std::string(text).substr(0, 80) + " is not one of " + allowed + "; using " +
                                choices.front().first);
}

}  // namespace

uint64_t machine_memory() {
    long pages = sysconf(_SC_PHYS_PAGES);
    long size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? static_cast<uint64_t>(pages) * static_cast<uint64_t>(size) : 0;
}

bool Config::plans() const {
    switch (policy) {
        case Policy::kOff:
        case Policy::kAudit:
            return false;
        case Policy::kSelective:
        case Policy::kWhole:
            return budget.given() || !plan.empty() || !save_plan.empty();
        default:
            return true;
    }
}

const char *to_string(Policy policy) {
    switch (policy) {
        case Policy::kSelective:
            return "selective";
        case Policy::kWhole:
            return "whole";
        case Policy::kJoint:
            return "joint";
        case Policy::kEagerWhole:
            return "eager-whole";
        case Policy::kGreedy:
            return "greedy";
        case Policy::kFixed:
            return "fixed";
        case Policy::kRetain:
            return "retain";
        case Policy::kAudit:
            return "audit";
        case Policy::kOff:
            break;
    }
    return "off";
}

bool parse_budget(const std::string &text, Budget *budget) {
    *budget = {};
    if (text == "auto") return budget->automatic = true;
    char *end = nullptr;
    double value = strtod(text.c_str(), &end);
    if (end == text.c_str() || !std::isfinite(value) || value <= 0) return false;
    std::string unit;
    for (; *end != 0; ++end) {
        if (*end != ' ') unit += static_cast<char>(tolower(static_cast<unsigned char>(*end)));
    }
    double scale = 0;
    if (unit.empty() || unit == "b") {
        scale = 1;
    } else if (unit == "%") {
        if (value > 100) return false;
        budget->share = value / 100;
        return true;
    } else {
        static constexpr char kPrefixes[] = "kmgt";
        for (int i = 0; i < 4; ++i) {
            std::string p(1, kPrefixes[i]);
            if (unit == p || unit == p + "ib" || unit == p + "b") scale = std::ldexp(1.0, 10 * (i + 1));
        }
    }
    double result = value * scale;
    if (result < 1 || result >= 9.2e18) return false;
    budget->bytes = static_cast<uint64_t>(result);
    return true;
}

Config Config::from_environment(const char *(*lookup)(const char *name)) {
    Config config;
    choose<Policy>(config, "REPRISE_POLICY", lookup("REPRISE_POLICY"),
                   {{"selective", Policy::kSelective},
                    {"whole", Policy::kWhole},
                    {"joint", Policy::kJoint},
                    {"eager-whole", Policy::kEagerWhole},
                    {"greedy", Policy::kGreedy},
                    {"fixed", Policy::kFixed},
                    {"retain", Policy::kRetain},
                    {"audit", Policy::kAudit},
                    {"off", Policy::kOff}},
                   &config.policy);
    choose<OnInfeasible>(config, "REPRISE_ON_INFEASIBLE", lookup("REPRISE_ON_INFEASIBLE"),
                         {{"least", OnInfeasible::kLeast}, {"fail", OnInfeasible::kFail}}, &config.on_infeasible);
    choose<Verify>(config, "REPRISE_VERIFY", lookup("REPRISE_VERIFY"),
                   {{"off", Verify::kOff}, {"digest", Verify::kDigest}, {"bytes", Verify::kBytes}}, &config.verify);
    choose<OnReject>(config, "REPRISE_ON_REJECT", lookup("REPRISE_ON_REJECT"), {{"fail", OnReject::kFail}, {"warn", OnReject::kWarn}},
                     &config.on_reject);
    choose<LogLevel>(config, "REPRISE_LOG", lookup("REPRISE_LOG"),
                     {{"warn", LogLevel::kWarn},
                      {"off", LogLevel::kOff},
                      {"error", LogLevel::kError},
                      {"info", LogLevel::kInfo},
                      {"debug", LogLevel::kDebug}},
                     &config.log);
    config.plan_cache = true;
    choose<bool>(config, "REPRISE_PLAN_CACHE", lookup("REPRISE_PLAN_CACHE"), {{"on", true}, {"off", false}}, &config.plan_cache);
    choose<bool>(config, "REPRISE_DIRTY", lookup("REPRISE_DIRTY"), {{"wp-async", false}, {"compare", true}}, &config.force_compare);
    if (const char *text = lookup("REPRISE_BUDGET"); text != nullptr && *text != 0) {
        if (!parse_budget(text, &config.budget)) {
            config.complaints.push_back(
                "REPRISE_BUDGET=" + std::string(text).substr(0, 80) +
                " is not a size (44GiB, 512M, a number of bytes), a share of memory (80%) or auto; no budget is used");
        }
    }
    if (const char *text = lookup("REPRISE_PLAN"); text != nullptr) config.plan = text;
    if (const char *text = lookup("REPRISE_SAVE_PLAN"); text != nullptr) config.save_plan = text;
    const char *policy = lookup("REPRISE_POLICY");
    const bool chosen = policy != nullptr && *policy != 0;
    // What a budget or a plan is given for.
    if (!chosen && (config.budget.given() || !config.plan.empty() || !config.save_plan.empty())) config.policy = Policy::kJoint;
    if (config.plans() && !config.budget.given()) config.budget.automatic = true;
    if (config.budget.bytes > machine_memory() && machine_memory() != 0) {
        config.complaints.push_back("REPRISE_BUDGET=" + std::string(lookup("REPRISE_BUDGET")).substr(0, 80) +
                                    " is more than this machine has; it is used as it is, and will not hold the job back");
    }
    if (const char *text = lookup("REPRISE_RECORDS"); text != nullptr) config.records = text;
    if (const char *text = lookup("REPRISE_REPORT"); text != nullptr) config.report = text;
    if (const char *text = lookup("REPRISE_REQUIRE"); text != nullptr) config.require = *text == '1';
    if (const char *text = lookup("REPRISE_BUSY_TIMEOUT_MS"); text != nullptr && *text != 0) {
        char *end = nullptr;
        unsigned long long value = strtoull(text, &end, 10);
        constexpr unsigned long long kMonth = 31ULL * 24 * 60 * 60 * 1000;
        if (*end == 0 && *text != '-' && value > 0 && value <= kMonth) {
            config.busy_timeout_ms = value;
        } else {
            config.complaints.push_back("REPRISE_BUSY_TIMEOUT_MS=" + std::string(text).substr(0, 80) +
                                        " is not a number of milliseconds (up to a month); using 30000");
        }
    }
    return config;
}

}  // namespace reprise
