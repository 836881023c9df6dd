#!/usr/bin/env python3
"""reprise inspect, verify, report and completion: files of real runs, and files of every other kind."""

import json
import os
import random
import subprocess
import time
import unittest
from html.parser import HTMLParser

from support import COMMAND, RECORD, Case


class Inspect(Case):
    def test_a_real_run(self):
        records, report = self.recorded("--verify", "digest")
        out = self.reprise("inspect", records, report).stdout
        for part in ("layer", "12 match", "shadow", "small", "1.00 MiB", "12 forwards"):
            self.assertIn(part, out)
        files = json.loads(self.reprise("inspect", "--json", records, report).stdout)["files"]
        self.assertEqual(files[0]["segments"][0]["outcomes"], {"match": 12})
        self.assertEqual(files[1]["reports"][0]["forwards"], 12)
        changed = sum(line.get("bytes_changed", 0) for line in self.lines())
        self.assertEqual(files[0]["segments"][0]["bytes_changed"], changed)

    def test_an_audited_run_counts_its_bytes_once(self):
        records, report = self.recorded("--policy", "audit")
        entry = json.loads(self.reprise("inspect", "--json", records).stdout)["files"][0]["segments"][0]
        found = sum(line["bytes_changed"] for line in self.lines() if line.get("outcome") == "audit")
        self.assertEqual(entry["bytes_changed"], found)
        self.assertIn("Replayed on changed state", self.reprise("inspect", records).stdout)

    def test_segments_can_be_chosen(self):
        text = "".join(json.dumps({**RECORD, "segment": name}) + "\n" for name in ("block1", "block2", "head"))
        out = self.reprise("inspect", "--segment", "block*", self.write("r", text)).stdout
        self.assertIn("block2", out)
        self.assertNotIn("head", out)

    def test_unknown_fields_are_ignored_and_newer_majors_refused(self):
        self.assertIn("1 match", self.reprise("inspect", self.write("r", json.dumps({**RECORD, "new": {"x": [1]}}) + "\n")).stdout)
        self.assertIn("1 match", self.reprise("inspect", self.write("r", json.dumps({**RECORD, "schema": "reprise.record/1.7"}) + "\n")).stdout)
        for schema in ("reprise.record/2", "reprise.contract/10", "reprise.report/2"):
            said = self.reprise("inspect", self.write("r", json.dumps(RECORD) + "\n" + json.dumps({**RECORD, "schema": schema}) + "\n"), status=1).stderr
            self.assertIn(schema, said)
            self.assertIn("line 2", said)

    def test_a_truncated_last_line_is_reported_and_not_fatal(self):
        whole = json.dumps(RECORD) + "\n"
        out = self.reprise("inspect", self.write("r", whole + whole[: len(whole) // 2])).stdout
        self.assertIn("line 2 is truncated", out)
        self.assertIn("1 match", out)
        out = self.reprise("inspect", self.write("r", whole[:50] + "\n" + whole)).stdout  # somebody went on after it
        self.assertIn("line 1 is half a line", out)
        self.assertIn("1 match", out)

    def test_files_that_are_none_are_said(self):
        for name, content, status in (
            ("empty", "", 0),
            ("binary", bytes(range(256)) * 50, 0),
            ("text", "hello\nworld\n", 0),
            ("other", '{"schema": "somebody.else/1"}\n[1, 2]\n"x"\nnull\n', 0),
            ("deep", "[" * 100000 + "\n", 0),
            ("cut", '{\n  "schema": "reprise.report/1",\n  "run', 1),
        ):
            done = self.reprise("inspect", self.write(name, content), status=status)
            self.assertTrue(done.stdout + done.stderr, name)
            self.assertNotIn("\x07", done.stdout)
        self.assertIn("No such file", self.reprise("inspect", self.path("none"), status=1).stderr)
        self.assertIn("folder", self.reprise("inspect", self.folder, status=1).stderr)
        self.reprise("inspect", status=2)

    def test_fields_of_the_wrong_type_do_no_harm(self):
        broken = {key: ([1], {"a": 1}, -1, None, "x", 1.5)[i % 6] for i, key in enumerate(RECORD)}
        for entry in (broken, {"schema": "reprise.contract/1", "buffers": [1, {"name": 3}], "generators": "x"}, {"schema": "reprise.report/1", "segments": [None, 4]}):
            self.reprise("inspect", self.write("r", json.dumps({**entry, "schema": entry.get("schema") if entry is not broken else "reprise.record/1"}) + "\n"))

    def test_values_nested_beyond_reason_are_not_taken(self):
        bomb = '{"schema": "reprise.contract/1", "segment": "s", "x": %s1%s}\n' % ("[" * 50000, "]" * 50000)
        name = self.write("r", bomb + json.dumps(RECORD) + "\n")
        for words in (["inspect"], ["inspect", "--json"]):
            self.assertIn("not a JSON object", self.reprise(*words, name).stdout)

    def test_names_cannot_move_the_terminal(self):
        out = self.reprise("inspect", self.write("r", json.dumps({**RECORD, "segment": "a\x1b[2Jb\u009b"}) + "\n")).stdout
        self.assertNotIn("\x1b", out)
        self.assertNotIn("\u009b", out)

    def test_standard_input(self):
        self.assertIn("1 match", self.reprise("inspect", "-", input=json.dumps(RECORD) + "\n").stdout)


class Verify(Case):
    def setUp(self):
        super().setUp()
        self.records, self.report = self.recorded("--verify", "digest")
        self.good = self.lines()

    def check(self, lines, *said, status=1, raw=""):
        text = "".join(json.dumps(line) + "\n" for line in lines) + raw
        out = self.reprise("verify", self.write("changed", text), status=status).stdout
        for part in said:
            self.assertIn(part, out)
        return out

    def changed(self, number, **fields):
        lines = [dict(line) for line in self.good]
        for name, value in fields.items():
            if value is None:
                del lines[number][name]
            else:
                lines[number][name] = value
        return lines

    def test_real_files_are_fine(self):
        self.assertIn("fine", self.reprise("verify", self.records, "--report", self.report).stdout)
        for options in (("--policy", "whole"), ("--policy", "audit"), ("--dirty", "compare"), ("--policy", "selective", "--verify", "bytes")):
            os.unlink(self.records)
            self.recorded(*options)
            self.reprise("verify", self.records, "--report", self.report)
        # Two runs in one file.
        self.recorded()
        self.assertIn("2 runs", self.reprise("verify", self.records).stdout)

    def test_every_violation_is_named_with_its_line(self):
        first = next(i for i, line in enumerate(self.good) if line["schema"] == "reprise.record/1")
        last = len(self.good) - 1
        for fields, said in (
            ({"outcome": "perfect"}, "unknown outcome 'perfect'"),
            ({"run": None}, "no field 'run'"),
            ({"bytes_changed": "many"}, "'bytes_changed' is not a whole number"),
            ({"bytes_changed": -1}, "'bytes_changed' is not a whole number"),
            ({"instance": 0}, "instance 0"),
            ({"replay": 0}, "replays count from 1"),
            ({"contract": "xyz"}, "16 hexadecimal"),
            ({"contract": "0123456789abcdef"}, "has not written before"),
            ({"segment": ""}, "no name"),
            ({"outcome": "rejection"}, "without a reason"),
            ({"mechanisms": {"shadow": 2}}, "not those of its contract"),
            ({"bytes_put_back": 1 << 40}, "more than all buffers"),
            ({"strays": [{"buffer": "b", "bytes": 0, "runs": 1}]}, "a stray of no bytes"),
            ({"policy": "audit"}, "put back under audit"),
        ):
            self.check(self.changed(first, **fields), "changed:%d: " % (first + 1), said)
        self.check(self.changed(first, step=99), "changed:%d: step" % (first + 2))
        self.check(self.changed(last, instance=self.good[first]["instance"], segment="other"), "changed:%d: instance" % (last + 1))
        again = [*self.good, {**self.good[last], "replay": 3}, {**self.good[last], "replay": 2}]
        self.check(again, "changed:%d: replay 2" % (last + 3))

    def test_contracts_are_recomputed(self):
        number = next(i for i, line in enumerate(self.good) if line["schema"] == "reprise.contract/1")
        buffers = self.good[number]["buffers"]
        place = "changed:%d: " % (number + 1)
        for change, said in (
            ({"name": "another"}, "is not that of its segment"),
            ({"size": buffers[0]["size"] + 1}, "is not that of its segment"),
            ({"mechanism": "whole"}, "is not that of its segment"),
            ({"digest": "12"}, "32 hexadecimal"),
            ({"address": "here"}, "not hexadecimal"),
            ({"size": 0}, "no bytes"),
            ({"version": None}, "'version' is not"),
        ):
            self.check(self.changed(number, buffers=[{**buffers[0], **change}, *buffers[1:]]), place, said)
        self.check(self.changed(number, generators=[{"provider": "numpy", "digest": "0123456789abcdef"}]), place, "is not that of its segment")
        self.check(self.changed(number, digest=None), place, "no field 'digest'")

    def test_audit_sums(self):
        os.unlink(self.records)
        self.recorded("--policy", "audit")
        self.good = self.lines()
        number = next(i for i, line in enumerate(self.good) if line["outcome"] == "audit")
        self.check(self.changed(number, bytes_changed=1), "changed:%d: its buffers changed in" % (number + 1))
        small = {"buffer": "b", "bytes": 10, "runs": [[0, 4]]}
        self.check(self.changed(number, changed=[small], bytes_changed=10), "changed:%d: the runs of buffer 'b' are 4 bytes" % (number + 1))
        self.check(self.changed(number, changed=[{**small, "runs": [[0]]}], bytes_changed=10), "not [offset, size]")

    def test_lines_that_are_none(self):
        whole = json.dumps(self.good[-1])
        out = self.check(self.good, "note: ", "is truncated", status=0, raw=whole[:40])
        self.check(self.good, "half a line too many", raw=(whole[:40] + "\n") * 3)
        self.check(self.good, "not a JSON object", raw="hello\n")
        self.check(self.good, "unknown schema 'other.thing/1'", raw='{"schema": "other.thing/1"}\n')
        self.check(self.good, "has no schema", raw="{}\n")
        self.assertIn("fine", out)

    def test_files_that_cannot_be_checked(self):
        self.assertIn("holds no record", self.reprise("verify", self.write("empty", ""), status=1).stdout)
        self.reprise("verify", self.path("none"), status=2)
        self.reprise("verify", self.folder, status=2)
        self.reprise("verify", self.write("newer", json.dumps({"schema": "reprise.record/2"}) + "\n"), status=2)
        self.reprise("verify", self.records, "--report", self.records, status=2)
        self.reprise("verify", status=2)

    def test_reports_that_say_less_than_the_records(self):
        with open(self.report) as file:
            report = json.load(file)
        for change, said in (({"bytes_put_back": 0}, "0 bytes put back"), ({"run": "another"}, "no record"), ({"segments": []}, "on changed state")):
            out = self.reprise("verify", self.records, "--report", self.write("s2", json.dumps({**report, **change})), status=1).stdout
            self.assertIn(said, out)
        out = self.reprise("verify", self.records, "--report", self.write("s2", json.dumps({**report, "rejections": 5}))).stdout
        self.assertIn("note: the report says 5 rejections", out)

    def test_random_damage_never_crashes(self):
        chooser = random.Random(20)
        with open(self.records, "rb") as file:
            good = file.read()
        for number in range(150):
            bad = bytearray(good)
            for _ in range(chooser.choice((1, 3, 30))):
                at, kind = chooser.randrange(len(bad)), chooser.randrange(4)
                if kind == 0:
                    bad[at] = chooser.randrange(256)
                elif kind == 1:
                    bad[at] = ord(chooser.choice('{}[]",:0-9e\\\n'))
                elif kind == 2:
                    del bad[at : at + chooser.randrange(1, 40)]
                else:
                    bad[at:at] = bad[at : at + chooser.randrange(1, 200)]
            name = self.write("bad", bytes(bad))
            for words, allowed in ((["verify", name], (0, 1, 2)), (["inspect", "--json", name], (0, 1)), (["report", name, "-o", "-"], (0, 1))):
                done = subprocess.run([COMMAND, *words], capture_output=True, cwd=self.folder, timeout=60)
                self.assertIn(done.returncode, allowed, "damage %d: %s\n%s" % (number, words, done.stderr))

    def test_every_single_change_of_a_number_or_word_is_noticed_where_something_depends_on_it(self):
        number = next(i for i, line in enumerate(self.good) if line["schema"] == "reprise.record/1")
        for field in ("schema", "run", "segment", "instance", "replay", "step", "policy", "contract", "outcome", "reason", "mechanisms", "bytes_changed", "nanoseconds"):
            self.check(self.changed(number, **{field: None}), "changed:%d: " % (number + 1))

    def test_json(self):
        found = json.loads(self.reprise("verify", "--json", self.records).stdout)
        self.assertEqual((found["violations"], found["records"], found["digests_recomputed"]), ([], 12, 1))
        bad = self.write("bad", "x\n")
        self.assertEqual(json.loads(self.reprise("verify", "--json", bad, status=1).stdout)["violations"][0]["line"], 1)

    def test_many_violations_are_cut_short(self):
        bad = self.write("bad", "x\n" * 500)
        self.assertIn("and 400 more", self.reprise("verify", bad, status=1).stdout)
        self.assertNotIn("more", self.reprise("verify", "--limit", "0", bad, status=1).stdout)


class Page(HTMLParser):
    """Checks nesting, and collects what the tests ask about."""

    VOID = {"meta", "input", "br", "link", "img"}

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.rows, self.outside, self.wrong = [], {}, 0, [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags[tag] = self.tags.get(tag, 0) + 1
        self.outside += [value for name, value in attributes if name in ("src", "href", "xlink:href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags[tag] = self.tags.get(tag, 0) + 1

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


class Report(Case):
    def page(self, *words):
        self.reprise("report", *words, "-o", "o.html")
        with open(self.path("o.html"), encoding="utf-8") as file:
            text = file.read()
        page = Page(text)
        self.assertEqual((page.open, page.wrong, page.outside), ([], [], []))
        for part in ("http:", "https:", "@import", "url("):
            self.assertNotIn(part, text.replace("http://www.w3.org/2000/svg", ""))
        return text, page

    def test_a_real_run(self):
        records, report = self.recorded()
        text, page = self.page(records, "--report", report)
        for part in ("layer", "Where the bytes went", "Where the milliseconds went", "held at most", "None: every replay", "<polyline"):
            self.assertIn(part, text)
        self.assertGreaterEqual(page.tags["svg"], 2)

    def test_a_thousand_segments_stay_readable(self):
        with open(self.path("big"), "w") as file:
            for step in range(5):
                for i in range(1000):
                    entry = {**RECORD, "segment": "model.layers.%d.mlp" % i, "instance": step * 1000 + i + 1, "step": step, "bytes_changed": (i * 7919 % 1000) << 12,
                             "bytes_put_back": (i * 7919 % 1000) << 12, "nanoseconds": i * 1000 + 5, "bytes_held": (1 << 20) + i * 4096, "bytes_tracked": 1 << 26}  # fmt: skip
                    if i % 250 == 0:
                        entry.update(outcome="rejection", reason="buffer 'queue' was freed")
                    file.write(json.dumps(entry) + "\n")
        began = time.monotonic()
        text, page = self.page(self.path("big"))
        self.assertLess(time.monotonic() - began, 30)
        self.assertLess(len(text), 2 << 20)
        self.assertGreaterEqual(page.tags["tr"], 1000)
        self.assertLessEqual(page.tags["rect"], 2 * 2 * 21)  # the largest, and the rest in one
        self.assertIn("the other 980", text)
        self.assertIn("<polyline", text)
        self.assertIn("model.layers.999.mlp", text)
        self.assertEqual(text.count("was freed"), 4)
        self.assertIn('data-v="', text)

    def test_names_are_text_and_nothing_else(self):
        evil = "<script>alert(1)</script>\"'&"
        lines = [{**RECORD, "segment": evil, "reason": evil, "outcome": "rejection"}, {**RECORD, "segment": evil, "outcome": "audit", "changed": [{"buffer": evil, "bytes": 8, "runs": [[0, 8]]}]}]
        text, page = self.page(self.write("r", "".join(json.dumps(line) + "\n" for line in lines)), "--title", evil)
        self.assertNotIn("<script>alert", text)
        self.assertEqual(page.tags["script"], 1)
        self.assertIn("&lt;script&gt;alert(1)", text)

    def test_a_report_alone_and_standard_output(self):
        _, report = self.recorded()
        self.assertIn("layer", self.page(report)[0])
        self.assertIn("</html>", self.reprise("report", report, "-o", "-").stdout)

    def test_lines_that_cannot_be_read_are_listed(self):
        text, _ = self.page(self.write("r", json.dumps(RECORD) + "\nrubbish\n"))
        self.assertIn("Lines that could not be read", text)

    def test_bad_input(self):
        good = self.write("r", json.dumps(RECORD) + "\n")
        for words, said in (
            ([self.path("none"), "-o", "o"], "No such file"),
            ([self.folder, "-o", "o"], "folder"),
            ([self.write("empty", ""), "-o", "o"], "nothing to show"),
            ([self.write("newer", '{"schema": "reprise.record/2"}\n'), "-o", "o"], "reprise.record/2"),
            ([good, "-o", "/no/such/folder/o"], "cannot be written"),
            ([good, "-o", self.folder], "cannot be written"),
        ):
            self.assertIn(said, self.reprise("report", *words, status=1).stderr)
        self.assertEqual([n for n in os.listdir(self.folder) if "part" in n or n == "o"], [])
        self.reprise("report", good, status=2)


class Completion(Case):
    def complete(self, *words):
        """What bash offers for the last word."""
        script = self.write("c", self.reprise("completion", "bash").stdout)
        quoted = " ".join("'%s'" % word for word in words)
        code = "source %s; COMP_WORDS=(%s); COMP_CWORD=%d; COMPREPLY=(); _reprise; printf '%%s\\n' \"${COMPREPLY[@]}\"" % (script, quoted, len(words) - 1)
        done = subprocess.run(["bash", "--norc", "-c", code], capture_output=True, text=True, cwd=self.folder)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return set(done.stdout.split())

    def test_commands_options_values_and_files(self):
        self.assertLessEqual({"run", "audit", "doctor", "inspect", "verify", "plan", "report", "completion", "--help"}, self.complete("reprise", ""))
        self.assertEqual(self.complete("reprise", "do"), {"doctor"})
        self.assertEqual(self.complete("reprise", "run", "--po"), {"--policy"})
        self.assertEqual(self.complete("reprise", "run", "--policy", ""), {"selective", "whole", "joint", "eager-whole", "greedy", "fixed", "retain", "audit", "off"})
        self.assertEqual(self.complete("reprise", "run", "--on-infeasible", ""), {"least", "fail"})
        self.assertLessEqual({"--budget", "--compare", "--explain", "--svg", "--png", "--output"}, self.complete("reprise", "plan", "--"))
        self.assertEqual(self.complete("reprise", "doctor", "--j"), {"--json"})
        self.assertNotIn("--policy", self.complete("reprise", "audit", "-"))
        self.write("records.jsonl", "")
        self.assertEqual(self.complete("reprise", "inspect", "rec"), {"records.jsonl"})
        self.assertEqual(self.complete("reprise", "run", "--records", "rec"), {"records.jsonl"})

    def test_behind_the_dashes_stands_another_command(self):
        self.assertIn("printenv", self.complete("reprise", "run", "--", "printe"))
        self.assertNotIn("--policy", self.complete("reprise", "run", "--", "env", "--"))

    def test_other_shells_are_refused(self):
        self.reprise("completion", "tcsh", status=2)
        self.reprise("completion", status=2)

if __name__ == "__main__":
    unittest.main()
