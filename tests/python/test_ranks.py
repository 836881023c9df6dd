"""Ranks of a distributed job (torchrun, gloo) decide alike: segments with a collective of their own, ranks that measure differently, DDP and
FSDP2, a rank that dies. Every job comes out as the same job without checkpoints."""

import pathlib
import re

import pytest

from test_attach import run

JOB = pathlib.Path(__file__).parent / "jobs" / "ranks.py"
RESULT = re.compile(r"rank (\d) digest (\w+) executed \d+")
EXIT = re.compile(r"reprise: \d+ segments, (\d+) replays.*?(\d+) rejections, (\d+) divergences")
PLAN = re.compile(r"plan for a budget of .*?: (\d+) of (\d+) segments retained")
BLOCKS = 8


def start(build, **env):
    env = {"REPRISE_LOG": "info", "PYTHONWARNINGS": "ignore", **env}
    return run(build, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(JOB), env=env, check=False)


def digests(done):
    found = dict(RESULT.findall(done.stdout))
    assert done.returncode == 0 and sorted(found) == ["0", "1"], done.stdout + done.stderr[-5000:]
    return found


@pytest.fixture(scope="module")
def without(build):
    """Digests without checkpoints, by what else is set."""
    known = {}

    def get(**env):
        key = tuple(sorted(env.items()))
        if key not in known:
            known[key] = digests(start(build, CHECKPOINT="0", REPRISE_POLICY="off", **env))
        return known[key]

    return get


def replays(done):
    lines = [tuple(map(int, line)) for line in EXIT.findall(done.stderr)]
    assert len(lines) == 2, done.stderr[-3000:]
    assert all(rejections == divergences == 0 for _, rejections, divergences in lines)
    return [line[0] for line in lines]


@pytest.mark.parametrize("wrap", ["ddp", "fsdp"])
def test_ranks_that_measure_differently_retain_the_same(build, without, wrap):
    done = start(build, WRAP=wrap, REPRISE_BUDGET="1GiB", SLOW="1")
    assert digests(done) == without(WRAP=wrap)
    plans = PLAN.findall(done.stderr)
    assert plans == [("8", "8")] * 2, done.stderr[-3000:]
    first, second = replays(done)
    assert first == second
    assert BLOCKS <= first < 22 * BLOCKS, "the plan was never followed"


def test_a_tight_budget_divides_the_segments_alike(build, without):
    loose = start(build, REPRISE_BUDGET="1GiB")
    peak = float(re.search(r"peak ([\d.]+) MiB", loose.stderr).group(1))
    done = start(build, REPRISE_BUDGET=str(int((peak - 0.3) * 2**20)), SLOW="0")
    assert digests(done) == digests(loose) == without()
    plans = PLAN.findall(done.stderr)
    assert len(plans) == 2 and plans[0] == plans[1] and 0 < int(plans[0][0]) < BLOCKS, done.stderr[-3000:]
    first, second = replays(done)
    assert first == second


def test_uneven_inputs_and_accumulation(build, without):
    done = start(build, UNEVEN="1", STEPS="40", REPRISE_BUDGET="1GiB")
    assert digests(done) == without(UNEVEN="1", STEPS="40")
    assert PLAN.findall(done.stderr) == [("24", "24")] * 2, done.stderr[-3000:]
    first, second = replays(done)
    assert first == second < 60 * BLOCKS


def test_a_rank_that_dies_before_the_agreement_leaves_the_others_to_the_job(build):
    """The survivor hears of it from its own collective, not from us: no hang beyond that."""
    done = start(build, DIES="1", REPRISE_BUDGET="1GiB")
    assert done.returncode != 0
    assert "gloo" in done.stderr.lower() or "Connection" in done.stderr, done.stderr[-3000:]
