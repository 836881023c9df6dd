"""Whole jobs under the preload, as people run them: torchrun and DDP, DataLoader workers, libraries that checkpoint by themselves, the compiler,
trouble. Each comes out byte for byte as the same job without checkpointing (tests/python/jobs; the libraries come with tests/setup/requirements.txt
and none may be missing). The jobs of one form share a process: starting torch is what takes the time."""

import pathlib
import re
import subprocess
import sys

import pytest
import torch

from test_attach import run

JOBS = pathlib.Path(__file__).parent / "jobs"
FORMS = ("nonreentrant", "reentrant")
EXIT = re.compile(r"reprise: \d+ segments, (\d+) replays, (\d+) of them on changed state.*?(\d+) rejections, (\d+) divergences")

TRAIN = ("sequential", "pretrained", "images", "compiled_inside", "kept_losses", "evaluation", "exceptions", "copies")
LOADING = ("forked", "spawned", "module_spawned")


class Outcome:
    """What the jobs of one process left: results by (job, form), what was said for each, the whole of stderr."""

    def __init__(self, folder, done):
        self.folder, self.stderr, self.status = folder, done.stderr, done.returncode
        parts = [part.partition("\n") for part in done.stderr.split("=== job ")]
        self.said = {name: text for name, _, text in parts[1:]}

    def result(self, name, form):
        path = self.folder / form / name
        assert path.is_file(), "%s (%s) did not end:\n%s" % (name, form, self.said.get(name + ":" + form, self.stderr)[-6000:])
        return torch.load(path)

    def told(self, name, form):
        """The lines of Reprise's in this job's part."""
        return [line for line in self.said[name + ":" + form].splitlines() if line.startswith("reprise:")]

    def last_line(self):
        lines = EXIT.findall(self.stderr)
        assert lines, self.stderr[-3000:]
        return [tuple(map(int, line)) for line in lines]


def start(build, folder, script, wanted, preload, env=(), launcher=()):
    env = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", **dict(env)}
    done = run(build, *launcher, str(JOBS / script), str(folder), *("%s:%s" % pair for pair in wanted), env=env, preload=preload, check=False)
    return Outcome(folder, done)


class Jobs:
    """Starts a process of jobs the first time that one of them is asked for."""

    def __init__(self, build, factory):
        self.build, self.factory, self.done = build, factory, {}

    def get(self, key, script, wanted, preload, **more):
        if key not in self.done:
            self.done[key] = start(self.build, self.factory.mktemp("jobs"), script, wanted, preload, **more)
        return self.done[key]

    def train(self, form):
        if form in ("retained", "stock"):
            return self.get("train", "train.py", [*((n, "retained") for n in TRAIN), ("sequential", "nonreentrant")], False)
        return self.get("train " + form, "train.py", [(n, form) for n in TRAIN], True)

    def loading(self, form):
        return self.get("loading " + form, "loading.py", [(n, form) for n in LOADING], form != "retained")

    def distributed(self, preload):
        wanted = [("plain", "nonreentrant"), ("static_graph", "reentrant"), ("static_graph", "nonreentrant")]
        if not preload:
            wanted = [("plain", "retained"), ("static_graph", "retained"), ("plain", "nonreentrant")]
        launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
        return self.get("distributed %s" % preload, "distributed.py", wanted, preload, launcher=launcher)


@pytest.fixture(scope="session")
def jobs(build, tmp_path_factory):
    return Jobs(build, tmp_path_factory)


def differing(a, b):
    assert set(a) == set(b) and a
    raw = lambda t: t.contiguous().numpy().tobytes()  # noqa: E731
    return [name for name in a if a[name].shape != b[name].shape or a[name].dtype != b[name].dtype or raw(a[name]) != raw(b[name])]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", [n for n in TRAIN if n != "kept_losses"])
def test_comes_out_as_without_checkpointing(jobs, name, form):
    outcome = jobs.train(form)
    assert differing(jobs.train("retained").result(name, "retained"), outcome.result(name, form)) == []
    assert outcome.told(name, form) == []


def test_stock_does_not(jobs):
    """The negative control of this file."""
    stock = jobs.train("stock")
    wrong = differing(stock.result("sequential", "retained"), stock.result("sequential", "nonreentrant"))
    assert any("grad" in name for name in wrong) and any("num_batches_tracked" in name for name in wrong)


@pytest.mark.parametrize("form", FORMS)
def test_losses_kept_for_ever(jobs, form):
    outcome = jobs.train(form)
    assert differing(jobs.train("retained").result("kept_losses", "retained"), outcome.result("kept_losses", form)) == []
    told = outcome.told("kept_losses", form)
    assert len(told) == 1 and "REPRISE_KEEP_STEPS" in told[0]


@pytest.mark.parametrize("form", FORMS)
def test_the_exit_line_of_a_healthy_job(jobs, form):
    outcome = jobs.train(form)
    ((replays, changed, rejections, divergences),) = outcome.last_line()
    assert outcome.status == 0 and replays > 60 and changed > 40 and rejections == divergences == 0


def test_dropped_forwards_do_not_add_up(build, tmp_path):
    outcome = start(build, tmp_path, "train.py", [("dropped", form) for form in FORMS], True)
    for form in FORMS:
        outcome.result("dropped", form)
        assert outcome.told("dropped", form) == []


def test_compiled_around(build, tmp_path):
    """The compiler takes the checkpoints into its graph: as stock in every byte, no graph break, and said once."""
    outcome = start(build, tmp_path / "reprise", "train.py", [("compiled_around", "nonreentrant")], True)
    stock = start(build, tmp_path / "stock", "train.py", [("compiled_around", "nonreentrant")], False)
    assert differing(stock.result("compiled_around", "nonreentrant"), outcome.result("compiled_around", "nonreentrant")) == []
    told = outcome.told("compiled_around", "nonreentrant")
    assert len(told) == 1 and "torch.compile" in told[0] and "not protected" in told[0]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", LOADING)
def test_workers(jobs, name, form):
    """DataLoader workers and other processes, by fork and by spawn: same bytes, no hang, no noise."""
    outcome = jobs.loading(form)
    assert differing(jobs.loading("retained").result(name, "retained"), outcome.result(name, form)) == []
    assert [line for line in outcome.told(name, form) if not EXIT.match(line)] == []
    assert "Traceback" not in outcome.said[name + ":" + form]


def test_workers_that_have_nothing_to_tell_are_quiet(jobs):
    outcome = jobs.loading("nonreentrant")
    assert outcome.status == 0
    for name in ("forked", "spawned"):
        assert outcome.told(name, "nonreentrant") == []
    assert len(outcome.told("module_spawned", "nonreentrant")) == 2  # these did checkpoint: their exit lines


@pytest.mark.parametrize("name, form", [("plain", "nonreentrant"), ("static_graph", "nonreentrant"), ("static_graph", "reentrant")])
def test_ddp(jobs, name, form):
    outcome = jobs.distributed(True)
    assert differing(jobs.distributed(False).result(name, "retained"), outcome.result(name, form)) == []


def test_ddp_stock_is_wrong(jobs):
    stock = jobs.distributed(False)
    assert differing(stock.result("plain", "retained"), stock.result("plain", "nonreentrant"))


def test_torchrun_attaches_every_rank(jobs):
    outcome = jobs.distributed(True)
    assert outcome.status == 0, outcome.stderr[-4000:]
    lines = outcome.last_line()
    assert len(lines) == 2 and all(replays > 20 and not rejections and not divergences for replays, _, rejections, divergences in lines)


NEVER = """
import sys, threading, torch
from torch import nn
model = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.Linear(64, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    model(torch.randn(16, 64)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
print("engine", "libreprise_engine" in open("/proc/self/maps").read())
print("userfaultfd", any("userfaultfd" in __import__("os").readlink("/proc/self/fd/%s" % f) for f in __import__("os").listdir("/proc/self/fd")
                         if __import__("os").path.exists("/proc/self/fd/%s" % f)))
from torch.optim.optimizer import _global_optimizer_post_hooks as hooks
print("hooks", len(hooks), "threads", threading.active_count())
print("done")
"""


def test_a_job_that_never_checkpoints(build, tmp_path):
    """Nothing is opened, hooked or said, except the line at exit."""
    path = tmp_path / "never.py"
    path.write_text(NEVER)
    done = run(build, str(path))
    assert done.stdout.split("\n")[:4] == ["engine False", "userfaultfd False", "hooks 0 threads 1", "done"]
    lines = done.stderr.strip().splitlines()
    assert len(lines) <= 1 and all(line.startswith("reprise:") for line in lines), done.stderr
