"""The planner against HiGHS, a solver by others, on problems too large to try all plans.

30 problems; 300 larger ones with REPRISE_TEST_FULL=1 (tests/run --full). REPRISE_PLANNER_PROBLEM: the program that makes them.
"""

import json
import os
import subprocess

import pytest

from highs_model import Model, evaluate

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
TOOL = os.environ.get("REPRISE_PLANNER_PROBLEM", os.path.join(ROOT, "build", "release", "tests", "planner", "planner_problem"))
FAMILIES = ("transformer", "resnet", "moe", "queue", "perseg", "vq", "gradacc", "1f1b", "random")
FULL = bool(os.environ.get("REPRISE_TEST_FULL"))
SECONDS = 60 if FULL else 6


def problems():
    count = 300 if FULL else 30
    for k in range(count):
        size = (60, 100, 140, 200)[k % 4] if FULL else (24, 40)[k % 2]
        yield FAMILIES[k % len(FAMILIES)], 5000 + k, size, 20 if FULL else 8, (0.15, 0.4, 0.7)[(k // len(FAMILIES)) % 3]


@pytest.mark.parametrize("family,seed,instances,buffers,tightness", list(problems()))
def test_against_highs(family, seed, instances, buffers, tightness):
    assert os.path.exists(TOOL), "%s: build it first (cmake --build build/release --target planner_problem)" % TOOL
    done = subprocess.run([TOOL, family, str(seed), str(instances), str(buffers), str(tightness)], capture_output=True, text=True, check=True)
    case = json.loads(done.stdout)
    problem, ours = case["problem"], case["answer"]
    if ours["verdict"] == "planned":
        spent, peak = evaluate(problem, ours["replay"], ours["mechanism"])
        assert peak <= problem["budget"], "the plan does not fit"
        assert (spent, peak) == (ours["objective_ns"], ours["peak"])
        assert ours["bound_ns"] <= spent
    theirs = Model(problem).solve(SECONDS)
    print("ours %.3f s %s %s, HiGHS %.3f s %s" % (case["cpu_seconds"], ours["verdict"], ours["proof"], theirs["cpu_seconds"], theirs["status"]))
    if theirs["status"] == "infeasible":
        assert ours["verdict"] != "planned", "HiGHS proved that there is no plan"
        return
    # What HiGHS calls feasible may exceed the budget by its tolerance: only a plan that holds in exact integers counts.
    true = None
    if theirs["plan"] is not None:
        spent, peak = evaluate(problem, *theirs["plan"])
        if peak <= problem["budget"]:
            true = spent
    if true is not None:
        assert ours["verdict"] != "infeasible", "HiGHS found a plan"
        if ours["verdict"] == "planned":
            assert ours["bound_ns"] <= true, "a plan that takes less than our bound"
    if ours["verdict"] != "planned":
        return
    if theirs["status"] == "optimal":
        assert ours["objective_ns"] >= theirs["objective"] - 1 - 1e-9 * theirs["objective"], "a plan that takes less than HiGHS's optimum"
        if ours["proof"] == "exact" and true is not None:
            assert abs(ours["objective_ns"] - true) <= 1, "two optima"
    elif theirs["bound"] is not None:
        assert theirs["bound"] <= ours["objective_ns"] + 1 + 1e-9 * ours["objective_ns"], "HiGHS's bound is above our plan"
