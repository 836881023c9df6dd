"""Training scripts as processes of their own, with and without Reprise, and what is said of numbers. For compare.py and the sweep of budgets."""

import json
import os
import select
import subprocess
import sys

import numpy as np

PATIENCE = 600  # seconds for one step
COUNTED = ("forwards", "replays", "replays_on_changed_state", "rejections", "divergences")


class Run:
    """What one process left behind. `statistics` is None without Reprise, `arrays` where none were asked for."""

    def __init__(self, key, report, arrays, statistics, log):
        self.key, self.report, self.arrays, self.statistics, self.log = key, report, arrays, statistics, log


class Failed(Exception):
    """A process that ended with another exit status than 0, or without what it had to write."""


class Training:
    """One process that trains; with `lib`, under its preload; `env`: further REPRISE_ variables. With `turns` each step waits for step()."""

    def __init__(self, script, key, arguments, folder, lib=None, env=None, arrays=True, turns=False):
        self.key, self.active, self.pipes = key, lib is not None, None
        self.out, self.report, self.statistics, self.log = (os.path.join(folder, key + end) for end in (".npz", ".json", ".reprise.json", ".log"))
        self.arrays = arrays
        for path in (self.out, self.report, self.statistics):
            if os.path.exists(path):
                os.remove(path)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("REPRISE_") and name != "LD_PRELOAD"}
        if self.active:
            environment.update({"LD_PRELOAD": lib, "REPRISE_REPORT": self.statistics, "REPRISE_REQUIRE": "1", "REPRISE_PLAN_CACHE": "off", **(env or {})})
        self.required = environment.get("REPRISE_REQUIRE") == "1"
        command = [sys.executable, script, "--report", self.report, *(["--out", self.out] if arrays else []), *arguments]
        theirs = ()
        if turns:
            (go, ours), (mine, ready) = os.pipe(), os.pipe()
            theirs, self.pipes = (go, ready), (mine, ours)
            command += ["--turns", str(go), str(ready)]
        with open(self.log, "w") as file:
            self.process = subprocess.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, pass_fds=theirs)
        for descriptor in theirs:
            os.close(descriptor)

    def wait(self):
        """Until it is ready for the next step, or has done its last."""
        readable, _, _ = select.select([self.pipes[0]], [], [], PATIENCE)
        if not readable:
            self.stop()
            raise Failed("the run '%s' did not come to the end of a step in %d s; its output is in %s" % (self.key, PATIENCE, self.log))
        if not os.read(self.pipes[0], 1):
            self.end()
            raise Failed("the run '%s' ended before its last step; its output is in %s" % (self.key, self.log))

    def step(self):
        """One step, from its beginning to its end. The run must be ready."""
        try:
            os.write(self.pipes[1], b".")
        except BrokenPipeError:
            pass  # said by wait()
        self.wait()

    def stop(self):
        """Whatever it is doing. Safe to call more than once."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for descriptor in self.pipes or ():
            os.close(descriptor)
        self.pipes = None

    def end(self):
        """-> Run, when the process has ended by itself."""
        status = self.process.wait()
        self.stop()
        with open(self.log) as file:
            lines = file.read().strip().splitlines()
        if status:
            said = "\n".join("    " + line for line in lines[-15:])
            raise Failed("the run '%s' failed with exit status %d; its output is in %s, and ends with\n%s" % (self.key, status, self.log, said))
        if not os.path.exists(self.report):
            raise Failed("the run '%s' ended without a report; its output is in %s" % (self.key, self.log))
        with open(self.report) as file:
            report = json.load(file)
        statistics = None
        if self.active:
            if not os.path.exists(self.statistics) and self.required:
                raise Failed("the run '%s' ended, but Reprise wrote no statistics: it was not active (see %s)" % (self.key, self.log))
            if os.path.exists(self.statistics):
                with open(self.statistics) as file:
                    statistics = json.load(file)
        return Run(self.key, report, np.load(self.out) if self.arrays else None, statistics, self.log)


def train(*arguments, **named):
    """One process alone, from beginning to end -> Run. Arguments as Training's."""
    training = Training(*arguments, **named)
    try:
        return training.end()
    finally:  # interrupted: it does not go on alone
        training.stop()


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
