#!/usr/bin/env python3
"""Trains the same encoder four times, each in a process of its own, and shows what checkpointing did to it.

    retained            every activation is kept: what the gradients should be
    stock checkpoint    activations are recomputed, from a queue that has changed meanwhile
    Reprise whole       the same script under LD_PRELOAD=libreprise.so, whole buffers copied
    Reprise selective   the same, copying only what changes

A fifth process counts, with plain copies and memcmp, what really changed. Exit status 0 only when stock comes out wrong, both Reprise runs
come out byte for byte as the retained one, and selective copied no more than it had to. Run by examples/run, which builds and installs first.
"""

import argparse
import json
import os
import subprocess
import sys
import time

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
RUNS = (  # key, title, arguments of the script, policy of Reprise
    ("retained", "retained", ["--no-checkpoint"], None),
    ("stock", "stock checkpoint", [], None),
    ("whole", "Reprise whole", [], "whole"),
    ("selective", "Reprise selective", [], "selective"),
    ("count", "counting what changes", ["--no-checkpoint", "--count-changes"], None),
)
SLACK = 1.1  # selective may preserve this much times the pages that changed, besides the first sight of each buffer


def train(key, arguments, policy, options):
    """One process -> (its arrays, its report, Reprise's statistics or None)."""
    out, report, statistics, log = (os.path.join(options.out, key + end) for end in (".npz", ".json", ".reprise.json", ".log"))
    for path in (out, report, statistics):
        if os.path.exists(path):
            os.remove(path)
    env = {name: value for name, value in os.environ.items() if not name.startswith("REPRISE_") and name != "LD_PRELOAD"}
    if policy is not None:
        env.update(LD_PRELOAD=options.lib, REPRISE_POLICY=policy, REPRISE_REPORT=statistics, REPRISE_REQUIRE="1")
    command = [sys.executable, os.path.join(HERE, "train.py"), "--data", options.data, "--steps", str(options.steps)]
    command += ["--out", out, "--report", report, *options.train, *arguments]
    with open(log, "w") as file:
        done = subprocess.run(command, env=env, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    with open(log) as file:
        lines = file.read().strip().splitlines()
    if done.returncode:
        print("\n".join(lines[-15:]))
        raise SystemExit("the run '%s' failed with exit status %d; its output is in %s" % (key, done.returncode, log))
    with open(report) as file:
        report = json.load(file)
    if policy is None:
        return np.load(out), report, None
    if not os.path.exists(statistics):
        raise SystemExit("the run '%s' ended, but Reprise wrote no statistics: it was not active (see %s)" % (key, log))
    with open(statistics) as file:
        return np.load(out), report, json.load(file)


def relative_error(reference, got, prefix):
    """Euclidean norm of the difference over that of the reference, all arrays with that prefix taken as one vector."""
    names = [n for n in reference.files if n.startswith(prefix)]
    difference = sum(float(((reference[n].astype(float) - got[n]) ** 2).sum()) for n in names)
    return (difference / sum(float((reference[n].astype(float) ** 2).sum()) for n in names)) ** 0.5


def different(reference, got, prefix=""):
    """Names of the arrays that do not have the very same bytes."""
    return [n for n in reference.files if n.startswith(prefix) and reference[n].tobytes() != got[n].tobytes()]


def size(n):
    return "%.1f MiB" % (n / 2**20) if n < 2**30 else "%.2f GiB" % (n / 2**30)


def step_time(report):
    """Median of the steps after the first quarter, in milliseconds."""
    times = sorted(report["step_seconds"][len(report["step_seconds"]) // 4 :])
    return 1e3 * times[len(times) // 2]


def table(rows):
    widths = [max(len(row[c]) for row in rows) for c in range(len(rows[0]))]
    for i, row in enumerate(rows):
        print("  " + row[0].ljust(widths[0]) + "".join("   " + cell.rjust(w) for cell, w in zip(row[1:], widths[1:])))
        if i == 0:
            print("  " + "-" * (sum(widths) + 3 * len(widths) - 3))


def picture(path, results, changes):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shown = [(key, title) for key, title, _, _ in RUNS if key != "count"]
    titles = [title.replace(" ", "\n") for _, title in shown]
    colours = ["#7f7f7f", "#c0392b", "#2e6da4", "#27ae60"]
    reference = results["retained"][0]
    panels = (
        ("error of the first gradient", "%", [100 * relative_error(reference, results[k][0], "first") for k, _ in shown]),
        ("bytes preserved", "MiB (log)", [results[k][2]["bytes_preserved"] / 2**20 if results[k][2] else 0 for k, _ in shown]),
        ("peak memory above the start", "MiB", [(results[k][1]["peak_bytes"] - results[k][1]["start_bytes"]) / 2**20 for k, _ in shown]),
        ("time of a step", "ms", [step_time(results[k][1]) for k, _ in shown]),
    )
    figure, axes = plt.subplots(1, 4, figsize=(15, 4.2))
    for axis, (title, unit, values) in zip(axes, panels):
        bars = axis.bar(titles, values, color=colours)
        axis.bar_label(bars, ["%.3g" % v if v else "0" for v in values])
        axis.set_title(title)
        axis.set_ylabel(unit)
        axis.tick_params(axis="x", labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
        axis.margins(y=0.12)
    changed = changes["page_bytes_between_forwards"] / 2**20
    axes[1].set_yscale("log")
    axes[1].axhline(changed, color="black", linestyle="--", linewidth=1)
    axes[1].text(-0.4, changed, "pages really changed: %.3g" % changed, va="bottom", fontsize=8)
    figure.suptitle("Momentum contrast on Fashion-MNIST: checkpointed segments read a queue that changes before the backward")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def judge(results, changes):
    """-> list of (met, sentence)."""
    reference = results["retained"][0]
    stock_error = relative_error(reference, results["stock"][0], "first")
    checks = [(stock_error > 1e-3 and bool(different(reference, results["stock"][0], "state")),
               "stock checkpointing is wrong: first gradient off by %.2g %%, final state differs" % (100 * stock_error))]  # fmt: skip
    for key in ("whole", "selective"):
        arrays, report, statistics = results[key]
        wrong = different(reference, arrays)
        checks.append((not wrong, "Reprise %s: all %d arrays (gradients, losses, final state) have the retained run's bytes%s"
                       % (key, len(reference.files), "; not: " + ", ".join(wrong[:3]) if wrong else "")))  # fmt: skip
        checks.append(
            (
                statistics["replays_on_changed_state"] == statistics["replays"] == statistics["forwards"] == report["segments"]
                and not statistics["rejections"] and not statistics["divergences"],
                "Reprise %s: %d forwards, %d replays, %d of them on changed state, %d rejections, %d divergences (the script has %d segments)"
                % (key, *(statistics[n] for n in ("forwards", "replays", "replays_on_changed_state", "rejections", "divergences")),
                   report["segments"]),
            )
        )  # fmt: skip
    changed, first = changes["page_bytes_between_forwards"], changes["state_bytes"] + changes["argument_bytes"]
    preserved = results["selective"][2]["bytes_preserved"]
    checks.append((preserved <= SLACK * changed + first, "Reprise selective preserved %s; %.1f x the changed pages (%s) and the first sight of "
                   "every buffer (%s) allow %s" % (size(preserved), SLACK, size(changed), size(first), size(SLACK * changed + first))))  # fmt: skip
    checks.append((changed > 0 and changes["bytes_until_backward"] > 0, "the queue does change between forward and backward: %d bytes counted"
                   % changes["bytes_until_backward"]))  # fmt: skip
    return checks


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lib", required=True, help="path of libreprise.so")
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist", help="folder with IDX files (default: %(default)s)")
    parser.add_argument("--out", default="build/examples/moco", help="folder for results and the picture (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="a smaller queue and 8 steps")
    options = parser.parse_args()
    options.train = ["--queue", "8192", "--micro-batches", "4"] if options.quick else []
    options.steps = min(options.steps, 8) if options.quick else options.steps
    options.lib, options.out = os.path.abspath(options.lib), os.path.abspath(options.out)
    if not os.path.exists(options.lib):
        parser.error("no %s: build first, examples/run does" % options.lib)
    os.makedirs(options.out, exist_ok=True)

    results = {}
    for number, (key, title, arguments, policy) in enumerate(RUNS, 1):
        print("  [%d/%d] %-22s " % (number, len(RUNS), title), end="", flush=True)
        began = time.monotonic()
        results[key] = train(key, arguments, policy, options)
        print("%5.1f s, loss %.4f" % (time.monotonic() - began, results[key][1]["losses"][-1]), flush=True)
    changes = results["count"][1]["changes"]
    reference = results["retained"][0]
    shown = [key for key, *_ in RUNS if key != "count"]

    def row(name, cell):
        return [name, *(cell(key, *results[key]) for key in shown)]

    def error(prefix):
        return lambda key, arrays, *_: "reference" if key == "retained" else (
            "%.2g %%" % (100 * relative_error(reference, arrays, prefix)) if different(reference, arrays, prefix) else "0, same bytes"
        )  # fmt: skip

    def statistic(text):
        return lambda key, arrays, report, statistics: "-" if statistics is None else text(statistics)

    retained_time = step_time(results["retained"][1])
    print()
    table(
        [
            ["", *(title for key, title, *_ in RUNS if key != "count")],
            row("error of the gradient, first step", error("first")),
            row("error of the gradient, last step", error("last")),
            row("final state", lambda key, arrays, *_: "reference" if key == "retained" else (
                "DIFFERS" if different(reference, arrays, "state") else "same bytes")),
            row("right by nearest neighbour", lambda key, arrays, report, _: "%.2f %%" % (100 * report["neighbours"])),
            row("bytes preserved", statistic(lambda s: size(s["bytes_preserved"]))),
            row("  of these, first fill", statistic(lambda s: size(s["bytes_first_fill"]))),
            row("  held at most", statistic(lambda s: size(s["bytes_held_peak"]))),
            row("peak memory", lambda key, arrays, report, _: size(report["peak_bytes"])),
            row("  above the start of training", lambda key, arrays, report, _: size(report["peak_bytes"] - report["start_bytes"])),
            row("time of a step", lambda key, arrays, report, _: "%.0f ms (%.2f x)" % (step_time(report), step_time(report) / retained_time)),
        ]
    )  # fmt: skip
    print()
    print("  What really changed, counted by memcmp over %d segments (queue of %s):" % (changes["forwards"], size(results["count"][1]["queue_bytes"])))
    print("    between one forward and the next      %10s in pages of 4 KiB, %s of bytes"
          % (size(changes["page_bytes_between_forwards"]), size(changes["bytes_between_forwards"])))  # fmt: skip
    print("    between a forward and its backward    %10s in pages, summed over segments: what replays must see undone"
          % size(changes["page_bytes_until_backward"]))  # fmt: skip
    print("    first sight of the queue and of each segment's arguments %s" % size(changes["state_bytes"] + changes["argument_bytes"]))
    path = os.path.join(options.out, "moco.png")
    picture(path, results, changes)
    print("\n  picture: %s\n" % os.path.relpath(path))
    checks = judge(results, changes)
    for met, sentence in checks:
        print("  %-6s %s" % ("ok" if met else "FAILED", sentence))
    failed = sum(not met for met, _ in checks)
    print("%d passed, %d failed" % (len(checks) - failed, failed))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
