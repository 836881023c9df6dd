"""Processes that take turns: each reads a command per line and answers with a line of JSON, so that alternatives are measured by turns in one
run. A process that dies or hangs is an error with the end of what it said."""

import contextlib
import json
import os
import select
import subprocess
import tempfile
import time


class BenchError(Exception):
    """A row could not be measured; the text says why and what to do."""


def environment(library=None, settings=None):
    """The job's environment: ours without any setting of Reprise, with the preload when `library` is given."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("REPRISE_") and k != "LD_PRELOAD"}
    if library is not None:
        env["LD_PRELOAD"] = library
    env.update(settings or {})
    return env


class Child:
    def __init__(self, command, env, timeout=300):
        self.name = os.path.basename(next((c for c in command if c.endswith(".py")), command[0]))
        self.timeout = timeout
        self.log = tempfile.TemporaryFile()
        self.buffer = b""
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log)
        self.ready = None

    def start(self):
        """Waits until it is ready; apart from the constructor, so that several can start at the same time."""
        self.ready = self._answer()
        return self

    def send(self, command):
        try:
            self.process.stdin.write((command + "\n").encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            self._dead("it ended")

    def ask(self, command):
        self.send(command)
        return self._answer()

    def answer(self):
        return self._answer()

    def said(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def _dead(self, why):
        tail = "\n    ".join(self.said().strip().splitlines()[-12:])
        raise BenchError("%s: %s (exit status %s). It said:\n    %s" % (self.name, why, self.process.poll(), tail or "nothing"))

    def _answer(self):
        deadline = time.monotonic() + self.timeout
        while b"\n" not in self.buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                self._dead("no answer in %d s" % self.timeout)
            chunk = os.read(self.process.stdout.fileno(), 1 << 16)
            if not chunk:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(5)
                self._dead("it ended")
            self.buffer += chunk
        line, self.buffer = self.buffer.split(b"\n", 1)
        try:
            return json.loads(line)
        except ValueError:
            self._dead("it answered %r" % line[:200])

    def end(self):
        """Lets it end by itself. -> what it said"""
        self.process.stdin.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self._dead("it does not end")
        if self.process.returncode:
            self._dead("it failed at its end")
        said = self.said()
        self.close()
        return said

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.log):
            with contextlib.suppress(OSError):
                stream.close()


@contextlib.contextmanager
def children(*commands):
    """commands: (command, env) each. Starts them at the same time; yields them when all are ready."""
    started = []
    try:
        for command, env in commands:
            started.append(Child(command, env))
        for child in started:
            child.start()
        yield started
    finally:
        for child in started:
            child.close()


def run(command, env, timeout=600):
    """-> (standard output, seconds of wall time, seconds of processor time)"""
    began, before = time.perf_counter(), os.times()
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        raise BenchError("%s: no end in %d s" % (os.path.basename(command[0]), timeout)) from None
    took, after = time.perf_counter() - began, os.times()
    if done.returncode:
        tail = "\n    ".join((done.stderr or done.stdout).strip().splitlines()[-12:])
        raise BenchError("%s: exit status %d:\n    %s" % (os.path.basename(command[0]), done.returncode, tail))
    return done.stdout, took, (after.children_user - before.children_user) + (after.children_system - before.children_system)


def google_benchmark(program, env, repetitions, pattern=None, minimum_seconds=0.1):
    """-> {name: [nanoseconds of each repetition]}"""
    command = [program, "--benchmark_format=json", "--benchmark_repetitions=%d" % repetitions, "--benchmark_min_time=%g" % minimum_seconds]
    command += ["--benchmark_enable_random_interleaving=true"]
    if pattern:
        command.append("--benchmark_filter=" + pattern)
    text, _, _ = run(command, env)
    scale = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}
    times = {}
    for entry in json.loads(text)["benchmarks"]:
        if entry.get("error_occurred"):
            raise BenchError("%s: %s: %s" % (os.path.basename(program), entry["name"], entry.get("error_message")))
        if entry["run_type"] == "iteration":
            name = entry["run_name"].split("/iterations:")[0].removesuffix("/manual_time")
            times.setdefault(name, []).append(entry["real_time"] * scale[entry["time_unit"]])
    return times
