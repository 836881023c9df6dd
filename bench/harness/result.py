"""One line of the table, and how long to go on measuring it."""

import dataclasses
import time

from . import statistics


@dataclasses.dataclass
class Result:
    row: str  # what --only takes
    what: str
    value: float
    low: float
    high: float
    unit: str  # "x": a ratio
    bar: float  # None: shown, no bar
    wanted: float = 0.0  # half-width of the interval
    samples: int = 0
    clusters: int = 1
    seconds: float = 0.0
    note: str = ""
    details: dict = dataclasses.field(default_factory=dict)

    @property
    def half_width(self):
        return (self.high - self.low) / 2

    @property
    def reached(self):
        return self.bar is None or self.half_width <= self.wanted

    @property
    def verdict(self):
        if self.bar is None:
            return "shown"
        verdict = "met" if self.value <= self.bar else "missed"
        return verdict if not self.low <= self.bar < self.high else verdict + "?"  # the interval holds the bar

    def as_json(self):
        out = dataclasses.asdict(self)
        out.update(half_width=self.half_width, spread_reached=self.reached, verdict=self.verdict)
        return out


class Sampling:
    """Collects rounds until the interval is narrow enough or a limit is hit."""

    def __init__(self, options, value, bar, unit="x"):
        self.options, self.value, self.bar, self.unit = options, value, bar, unit
        self.wanted = statistics.wanted_half_width(bar, unit == "x") if bar is not None else 0.0
        self.clusters = []
        self.began = time.monotonic()
        self.limit = options.seconds

    def narrow(self):
        if self.bar is None or not self.clusters or min(map(len, self.clusters)) < 3:
            return False
        _, low, high = statistics.interval(self.clusters, self.value, 200)
        return (high - low) / 2 <= self.wanted

    def out_of_time(self):
        return time.monotonic() - self.began > self.limit

    def one_cluster(self, round_, least):
        """Rounds in one set of processes."""
        cluster = []
        self.clusters.append(cluster)
        while True:
            cluster.append(round_(len(cluster)))
            if len(cluster) < least:
                continue
            if self.out_of_time() or ((len(cluster) - least) % 4 == 0 and self.narrow()):
                return

    def result(self, row, what, note="", **details):
        value, low, high = statistics.interval(self.clusters, self.value)
        out = Result(row, what, value, low, high, self.unit, self.bar, self.wanted, sum(map(len, self.clusters)), len(self.clusters),
                     time.monotonic() - self.began, note, details)  # fmt: skip
        if not out.reached:
            out.note = (out.note + "; " if out.note else "") + "spread wider than wanted (+-%.3g) after %.0f s" % (out.wanted, out.seconds)
        return out


def fixed(row, what, value, bar, unit="x", samples=1, low=None, high=None, note="", **details):
    """A number that is counted, or came with its own spread."""
    wanted = statistics.wanted_half_width(bar, unit == "x") if bar is not None else 0.0
    return Result(row, what, value, value if low is None else low, value if high is None else high, unit, bar, wanted, samples, 1, 0.0, note, details)
