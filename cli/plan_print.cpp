#include "cli/plan_print.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>

#include "cli/text.h"

namespace reprise::cli {

using planner::JobPlan;
using planner::Kind;
using planner::Policy;
using planner::Profile;
using enum Table::Align;

namespace {

std::string bytes(int64_t count) { return human_bytes(static_cast<double>(count)); }
std::string time(int64_t nanoseconds) { return human_duration(static_cast<double>(nanoseconds)); }

std::string proof_text(const JobPlan &plan) {
    if (!fits(plan)) return plan.verdict == planner::Verdict::infeasible ? "does not fit" : "no plan found";
    switch (plan.proof) {
        case planner::Proof::exact:
            return "exact";
        case planner::Proof::eps:
            return "within 0.01 %";
        case planner::Proof::none:
            break;
    }
    if (plan.policy != Policy::joint && plan.policy != Policy::eager_whole) return "a rule";
    if (plan.added_ns == 0) return "none";
    return "within " + human_share(static_cast<double>(plan.added_ns - plan.bound_ns) / static_cast<double>(plan.added_ns));
}

std::string name_of(const planner::ProfileInstance &it) {
    return printable(it.segment) + (it.ordinal > 0 ? " (" + std::to_string(it.ordinal) + ")" : "");
}

}  // namespace

void print_profile(const std::string &file, const Profile &profile, const Sweep &sweep) {
    std::set<std::string> segments;
    int64_t state = 0;
    for (const auto &it : profile.instances) segments.insert(it.segment);
    for (const auto &buffer : profile.buffers) state += buffer.bytes;
    printf("%s: run %s, step %s: %s of %s, %s (%s), times over %s\n", printable(file).c_str(), printable(profile.run).c_str(),
           human_count(profile.step).c_str(), plural(profile.instances.size(), "forward").c_str(),
           plural(segments.size(), "segment").c_str(), plural(profile.buffers.size(), "buffer").c_str(), bytes(state).c_str(),
           plural(profile.cycles, "cycle").c_str());
    const JobPlan &least = sweep.least;
    const char *policy = planner::policy_name(least.policy);
    printf("  retaining everything needs %s; ", bytes(least.retained_bytes).c_str());
    if (least.smallest_bytes == least.smallest_bound_bytes) {
        printf("the smallest budget for policy %s is %s (%lld bytes; nothing below it will do)\n", policy,
               bytes(least.smallest_bytes).c_str(), static_cast<long long>(least.smallest_bytes));
    } else {
        printf("the smallest budget for policy %s lies between %s and %s (%lld bytes, for which there is a plan)\n", policy,
               bytes(least.smallest_bound_bytes).c_str(), bytes(least.smallest_bytes).c_str(),
               static_cast<long long>(least.smallest_bytes));
    }
    for (const std::string &line : least.binding) printf("  needed: %s\n", printable(line).c_str());
    if (profile.unseen_bytes > 0)
        printf("  beside that the process holds %s that no budget covers (heap, libraries, workspaces)\n",
               bytes(profile.unseen_bytes).c_str());
    puts("");
}

void print_sweep(const Sweep &sweep) {
    Table table({{"budget", kRight},
                 {"of retaining all", kRight},
                 {"peak", kRight},
                 {"added time", kRight},
                 {"retained", kRight},
                 {"replayed", kRight},
                 {"proof"}});
    for (size_t b = 0; b < sweep.budgets.size(); b++) {
        const JobPlan &plan = sweep.plan(0, b);
        const double whole = static_cast<double>(std::max<int64_t>(plan.retained_bytes, 1));
        table.add({bytes(sweep.budgets[b]), human_share(static_cast<double>(sweep.budgets[b]) / whole), bytes(plan.peak_bytes),
                   fits(plan) ? time(plan.added_ns) : "-", human_count(plan.instances.size() - replayed(plan)), human_count(replayed(plan)),
                   proof_text(plan)});
    }
    printf("  Policy %s; added time per cycle, beyond retaining everything\n%s\n", planner::policy_name(sweep.policies[0]),
           table.text("  ").c_str());
    if (sweep.budgets.size() > 3) return;
    for (size_t b = 0; b < sweep.budgets.size(); b++)
        for (const std::string &line : sweep.plan(0, b).binding)
            printf("  %s: %s: %s\n", bytes(sweep.budgets[b]).c_str(), fits(sweep.plan(0, b)) ? "binds" : "too little",
                   printable(line).c_str());
    puts("");
}

void print_comparison(const Sweep &sweep) {
    std::vector<Table::Column> columns = {{"budget", kRight}};
    for (Policy policy : sweep.policies) columns.push_back({planner::policy_name(policy), kRight});
    Table table(columns);
    for (size_t b = 0; b < sweep.budgets.size(); b++) {
        std::vector<std::string> row = {bytes(sweep.budgets[b])};
        for (size_t p = 0; p < sweep.policies.size(); p++) row.push_back(fits(sweep.plan(p, b)) ? time(sweep.plan(p, b).added_ns) : "-");
        table.add(std::move(row));
    }
    printf("  Added time of each policy; -: its plan does not fit\n%s", table.text("  ").c_str());
    std::string needs;
    for (size_t p = 0; p < sweep.policies.size() && !sweep.budgets.empty(); p++) {
        const Policy policy = sweep.policies[p];
        if (policy == Policy::joint || policy == Policy::eager_whole || policy == Policy::greedy) continue;
        needs += (needs.empty() ? "" : ", ") + std::string(planner::policy_name(policy)) + " " + bytes(sweep.plan(p, 0).peak_bytes);
    }
    if (!needs.empty()) printf("  Policies that look at no budget need: %s\n", needs.c_str());
    puts("");
}

void print_measurements(const Profile &profile) {
    const planner::MechanismCosts &costs = profile.costs;
    Table table({{"cost"}, {"measured", kRight}, {"of"}});
    const auto per_page = [](int64_t ps) {
        return (ps < 10'000 ? format("%.2f ns", static_cast<double>(ps) / 1000) : human_duration(static_cast<double>(ps) / 1000)) +
               " a page";
    };
    table.add({"copy", per_page(costs.copy_ps), "capture of a whole copy"});
    table.add({"copy, load", per_page(costs.copy_load_ps), "one that differs: the present saved, load and put-back"});
    table.add({"compare", per_page(costs.compare_ps), "a buffer with its copy"});
    table.add({"capture", time(costs.copy_fixed_ns), "every copy, whatever its size"});
    table.add({"small buffer", time(costs.small_ns), "load and put-back of one below " + bytes(costs.small_pages * 4096)});
    table.add({"watch", per_page(costs.look_ps), "a shadow's buffer, at each capture"});
    table.add({"watch again", time(costs.look_fixed_ns), "a capture that finds pages written"});
    table.add({"first write", per_page(costs.fault_ps), "the page fault, and watching the page again"});
    table.add({"page copy", per_page(costs.page_copy_ps), "a shadow brought up to date, a before-image saved"});
    table.add({"page, load", per_page(costs.page_load_ps), "a page that differs: the present saved, load and put-back"});
    printf("  Costs measured on this machine and in this job\n%s\n", table.text("  ").c_str());
    Table segments({{"segment"},
                    {"forward", kRight},
                    {"replay", kRight},
                    {"in Reprise", kRight},
                    {"keeps", kRight},
                    {"while replayed", kRight},
                    {"choice"}});
    for (const auto &it : profile.instances)
        segments.add({name_of(it), time(it.forward_ns), time(it.replay_ns), time(it.overhead_ns), bytes(it.keep_bytes),
                      bytes(it.transient_bytes),
                      it.freedom == planner::Freedom::open     ? "open"
                      : it.freedom == planner::Freedom::replay ? "always replayed" + (it.why.empty() ? "" : ": " + printable(it.why))
                                                               : "always kept" + (it.why.empty() ? "" : ": " + printable(it.why))});
    if (!segments.empty()) printf("  Segments as measured\n%s\n", segments.text("  ").c_str());
    Table buffers({{"buffer"}, {"size", kRight}, {"used by", kRight}, {"written", kRight}, {"in a cycle", kRight}, {"how"}});
    for (const auto &buffer : profile.buffers) {
        int64_t pages = 0;
        for (const auto &write : buffer.writes)
            for (const auto &run : write.pages) pages += run.end - run.begin;
        buffers.add({printable(buffer.name), bytes(buffer.bytes), plural(buffer.users.size(), "forward"),
                     plural(buffer.writes.size(), "time"), bytes(pages * 4096),
                     buffer.selective ? "" : "what was written cannot be told: copied whole"});
    }
    if (!buffers.empty()) printf("  Buffers as measured\n%s\n", buffers.text("  ").c_str());
}

void print_decisions(const Profile &profile, const JobPlan &plan) {
    printf("  Decisions at %s (%s)\n", bytes(plan.budget_bytes).c_str(), proof_text(plan).c_str());
    Table table({{"segment"}, {"decision"}, {"keeps", kRight}, {"replay", kRight}, {"why"}});
    for (size_t i = 0; i < plan.instances.size(); i++) {
        const planner::PlannedInstance &it = plan.instances[i];
        table.add(
            {name_of(profile.instances[i]), it.replay ? "replay" : "retain", bytes(it.keep_bytes), time(it.replay_ns), printable(it.why)});
    }
    if (!table.empty()) printf("%s\n", table.text("  ").c_str());
    // What each mechanism of a window would cost for the readers that are replayed.
    const planner::Problem problem = planner::problem_of(profile, plan.budget_bytes);
    Table buffers({{"buffer"}, {"size", kRight}, {"for"}, {"mechanism"}, {"why"}});
    for (size_t w = 0; w < plan.windows.size() && w < problem.windows.size(); w++) {
        const planner::PlannedWindow &planned = plan.windows[w];
        const std::set<int32_t> readers(planned.readers.begin(), planned.readers.end());
        std::string why;
        for (const planner::Mechanism &mechanism : problem.windows[w].mechanisms) {
            int64_t ns = 0, pages = 0;
            for (size_t k = 0; k < mechanism.readers.size(); k++)
                if (readers.count(problem.windows[w].readers[k])) ns += mechanism.readers[k].ns;
            for (const planner::Element &element : mechanism.elements)
                if (std::any_of(element.uses.begin(), element.uses.end(),
                                [&](const auto &use) { return readers.count(use.instance) != 0; }))
                    ns += element.capture_ns, pages += element.pages;
            const std::string cost = time(ns) + " and " + bytes(pages * 4096);
            if (mechanism.name == planned.mechanism)
                why = cost + (why.empty() ? "" : "; " + why);
            else
                why += (why.empty() ? "" : "; ") + mechanism.name + " would take " + cost;
        }
        if (readers.empty()) why = "no replay needs it";
        uint64_t shared = 0;
        for (uint8_t unchanged : planned.unchanged) shared += unchanged;
        if (shared != 0 && planned.kind != Kind::selective) why += "; " + plural(shared, "reader") + " share another's copy";
        buffers.add({printable(planned.buffer), bytes(planned.bytes), plural(planned.readers.size(), "replay"),
                     readers.empty() ? "-" : planned.mechanism, why});
    }
    if (!buffers.empty()) printf("%s\n", buffers.text("  ").c_str());
}

}  // namespace reprise::cli
