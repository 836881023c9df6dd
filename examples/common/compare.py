"""Trains one and the same model four times, each in a process of its own, and shows what checkpointing did to it:

    retained            every activation is kept: what the gradients should be
    stock checkpoint    activations are recomputed, from state that has changed meanwhile
    Reprise whole       the same script under LD_PRELOAD=libreprise.so, whole buffers copied
    Reprise selective   the same, copying only what changes

A fifth process counts, with plain copies and memcmp, what really changed. Exit status 0 only when stock comes out wrong, both Reprise runs
come out byte for byte as the retained one, and selective copied no more than it had to.
"""

import argparse
import dataclasses
import os
import time
from typing import Callable, Sequence

from . import runs
from .runs import different, relative_error, size, step_time

RUNS = (  # key, title, arguments of the script, policy of Reprise
    ("retained", "retained", ["--no-checkpoint"], None),
    ("stock", "stock checkpoint", [], None),
    ("whole", "Reprise whole", [], "whole"),
    ("selective", "Reprise selective", [], "selective"),
    ("count", "counting what changes", ["--no-checkpoint", "--count-changes"], None),
)
SHOWN = [(key, title) for key, title, _, _ in RUNS if key != "count"]
SLACK = 1.1  # selective may preserve this much times the pages that changed, besides the first sight of each buffer


@dataclasses.dataclass
class Job:
    """What differs between the examples."""

    name: str  # of the folder for results, and of the picture
    script: str
    heading: str  # of the picture
    state: str  # what changes: "the queue"
    steps: int
    quick_steps: int
    quick: Sequence[str]  # arguments of the script with --quick
    quality: tuple  # title of a row, report -> text
    data: str  # help for --data
    default_data: str = None
    generators: int = 0  # bytes of random generators that each segment preserves besides what is counted, where that is not next to nothing
    snapshot: Callable = None  # folder -> path of the data to use where none was given


def arguments_of(job, options):
    """Of the training script: steps, data, and what --quick means. The folder for results exists."""
    data = options.data or job.default_data or (job.snapshot(options.out) if job.snapshot else None)
    return ["--steps", str(options.steps), *(["--data", data] if data else []), *(job.quick if options.quick else [])]


def picture(path, job, results, changes):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    titles = [title.replace(" ", "\n") for _, title in SHOWN]
    colours = ["#7f7f7f", "#c0392b", "#2e6da4", "#27ae60"]
    reference = results["retained"].arrays
    found = [results[key] for key, _ in SHOWN]
    panels = (
        ("error of the first gradient", "%", [100 * relative_error(reference, run.arrays, "first") for run in found]),
        ("bytes preserved", "MiB (log)", [run.statistics["bytes_preserved"] / 2**20 if run.statistics else 0 for run in found]),
        ("peak memory above the start", "MiB", [(run.report["peak_bytes"] - run.report["start_bytes"]) / 2**20 for run in found]),
        ("time of a step", "ms", [step_time(run.report) for run in found]),
    )
    figure, axes = plt.subplots(1, 4, figsize=(15, 4.2))
    for axis, (title, unit, values) in zip(axes, panels):
        bars = axis.bar(titles, values, color=colours)
        axis.bar_label(bars, ["%.0f" % v if v >= 100 or not v else "%.3g" % v for v in values])
        axis.set_title(title)
        axis.set_ylabel(unit)
        axis.tick_params(axis="x", labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
        axis.margins(y=0.12)
    changed = changes["page_bytes_between_forwards"] / 2**20
    axes[1].set_yscale("log")
    axes[1].axhline(changed, color="black", linestyle="--", linewidth=1)
    axes[1].text(-0.4, changed, "pages really changed: %.3g" % changed, va="bottom", fontsize=8)
    figure.suptitle(job.heading)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def judge(job, results, changes):
    """-> list of (met, sentence)."""
    reference, stock = results["retained"].arrays, results["stock"].arrays
    stock_error = relative_error(reference, stock, "first")
    checks = [(stock_error > 1e-3 and bool(different(reference, stock, "state")),
               "stock checkpointing is wrong: first gradient off by %.2g %%, final state differs" % (100 * stock_error))]  # fmt: skip
    for key in ("whole", "selective"):
        run = results[key]
        wrong = different(reference, run.arrays)
        checks.append((not wrong, "Reprise %s: all %d arrays (gradients, losses, final state) have the retained run's bytes%s"
                       % (key, len(reference.files), "; not: " + ", ".join(wrong[:3]) if wrong else "")))  # fmt: skip
        counted, segments = run.statistics, run.report["segments"]
        checks.append((counted["replays_on_changed_state"] == counted["replays"] == counted["forwards"] == segments
                       and not counted["rejections"] and not counted["divergences"],
                       "Reprise %s: %d forwards, %d replays, %d of them on changed state, %d rejections, %d divergences (the script has %d segments)"
                       % (key, *(counted[n] for n in runs.COUNTED), segments)))  # fmt: skip
    wrong = different(reference, results["count"].arrays)
    checks.append((not wrong, "the counting run was the same training%s" % (wrong and "; not: " + ", ".join(wrong[:3]) or "")))
    changed, first = changes["page_bytes_between_forwards"], changes["state_bytes"] + changes["argument_bytes"]
    generators = job.generators * results["selective"].report["segments"]
    preserved, most = results["selective"].statistics["bytes_preserved"], SLACK * changed + first + generators
    checks.append((preserved <= most, "Reprise selective preserved %s; %.1f x the changed pages (%s), the first sight of every buffer (%s)%s allow %s"
                   % (size(preserved), SLACK, size(changed), size(first), generators and ", generators (%s)" % size(generators) or "", size(most))))  # fmt: skip
    checks.append((changed > 0 and changes["bytes_until_backward"] > 0, "%s changed between forward and backward: %d bytes counted"
                   % (job.state, changes["bytes_until_backward"])))  # fmt: skip
    return checks


def show(job, results, changes):
    reference = results["retained"].arrays

    def row(name, cell):
        return [name, *(cell(results[key]) for key, _ in SHOWN)]

    def error(prefix):
        return lambda run: "reference" if run.key == "retained" else (
            "%.2g %%" % (100 * relative_error(reference, run.arrays, prefix)) if different(reference, run.arrays, prefix) else "0, same bytes"
        )  # fmt: skip

    def statistic(text):
        return lambda run: "-" if run.statistics is None else text(run.statistics)

    retained_time = step_time(results["retained"].report)
    print()
    runs.table(
        [
            ["", *(title for _, title in SHOWN)],
            row("error of the gradient, first step", error("first")),
            row("error of the gradient, last step", error("last")),
            row("final state", lambda run: "reference" if run.key == "retained" else (
                "DIFFERS" if different(reference, run.arrays, "state") else "same bytes")),
            row(job.quality[0], lambda run: job.quality[1](run.report)),
            row("bytes preserved", statistic(lambda s: size(s["bytes_preserved"]))),
            row("  of these, first fill", statistic(lambda s: size(s["bytes_first_fill"]))),
            row("  held at most", statistic(lambda s: size(s["bytes_held_peak"]))),
            row("peak memory", lambda run: size(run.report["peak_bytes"])),
            row("  above the start of training", lambda run: size(run.report["peak_bytes"] - run.report["start_bytes"])),
            row("time of a step", lambda run: "%.0f ms (%.2f x)" % (step_time(run.report), step_time(run.report) / retained_time)),
        ]
    )  # fmt: skip
    print()
    print("  What really changed, counted by memcmp over %d segments (%s: %s):"
          % (changes["forwards"], job.state, size(results["count"].report["state_bytes"])))  # fmt: skip
    print("    between one forward and the next      %10s in pages of 4 KiB, %s of bytes"
          % (size(changes["page_bytes_between_forwards"]), size(changes["bytes_between_forwards"])))  # fmt: skip
    print("    between a forward and its backward    %10s in pages, summed over segments: what replays must see undone"
          % size(changes["page_bytes_until_backward"]))  # fmt: skip
    print("    first sight of %s and of each segment's arguments %s" % (job.state, size(changes["state_bytes"] + changes["argument_bytes"])))


def main(job):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lib", required=True, help="path of libreprise.so")
    parser.add_argument("--data", help=job.data)
    parser.add_argument("--out", default="build/examples/" + job.name, help="folder for results and the picture (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=job.steps)
    parser.add_argument("--quick", action="store_true", help="a smaller model and %d steps" % job.quick_steps)
    options = parser.parse_args()
    options.steps = min(options.steps, job.quick_steps) if options.quick else options.steps
    options.lib, options.out = os.path.abspath(options.lib), os.path.abspath(options.out)
    if not os.path.exists(options.lib):
        parser.error("no %s: build first, %s does" % (options.lib, "examples/run"))
    os.makedirs(options.out, exist_ok=True)

    results, shared = {}, arguments_of(job, options)
    for number, (key, title, arguments, policy) in enumerate(RUNS, 1):
        print("  [%d/%d] %-22s " % (number, len(RUNS), title), end="", flush=True)
        began = time.monotonic()
        with_reprise = {} if policy is None else dict(lib=options.lib, env={"REPRISE_POLICY": policy})
        try:
            results[key] = runs.train(job.script, key, [*shared, *arguments], options.out, **with_reprise)
        except runs.Failed as failure:
            raise SystemExit("\n%s" % failure)
        print("%5.1f s, loss %.4f" % (time.monotonic() - began, results[key].report["losses"][-1]), flush=True)
    changes = results["count"].report["changes"]
    show(job, results, changes)
    path = os.path.join(options.out, job.name + ".png")
    picture(path, job, results, changes)
    print("\n  picture: %s\n" % os.path.relpath(path))
    runs.finish(judge(job, results, changes))
