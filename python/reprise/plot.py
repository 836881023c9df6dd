"""python -m reprise.plot DRAWING.json PICTURE.png

Draws what `reprise plan --png` and `reprise report --png` hand over: time against budget for every policy (reprise.sweep/1), or the memory of a
cycle, planned and actual (reprise.drawing/1). Needs matplotlib; nothing else of Reprise imports it.
"""

import json
import os
import sys

if __name__ == "__main__" and os.path.abspath(sys.path[0] or ".") == os.path.dirname(os.path.abspath(__file__)):
    del sys.path[0]  # started by its path: the package's own modules must not be found as top-level ones

STYLES = {
    "joint": ("#1f5fa8", "-", 2.6),
    "eager-whole": ("#c8641b", (0, (7, 3)), 1.8),
    "greedy": ("#4c8c3f", ":", 1.8),
    "selective": ("#8d4fa3", "-.", 1.6),
    "whole": ("#a3333d", "--", 1.6),
    "retain": ("#4b5560", (0, (1, 4)), 1.6),
    "fixed": ("#2a8d8d", (0, (12, 4)), 1.6),
}
RULES = ("selective", "whole", "retain", "fixed")
UNITS = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1))


def unit_of(most):
    """The largest unit that the greatest value reaches."""
    return next((unit for unit in UNITS if most >= unit[1]), UNITS[-1])


def draw_sweep(drawing, axes):
    budgets = [entry["budget_bytes"] for entry in drawing["budgets"]]
    name, size = unit_of(max(budgets, default=1))
    plans = [entry["plans"] for entry in drawing["budgets"]]
    slowest = max((plan["added_ns"] for entry in plans for plan in entry.values() if plan["verdict"] == "planned"), default=0)
    unit, scale = next(((u, s) for u, s in (("s", 1e9), ("ms", 1e6), ("us", 1e3)) if slowest >= s), ("ns", 1))
    for policy in drawing["policies"]:
        points = [(budget, entry[policy]) for budget, entry in zip(budgets, plans) if entry[policy]["verdict"] == "planned"]
        if policy in RULES and points:
            points.insert(0, (points[0][1]["peak_bytes"], points[0][1]))  # its one plan fits from its peak on
        colour, dash, width = STYLES.get(policy, ("#000000", "-", 1))
        label = policy if points else policy + " (never fits)"
        axes.plot([b / size for b, _ in points], [p["added_ns"] / scale for _, p in points], color=colour, linestyle=dash, linewidth=width, marker=".", label=label,
                  zorder=3 if policy == drawing["policies"][0] else 2)  # fmt: skip
    axes.axvline(drawing["smallest_bytes"] / size, color="#a3333d", linestyle=":", linewidth=1, label="smallest budget")
    axes.set_xlabel("memory budget (%s)" % name)
    axes.set_ylabel("added time of a cycle (%s)" % unit)
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper right")


def draw_timeline(drawing, axes):
    slots = range(len(drawing["actual"]))
    values = [v for v in drawing["actual"] + drawing["planned"] if v is not None and v >= 0] + [drawing["budget"]]
    name, size = unit_of(max(values, default=1))
    seen = [(t, v / size) for t, v in zip(slots, drawing["actual"]) if v is not None and v >= 0]
    axes.fill_between([t for t, _ in seen], [v for _, v in seen], step="post", color="#9dbfe3", label="in use")
    if drawing["planned"]:
        axes.step(range(len(drawing["planned"])), [v / size for v in drawing["planned"]], where="post", color="#1d2733", linewidth=1, label="planned")
    if drawing["budget"]:
        axes.axhline(drawing["budget"] / size, color="#a3333d", linestyle="--", linewidth=1.4, label="budget")
    axes.set_xlabel("events of the cycle")
    axes.set_ylabel("memory (%s)" % name)
    axes.set_ylim(bottom=0)
    axes.legend(loc="lower right")


DRAWINGS = {"reprise.sweep/1": draw_sweep, "reprise.drawing/1": draw_timeline}


def main(arguments):
    if len(arguments) != 2:
        print("usage: python -m reprise.plot DRAWING.json PICTURE.png", file=sys.stderr)
        return 2
    source, target = arguments
    try:
        with open(source, encoding="utf-8") as file:
            drawing = json.load(file)
        draw = DRAWINGS[drawing["schema"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        print("'%s' is no drawing of Reprise's (%s: %s)" % (source, type(error).__name__, error), file=sys.stderr)
        return 1
    try:
        import matplotlib
    except ImportError as error:
        print("%s has no matplotlib (%s): install it (pip install matplotlib), or name another Python with --python (a picture that needs none: reprise plan --svg)" % (sys.executable, error), file=sys.stderr)
        return 1
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(11, 6))
    axes.grid(color="#e3e8ee")
    axes.set_axisbelow(True)
    axes.set_title(drawing.get("title", ""), loc="left")
    draw(drawing, axes)
    figure.tight_layout()
    part = "%s.part-%d.png" % (target, os.getpid())
    try:
        figure.savefig(part, dpi=130)
        os.replace(part, target)
    except OSError as error:
        if os.path.exists(part):
            os.unlink(part)
        print("'%s' cannot be written (%s): give a path that can be" % (target, error.strerror), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
