#!/usr/bin/env python3
"""One training job under many budgets and every policy: what does memory buy?

Between the least memory that the job can train with and what it takes to retain everything, for each budget: the time that a step takes
beyond the plain job that keeps every activation, without Reprise, and the peak of the ledger (tensors, before-images, shadows, clones)
beside the budget. Where the peak of a policy that does not look at the budget is above it, it is no answer to it.

All train at the same time, as many as there is memory for, and take turns, a step each, in an order that changes from round to round: the
steps of a round are seconds apart, and what the machine does meanwhile hits all alike. A policy that plans trains once per budget; one that
looks at no budget (and what trains without Reprise) trains once for all budgets of its group. Differences and ratios are taken within a
round; shown are their means without the lowest and highest fifth, and the half-width of the 95 % interval (Yuen's). The plain job trains
twice: how far the two are apart is what two runs of the very same program differ by.

Exit status 0 only when every run has the losses of the plain job bit for bit (but for the two that are stock checkpointing, without
Reprise and under its policy off, which are wrong), no peak is above its budget, and joint is nowhere slower than another policy beyond the
spread of the measurement.
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
RULES = ("whole", "selective", "fixed", "retain")  # whatever the budget
WRONG = ("off", "stock")  # stock checkpointing under the preload, and without
POLICIES = PLANNED + RULES + WRONG
PLAIN, AGAIN = "plain", "plain again"  # the job that keeps everything, without Reprise: what times are compared with
ALL = 2**50  # a budget that everything fits into
SETTLED = 16  # steps before that are profiled, or the first under a plan
LOOK = 24  # steps of a run that only shows what it takes
MARGIN = 2 << 20  # bytes
ROOM = 0.7  # of the memory that is free may be taken
OFF = 0.01  # a peak may be off the plan's by so much
SLOWER = 0.01  # joint may be this much slower than another policy, beyond the spread
STUDENT = (0, 12.706, 4.303, 3.182, 2.776)  # 95 %, two-sided, by degrees of freedom; from 5 on a formula is right to 1 %
COLOURS = dict(zip(POLICIES, ("#27ae60", "#2e6da4", "#e67e22", "#8e44ad", "#16a085", "#c2a000", "#7f7f7f", "#c0392b", "#7b241c")))


def interval(values):
    """-> (mean, half-width at 95 %) of the values without the lowest and highest fifth: a step that the machine held up says nothing."""
    values, n = sorted(values), len(values)
    cut = n // 5
    kept = values[cut : n - cut]
    mean = sum(kept) / len(kept)
    if len(kept) < 2:
        return mean, math.inf
    winsorised = [kept[0]] * cut + kept + [kept[-1]] * cut
    centre = sum(winsorised) / n
    deviation = math.sqrt(sum((v - centre) ** 2 for v in winsorised) / (n - 1))
    free = len(kept) - 1
    student = STUDENT[free] if free < len(STUDENT) else 1.96 + 2.37 / free + 2.8 / free**2
    return mean, student * deviation / (len(kept) / n * math.sqrt(n))


def available():
    """Bytes that may still be taken: of the machine, and of this process's control group where it has a limit."""
    with open("/proc/meminfo") as file:
        least = next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable:"))
    for folder, limit, used in (("/sys/fs/cgroup", "memory.max", "memory.current"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes")):
        try:
            numbers = []
            for name in (limit, used):
                with open(os.path.join(folder, name)) as file:
                    numbers.append(int(file.read()))
            least = min(least, numbers[0] - numbers[1])
        except (OSError, ValueError):
            pass  # no such group, or "max"
    return least


def plus_minus(half, unit=""):
    return "" if math.isinf(half) else " ±%.0f%s" % (half, unit)


class Sweep:
    def __init__(self, job, options):
        self.job, self.options = job, options
        # Without the evaluation: what it allocates is no part of the training that is planned. Of two --steps the last counts.
        self.arguments = [*compare.arguments_of(job, options), "--no-evaluation"]
        self.lines = []  # one per run: what the JSON has
        self.began = time.monotonic()

    def start(self, policy, budget, group, turns):
        key = "%s-%s-%s" % (policy.replace(" ", "-"), budget or "all", group)
        lib, env, arguments = self.options.lib, {"REPRISE_POLICY": policy}, self.arguments
        if policy not in WRONG:
            env["REPRISE_BUDGET"] = str(budget or ALL)
        if policy == "off":
            env["REPRISE_REQUIRE"] = "0"
        if policy in (PLAIN, AGAIN, "stock"):
            lib, env = None, None
        if policy in (PLAIN, AGAIN):
            arguments = arguments + ["--no-checkpoint"]
        if not turns:
            arguments = arguments + ["--steps", str(min(self.options.steps, LOOK))]
        return runs.Training(self.job.script, key, arguments, self.options.out, lib=lib, env=env, arrays=False, turns=turns)

    def finish(self, training, policy, budget, group):
        """Its line is kept."""
        run = training.end()
        found = run.statistics or {}
        seconds = run.report["step_seconds"]
        # When one has done its last step, and ends, another one may be at its own.
        line = dict(policy=policy, budget=budget, group=group, step_ms=1e3 * median(seconds[SETTLED:-1]), step_seconds=seconds, losses=run.report["losses"],
                    resident_peak=run.report["peak_bytes"], ledger_peak=found.get("ledger_peak_planned") or found.get("ledger_peak"),
                    ledger_peak_all=found.get("ledger_peak"), retained=found.get("instances_retained"), plan=found.get("plan"),
                    preserved=found.get("bytes_preserved"), replays=found.get("replays"), rejections=found.get("rejections"))  # fmt: skip
        self.lines.append(line)
        return line

    def alone(self, policy, budget, group):
        """Only for its peak: a few steps."""
        training = self.start(policy, budget, group, False)
        try:
            return self.finish(training, policy, budget, group)
        finally:
            training.stop()

    def limits(self):
        """-> (least, retain-all) in bytes: by what the planner says of a job that gets no room at all, and by one that gets all there is."""
        least_run, most_run = (self.alone("joint", b, g) for b, g in ((2**20, "least"), (ALL, "everything")))
        least, most = (least_run["plan"] or {}).get("smallest_bytes") or least_run["ledger_peak"], most_run["ledger_peak"]
        if not least or not most:
            raise SystemExit("Reprise's report has no peak of the ledger: this library does not plan (see %s)" % self.options.out)
        if most <= least:
            raise SystemExit("retaining everything takes no more (%s) than the least (%s): there is nothing to sweep" % (size(most), size(least)))
        self.resident = most_run["resident_peak"]
        return least, most

    def together(self, budgets):
        """How many budgets have room side by side: at least one."""
        planned = sum(p in PLANNED for p in self.options.policies)
        once = 2 + len(self.options.policies) - planned
        room = int(available() * ROOM / self.resident)
        return max(1, min(len(budgets), (room - once) // planned if planned else len(budgets)))

    def group(self, budgets, number, order):
        """Every policy under these budgets, by turns."""
        wanted = [(policy, budget) for policy in (PLAIN, AGAIN, *self.options.policies) for budget in (budgets if policy in PLANNED else [None])]
        trainings = {}
        try:
            for policy, budget in wanted:
                trainings[policy, budget] = training = self.start(policy, budget, number, True)
                # One after the other: what is made while it starts would take more room together.
                training.wait()
            for step in range(self.options.steps):
                turns = list(trainings.values())
                order.shuffle(turns)
                for training in turns:
                    training.step()
                if (step + 1) % 10 == 0:
                    print("      %5.0f s  step %d of %d" % (time.monotonic() - self.began, step + 1, self.options.steps), flush=True)
            return [self.finish(training, policy, budget, number) for (policy, budget), training in trainings.items()]
        finally:
            for training in trainings.values():
                training.stop()

    def sweep(self, groups):
        order = random.Random(1)
        for number, budgets in enumerate(groups):
            print("  [%d/%d] %s" % (number + 1, len(groups), ", ".join(size(b) for b in budgets)), flush=True)
            for line in self.group(budgets, number, order):
                print("      %-12s %-10s %6.0f ms a step, ledger %s"
                      % (line["policy"], size(line["budget"]) if line["budget"] else "", line["step_ms"],
                         size(line["ledger_peak"]) if line["ledger_peak"] else "-"), flush=True)  # fmt: skip


class Results:
    """What the lines say, by policy and budget. `groups`: the budgets that were measured side by side."""

    def __init__(self, lines, budgets, policies, groups):
        self.lines, self.budgets, self.policies, self.groups = [line for line in lines if isinstance(line["group"], int)], budgets, policies, groups
        self.by = {(line["policy"], line["budget"], line["group"]): line for line in self.lines}

    def of(self, policy, budget):
        return [self.by[policy, budget if policy in PLANNED else None, number] for number, budgets in enumerate(self.groups) if budget in budgets]

    def peak(self, policy, budget):
        return max((line["ledger_peak"] or 0) for line in self.of(policy, budget))

    def fits(self, policy, budget):
        """Is this policy an answer to that budget? Stock checkpointing has no ledger, and no right gradients."""
        lines = self.of(policy, budget)
        if policy in WRONG or any(line["plan"] and line["plan"]["verdict"] != "planned" for line in lines):
            return False
        return self.peak(policy, budget) <= budget

    def pairs(self, policy, other, budget):
        """Seconds of a step of either, from the same round."""
        return [pair for a, b in zip(self.of(policy, budget), self.of(other, budget))
                for pair in list(zip(a["step_seconds"], b["step_seconds"]))[SETTLED:-1]]  # fmt: skip

    def plain(self):
        return median([1e3 * s for line in self.lines if line["policy"] == PLAIN for s in line["step_seconds"][SETTLED:-1]])

    def added(self, policy, budget):
        """Milliseconds of a step beyond the plain job's: (mean, half-width)."""
        return interval([1e3 * (a - b) for a, b in self.pairs(policy, PLAIN, budget)])

    def ratio(self, policy, other, budget):
        return interval([a / b for a, b in self.pairs(policy, other, budget)])


def show(results):
    print("\n  Milliseconds of a step beyond the plain job's %.0f ms; below, the peak of the ledger. In brackets: above the budget.\n" % results.plain())
    rows = [["budget", *results.policies, AGAIN]]
    for budget in results.budgets:
        times, peaks = ["%s" % size(budget)], [""]
        for policy in rows[0][1:]:
            added, half = results.added(policy, budget)
            text, peak = "%+.0f%s" % (added, plus_minus(half)), results.peak(policy, budget)
            fits = not peak or results.fits(policy, budget)
            times.append(text if fits else "(%s)" % text)
            peaks.append("-" if not peak else size(peak) if fits else "(%s)" % size(peak))
        rows += [times, peaks]
    runs.table(rows)
    if "joint" not in results.policies:
        return
    print("\n  A step under joint, of one under the others (per cent); stock and off are no answers, their gradients are wrong.\n")
    others = [p for p in results.policies if p != "joint"]
    rows = [["budget", *others]]
    for budget in results.budgets:
        ratios = [results.ratio("joint", other, budget) for other in others]
        cells = ["%.1f%s" % (100 * ratio, "" if math.isinf(half) else " \u00b1%.1f" % (100 * half)) for ratio, half in ratios]
        rows.append([size(budget), *(c if o in WRONG or results.fits(o, budget) else "(%s)" % c for o, c in zip(others, cells))])
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
        added = [results.added(policy, b)[0] for b in results.budgets]
        if policy in WRONG:
            time_axis.plot(mib, added, linestyle=":", linewidth=1.2, **dict(style, label=policy + " (wrong gradients)"))
            continue
        # From its peak on it fits.
        peak = max(results.peak(policy, b) for b in results.budgets) / 2**20
        level = sum(added) / len(added)
        time_axis.plot([peak, max(mib[-1], peak)], [level, level], linestyle="--", linewidth=1.2, **style)
        time_axis.plot([peak], [level], marker="s", markersize=6, color=COLOURS[policy])
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
    reference = results.of(PLAIN, results.budgets[0])[0]["losses"]
    right = [line for line in results.lines if line["policy"] not in WRONG]
    wrong = sorted({line["policy"] for line in right if line["losses"] != reference or line["rejections"]})
    checks.append((not wrong, "%d runs have the plain job's losses, bit for bit, and no rejection%s" % (len(right), wrong and "; not: " + ", ".join(wrong) or "")))
    for policy in (p for p in WRONG if p in results.policies):
        others = [line for b in results.budgets for line in results.of(policy, b)]
        checks.append((all(line["losses"] != reference for line in others), "%s, which is stock checkpointing, has other losses" % policy))
    planned = [p for p in PLANNED if p in results.policies]
    above = ["%s at %s: %s" % (p, size(b), size(results.peak(p, b))) for p in planned for b in results.budgets if results.peak(p, b) > b
             and not any(line["plan"] and line["plan"]["verdict"] != "planned" for line in results.of(p, b))]  # fmt: skip
    checks.append((not above, "no peak of the ledger is above its budget%s" % (above and "; but " + "; ".join(above) or "")))
    off = [abs(line["ledger_peak"] / line["plan"]["peak"] - 1) for line in results.lines
           if line["policy"] in planned and line["plan"] and line["plan"]["verdict"] == "planned" and line["ledger_peak"]]  # fmt: skip
    checks.append((max(off, default=0) <= OFF, "peaks are off those planned by %.2f %% at most" % (100 * max(off, default=0))))
    if "joint" not in results.policies:
        return checks
    infeasible = [size(b) for b in results.budgets if not results.fits("joint", b)]
    checks.append((not infeasible, "joint has a plan for all %d budgets%s" % (len(results.budgets), infeasible and "; not for " + ", ".join(infeasible) or "")))
    slower, faster, compared, widest = [], 0, 0, 0.0
    for budget in results.budgets:
        for other in results.policies:
            if other == "joint" or not (results.fits("joint", budget) and results.fits(other, budget)):
                continue
            ratio, half = results.ratio("joint", other, budget)
            compared += 1
            widest = max(widest, half)
            faster += ratio + half < 1
            if ratio - half > 1 + SLOWER:
                slower.append("%s at %s (%.3f x)" % (other, size(budget), ratio))
    checks.append((not slower, "joint is not slower than any other policy that fits, beyond the spread (half-width at most %.1f %%): %d comparisons, faster "
                   "beyond it in %d%s" % (100 * widest, compared, faster, slower and "; slower than " + "; ".join(slower) or "")))  # fmt: skip
    return checks


def between(least, most, count):
    """The ends with a margin: measurements differ a little from run to run, and a plan leaves some of a budget free."""
    low, high = least * 1.01 + MARGIN, most * 1.01 + MARGIN
    return [int(low + (high - low) * i / (count - 1)) for i in range(count)]


def save(path, document):
    with open(path, "w") as file:
        json.dump(document, file, indent=1)


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
    parser.add_argument("--repetitions", type=int, default=1, help="times that each budget is measured (default: %(default)s)")
    parser.add_argument("--together", type=int, default=0, help="budgets that are measured side by side (default: as many as there is memory for)")
    parser.add_argument("--steps", type=int, default=64, help="of each run; those before the %dth do not count (default: %%(default)s)" % (SETTLED + 1))
    parser.add_argument("--policies", default=",".join(POLICIES), help="separated by commas (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="the small job, two budgets, one round, the policies joint and selective")
    options = parser.parse_args()
    options.policies = [p for p in options.policies.split(",") if p]
    unknown = [p for p in options.policies if p not in POLICIES]
    if unknown:
        parser.error("--policies: no '%s' (there are %s)" % (unknown[0], ", ".join(POLICIES)))
    if options.quick:
        options.budgets, options.repetitions, options.steps, options.policies = 2, 1, SETTLED + 6, ["joint", "selective"]
    if options.budgets < 2 or options.repetitions < 1 or options.together < 0 or options.steps < SETTLED + 4:
        parser.error("at least 2 budgets, 1 repetition and %d steps" % (SETTLED + 4))
    options.lib = os.path.abspath(options.lib)
    options.out = os.path.abspath(options.out or "build/examples/budget_sweep/" + options.job)
    if not os.path.exists(options.lib):
        parser.error("no %s: build first, examples/budget_sweep/run does" % options.lib)
    os.makedirs(options.out, exist_ok=True)

    job = description(options.job)
    sweep = Sweep(job, options)

    print("  looking for the least budget and for what retaining everything takes ...", flush=True)
    try:
        least, most = sweep.limits()
        budgets = between(least, most, options.budgets)
        together = options.together or sweep.together(budgets)
        groups = [budgets[i : i + together] for _ in range(options.repetitions) for i in range(0, len(budgets), together)]
        print("  least %s, everything %s; %d budgets side by side" % (size(least), size(most), together), flush=True)
        sweep.sweep(groups)
    except runs.Failed as failure:
        raise SystemExit("\n%s" % failure)

    results = Results(sweep.lines, budgets, [p for p in POLICIES if p in options.policies], groups)
    path = os.path.join(options.out, "sweep.json")
    document = dict(schema="reprise.sweep/1", job=options.job, steps=options.steps, repetitions=options.repetitions, least=least, everything=most,
                    budgets=budgets, groups=groups, machine=dict(kernel=platform.release(), processors=os.cpu_count(), python=platform.python_version()),
                    runs=sweep.lines)  # fmt: skip
    save(path, document)
    show(results)
    checks = judge(results)
    document["summary"] = [dict(policy=p, budget=b, fits=results.fits(p, b), ledger_peak=results.peak(p, b), added_ms=added,
                                half_width_ms=None if math.isinf(half) else half)
                           for b in budgets for p in results.policies for added, half in [results.added(p, b)]]  # fmt: skip
    document["checks"] = [dict(met=bool(met), text=text) for met, text in checks]
    save(path, document)
    drawn = os.path.join(options.out, "sweep.png")
    picture(drawn, job, results)
    print("\n  picture: %s, numbers: %s\n" % (os.path.relpath(drawn), os.path.relpath(path)))
    runs.finish(checks)


if __name__ == "__main__":
    main()
