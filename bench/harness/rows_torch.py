"""Rows of the torch adapter and of torch jobs under the preload: pairs of processes, without and with Reprise, by turns."""

import json
import os
import tempfile

from . import statistics
from .processes import BenchError, Child, children, environment, run
from .result import Sampling

median = statistics.median
HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def job(options, name, *arguments):
    if options.python is None:
        raise BenchError("no Python with torch: set REPRISE_PYTHON=/path/to/python, or let tests/run make .venv")
    return [options.python, os.path.join(HERE, "jobs", name), *map(str, arguments)]


class Pair:
    """The same job without and with the preload."""

    def __init__(self, options, command, settings=None, threads=None, replays=True):
        self.options, self.command, self.replays = options, command, replays
        self.folder = tempfile.TemporaryDirectory()
        self.report = os.path.join(self.folder.name, "report.json")
        common = {"OMP_NUM_THREADS": str(threads)} if threads else {}
        self.stock_env = environment(None, common)
        self.reprise_env = environment(options.library, {**common, "REPRISE_REPORT": self.report, **(settings or {})})
        self.stock = self.reprise = None

    def __enter__(self):
        self.stock = Child(self.command, self.stock_env)
        self.reprise = Child(self.command, self.reprise_env)
        try:
            self.stock.start()
            self.reprise.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def round_(self, number, count):
        """Both run `count` iterations, one after the other. -> median seconds of each"""
        first, second = (self.stock, self.reprise) if number % 2 == 0 else (self.reprise, self.stock)
        a = median(first.ask("run %d" % count)["seconds"])
        b = median(second.ask("run %d" % count)["seconds"])
        return {"stock": a, "reprise": b} if first is self.stock else {"stock": b, "reprise": a}

    def finish(self):
        """Ends both; a pair that was meant to replay under Reprise and did not has measured nothing. -> the report"""
        self.stock.end()
        said = self.reprise.end()
        if not self.replays:
            return {}
        if not os.path.exists(self.report):
            raise BenchError("Reprise was not attached to %s. It said:\n    %s" % (self.reprise.name, said.strip()[-800:] or "nothing"))
        with open(self.report) as file:
            report = json.load(file)
        if not report["replays"] or report["rejections"] or report["divergences"]:
            raise BenchError("%s under Reprise: %d replays, %d rejections, %d divergences. It said:\n    %s" % (
                self.reprise.name, report["replays"], report["rejections"], report["divergences"], said.strip()[-800:]))  # fmt: skip
        return report

    def __exit__(self, *_):
        for child in (self.stock, self.reprise):
            if child is not None:
                child.close()
        self.folder.cleanup()


def measure(options, sampling, make_pair, count, rounds, least_pairs, look=None):
    """Pairs of fresh processes until the interval is narrow enough. look(pair) sees each. -> the last report"""
    report = {}
    while True:
        with make_pair() as pair:
            if look is not None:
                look(pair)
            pair.round_(0, count)  # both have run since both were started
            sampling.clusters.append([pair.round_(number, count) for number in range(rounds)])
            report = pair.finish()
        if len(sampling.clusters) >= least_pairs and (sampling.narrow() or sampling.out_of_time()):
            return report


def shown(report):
    keys = ("dirty_source", "replays", "replays_on_changed_state", "bytes_preserved", "bytes_loaded", "bytes_held_peak")
    return {key: report[key] for key in keys if key in report}


def milliseconds(sampling):
    rounds = [r for cluster in sampling.clusters for r in cluster]
    return {name: round(1e3 * median(r[name] for r in rounds), 4) for name in ("stock", "reprise")}


def adapter(options):
    for form, arguments in (("non-reentrant", ()), ("reentrant", ("--reentrant",))):
        row = "adapter" if form == "non-reentrant" else "adapter-reentrant"
        if not options.wants(row):
            continue
        value = lambda rounds: 1e6 * statistics.difference("reprise", "stock")(rounds)  # noqa: E731
        sampling = Sampling(options, value, 150.0, "us")
        report = measure(options, sampling, lambda: Pair(options, job(options, "layer.py", *arguments), threads=1), 50,
                         4 if options.quick else 12, 1 if options.quick else 4)  # fmt: skip
        what = "torch adapter, 10-module layer, scope cached, F + B beyond stock, %s" % form
        yield sampling.result(row, what, ms=milliseconds(sampling), report=shown(report))


def step_ratio(options, row, what, arguments, replays=True, bar=1.02, pairs=None, rounds=None, look=None, note=lambda: ""):
    sampling = Sampling(options, statistics.ratio("reprise", "stock"), bar)
    report = measure(options, sampling, lambda: Pair(options, job(options, "step.py", *arguments), replays=replays), 3,
                     rounds or (3 if options.quick else 10), pairs or (1 if options.quick else 3), look)  # fmt: skip
    return sampling.result(row, what, note(), ms=milliseconds(sampling), report=shown(report))


def step(options):
    small = ["--layers", 2, "--dim", 128] if options.quick else []
    if options.wants("step"):
        yield step_ratio(options, "step", "training step, checkpointed, nothing changed, against stock checkpoint", small)
    if options.wants("step-pretrained"):
        with tempfile.TemporaryDirectory() as folder:
            run(job(options, "step.py", "--save", folder, *small), environment())
            with open(os.path.join(folder, "way")) as file:
                way = file.read()
            facts = {}
            look = lambda pair: facts.update(pair.reprise.ask("report"))  # noqa: E731
            note = lambda: "%s, %d %% of the parameters in file mappings" % (way, 100 * facts["mapped_bytes"] // facts["parameter_bytes"])  # noqa: E731
            arguments = ["--pretrained", folder, *small]
            yield step_ratio(options, "step-pretrained", "the same with from_pretrained parameters", arguments, look=look, note=note)
    if options.wants("step-later"):
        steps = 50 if options.quick else 1000
        size = ["--layers", 2, "--dim", 128, "--batch", 2, "--warm", steps]
        what = "the same after %d steps" % steps
        yield step_ratio(options, "step-later", what, size, pairs=1, rounds=5 if options.quick else 60)


def state(options):
    """The step's extra time in units of 4 copies of the changed bytes; the copies take turns with the steps."""
    for kind, mib, what in (
        ("queue", 256, "training step, 1 % of a queue changed: beyond stock, against 4 copies of the changed bytes"),
        ("ema", 64, "training step, an EMA teacher changed whole: beyond stock, against 4 copies of the changed bytes"),
    ):
        row = "state-" + kind
        if not options.wants(row):
            continue
        size = max(8, mib // 8) if options.quick else mib

        def value(rounds):
            copies = 4 * median(time for r in rounds for time in r["copies"])
            return (median(r["reprise"] for r in rounds) - median(r["stock"] for r in rounds)) / copies

        sampling = Sampling(options, value, 1.3)
        command = job(options, "state.py", kind, "--mib", size)
        least, rounds, report = (1 if options.quick else 3), (4 if options.quick else 15), {}
        while len(sampling.clusters) < least or not (sampling.narrow() or sampling.out_of_time()):
            with Pair(options, command) as pair:
                changed = pair.stock.ask("report")["changed_bytes"]
                yardstick = ([os.path.join(options.build, "bench_copies"), "--bytes=%d" % max(changed, 256 << 20)], environment())
                with children(yardstick) as (copies,):
                    cluster = []
                    for number in range(rounds + 1):
                        r = pair.round_(number, 3)
                        r["copies"] = [t / 1e9 for t in copies.ask("copies %d" % changed)["copies"]]
                        cluster.append(r)
                    sampling.clusters.append(cluster[1:])
                report = pair.finish()
            if not report["replays_on_changed_state"]:
                raise BenchError("state.py %s under Reprise never replayed on changed state" % kind)
        times = milliseconds(sampling)
        times["four_copies"] = round(4e3 * median(t for c in sampling.clusters for r in c for t in r["copies"]), 4)
        yield sampling.result(row, what, "%.1f MiB changed a step" % (changed / 2**20), ms=times, report=shown(report), changed_bytes=changed)


def unused(options):
    """A training step under the preload that never checkpoints."""
    small = ["--layers", 2, "--dim", 128] if options.quick else []
    yield step_ratio(options, "no-segments-torch", "torch training step under the preload, no segments", ["--no-checkpoint", *small], False, 1.01)


def memory(options):
    for kind, what in (
        ("tensors", "200 tensors of 768 x 768"),
        ("mixed", "1,000 tensors of mixed sizes"),
        ("training", "a training run"),
    ):
        row = "memory-" + kind
        if not options.wants(row):
            continue
        # glibc's own result differs by half from process to process (what lands in its heap, what in mappings): compared with its best.
        value = lambda rounds: median(r["reprise"] for r in rounds) / min(r["stock"] for r in rounds)  # noqa: E731
        sampling = Sampling(options, value, 1.10)
        command = job(options, "memory.py", kind)
        rounds, peaks = [], []
        for _ in range(1 if options.quick else 4):
            stock = json.loads(run(command, environment())[0])
            reprise = json.loads(run(command, environment(options.library))[0])
            rounds.append({"stock": stock["grown"], "reprise": reprise["grown"]})
            peaks.append(reprise["peak"] / stock["peak"])
        sampling.clusters.append(rounds)
        note = "glibc: %d to %d MiB" % (min(r["stock"] for r in rounds) >> 20, max(r["stock"] for r in rounds) >> 20)
        what = "resident memory, %s, against glibc's lowest" % what
        yield sampling.result(row, what, note, grown=rounds, peak_ratio=median(peaks))
