#!/usr/bin/env python3
"""reprise plan, and what inspect, verify and report make of profiles, plans and measured cycles."""

import json
import os
import random
import subprocess
import sys
import time
import unittest
import xml.dom.minidom

from files_test import Page
from support import COMMAND, RECORD, Case, profile

MIB = 1 << 20
FAKE_MATPLOTLIB = """
class Axes:
    def __getattr__(self, name):
        return lambda *a, **k: None
class Figure(Axes):
    def savefig(self, path, **k):
        open(path, "w").write("drawn")
def use(backend): pass
class pyplot:
    subplots = staticmethod(lambda **k: (Figure(), Axes()))
"""


class Plan(Case):
    def setUp(self):
        super().setUp()
        self.file = self.write("p", json.dumps(profile()) + "\n")

    def sweep(self, *words, status=0):
        return json.loads(self.reprise("plan", self.file, "--json", *words, status=status).stdout)

    def test_a_dozen_budgets_by_default(self):
        out = self.reprise("plan", self.file).stdout
        for part in ("run 18f0-1, step 12", "6 forwards of 6 segments", "retaining everything needs", "the smallest budget for policy joint is", "needed: event", "added time"):
            self.assertIn(part, out)
        found = self.sweep()
        budgets = [entry["budget_bytes"] for entry in found["budgets"]]
        self.assertEqual(len(budgets), 12)
        self.assertEqual((budgets[0], budgets[-1]), (found["smallest_bytes"], found["retained_bytes"]))
        plans = [entry["plans"]["joint"] for entry in found["budgets"]]
        self.assertTrue(all(p["verdict"] == "planned" and p["peak_bytes"] <= b for p, b in zip(plans, budgets)))
        self.assertEqual([p["added_ns"] for p in plans], sorted((p["added_ns"] for p in plans), reverse=True))
        self.assertEqual((plans[-1]["added_ns"], plans[-1]["replayed"]), (0, 0))
        self.assertGreater(plans[0]["replayed"], 3)

    def test_the_smallest_budget_is_the_smallest(self):
        found = self.sweep()
        self.assertEqual(found["smallest_bytes"], found["smallest_bound_bytes"])
        self.sweep("--budget", str(found["smallest_bytes"]))
        below = self.sweep("--budget", str(found["smallest_bytes"] - 4096), status=1)
        self.assertEqual(below["budgets"][0]["plans"]["joint"]["verdict"], "infeasible")
        out = self.reprise("plan", self.file, "--budget", str(found["smallest_bytes"] - 1), status=1).stdout
        self.assertIn("too little: event", out)
        self.assertIn("would help most", out)

    def test_budgets_as_people_write_them(self):
        whole = self.sweep()["retained_bytes"]
        for text, wanted in (("1GiB", 1 << 30), ("0.75g", 3 << 28), ("900M", 900 * MIB), ("%d" % whole, whole), ("90%", whole * 0.9)):
            self.assertEqual(self.sweep("--budget", text)["budgets"][0]["budget_bytes"], int(wanted), text)
        both = self.sweep("--budget", "90%", "--budget", "1GiB")
        self.assertEqual(len(both["budgets"]), 2)
        for text in ("", "lots", "-1GiB", "0", "101%", "nan", "inf", "1e30GiB", "12XB"):
            self.assertIn("--budget", self.reprise("plan", self.file, "--budget=" + text, status=2).stderr, text)

    def test_no_policy_is_better_than_joint(self):
        found = self.sweep("--compare")
        self.assertEqual(found["policies"], ["joint", "eager-whole", "greedy", "selective", "whole", "retain"])
        for entry in found["budgets"]:
            joint = entry["plans"]["joint"]["added_ns"]
            for name, plan in entry["plans"].items():
                if plan["verdict"] == "planned":
                    self.assertLessEqual(joint, plan["added_ns"] * 1.0001, name)
        out = self.reprise("plan", self.file, "--compare").stdout
        self.assertIn("Policies that look at no budget need: selective", out)
        self.assertEqual(self.sweep("--policy", "eager-whole")["policies"], ["eager-whole"])

    def test_explained(self):
        out = self.reprise("plan", self.file, "--explain", "--budget", "85%").stdout
        for part in ("first write", "1.00 us a page", "Segments as measured", "Buffers as measured", "Decisions at", "kept: its", "replayed: costs", "shadow and deltas", "would take"):
            self.assertIn(part, out)
        self.assertIn("Give --budget", self.reprise("plan", self.file, "--explain").stdout)
        plan = self.sweep("--explain", "--budget", "85%")["budgets"][0]["plans"]["joint"]["plan"]
        self.assertEqual((plan["schema"], len(plan["instances"])), ("reprise.plan/1", 6))

    def test_the_plan_as_a_file(self):
        self.reprise("plan", self.file, "--budget", "85%", "-o", "plan.json")
        with open(self.path("plan.json")) as file:
            plan = json.load(file)
        self.assertEqual(plan["verdict"], "planned")
        self.assertEqual(max(plan["memory_bytes"]), plan["peak_bytes"])
        self.assertIn("fine", self.reprise("verify", "plan.json").stdout)
        self.assertIn("joint", self.reprise("inspect", "plan.json").stdout)
        self.assertEqual(self.reprise("plan", self.file, "--budget", "85%", "-o", "-").stdout, json.dumps(plan, separators=(",", ":"), ensure_ascii=False) + "\n")
        said = self.reprise("plan", self.file, "--budget", "10%", "-o", "none.json", status=1).stderr
        self.assertIn("is not written: the smallest budget", said)
        self.assertFalse(os.path.exists(self.path("none.json")))
        for words in ((), ("--budget", "85%", "--budget", "90%")):
            self.assertIn("give one --budget", self.reprise("plan", self.file, *words, "-o", "x", status=2).stderr)
        self.assertIn("cannot be written", self.reprise("plan", self.file, "--budget", "85%", "-o", "/no/such/folder/x", status=1).stderr)
        self.assertEqual([n for n in os.listdir(self.folder) if "part" in n], [])

    def test_which_profile(self):
        lines = [profile(4, run="a", step=5), profile(5, run="a", step=9), profile(6, run="b", step=9), RECORD, {**profile(3), "schema": "reprise.record/1"}]
        self.file = self.write("r", "".join(json.dumps(line) + "\n" for line in lines))
        self.assertEqual(self.sweep()["forwards"], 6)
        self.assertEqual(self.sweep("--run", "a")["forwards"], 5)
        self.assertEqual(self.sweep("--run", "a", "--step", "5")["forwards"], 4)
        said = self.reprise("plan", self.file, "--run", "c", status=1).stderr
        self.assertIn("it has: run a step 5, run a step 9, run b step 9", said)

    def test_bad_files(self):
        good = profile()
        for name, text, said in (
            ("record", json.dumps(RECORD), "holds no profile"),
            ("empty", "", "holds no profile"),
            ("newer", json.dumps({**good, "schema": "reprise.profile/2"}), "reprise.profile/2"),
            ("cut", json.dumps(good)[:-30], "holds no profile"),
            ("events", json.dumps({**good, "events": good["events"][:-1]}), "not all four"),
            ("bytes", json.dumps({**good, "base_bytes": [-1] * len(good["events"])}), "base_bytes[0]"),
            ("type", json.dumps({**good, "instances": 3}), "instances is no array"),
        ):
            self.assertIn(said, self.reprise("plan", self.write(name, text + "\n"), status=1).stderr, name)
        self.assertIn("No such file", self.reprise("plan", self.path("none"), status=1).stderr)
        self.reprise("plan", status=2)
        self.reprise("plan", self.file, "--policy", "hope", status=2)

    def test_jobs_of_no_and_one_segment(self):
        self.file = self.write("none", json.dumps({**profile(0), "events": [], "base_bytes": [5000, 9000]}) + "\n")
        self.assertEqual(self.sweep()["smallest_bytes"], 12288)
        self.file = self.write("one", json.dumps(profile(1)) + "\n")
        self.assertIn("1 forward of 1 segment,", self.reprise("plan", self.file).stdout)

    def test_random_damage_never_crashes(self):
        chooser, good = random.Random(4), json.dumps(profile(3, 2)).encode()
        for number in range(60):
            bad = bytearray(good)
            for _ in range(chooser.choice((1, 2, 8))):
                at = chooser.randrange(len(bad))
                bad[at] = ord(chooser.choice("0123456789" if chr(bad[at]).isdigit() else '{}[]",:0-9e\\'))
            done = subprocess.run([COMMAND, "plan", self.write("bad", bytes(bad)), "--budget", "700M"], capture_output=True, cwd=self.folder, timeout=60)
            self.assertIn(done.returncode, (0, 1, 2), "damage %d: %s" % (number, done.stderr))

    def test_the_same_answer_every_time(self):
        self.file = self.write("p", json.dumps(profile(8, 2)) + "\n")
        first = self.sweep("--compare", "--explain")
        self.assertEqual(self.sweep("--compare", "--explain"), first)

    def test_pictures(self):
        self.reprise("plan", self.file, "--svg", "s.svg")
        picture = xml.dom.minidom.parse(self.path("s.svg"))
        self.assertGreaterEqual(len(picture.getElementsByTagName("polyline")), 2)
        self.assertGreater(len(picture.getElementsByTagName("circle")), 12)
        self.assertIn("joint", picture.toxml())
        self.assertIn("cannot be written", self.reprise("plan", self.file, "--svg", "/no/such/folder/x", status=1).stderr)
        # With what stands in for matplotlib, and without any.
        os.mkdir(self.path("with"))
        os.mkdir(self.path("without"))
        self.write("with/matplotlib.py", FAKE_MATPLOTLIB)
        self.write("without/matplotlib.py", "raise ImportError('not today')\n")
        self.reprise("plan", self.file, "--png", "s.png", "--python", sys.executable, env={"PYTHONPATH": self.path("with")})
        with open(self.path("s.png")) as file:
            self.assertEqual(file.read(), "drawn")
        said = self.reprise("plan", self.file, "--png", "t.png", "--python", sys.executable, env={"PYTHONPATH": self.path("without")}, status=1).stderr
        self.assertIn("has no matplotlib (not today)", said)
        self.assertIn("not found", self.reprise("plan", self.file, "--png", "t.png", "--python", "no-such-python", status=1).stderr)
        self.assertFalse(os.path.exists(self.path("t.png")))

    def test_names_cannot_move_the_terminal(self):
        evil = profile(2)
        text = json.dumps(evil).replace("blocks.1", "a\\u001b[2J<b>&")
        out = self.reprise("plan", self.write("e", text + "\n"), "--explain", "--budget", "100%", "--svg", "e.svg").stdout
        self.assertNotIn("\x1b", out)
        xml.dom.minidom.parse(self.path("e.svg"))


class Planning(Case):
    """Records of a run that planned: a profile, the plan it adopted, cycles."""

    def records(self, blocks=6, cycles=3, change=None, budget="85%"):
        found = profile(blocks)
        self.reprise("plan", self.write("p", json.dumps(found) + "\n"), "--budget", budget, "-o", "plan")
        with open(self.path("plan")) as file:
            plan = json.load(file)
        lines = [found, plan]
        for c in range(cycles):
            actual = [value - MIB for value in plan["memory_bytes"]]
            actual[3] = -1
            lines.append({"schema": "reprise.timeline/1", "run": found["run"], "step": 12 + c, "cycle": c + 3, "budget": plan["budget_bytes"], "retained": 2, "denied": 0,
                          "shape": plan["shape"], **({"events": found["events"]} if c == 0 else {}), "planned": plan["memory_bytes"], "actual": actual})  # fmt: skip
        if change:
            change(lines)
        return self.write("r", "".join(json.dumps(line) + "\n" for line in lines))

    def check(self, change, *said):
        out = self.reprise("verify", self.records(change=change), status=1).stdout
        for part in said:
            self.assertIn(part, out)

    def test_good_files_are_fine(self):
        self.assertIn("fine", self.reprise("verify", self.records()).stdout)
        self.assertEqual(json.loads(self.reprise("verify", "--json", self.records()).stdout)["plans"], 5)

    def test_every_violation_is_named_with_its_line(self):
        def of(line, **fields):
            return lambda lines: lines[line].update(fields)

        self.check(of(0, shape="0" * 16), "r:1: ", "the shape is not that of")
        self.check(lambda lines: lines[0]["instances"][2].update(keep_bytes=-5), "r:1: ", "instances[2].keep_bytes")
        self.check(of(1, peak_bytes=1), "r:2: ", "its highest slot")
        self.check(of(1, policy="luck"), "r:2: ", "unknown policy 'luck'")
        self.check(lambda lines: lines[1].update(budget_bytes=lines[1]["peak_bytes"] - 1), "r:2: ", "beyond its budget")
        self.check(of(1, bound_ns=1 << 60), "r:2: ", "less time than")
        self.check(of(2, events=[]), "r:3: ", "names no events")
        self.check(of(2, step="x"), "r:3: ", "'step'")
        self.check(of(2, events=[["F", "s"]]), "r:3: ", "event 0 is not")
        self.check(of(3, actual=[1, 2]), "r:4: ", "slots are planned, and 2 were seen")
        self.check(of(3, actual="x"), "r:4: ", "no array 'actual'")
        self.check(of(3, shape="f" * 16), "r:4: ", "has not been written before")
        self.check(lambda lines: lines[4]["actual"].__setitem__(5, lines[4]["budget"] + 1), "r:5: ", "beyond its budget")

    def test_cycles_off_their_plan_are_noted(self):
        def lower(lines):
            lines[3]["actual"] = [value - 60 * MIB for value in lines[3]["planned"]]

        self.assertIn("r:4: note: 1 of 3 cycles", self.reprise("verify", self.records(change=lower)).stdout)

    def test_inspect(self):
        out = self.reprise("inspect", self.records()).stdout
        for part in ("1 profile, 1 plan, 3 measured cycles", "joint", "planned", "none was beyond the budget"):
            self.assertIn(part, out)
        found = json.loads(self.reprise("inspect", "--json", self.records()).stdout)["files"][0]["planning"][0]
        self.assertEqual((found["plans"], found["cycles"], found["latest_plans"][0]["policy"]), (1, 3, "joint"))

    def page(self, *words):
        self.reprise("report", *words, "-o", "o.html")
        with open(self.path("o.html"), encoding="utf-8") as file:
            text = file.read()
        page = Page(text)
        self.assertEqual((page.open, page.wrong, page.outside), ([], [], []))
        return text, page

    def test_the_page(self):
        text, page = self.page(self.records())
        for part in ("The plan", "Memory in a cycle", "Peaks of the cycles", "Decisions", "budget 6", "replayed: costs", "shadow and deltas", "the forward of", "What keeps it from being faster"):
            self.assertIn(part, text)
        self.assertGreaterEqual(page.tags["svg"], 3)
        alone, _ = self.page(self.path("plan"))
        self.assertIn("Decisions", alone)
        self.assertNotIn("Memory in a cycle", alone)

    def test_a_page_of_a_thousand_segments(self):
        records = self.records(1000, 2, budget="60%")
        began = time.monotonic()
        text, page = self.page(records)
        self.assertLess(time.monotonic() - began, 20)
        self.assertLess(len(text), 2 << 20)
        self.assertEqual(text.count("<title>blocks."), 1000)
        self.assertGreaterEqual(page.tags["tr"], 1000)

    def test_names_are_text_and_nothing_else(self):
        evil = "<script>alert(1)</script>'&"

        def rename(lines):
            for line in lines:
                line.update(json.loads(json.dumps(line).replace("blocks.1", evil).replace("event ", "<img src=x> ")))

        text, page = self.page(self.records(change=rename))
        self.assertEqual(page.tags["script"], 1)
        self.assertNotIn("<script>alert", text)
        self.assertNotIn("<img", text)

    def test_damaged_lines_do_no_harm(self):
        chooser = random.Random(11)
        with open(self.records(), "rb") as file:
            good = file.read()
        for number in range(60):
            bad = bytearray(good)
            for _ in range(chooser.choice((1, 5, 40))):
                bad[chooser.randrange(len(bad))] = ord(chooser.choice('{}[]",:0-9e\\\n'))
            name = self.write("bad", bytes(bad))
            for words, allowed in ((["verify", name], (0, 1, 2)), (["inspect", name], (0, 1)), (["report", name, "-o", "-"], (0, 1)), (["run", "--plan", name, "--", "true"], (0, 125))):
                done = subprocess.run([COMMAND, *words], capture_output=True, cwd=self.folder, timeout=60)
                self.assertIn(done.returncode, allowed, "damage %d: %s\n%s" % (number, words, done.stderr))
        for fields in ({"planned": [[1]]}, {"actual": {"a": 1}}, {"events": [1, None, [2, 3, 4, 5]]}, {"budget": "x"}, {"actual": [1e300, -(1 << 62)]}):
            self.reprise("report", self.records(change=lambda lines, f=fields: lines[2].update(f)), "-o", "-")

    def test_png(self):
        os.mkdir(self.path("with"))
        self.write("with/matplotlib.py", FAKE_MATPLOTLIB)
        self.reprise("report", self.records(), "-o", "o", "--png", "m.png", "--python", sys.executable, env={"PYTHONPATH": self.path("with")})
        self.assertTrue(os.path.exists(self.path("m.png")))
        said = self.reprise("report", self.write("plain", json.dumps(RECORD)), "-o", "o2", "--png", "n.png", status=1).stderr
        self.assertIn("no cycle was measured", said)
        self.assertTrue(os.path.exists(self.path("o2")), "the page is written all the same")
        said = self.reprise("report", self.records(), "-o", "o3", "--png", "n.png", "--python", "no-such-python", status=1).stderr
        self.assertIn("was not drawn", said)
        self.assertTrue(os.path.exists(self.path("o3")))


if __name__ == "__main__":
    unittest.main()
