"""Rows of programs that have nothing to do with segments: a compiler, start-up."""

import json
import os
import shutil
import tempfile

from . import statistics
from .processes import BenchError, environment, run
from .result import Sampling, fixed

median = statistics.median


def source(functions):
    """A C++ file that keeps a compiler's allocator busy: many instantiations of library templates."""
    lines = ["#include <algorithm>", "#include <functional>", "#include <map>", "#include <memory>", "#include <string>", "#include <vector>"]  # fmt: skip
    for i in range(functions):
        lines.append("struct Key%d { int a; std::string b; bool operator<(const Key%d &o) const { return a < o.a || (a == o.a && b < o.b); } };" % (i, i))
        lines.append(
            "int use%d(std::vector<Key%d> keys) { std::map<Key%d, std::vector<std::shared_ptr<Key%d>>> m; std::sort(keys.begin(), keys.end());"
            " for (auto &k : keys) m[k].push_back(std::make_shared<Key%d>(k)); std::function<int(int)> f = [&](int x) { return x + int(m.size()); };"
            " return f(%d); }" % (i, i, i, i, i, i)
        )
    return "\n".join(lines) + "\n"


def compiler(options):
    program = shutil.which(os.environ.get("CXX", "g++"))
    if program is None:
        raise BenchError("no g++ on PATH (or CXX)")
    sampling = Sampling(options, statistics.ratio("reprise", "stock"), 1.02)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "large.cpp")
        with open(path, "w") as file:
            file.write(source(2 if options.quick else 30))
        outputs = {}

        def compile_(name, env):
            target = os.path.join(folder, name + ".s")
            _, wall, processor = run([program, "-O1", "-S", "-o", target, path], env)
            with open(target, "rb") as file:
                outputs[name] = file.read()
            return wall, processor

        def round_(number):
            order = [("stock", environment()), ("reprise", environment(options.library))]
            times = {name: compile_(name, env) for name, env in (order if number % 2 == 0 else reversed(order))}
            if outputs["stock"] != outputs["reprise"]:
                raise BenchError("g++ wrote another file under the preload")
            return {name: wall for name, (wall, _) in times.items()} | {name + "_cpu": cpu for name, (_, cpu) in times.items()}

        round_(0)
        sampling.one_cluster(round_, 3 if options.quick else 6)
    rounds = sampling.clusters[0]
    cpu = statistics.ratio("reprise_cpu", "stock_cpu")(rounds)
    seconds = {name: round(median(r[name] for r in rounds), 4) for name in ("stock", "reprise")}
    yield sampling.result("no-segments-g++", "g++ on a large file under the preload", "processor time: %.3f x" % cpu, seconds=seconds, cpu_ratio=cpu)


def startup(options):
    # The system's own starts in a quarter of the time of one whose site-packages import things at start-up (and vary more than our bar). A
    # python3 on PATH may be a script that looks for one.
    python = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else shutil.which("python3")
    python = python and run([python, "-c", "import sys; print(sys.executable)"], environment())[0].strip()
    for row, what, command, bar, pairs in (
        ("start-python", "start-up of python under the preload: more", [python, "-c", "pass"], 0.5, 30 if options.quick else 150),
        ("start-true", "start-up of /bin/true under the preload: more", ["/bin/true"], 0.3, 100 if options.quick else 500),
    ):
        if not options.wants(row):
            continue
        if command[0] is None:
            raise BenchError("no python3 on PATH")
        program = [os.path.join(options.build, "bench_start"), "--library=" + options.library, "--pairs=%d" % pairs, "--", *command]
        rounds = []
        value = lambda r: (median(x["preloaded"] for x in r) - median(x["plain"] for x in r)) / 1e6  # noqa: E731
        for _ in range(4):
            times = json.loads(run(program, environment())[0])
            rounds += [{"plain": a, "preloaded": b} for a, b in zip(times["plain"], times["preloaded"])]
            middle, low, high = statistics.interval([rounds], value)
            if (high - low) / 2 <= statistics.wanted_half_width(bar, False):
                break
        yield fixed(row, what, middle, bar, "ms", len(rounds), low, high, "plain: %.2f ms" % (median(r["plain"] for r in rounds) / 1e6))
