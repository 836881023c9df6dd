"""What the tests of the command share: where it is (ctest says so in the environment), how it is run, a record to begin with."""

import json
import os
import shutil
import subprocess
import tempfile
import unittest

COMMAND = os.environ["REPRISE_TEST_COMMAND"]
PRELOAD = os.environ["REPRISE_TEST_PRELOAD"]
PROGRAMS = os.environ["REPRISE_TEST_PROGRAMS"]
SOURCE = os.environ["REPRISE_TEST_SOURCE"]
JOB = os.path.join(PROGRAMS, "job")


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="reprise-cli-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text, mode=0o644):
        with open(self.path(name), "w" if isinstance(text, str) else "wb") as file:
            file.write(text)
        os.chmod(self.path(name), mode)
        return self.path(name)

    def reprise(self, *words, status=0, env=None, **more):
        """Runs it, checks the exit status, and returns what it printed: .stdout, .stderr."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith("REPRISE_") and k != "LD_PRELOAD"}
        done = subprocess.run([COMMAND, *words], env={**clean, **(env or {})}, capture_output=True, text=True, errors="replace", timeout=60, cwd=self.folder, **more)
        self.assertEqual(done.returncode, status, "%s\n%s\n%s" % (words, done.stdout, done.stderr))
        return done

    def recorded(self, *options, steps=3):
        """A record file and a report of a real run."""
        self.reprise("run", "--records", "r", "--report", "s", *options, "--", JOB, str(steps))
        return self.path("r"), self.path("s")

    def lines(self):
        with open(self.path("r")) as file:
            return [json.loads(line) for line in file]


RECORD = {
    "schema": "reprise.record/1", "run": "1-1", "segment": "s", "instance": 1, "replay": 1, "step": 0, "policy": "selective", "contract": "0123456789abcdef", "outcome": "match",
    "reason": "", "mechanisms": {"small": 1}, "bytes_changed": 8, "bytes_put_back": 8, "nanoseconds": 1000,
}  # fmt: skip


def profile(blocks=6, micro_batches=1, run="18f0-1", step=12):
    """A job's cycle as reprise.profile/1: forwards, then replays in reverse order, one queue that all use, a codebook for each block."""
    mib = 1 << 20
    instances, events, queue_writes, users = [], [None], [], []
    codebooks = [{"name": "blocks.%d.codebook" % b, "bytes": 2 * mib, "selective": True, "users": [], "writes": []} for b in range(blocks)]
    for m in range(micro_batches):
        for b in range(blocks):
            number, name = len(instances), "blocks.%d" % b
            events += [["F", name, m, "begin"], ["F", name, m, "end"]]
            written = len(events) - 2
            users.append(number)
            queue_writes.append({"slot": written, "pages": [[number * 64, number * 64 + 64]]})
            codebooks[b]["users"].append(number)
            codebooks[b]["writes"].append({"slot": written, "pages": [[0, 512 if b % 2 == 0 else 20]]})
            instances.append({"segment": name, "ordinal": m, "forward_ns": 3000000 + 10000 * b, "replay_ns": 3100000 + 10000 * b, "overhead_ns": 20000, "keep_bytes": (40 + b % 5) * mib,
                              "transient_bytes": (44 + b % 5) * mib, "freedom": "open", "why": ""})  # fmt: skip
        for b in reversed(range(blocks)):
            events += [["B", "blocks.%d" % b, m, "begin"], ["B", "blocks.%d" % b, m, "end"]]
    return {"schema": "reprise.profile/1", "run": run, "step": step, "cycles": 3, "unseen_bytes": 0, "page_bytes": 4096, "events": events, "base_bytes": [500 * mib] * len(events),
            "instances": instances, "buffers": [{"name": "queue", "bytes": 64 * mib, "selective": True, "users": users, "writes": queue_writes}, *codebooks], "costs": {}}  # fmt: skip
