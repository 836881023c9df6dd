// reprise plan: plans for a job from the profile that it measured, for the budgets one asks about, by the functions that the job itself
// plans with.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/picture.h"
#include "cli/plan_input.h"
#include "cli/plan_picture.h"
#include "cli/plan_print.h"
#include "cli/plan_sweep.h"
#include "cli/text.h"
#include "planner/plan_json.h"

namespace reprise::cli {
namespace {

constexpr const char *kName = "plan";

struct Options {
    std::string file, policy = "joint", output, svg, png, python, run;
    std::vector<std::string> budgets;
    int64_t step = -1;
    bool compare = false, explain = false, json = false;
};

planner::Policy policy_of(const std::string &name) {
    for (int k = 0;; k++) {
        const auto policy = static_cast<planner::Policy>(k);
        const char *known = planner::policy_name(policy);
        if (known == nullptr) return planner::Policy::joint;
        if (name == known) return policy;
    }
}

int fail(const std::string &text, int status = 1) {
    complain(kName, text);
    return status;
}

// The plan as a file that REPRISE_PLAN takes. One that exceeds its budget is none.
int write_plan_file(const Options &options, const Sweep &sweep) {
    const planner::JobPlan &plan = sweep.plan(0, 0);
    if (!fits(plan))
        return fail(format("there is no plan of policy %s within %s, and '%s' is not written: the smallest budget with one is %lld bytes",
                           planner::policy_name(plan.policy), human_bytes(static_cast<double>(plan.budget_bytes)).c_str(),
                           printable(options.output).c_str(), static_cast<long long>(sweep.least.smallest_bytes)));
    if (const std::string problem = write_whole(options.output, planner::write_plan(plan) + "\n"); !problem.empty())
        return fail("'" + printable(options.output) + "' cannot be written (" + problem + "): give -o a path that can be");
    return 0;
}

int pictures(const Options &options, const planner::Profile &profile, const Sweep &sweep) {
    const std::string title = "Reprise: run " + profile.run + ", " + plural(profile.instances.size(), "forward");
    if (!options.svg.empty())
        if (const std::string problem = write_whole(options.svg, sweep_svg(title, sweep)); !problem.empty())
            return fail("'" + printable(options.svg) + "' cannot be written (" + problem + "): give --svg a path that can be");
    if (options.png.empty()) return 0;
    Json drawing = sweep_json(profile, sweep, false);
    drawing["title"] = title;
    const std::string problem = draw_png(drawing, options.png, options.python);
    return problem.empty() ? 0 : fail("'" + printable(options.png) + "' was not drawn: " + problem);
}

int plan(const Options &options) {
    planner::Profile profile;
    if (const std::string problem = load_profile(options.file, {options.run, options.step}, &profile); !problem.empty())
        return fail("'" + printable(options.file) + "' " + problem);
    const planner::Policy policy = policy_of(options.policy);
    if (!options.output.empty() && options.budgets.size() != 1)
        return fail("-o writes one plan: give one --budget, not " + std::to_string(options.budgets.size()), 2);
    if (options.output == "-" && options.json) return fail("-o - and --json both want standard output: give -o a file", 2);

    // Shares are shares of what retaining everything takes.
    int64_t whole = 0;
    if (!options.budgets.empty()) {
        Result<planner::JobPlan> retained = planner::plan_job(profile, 0, planner::Policy::retain, planner::job_options());
        if (!retained.ok()) return fail(retained.status().text());
        whole = retained.value().retained_bytes;
    }
    std::vector<int64_t> budgets;
    for (const std::string &text : options.budgets) {
        if (!parse_budget(text, whole, &budgets.emplace_back()))
            return fail("--budget '" + printable(text) +
                            "' is not a size (44GiB, 512M, a number of bytes) or a share of what retaining everything takes (80%)",
                        2);
    }
    const bool all = options.compare || !options.svg.empty() || !options.png.empty();
    Sweep sweep;
    if (const std::string problem = sweep_budgets(profile, budgets, all ? compared_with(policy) : std::vector{policy}, &sweep);
        !problem.empty())
        return fail(printable(problem));

    int status = 0;
    if (!options.output.empty()) status = write_plan_file(options, sweep);
    if (const int drawn = pictures(options, profile, sweep); drawn != 0) status = drawn;
    if (options.json) {
        Json out = sweep_json(profile, sweep, options.explain);
        out["file"] = options.file;
        puts(out.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
    } else if (options.output != "-") {
        print_profile(options.file, profile, sweep);
        print_sweep(sweep);
        if (options.compare) print_comparison(sweep);
        if (options.explain) {
            print_measurements(profile);
            // The default budgets would repeat the tables a dozen times.
            for (size_t b = 0; b < sweep.budgets.size() && !options.budgets.empty(); b++) print_decisions(profile, sweep.plan(0, b));
            if (options.budgets.empty()) puts("  Give --budget to see what is decided, and why.\n");
        }
        for (const std::string *path : {&options.output, &options.svg, &options.png})
            if (!path->empty() && access(path->c_str(), R_OK) == 0 && status == 0) printf("  written: %s\n", printable(*path).c_str());
    }
    // A budget that was asked for and has no plan is an answer for people, and a failure for scripts.
    if (!options.budgets.empty())
        for (size_t b = 0; b < sweep.budgets.size(); b++)
            if (!fits(sweep.plan(0, b)) && status == 0) status = 1;
    return status;
}

}  // namespace

void add_plan(Invocation &invocation) {
    CLI::App *command = invocation.app->add_subcommand("plan", "what a job would decide for other budgets, and why, from its records");
    auto options = std::make_shared<Options>();
    command->add_option("FILE", options->file, "a record file of a run with a budget, or a profile; - is standard input")->required();
    command
        ->add_option("--budget", options->budgets,
                     "a budget: 44GiB, 512M, bytes, or 80% of what retaining everything takes (may be repeated; default: a dozen)")
        ->type_name("SIZE")
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    command->add_option("--policy", options->policy, "whose plans (joint)")
        ->check(CLI::IsMember({"joint", "retain", "whole", "selective", "fixed", "eager-whole", "greedy"}))
        ->type_name("NAME");
    command->add_flag("--compare", options->compare, "beside it the other policies");
    command->add_flag("--explain", options->explain, "measured costs, and why each segment and buffer is treated as it is");
    command->add_option("-o,--output", options->output, "write the plan for --budget to this file, for reprise run --plan")
        ->type_name("FILE");
    command->add_option("--svg", options->svg, "draw time against budget, all policies, into this file")->type_name("FILE");
    command->add_option("--png", options->png, "the same as PNG (needs a Python with matplotlib)")->type_name("FILE");
    command->add_option("--python", options->python, "the Python that has matplotlib (default: python3 on PATH)")->type_name("PATH");
    command->add_option("--run", options->run, "the profile of this run (default: the newest in the file)")->type_name("RUN");
    command->add_option("--step", options->step, "the profile of this step")->type_name("N")->check(CLI::Range(int64_t{0}, INT64_MAX));
    command->add_flag("--json", options->json, "as JSON (reprise.sweep/1; with --explain the whole plans)");
    command->footer(
        "Exit status: 0; 1 when a --budget has no plan, or a file cannot be read, written or drawn; 2 for bad use.\n"
        "The plans are those that the job makes: same numbers, same functions.");
    command->callback([&invocation, options] { invocation.status = plan(*options); });
}

}  // namespace reprise::cli
