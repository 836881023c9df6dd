"""Ranks of a distributed job (torchrun, gloo) decide alike: segments with a collective of their own, ranks that measure differently, DDP and
FSDP2, a rank that dies. Every job comes out as the same job without checkpoints."""

import json
import pathlib
import re
import socket
import subprocess
import sys

import pytest

from test_attach import environment, run

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


def test_one_plan_file_pins_all_ranks(build, without, tmp_path):
    """Made by two ranks under a tight budget, followed by two others under a loose one; cut down to another job, refused by both."""
    path = tmp_path / "plan"
    tight = float(re.search(r"peak ([\d.]+) MiB", start(build, REPRISE_BUDGET="1GiB").stderr).group(1)) - 0.3
    made = start(build, REPRISE_BUDGET=str(int(tight * 2**20)), REPRISE_SAVE_PLAN=str(path))
    (wanted, of), other = PLAN.findall(made.stderr)
    assert (wanted, of) == other and 0 < int(wanted) < BLOCKS
    plan = json.loads(path.read_text())
    assert [i["decision"] for i in plan["instances"]].count("retain") == int(wanted)

    pinned = start(build, REPRISE_BUDGET="1GiB", REPRISE_PLAN=str(path), SLOW="1")
    assert digests(pinned) == digests(made) == without()
    assert PLAN.findall(pinned.stderr) == [(wanted, of)] * 2, pinned.stderr[-3000:]
    first, second = replays(pinned)
    assert first == second

    plan["instances"] = plan["instances"][1:]
    path.write_text(json.dumps(plan))
    refused = start(build, REPRISE_BUDGET="1GiB", REPRISE_PLAN=str(path))
    assert digests(refused) == digests(made)
    assert refused.stderr.count("REPRISE_PLAN=%s" % path) >= 2, refused.stderr[-3000:]
    assert PLAN.findall(refused.stderr) == [(str(BLOCKS), str(BLOCKS))] * 2, "they make their own"


def test_uneven_inputs_and_accumulation(build, without):
    done = start(build, UNEVEN="1", STEPS="40", REPRISE_BUDGET="1GiB")
    assert digests(done) == without(UNEVEN="1", STEPS="40")
    assert PLAN.findall(done.stderr) == [("24", "24")] * 2, done.stderr[-3000:]
    first, second = replays(done)
    assert first == second < 60 * BLOCKS


@pytest.mark.parametrize("dies", ["0", "1"])  # 0: the one that has the store
@pytest.mark.parametrize("budget", ["1GiB", None])
def test_a_rank_that_dies_leaves_the_others_to_the_job(build, dies, budget):
    """The survivor hears of it from its own collective, not from us, as without us. Nobody else ends it: there is no launcher."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    policy = {"REPRISE_BUDGET": budget, "REPRISE_LOG": "info"} if budget else {"REPRISE_POLICY": "off"}
    ranks = {}
    for rank in "01":
        env = {"RANK": rank, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "DIES": dies, **policy}
        ranks[rank] = subprocess.Popen([sys.executable, str(JOB)], env=environment(build, env), stderr=subprocess.PIPE, text=True)
    survivor = ranks.pop("0" if dies == "1" else "1")
    try:
        _, said = survivor.communicate(timeout=120)
        assert survivor.returncode not in (0, 9) and survivor.returncode > 0, said[-3000:]
        assert "gloo" in said.lower() or "Connection" in said, said[-3000:]
    finally:
        for process in (survivor, *ranks.values()):
            process.kill()
            process.communicate()
