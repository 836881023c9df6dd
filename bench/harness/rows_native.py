"""Rows of the C API: large buffers, small buffers, memory, lookup."""

import os
import tempfile
import time

from . import machine, statistics
from .processes import BenchError, children, environment, google_benchmark
from .result import Sampling, fixed

FRACTIONS = ((0.001, 0.02), (0.01, 0.08), (0.1, 0.6), (0.5, 1.15), (1.0, 1.15))
WARM_WINDOWS = 2
median = statistics.median


def size_name(size):
    return "1 GiB" if size == 1 << 30 else "%d MiB" % (size >> 20)


def overhead(window):
    """Everything of a window but the job's writes."""
    return window["forward"] + window["load"] + window["put_back"] + window["release"]


def cycle(name):
    """value(): a whole cycle of policy `name`, in nanoseconds: its calls, and what its page faults add to the job's writes."""

    def value(rounds):
        faults = median(r[name]["write"] for r in rounds) - median(r["free"]["write"] for r in rounds)
        return median(overhead(r[name]) for r in rounds) + max(0.0, faults)

    return value


def four_copies(rounds):
    """4 x the median of single copies."""
    return 4 * median(time for r in rounds for time in r["copies"])


def against_copies(name):
    value = cycle(name)
    return lambda rounds: value(rounds) / four_copies(rounds)


def parts(rounds, name):
    milliseconds = {k: round(median(r[name][k] for r in rounds) / 1e6, 4) for k in ("forward", "write", "load", "put_back", "release")}
    milliseconds["write_unarmed"] = round(median(r["free"]["write"] for r in rounds) / 1e6, 4)
    milliseconds["four_copies"] = round(four_copies(rounds) / 1e6, 4)
    return milliseconds


class Bench:
    """The processes: a yardstick that copies, a job without protection (the same writes on memory that nobody armed), and the policies."""

    def __init__(self, options):
        self.options = options
        self.size = options.bytes
        program = os.path.join(options.build, "bench_cycle")
        self.copies = ([os.path.join(options.build, "bench_copies"), "--bytes=%d" % self.size], environment())
        self.free = ([program, "--bytes=%d" % self.size, "--unprotected"], environment(options.library, {"REPRISE_POLICY": "off"}))
        self.job = [program, "--bytes=%d" % self.size]

    def policy(self, policy, dirty):
        return self.job, environment(self.options.library, {"REPRISE_POLICY": policy, "REPRISE_DIRTY": dirty})

    def room(self, buffers):
        need, there = int(buffers * self.size * 1.1) + (512 << 20), machine.available_bytes()
        if need > there:
            raise BenchError("%d MiB of memory are needed, %d MiB are available: give a smaller --bytes" % (need >> 20, there >> 20))

    def measure(self, policy, dirty, fraction, bar, least):
        """Windows of one policy at one density, in fresh processes."""
        self.room(3 + 1 + 4)
        sampling = Sampling(self.options, against_copies("job"), bar)
        with children(self.copies, self.free, self.policy(policy, dirty)) as (copies, free, job):
            seed = iter(range(1, 1 << 30))

            def round_(number):
                window = "window %g %d" % (fraction, next(seed))
                order = [("free", free, window), ("job", job, window), ("copies", copies, "copies %d" % self.size)]
                order = order[number % 3 :] + order[: number % 3]
                answers = {name: child.ask(command) for name, child, command in order}
                answers["copies"] = answers["copies"]["copies"]
                return answers

            for number in range(WARM_WINDOWS):
                round_(number)
            sampling.one_cluster(round_, least)
        return sampling


def whole_and_selective(options, dirty, prefix):
    """Rows 1 and 2, or the same without userfaultfd."""
    bench = Bench(options)
    compare = dirty == "compare"
    where = ", without userfaultfd" if compare else ""
    name = size_name(bench.size)
    least = 5 if options.quick else 9
    wants = options.wants

    if wants(prefix + "whole"):
        bar = 1.5 if compare else 1.15
        sampling = bench.measure("whole", dirty, 1.0, bar, least)
        yield sampling.result(prefix + "whole", "whole, %s against 4 copies%s" % (name, where), ms=parts(sampling.clusters[0], "job"))
    for fraction, bar in FRACTIONS:
        row = prefix + "selective-%g%%" % (100 * fraction)
        if wants(row):
            sampling = bench.measure("selective", dirty, fraction, 1.5 if compare else bar, least)
            what = "selective, %s, random pages dirty: %g %%, against the whole cycle (4 copies)%s" % (name, 100 * fraction, where)
            yield sampling.result(row, what, ms=parts(sampling.clusters[0], "job"))
    if wants(prefix + "unchanged"):
        sampling = bench.measure("selective", dirty, 0.0, 1.5 if compare else 0.01, least)
        what = "selective, %s, nothing changed, against the whole cycle (4 copies)%s" % (name, where)
        yield sampling.result(prefix + "unchanged", what, ms=parts(sampling.clusters[0], "job"))


def write_protected(options):
    if options.capabilities.get("wp_async"):
        yield from whole_and_selective(options, "wp-async", "")
    else:
        raise BenchError("this kernel has no userfaultfd WP_ASYNC for us (%s); the compare- rows are what it can do" % options.capabilities.get("reason"))


def compared(options):
    yield from whole_and_selective(options, "compare", "compare-")


def small(options):
    program, repetitions = os.path.join(options.build, "bench_small"), 5 if options.quick else 20
    times = google_benchmark(program, environment(options.library, {"REPRISE_POLICY": "selective"}), repetitions)
    for name, row, bar in (("all_changed", "small", 25.0), ("nothing_changed", "small-unchanged", None)):
        rounds = [{"us": t / 1e3} for t in times[name]]
        value, low, high = statistics.interval([rounds], lambda r: median(x["us"] for x in r))
        what = "F + B, 50 small buffers (64 KiB in all), %s, C API" % name.replace("_", " ")
        yield fixed(row, what, value, bar, "us", len(rounds), low, high)


def planning(options):
    """What measuring, and comparing with the plan in force, add to a segment: the same job without a budget, and with a plan that replays all of it."""
    program = [os.path.join(options.build, "bench_planning")]
    sampling = Sampling(options, lambda rounds: median(r["plan"] - r["none"] for r in rounds), None, "us")
    with tempfile.TemporaryDirectory() as folder:
        plan = os.path.join(folder, "plan")
        replay = {"REPRISE_POLICY": "selective"}
        settings = {**replay, "REPRISE_BUDGET": "1GiB", "REPRISE_SAVE_PLAN": plan, "REPRISE_PLAN_CACHE": "off"}
        with children((program, environment(options.library, replay)), (program, environment(options.library, settings))) as (none, planned):
            until = time.monotonic() + 60
            while not os.path.exists(plan):
                if time.monotonic() > until:
                    raise BenchError("no plan was made in a minute; the job said: " + planned.said()[-500:])
                planned.ask("cycles 2")
            for child in (none, planned):
                child.ask("cycles 30")

            def round_(number):
                both = [("none", none), ("plan", planned)]
                answers = {name: child.ask("cycles 20") for name, child in (both if number % 2 else reversed(both))}
                return {name: median(a["ns"]) / a["segments"] / 1e3 for name, a in answers.items()}

            sampling.one_cluster(round_, 5 if options.quick else 40)
    without = median(r["none"] for r in sampling.clusters[0])
    yield sampling.result("planning", "measuring and following a plan, per segment (F + B), C API: more than without a budget", note="without: %.1f us" % without)


def shadow_memory(options):
    """Extra memory of selective: what it held at most against what it may hold, with three versions outstanding."""
    bench = Bench(options)
    bench.room(1 + 1 + 4)
    versions = 3
    for fraction in (0.01, 0.1):
        command = "versions %d %g 1" % (versions, fraction)
        with children(bench.free, bench.policy("selective", "wp-async" if options.capabilities.get("wp_async") else "compare")) as (free, job):
            plain, held = free.ask(command), job.ask(command)
        may = held["buffer"] + held["dirty_per_version"] + held["changed"]
        resident = (held["resident_peak"] - plain["resident_peak"]) / may
        yield fixed(
            "extra-memory-%g%%" % (100 * fraction),
            "extra memory of selective, %s, %d versions of %g %% each, against shadow + dirty pages per version + changed bytes"
            % (size_name(bench.size), versions, 100 * fraction),
            held["held_peak"] / may, 1.02, note="resident: %.3f x" % resident, resident_ratio=resident, **held,
        )  # fmt: skip


def find(options):
    program, repetitions = os.path.join(options.build, "bench_find"), 5 if options.quick else 20
    times = google_benchmark(program, environment(), repetitions)

    def spread(name):
        return statistics.interval([[{"ns": t} for t in times["warm/" + name]]], lambda r: median(x["ns"] for x in r))

    for name, bar, what in (
        ("arena_hot", 40.0, "address to buffer, 10,000 in arenas, hot"),
        ("small_hot", 40.0, "address to buffer, 10,000 small tensors, hot"),
        ("arena_random", None, "the same, arenas, any of the 10,000"),
        ("small_random", None, "the same, small tensors, any of the 10,000"),
    ):
        value, low, high = spread(name)
        yield fixed("find-" + name.replace("_", "-"), what, value, bar, "ns", repetitions, low, high)
    for kind in ("arena", "small"):
        rounds = [{"cold": c, "load": one} for c, one in zip(times["cold/%s_cold" % kind], times["cold_load"])]
        hot = median(times["warm/%s_hot" % kind])
        value, low, high = statistics.interval([rounds], lambda r: (median(x["cold"] for x in r) - hot) / median(x["load"] for x in r))
        note = "%.0f ns, one cold load %.0f ns" % (median(times["cold/%s_cold" % kind]), median(times["cold_load"]))
        what = "address to buffer, %s, cold: dependent loads of memory" % ("arenas" if kind == "arena" else "small tensors")
        yield fixed("find-%s-cold" % kind, what, value, 2.0, "loads", repetitions, low, high, note)
