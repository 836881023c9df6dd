#!/usr/bin/env python3
"""One training job under many budgets and every policy: what does memory buy?

Between the least memory that the job can train with and what it takes to retain everything, for each budget: the time that a step takes
beyond the plain job that keeps every activation, without Reprise, and the peak of the ledger (tensors, before-images, shadows, clones)
beside the budget. Policies that do not look at the budget run once a round; where their peak is above a budget, they are no answer to it.

A round runs everything once, in an order of its own; differences are taken within a round, so that what the machine does meanwhile hits all
alike. Exit status 0 only when every run has the losses of the plain job bit for bit (but for policy off, which is what is wrong without
Reprise), no peak is above its budget, and joint is nowhere slower than another policy beyond the spread of the measurement.
"""

import argparse
import importlib.util
import json
import math
import os
import platform
import random
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLES = os.path.dirname(HERE)
sys.path.insert(0, EXAMPLES)
from common import compare, runs  # noqa: E402
from common.runs import median, size  # noqa: E402

PLANNED = ("joint", "eager-whole", "greedy")  # by budget
FIXED = ("whole", "selective", "fixed", "retain", "off")  # once a round
POLICIES = PLANNED + FIXED
PLAIN = "plain"  # the job that keeps everything, without Reprise: what times are compared with
SETTLED = 8  # steps before that are profiled, or the first under the plan
MARGIN = 2 << 20  # bytes
SLOWER = 0.01  # joint may be this much slower than another policy, beyond the spread
# Two-sided 95 % of Student's distribution, by degrees of freedom.
STUDENT = (0, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
COLOURS = dict(zip(POLICIES, ("#27ae60", "#2e6da4", "#e67e22", "#8e44ad", "#16a085", "#c2a000", "#7f7f7f", "#c0392b")))


def interval(values):
    """-> (mean, half-width at 95 %; infinite for a single value)."""
    mean = sum(values) / len(values)
    if len(values) < 2:
        return mean, math.inf
    deviation = math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1))
    n = len(values) - 1
    return mean, (STUDENT[n] if n < len(STUDENT) else 1.96) * deviation / math.sqrt(len(values))


def plus_minus(half, unit=""):
    return "" if math.isinf(half) else " ±%.0f%s" % (half, unit)


class Sweep:
    def __init__(self, job, options):
        self.job, self.options = job, options
        # Without the evaluation: what it allocates is no part of the training that is planned.
        self.arguments = [*compare.arguments_of(job, options), "--no-evaluation"]
        self.lines = []  # one per run: what the JSON has
        self.began = time.monotonic()

    def run(self, policy, budget, round_number):
        """One process; its line is kept."""
        key = "%s-%s-%s" % (policy, budget or "none", round_number)
        env, lib = {"REPRISE_POLICY": policy}, self.options.lib
        if budget:
            env["REPRISE_BUDGET"] = str(budget)
        if policy == "off":
            env["REPRISE_REQUIRE"] = "0"
        if policy == PLAIN:
            lib, env = None, None
        try:
            run = runs.train(self.job.script, key, self.arguments + (["--no-checkpoint"] if policy == PLAIN else []), self.options.out,
                             lib=lib, env=env, arrays=False)  # fmt: skip
        except runs.Failed as failure:
            raise SystemExit("\n%s" % failure)
        found = run.statistics or {}
        step = 1e3 * median(run.report["step_seconds"][SETTLED - 1 :])
        line = dict(policy=policy, budget=budget, round=round_number, step_ms=step, step_seconds=run.report["step_seconds"], losses=run.report["losses"],
                    resident_peak=run.report["peak_bytes"], ledger_peak=found.get("ledger_peak_planned") or found.get("ledger_peak"),
                    ledger_peak_all=found.get("ledger_peak"), retained=found.get("instances_retained"), plan=found.get("plan"),
                    preserved=found.get("bytes_preserved"), replays=found.get("replays"), rejections=found.get("rejections"))  # fmt: skip
        self.lines.append(line)
        return line

    def say(self, done, of, line):
        print("  [%*d/%d] %5.0f s  %-12s %12s  %6.0f ms a step, ledger %s"
              % (len(str(of)), done, of, time.monotonic() - self.began, line["policy"], size(line["budget"]) if line["budget"] else "-",
                 line["step_ms"], size(line["ledger_peak"]) if line["ledger_peak"] else "-"), flush=True)  # fmt: skip

    def limits(self):
        """-> (least, retain-all) in bytes: by what the planner says of a job that gets no room at all, and by one that gets all there is."""
        least_run, most_run = self.run("joint", 2**20, "least"), self.run("joint", 2**50, "all")
        least, most = (least_run["plan"] or {}).get("smallest_bytes") or least_run["ledger_peak"], most_run["ledger_peak"]
        if not least or not most:
            raise SystemExit("Reprise's report has no peak of the ledger: this library does not plan (see %s)" % self.options.out)
        if most <= least:
            raise SystemExit("retaining everything takes no more (%s) than the least (%s): there is nothing to sweep" % (size(most), size(least)))
        return least, most

    def sweep(self, budgets):
        options = self.options
        once = [(p, None if p in ("off", PLAIN) else budgets[-1]) for p in (PLAIN, *FIXED) if p == PLAIN or p in options.policies]
        jobs = once + [(p, b) for p in PLANNED if p in options.policies for b in budgets]
        order, total = random.Random(1), options.repetitions * len(jobs)
        for number in range(1, options.repetitions + 1):
            order.shuffle(jobs)
            for i, (policy, budget) in enumerate(jobs):
                self.say((number - 1) * len(jobs) + i + 1, total, self.run(policy, budget, number))


class Results:
    """What the lines say: by policy and budget, one value per round."""

    def __init__(self, lines, budgets, policies, repetitions):
        self.lines, self.budgets, self.policies = [line for line in lines if isinstance(line["round"], int)], budgets, policies
        self.rounds = range(1, repetitions + 1)
        self.by = {(line["policy"], line["budget"] if line["policy"] in PLANNED else None, line["round"]): line for line in self.lines}

    def of(self, policy, budget):
        return [self.by[policy, budget if policy in PLANNED else None, r] for r in self.rounds]

    def peak(self, policy, budget):
        return max((line["ledger_peak"] or 0) for line in self.of(policy, budget))

    def fits(self, policy, budget):
        """Is this policy an answer to that budget? Off has no ledger, and no right gradients."""
        lines = self.of(policy, budget)
        if policy == "off" or any(line["plan"] and line["plan"]["verdict"] != "planned" for line in lines):
            return False
        return self.peak(policy, budget) <= budget

    def added(self, policy, budget):
        """Milliseconds of a step beyond the plain job's: (mean, half-width)."""
        return interval([mine["step_ms"] - plain["step_ms"] for mine, plain in zip(self.of(policy, budget), self.of(PLAIN, None))])

    def ratio(self, policy, other, budget):
        return interval([a["step_ms"] / b["step_ms"] for a, b in zip(self.of(policy, budget), self.of(other, budget))])


def show(results):
    plain = interval([line["step_ms"] for line in results.of(PLAIN, None)])
    print("\n  Milliseconds of a step beyond the plain job's %.0f%s ms; below, the peak of the ledger. In brackets: above the budget.\n"
          % (plain[0], plus_minus(plain[1])))  # fmt: skip
    shown = [p for p in results.policies]
    rows = [["budget", *shown]]
    for budget in results.budgets:
        times, peaks = ["%s" % size(budget)], [""]
        for policy in shown:
            added, half = results.added(policy, budget)
            text, peak = "%+.0f%s" % (added, plus_minus(half)), results.peak(policy, budget)
            fits = policy == "off" or results.fits(policy, budget)
            times.append(text if fits else "(%s)" % text)
            peaks.append("-" if not peak else size(peak) if fits else "(%s)" % size(peak))
        rows += [times, peaks]
    runs.table(rows)


def picture(path, job, results):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    mib = [b / 2**20 for b in results.budgets]
    figure, (time_axis, peak_axis) = plt.subplots(1, 2, figsize=(14, 5.6))
    for policy in results.policies:
        style = dict(color=COLOURS[policy], label=policy)
        if policy in PLANNED:
            points = [(x, results.added(policy, b), results.peak(policy, b) / 2**20) for x, b in zip(mib, results.budgets) if results.fits(policy, b)]
            if not points:
                continue
            xs = [x for x, _, _ in points]
            halves = [0 if math.isinf(half) else half for _, (_, half), _ in points]
            width = 2.6 if policy == "joint" else 1.4
            time_axis.errorbar(xs, [added for _, (added, _), _ in points], halves, marker="o", markersize=4, linewidth=width, capsize=3,
                               zorder=3 if policy == "joint" else 2, **style)  # fmt: skip
            peak_axis.plot(xs, [peak for _, _, peak in points], marker="o", markersize=4, linewidth=width, **style)
            continue
        added, peak = results.added(policy, None)[0], results.peak(policy, None) / 2**20
        if policy == "off":
            time_axis.axhline(added, linestyle=":", linewidth=1.2, **dict(style, label="off (wrong gradients)"))
            continue
        # From its peak on it fits.
        time_axis.plot([peak, max(mib[-1], peak)], [added, added], linestyle="--", linewidth=1.2, **style)
        time_axis.plot([peak], [added], marker="s", markersize=6, color=COLOURS[policy])
        peak_axis.axhline(peak, linestyle="--", linewidth=1.2, **style)
    peak_axis.plot(mib, mib, color="black", linewidth=1, label="the budget")
    time_axis.axhline(0, color="black", linewidth=0.8)
    time_axis.set(xlabel="budget (MiB)", ylabel="added time of a step (ms)", title="Time beyond the plain job that keeps everything")
    peak_axis.set(xlabel="budget (MiB)", ylabel="peak of the ledger (MiB)", title="Memory really used")
    for axis in (time_axis, peak_axis):
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.25)
        axis.legend(fontsize=8)
    figure.suptitle("%s: what memory buys, by policy" % job.name)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def judge(results):
    """-> list of (met, sentence)."""
    checks = []
    reference = results.of(PLAIN, None)[0]["losses"]
    right = [line for line in results.lines if line["policy"] != "off"]
    wrong = sorted({line["policy"] for line in right if line["losses"] != reference or line["rejections"]})
    checks.append((not wrong, "%d runs have the plain job's losses, bit for bit, and no rejection%s" % (len(right), wrong and "; not: " + ", ".join(wrong) or "")))
    if "off" in results.policies:
        checks.append((results.of("off", None)[0]["losses"] != reference, "off, which is stock checkpointing, has other losses"))
    planned = [p for p in PLANNED if p in results.policies]
    above = ["%s at %s: %s" % (p, size(b), size(results.peak(p, b))) for p in planned for b in results.budgets if results.peak(p, b) > b
             and not any(line["plan"] and line["plan"]["verdict"] != "planned" for line in results.of(p, b))]  # fmt: skip
    checks.append((not above, "no peak of the ledger is above its budget%s" % (above and "; but " + "; ".join(above) or "")))
    if "joint" not in results.policies:
        return checks
    infeasible = [size(b) for b in results.budgets if not results.fits("joint", b)]
    checks.append((not infeasible, "joint has a plan for all %d budgets%s" % (len(results.budgets), infeasible and "; not for " + ", ".join(infeasible) or "")))
    slower, faster, compared = [], 0, 0
    for budget in results.budgets:
        for other in results.policies:
            if other == "joint" or not (results.fits("joint", budget) and results.fits(other, budget)):
                continue
            ratio, half = results.ratio("joint", other, budget)
            compared += 1
            faster += ratio + half < 1
            if ratio - half > 1 + SLOWER:
                slower.append("%s at %s (%.3f x)" % (other, size(budget), ratio))
    checks.append((not slower, "joint is not slower than any other policy that fits, beyond the spread: %d comparisons, faster beyond it in %d%s"
                   % (compared, faster, slower and "; slower than " + "; ".join(slower) or "")))  # fmt: skip
    return checks


def description(job):
    """The example's own description of its job: JOB in its compare.py, which is no package."""
    sys.path.insert(0, os.path.join(EXAMPLES, job))
    spec = importlib.util.spec_from_file_location("compare_of_job", os.path.join(EXAMPLES, job, "compare.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.JOB


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lib", required=True, help="path of libreprise.so")
    parser.add_argument("--job", choices=("moco", "transformer"), default="moco", help="which example to train (default: %(default)s)")
    parser.add_argument("--data", help="as the example takes it")
    parser.add_argument("--out", help="folder for results and the picture (default: build/examples/budget_sweep/JOB)")
    parser.add_argument("--budgets", type=int, default=8, help="how many (default: %(default)s)")
    parser.add_argument("--repetitions", type=int, default=3, help="rounds (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=20, help="of a run, at least 16 (default: %(default)s)")
    parser.add_argument("--policies", default=",".join(POLICIES), help="separated by commas (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="the small job, two budgets, one round, the policies joint and selective")
    options = parser.parse_args()
    options.policies = [p for p in options.policies.split(",") if p]
    unknown = [p for p in options.policies if p not in POLICIES]
    if unknown:
        parser.error("--policies: no '%s' (there are %s)" % (unknown[0], ", ".join(POLICIES)))
    if options.quick:
        options.budgets, options.repetitions, options.steps, options.policies = 2, 1, 16, ["joint", "selective"]
    if options.budgets < 2 or options.repetitions < 1 or options.steps < 16:
        parser.error("at least 2 budgets, 1 repetition and 16 steps")
    options.lib = os.path.abspath(options.lib)
    options.out = os.path.abspath(options.out or "build/examples/budget_sweep/" + options.job)
    if not os.path.exists(options.lib):
        parser.error("no %s: build first, examples/budget_sweep/run does" % options.lib)
    os.makedirs(options.out, exist_ok=True)

    job = description(options.job)
    sweep = Sweep(job, options)

    print("  looking for the least budget and for what retaining everything takes ...", flush=True)
    least, most = sweep.limits()
    # The ends with a margin: measurements differ a little from run to run, and a plan leaves some of a budget free.
    low, high = least * 1.01 + MARGIN, most * 1.01 + MARGIN
    budgets = [int(low + (high - low) * i / (options.budgets - 1)) for i in range(options.budgets)]
    print("  least %s, everything %s" % (size(least), size(most)), flush=True)
    sweep.sweep(budgets)

    results = Results(sweep.lines, budgets, [p for p in POLICIES if p in options.policies], options.repetitions)
    show(results)
    checks = judge(results)
    with open(os.path.join(options.out, "sweep.json"), "w") as file:
        summary = [dict(policy=p, budget=b, fits=results.fits(p, b), ledger_peak=results.peak(p, b),
                        added_ms=results.added(p, b)[0], half_width_ms=None if math.isinf(results.added(p, b)[1]) else results.added(p, b)[1])
                   for b in budgets for p in results.policies]  # fmt: skip
        json.dump(dict(schema="reprise.sweep/1", job=options.job, steps=options.steps, repetitions=options.repetitions, least=least, everything=most,
                       budgets=budgets, machine=dict(kernel=platform.release(), processors=os.cpu_count(), python=platform.python_version()),
                       summary=summary, checks=[dict(met=bool(met), text=text) for met, text in checks], runs=sweep.lines), file, indent=1)  # fmt: skip
    path = os.path.join(options.out, "sweep.png")
    picture(path, job, results)
    print("\n  picture: %s, numbers: %s\n" % (os.path.relpath(path), os.path.relpath(os.path.join(options.out, "sweep.json"))))
    runs.finish(checks)


if __name__ == "__main__":
    main()
