"""Training scripts as processes of their own, with and without Reprise, and what is said of numbers. For compare.py and the sweep of budgets."""

import json
import os
import subprocess
import sys

import numpy as np

COUNTED = ("forwards", "replays", "replays_on_changed_state", "rejections", "divergences")


class Run:
    """What one process left behind. `statistics` is None without Reprise, `arrays` where none were asked for."""

    def __init__(self, key, report, arrays, statistics, log):
        self.key, self.report, self.arrays, self.statistics, self.log = key, report, arrays, statistics, log


class Failed(Exception):
    """A process that ended with another exit status than 0, or without what it had to write."""


def train(script, key, arguments, folder, lib=None, env=None, arrays=True):
    """One process -> Run. With `lib`, under its preload; `env`: further REPRISE_ variables."""
    out, report, statistics, log = (os.path.join(folder, key + end) for end in (".npz", ".json", ".reprise.json", ".log"))
    for path in (out, report, statistics):
        if os.path.exists(path):
            os.remove(path)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("REPRISE_") and name != "LD_PRELOAD"}
    if lib is not None:
        environment.update({"LD_PRELOAD": lib, "REPRISE_REPORT": statistics, "REPRISE_REQUIRE": "1", "REPRISE_PLAN_CACHE": "off", **(env or {})})
    command = [sys.executable, script, "--report", report, *(["--out", out] if arrays else []), *arguments]
    with open(log, "w") as file:
        done = subprocess.run(command, env=environment, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    with open(log) as file:
        lines = file.read().strip().splitlines()
    if done.returncode:
        said = "\n".join("    " + line for line in lines[-15:])
        raise Failed("the run '%s' failed with exit status %d; its output is in %s, and ends with\n%s" % (key, done.returncode, log, said))
    with open(report) as file:
        report = json.load(file)
    loaded = None
    if lib is not None:
        if not os.path.exists(statistics) and environment["REPRISE_REQUIRE"] == "1":
            raise Failed("the run '%s' ended, but Reprise wrote no statistics: it was not active (see %s)" % (key, log))
        if os.path.exists(statistics):
            with open(statistics) as file:
                loaded = json.load(file)
    return Run(key, report, np.load(out) if arrays else None, loaded, log)


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


def median(values):
    values = sorted(values)
    return (values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2


def step_time(report):
    """Median of the steps after the first quarter, in milliseconds."""
    return 1e3 * median(report["step_seconds"][len(report["step_seconds"]) // 4 :])


def table(rows):
    widths = [max(len(row[c]) for row in rows) for c in range(len(rows[0]))]
    for i, row in enumerate(rows):
        print("  " + row[0].ljust(widths[0]) + "".join("   " + cell.rjust(w) for cell, w in zip(row[1:], widths[1:])))
        if i == 0:
            print("  " + "-" * (sum(widths) + 3 * len(widths) - 3))


def finish(checks):
    """Prints what was met and what was not, the closing line, and ends the process."""
    for met, sentence in checks:
        print("  %-6s %s" % ("ok" if met else "FAILED", sentence))
    failed = sum(not met for met, _ in checks)
    print("%d passed, %d failed" % (len(checks) - failed, failed))
    sys.exit(1 if failed else 0)
