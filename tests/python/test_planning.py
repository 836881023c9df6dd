"""Jobs that plan: under every policy and budget they come out byte for byte as without checkpoints, their memory keeps to budget and plan, and what
the job leaves no choice about is never retained. Bad settings are said, and change nothing else."""

import json
import pathlib
import time

import pytest

from test_attach import run

JOB = pathlib.Path(__file__).parent / "jobs" / "planning.py"
PLANNERS = ("joint", "eager-whole", "greedy")
RULES = ("retain", "whole", "selective", "fixed")
VARIANT_SHARE = 0.9
SHARES = (0.15, 0.5, 0.9)
MIB = 1 << 20


class Result:
    def __init__(self, folder, name):
        base = folder / name
        self.said = base.with_name(name + ".err").read_text(errors="replace")
        path = base.with_name(name + ".json")
        assert path.is_file(), "%s did not end:\n%s" % (name, self.said[-5000:])
        self.__dict__.update({"digest": None, "error": None, **json.loads(path.read_text())})
        self.report = self._json(base.with_name(name + ".report"))
        self.plan = self._json(base.with_name(name + ".plan"))
        self.records = base.with_name(name + ".records")

    @staticmethod
    def _json(path):
        return json.loads(path.read_text()) if path.is_file() else None

    def replays(self):
        """Per segment: (forwards, replays)."""
        return {s["name"]: (s["forwards"], s["replays"]) for s in self.report["segments"]}

    def healthy(self, digest):
        assert self.error is None, self.said[-5000:]
        assert self.digest == digest, self.said[-3000:]
        assert self.report["rejections"] == self.report["divergences"] == 0


def start(build, folder, settings, **more):
    """Runs them all; the results by name. Each has a report, a saved plan and records of its own, unless its env says otherwise."""
    for setting in settings:
        base = str(folder / setting["name"])
        env = {"REPRISE_REPORT": base + ".report", "REPRISE_SAVE_PLAN": base + ".plan", "REPRISE_RECORDS": base + ".records", "XDG_CACHE_HOME": str(folder)}
        env["REPRISE_PLAN_CACHE"] = "off"  # each on its own
        setting["env"] = {k: v for k, v in {**env, **setting.get("env", {})}.items() if v is not None}
    path = folder / "settings.json"
    path.write_text(json.dumps(settings))
    done = run(build, str(JOB), str(folder), str(path), check=False, **more)
    assert done.returncode == 0, done.stderr[-5000:]
    return {setting["name"]: Result(folder, setting["name"]) for setting in settings}


OFF = {"REPRISE_POLICY": "off", "REPRISE_SAVE_PLAN": None}
VARIANTS = {
    "plain": {},
    "special": {"reentrant": [4, 7], "saves": [5]},
    "accumulated": {"accumulate": 2},
    "two": {"optimizers": 2},
    "in_backward": {"in_backward": True},
    "evaluated": {"evaluate": True, "steps": 12},
    "workers": {"workers": 1, "steps": 12},
    "shrinks": {"shrink_at": 9, "steps": 22},
}


@pytest.fixture(scope="module")
def first(build, tmp_path_factory):
    """Every variant without checkpoints, and what the job needs at least and at most."""
    settings = [{"name": name, "checkpoint": False, "env": OFF, **{k: v for k, v in variant.items() if k != "reentrant"}} for name, variant in VARIANTS.items()]
    settings.append({"name": "least", "env": {"REPRISE_BUDGET": "1MiB"}})
    settings.append({"name": "scratch", "scratch": MIB, "env": {"REPRISE_BUDGET": "1MiB"}})
    settings.append({"name": "fails", "env": {"REPRISE_BUDGET": "1MiB", "REPRISE_ON_INFEASIBLE": "fail"}})
    settings.append({"name": "unprotected", "env": OFF})
    return start(build, tmp_path_factory.mktemp("first"), settings)


def limits(first):
    plan = first["least"].report["plan"]
    return plan["smallest_bytes"], plan["retained_bytes"]


def budget(first, share):
    least, most = limits(first)
    wanted = int(least + share * (most - least))
    return wanted + wanted // 500 + MIB * 5 // 4


def bytes_of(first, share):
    return {"REPRISE_BUDGET": str(budget(first, share)), "REPRISE_LOG": "info"}


@pytest.fixture(scope="module")
def all_of_them(build, first, tmp_path_factory):
    settings = [
        {"name": "%s-%s" % (policy, share), "env": {"REPRISE_POLICY": policy, **bytes_of(first, share)}} for policy in PLANNERS for share in SHARES
    ]
    settings += [{"name": policy, "env": {"REPRISE_POLICY": policy, **bytes_of(first, 0.5)}} for policy in RULES]
    settings += [{"name": name, "env": bytes_of(first, VARIANT_SHARE), **variant} for name, variant in VARIANTS.items() if name not in ("plain", "special")]
    settings.append({"name": "special", "env": {"REPRISE_BUDGET": "4GiB"}, **VARIANTS["special"]})
    return start(build, tmp_path_factory.mktemp("all"), settings)


def test_stock_is_wrong(first):
    """The negative control: the job tells a replay on changed state from a right one."""
    assert first["unprotected"].digest not in (None, first["plain"].digest)


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("policy", PLANNERS)
def test_planners(first, all_of_them, policy, share):
    result = all_of_them["%s-%s" % (policy, share)]
    result.healthy(first["plain"].digest)
    report, plan = result.report, result.report["plan"]
    if plan["verdict"] != "planned":
        assert policy == "eager-whole" and plan["smallest_bytes"] > plan["budget"]
        return
    assert 0 < report["ledger_peak_planned"] <= budget(first, share)
    assert abs(report["ledger_peak_planned"] - plan["peak"]) <= plan["peak"] // 100, result.said
    assert 0 < plan["retained"] <= (12 if share == 0.9 else 11) and report["instances_retained"] > 0
    assert result.plan["peak_bytes"] == plan["peak"], "the saved plan is the one in force"


def test_what_a_function_would_let_go_is_not_kept(first):
    """A replay that is stopped early leaves its function's local variables alive; measured so, they would be taken for what its backward needs."""
    without, scratch = ([i["keep_bytes"] for i in first[name].plan["instances"]] for name in ("least", "scratch"))
    assert len(without) == len(scratch) == 12 and min(without) > 0
    assert all(abs(a - b) <= MIB // 16 for a, b in zip(without, scratch)), (without, scratch)


def test_more_budget_keeps_more(first, all_of_them):
    kept = [sum(i["keep_bytes"] for i in all_of_them["joint-%s" % share].plan["instances"] if i["decision"] == "retain") for share in SHARES]
    assert kept[0] < kept[1] < kept[2]
    added = [all_of_them["joint-%s" % share].report["plan"]["added_ns"] for share in SHARES]
    assert added[2] < added[0]


@pytest.mark.parametrize("policy", RULES)
def test_rules(first, all_of_them, policy):
    result = all_of_them[policy]
    result.healthy(first["plain"].digest)
    retained = result.report["instances_retained"]
    assert (retained == 13 * 12 and result.report["replays"] == 0) if policy == "retain" else retained == 0


@pytest.mark.parametrize("name", [n for n in VARIANTS if n not in ("plain", "special")])
def test_variants(first, all_of_them, name):
    result = all_of_them[name]
    result.healthy(first[name].digest)
    assert result.report["instances_retained"] > 0, result.said
    if "verdict" in result.report.get("plan", {}):
        assert result.report["plan"]["verdict"] == "planned"
        assert result.report["ledger_peak_planned"] <= budget(first, VARIANT_SHARE)


def test_a_job_that_changes_is_measured_again(all_of_them):
    result = all_of_them["shrinks"]
    assert "measured again" in result.said and "other segments run" in result.said
    assert result.report["plan"]["segments"] == 6


def test_what_leaves_no_choice_is_never_retained(first, all_of_them):
    """Reentrant checkpoints, and a block whose product keeps the queue itself, which is written before its backward."""
    result = all_of_them["special"]
    result.healthy(first["special"].digest)
    counts = result.replays()
    for i in (4, 5, 7):
        forwards, replays = counts["block %d" % i]
        assert forwards == replays == 13, (i, counts, result.said)
    assert counts["block 1"][1] < 13
    why = {i["segment"]: i["why"] for i in result.plan["instances"] if i["decision"] == "replay"}
    assert set(why) == {"block 4", "block 5", "block 7"}
    assert "reentrant" in why["block 4"] and "state that changes" in why["block 5"]


def test_infeasible(first):
    least, fails = first["least"], first["fails"]
    least.healthy(first["plain"].digest)
    assert least.report["plan"]["verdict"] != "planned" and "runs on with the least memory" in least.said
    assert "smallest budget" in fails.error and "REPRISE_BUDGET=" in fails.error and "REPRISE_ON_INFEASIBLE=fail" in fails.error, fails.error


def test_the_budget_that_is_named_works(build, first, tmp_path):
    named = first["fails"].error.partition("REPRISE_BUDGET=")[2].split(",")[0]
    assert named.endswith("MiB")
    below = "%dMiB" % (int(named[:-3]) - 4)
    env = {"REPRISE_ON_INFEASIBLE": "fail"}
    done = start(build, tmp_path, [{"name": b, "env": {"REPRISE_BUDGET": b, **env}} for b in (named, below)])
    done[named].healthy(first["plain"].digest)
    assert done[below].error is not None


# ---- plans from files -----------------------------------------------------------------------------------------------------------------------


def test_plans_from_files(build, first, all_of_them, tmp_path):
    source = all_of_them["joint-0.5"]
    plan = json.dumps(source.plan)
    files = {"same": plan, "cut": plan[: len(plan) // 2], "newer": plan.replace("reprise.plan/1", "reprise.plan/2"), "empty": "", "binary": "\0\1\2" * 100}
    files["memory"] = json.dumps({**source.plan, "memory_bytes": source.plan["memory_bytes"][:3], "peak_slot": 0})
    settings = []
    for name, text in files.items():
        (tmp_path / ("in-" + name)).write_text(text)
        settings.append({"name": name, "env": {"REPRISE_PLAN": str(tmp_path / ("in-" + name)), **bytes_of(first, 0.5)}})
    settings.append({"name": "missing", "env": {"REPRISE_PLAN": str(tmp_path / "nowhere"), **bytes_of(first, 0.5)}})
    settings.append({"name": "other", "env": {"REPRISE_PLAN": str(tmp_path / "in-same"), **bytes_of(first, 0.5)}, "blocks": 9, "checkpoint": True})
    settings.append({"name": "nine", "checkpoint": False, "env": OFF, "blocks": 9})
    done = start(build, tmp_path, settings)
    for name in ("same", "cut", "newer", "empty", "binary", "memory", "missing"):
        done[name].healthy(first["plain"].digest)
        assert done[name].report["instances_retained"] > 0, done[name].said
    for name in ("cut", "newer", "empty", "binary"):
        assert "is not a plan" in done[name].said and "makes its own" in done[name].said, done[name].said
    assert "cannot be read (No such file" in done["missing"].said
    assert "memory of 3 events" in done["memory"].said
    assert "makes its own" not in done["same"].said
    decisions = [(i["segment"], i["decision"]) for i in source.plan["instances"]]
    counts = done["same"].replays()
    for segment, decision in decisions:
        forwards, replays = counts[segment]
        assert replays < forwards if decision == "retain" else replays == forwards, (segment, decision, counts)
    done["other"].healthy(done["nine"].digest)
    assert "plan for another job" in done["other"].said and "block 11" in done["other"].said


# ---- bad settings -----------------------------------------------------------------------------------------------------------------------------


def test_bad_settings_are_said_and_the_job_goes_on(build, first, tmp_path):
    locked = tmp_path / "locked"
    locked.mkdir()
    wrong = {
        "words": {"REPRISE_BUDGET": "plenty"},
        "zero": {"REPRISE_BUDGET": "0"},
        "negative": {"REPRISE_BUDGET": "-5GiB"},
        "percent": {"REPRISE_BUDGET": "180%"},
        "nan": {"REPRISE_BUDGET": "nan"},
        "huge": {"REPRISE_BUDGET": "900TiB"},
        "policy": {"REPRISE_POLICY": "fastest"},
        "infeasible": {"REPRISE_ON_INFEASIBLE": "explode", "REPRISE_BUDGET": "4GiB"},
        "folder": {"REPRISE_SAVE_PLAN": str(locked), "REPRISE_BUDGET": "4GiB"},
        "nowhere": {"REPRISE_SAVE_PLAN": "/nonexistent/plan", "REPRISE_BUDGET": "4GiB"},
        "records": {"REPRISE_RECORDS": "/nonexistent/records", "REPRISE_BUDGET": "4GiB"},
        "null": {"REPRISE_SAVE_PLAN": "/dev/null", "REPRISE_BUDGET": "4GiB"},
        "full": {"REPRISE_SAVE_PLAN": "/dev/full", "REPRISE_BUDGET": "4GiB"},
        "homeless": {"XDG_CACHE_HOME": "relative", "HOME": "/proc/nonexistent", "REPRISE_BUDGET": "4GiB"},
        "share": {"REPRISE_BUDGET": "80%"},
        "auto": {"REPRISE_BUDGET": "auto"},
    }
    small = {"blocks": 3, "steps": 10}
    settings = [{"name": name, "env": env, **small} for name, env in wrong.items()]
    done = start(build, tmp_path, [*settings, {"name": "off", "checkpoint": False, "env": OFF, **small}])
    digest = done.pop("off").digest
    for result in done.values():
        result.healthy(digest)
    for name in ("words", "zero", "negative", "percent", "nan"):
        assert "REPRISE_BUDGET=" + wrong[name]["REPRISE_BUDGET"] in done[name].said, name
    assert "more than this machine has" in done["huge"].said
    assert "is not one of" in done["policy"].said and "is not one of" in done["infeasible"].said
    for name in ("folder", "nowhere", "full"):
        assert "REPRISE_SAVE_PLAN=" in done[name].said, name
        assert len([line for line in done[name].said.splitlines() if "REPRISE_SAVE_PLAN=" in line]) <= 2, "not in every cycle"
    assert "REPRISE_RECORDS" in done["records"].said
    null = pathlib.Path("/dev/null")
    assert null.is_char_device(), "what stands at REPRISE_SAVE_PLAN was replaced"
    for name in ("share", "auto", "huge", "homeless", "null"):
        assert done[name].report["instances_retained"] > 0, (name, done[name].said)


def test_two_jobs_with_the_same_files(build, first, tmp_path):
    env = {"REPRISE_SAVE_PLAN": str(tmp_path / "plan"), "REPRISE_RECORDS": str(tmp_path / "records"), **bytes_of(first, 0.5)}
    done = start(build, tmp_path, [{"name": name, "env": dict(env)} for name in ("a", "b")])
    for result in done.values():
        result.healthy(first["plain"].digest)
    assert json.loads((tmp_path / "plan").read_text())["schema"] == "reprise.plan/1"
    runs = set()
    for line in filter(None, (tmp_path / "records").read_text().splitlines()):  # a line break more where two wrote at once
        runs.add(json.loads(line).get("run"))
    assert len(runs - {None}) == 2
    assert not list(tmp_path.glob("*.draft*"))


def test_the_next_run_begins_with_the_plan(build, first, tmp_path):
    """What is guessed is followed sooner, and no less right."""
    env = {**bytes_of(first, 0.5), "REPRISE_PLAN_CACHE": "on"}
    one, two = (start(build, tmp_path, [{"name": name, "env": env}])[name] for name in ("one", "two"))
    for result in (one, two):
        result.healthy(first["plain"].digest)
        assert result.report["ledger_peak_planned"] <= result.report["budget"]
    assert "first guess" not in one.said and "first guess" in two.said, two.said[-3000:]
    replays = [sum(replays for _, replays in result.replays().values()) for result in (one, two)]
    assert replays[1] < replays[0], replays
    assert len(list(tmp_path.glob("reprise/plan-*"))) == 1
