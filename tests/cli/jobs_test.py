#!/usr/bin/env python3
"""reprise run, audit and doctor: real runs with the preload of the same build, and what cannot be run."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import unittest

from support import COMMAND, JOB, PRELOAD, PROGRAMS, SOURCE, Case, profile


class Run(Case):
    def test_a_job_runs_and_what_is_asked_for_is_written(self):
        records, report = self.recorded("--verify", "digest")
        kinds = {line["schema"] for line in self.lines()}
        self.assertEqual(kinds, {"reprise.record/1", "reprise.contract/1"})
        with open(report) as file:
            self.assertEqual(json.load(file)["policy"], "selective")

    def test_the_result_is_that_of_the_retained_run(self):
        for policy in ("selective", "whole"):
            retained = self.reprise("run", "--policy", policy, "--", JOB, "3", "retained").stdout
            self.assertEqual(self.reprise("run", "--policy", policy, "--", JOB, "3").stdout, retained)
        self.assertNotEqual(self.reprise("run", "--policy", "audit", "--", JOB, "3").stdout, retained)

    def test_every_option_reaches_the_job(self):
        out = self.reprise(
            "run", "--policy", "whole", "--budget", "1.5GiB", "--records", "r", "--report", "s", "--verify", "--on-reject", "warn", "--dirty", "compare",
            "--reentrant", "convert", "--include", "a,b", "--exclude", "c d", "--track", "libx.so", "--threads", "3", "--log", "debug", "--", "env",
        ).stdout  # fmt: skip
        self.write("profile", json.dumps(profile()) + "\n")
        self.reprise("plan", "profile", "--budget", "90%", "-o", "plan")
        out += self.reprise("run", "--policy", "joint", "--plan", "plan", "--save-plan", "saved", "--on-infeasible", "fail", "--", "env").stdout.replace("REPRISE_POLICY", "X")
        seen = dict(line.split("=", 1) for line in out.splitlines() if "=" in line)
        wanted = {
            "POLICY": "whole", "BUDGET": "1.5GiB", "RECORDS": self.path("r"), "REPORT": self.path("s"), "VERIFY": "digest", "ON_REJECT": "warn",
            "DIRTY": "compare", "REENTRANT": "convert", "INCLUDE": "a,b", "EXCLUDE": "c d", "TRACK": "libx.so", "THREADS": "3", "LOG": "debug",
            "PLAN": self.path("plan"), "SAVE_PLAN": self.path("saved"), "ON_INFEASIBLE": "fail",
        }  # fmt: skip
        for name, value in wanted.items():
            self.assertEqual(seen.get("REPRISE_" + name), value, name)
        self.assertEqual(os.path.realpath(seen["LD_PRELOAD"]), os.path.realpath(PRELOAD))

    def test_a_job_that_must_be_protected_and_is_not_fails(self):
        self.assertIn("nothing was attached", self.reprise("run", "--require", "--", "true", status=1).stderr)
        self.reprise("run", "--require", "--", JOB, "1")

    def test_what_is_not_given_is_left_alone(self):
        out = self.reprise("run", "--", "env", env={"REPRISE_POLICY": "whole"}).stdout
        self.assertIn("REPRISE_POLICY=whole\n", out)
        self.assertNotIn("REPRISE_VERIFY", out)

    def test_another_preload_stays_behind_ours_and_an_old_one_of_ours_goes(self):
        other = self.write("other.so", "")
        out = self.reprise("run", "--print", "--", "true", env={"LD_PRELOAD": "%s /elsewhere/libreprise.so" % other}).stdout
        self.assertRegex(out, r"LD_PRELOAD=[^ ]*/libreprise\.so:%s " % other)
        self.assertNotIn("elsewhere", out)

    def test_the_printed_line_does_the_same(self):
        line = self.reprise("run", "--policy", "audit", "--exclude", "it's * $x", "--print", "--", "printenv", "REPRISE_POLICY", "REPRISE_EXCLUDE").stdout
        done = subprocess.run(["sh", "-c", line], capture_output=True, text=True)
        self.assertEqual(done.stdout, "audit\nit's * $x\n")

    def test_the_command_keeps_its_words_and_status(self):
        script = 'for w in "$@"; do echo "<$w>"; done; exit 9'
        out = self.reprise("run", "--", "sh", "-c", script, "x", "--policy", "--", "a b", "", "-h", status=9).stdout
        self.assertEqual(out, "<--policy>\n<-->\n<a b>\n<>\n<-h>\n")
        self.assertEqual(self.reprise("run", "--policy", "off", "sh", "-c", "exit 3", status=3).stdout, "")
        self.assertEqual(self.reprise("run", "--", self.write("no-first-line", "echo $1", 0o755), "x").stdout, "x\n")

    def test_what_cannot_be_run_is_said_with_the_shells_status(self):
        for words, status, said in (
            (["no-such-command"], 127, "not found on PATH"),
            (["./no-such-file"], 127, "No such file"),
            ([""], 127, "empty"),
            ([self.folder], 126, "is a folder"),
            ([self.write("plain.py", "print(1)")], 126, "may not be executed"),
            ([self.write("bad", "#!/no/such/interpreter\n", 0o755)], 126, "does not exist"),
            ([self.write("garbage", b"\0\1\2\3" * 100, 0o755)], 126, "neither a program"),
        ):
            self.assertIn(said, self.reprise("run", "--", *words, status=status).stderr, words)

    def test_bad_use_is_125(self):
        for words, said in (
            ([], "no command given"),
            (["--"], "no command given"),
            (["--nonsense", "--", "true"], "--nonsense"),
            (["--nonsense", "true"], "--nonsense"),
            (["word", "--", "true"], "word"),
            (["--policy", "fast", "--", "true"], "fast"),
            (["--policy"], "--policy"),
            (["--budget", "-3GiB", "--", "true"], "--budget"),
            (["--budget", "120%", "--", "true"], "120%"),
            (["--budget", "0", "--", "true"], "--budget"),
            (["--budget", "4 parsecs", "--", "true"], "4 parsecs"),
            (["--plan", self.path("none"), "--", "true"], "No such file"),
            (["--plan", self.write("newer", '{"schema": "reprise.plan/2"}\n'), "--", "true"], "reprise.plan/2"),
            (["--plan", self.write("cut", '{"schema": "reprise.plan/1", "pol'), "--", "true"], "is truncated"),
            (["--plan", self.write("empty", ""), "--", "true"], "is empty"),
            (["--plan", self.write("profile", json.dumps(profile())), "--", "true"], "something else than one plan"),
            (["--save-plan", "/no/such/folder/p", "--", "true"], "/no/such/folder/p"),
            (["--on-infeasible", "pray", "--", "true"], "pray"),
            (["--threads", "0", "--", "true"], "threads"),
            (["--verify", "maybe", "--", "true"], "maybe"),
            (["--library", "/no/such/libreprise.so", "--", "true"], "/no/such/libreprise.so"),
            (["--records", "/no/such/folder/r", "--", "true"], "/no/such/folder/r"),
            (["--report", self.folder, "--", "true"], self.folder),
        ):
            self.assertIn(said, self.reprise("run", *words, status=125).stderr, words)

    def test_the_library_can_be_named(self):
        copy = os.path.join(self.folder, "copy", "libreprise.so")
        os.mkdir(os.path.dirname(copy))
        shutil.copy(PRELOAD, copy)
        for words, env in ((["--library", copy], {}), ([], {"REPRISE_LIBRARY": copy})):
            self.assertIn("LD_PRELOAD=%s " % os.path.realpath(copy), self.reprise("run", *words, "--print", "--", "true", env=env).stdout)
        spaced = os.path.join(self.folder, "a b")
        os.rename(os.path.dirname(copy), spaced)
        self.assertIn("a space or a colon", self.reprise("run", "--library", spaced + "/libreprise.so", "--", "true", status=125).stderr)

    def test_a_command_without_its_library_says_where_it_looked(self):
        lone = self.path("bin/reprise")
        os.makedirs(os.path.dirname(lone))
        shutil.copy(COMMAND, lone)
        clean = {k: v for k, v in os.environ.items() if not k.startswith("REPRISE_")}
        done = subprocess.run([lone, "run", "--", "true"], capture_output=True, text=True, env=clean)
        self.assertEqual(done.returncode, 125)
        self.assertIn("looked at", done.stderr)
        # In a prefix that was moved it is found.
        os.makedirs(self.path("lib"))
        shutil.copy(PRELOAD, self.path("lib/libreprise.so"))
        done = subprocess.run([lone, "run", "--print", "--", "true"], capture_output=True, text=True, env=clean)
        self.assertIn("LD_PRELOAD=%s " % os.path.realpath(self.path("lib/libreprise.so")), done.stdout, done.stderr)

    def test_programs_that_cannot_be_preloaded_are_warned_about(self):
        static = os.path.join(PROGRAMS, "static_plain")
        self.assertIn("linked statically", self.reprise("run", "--", static).stderr)
        self.assertIn("linked statically", self.reprise("run", "--require", "--", static, status=125).stderr)
        self.assertIn("linked statically", self.reprise("run", "--", self.write("s", "#!%s\n" % static, 0o755)).stderr)
        self.assertNotIn("warning", self.reprise("run", "--", "true").stderr)
        if os.getuid() == 0:
            owned = shutil.copy("/bin/true", self.path("owned"))
            os.chown(owned, 12345, -1)
            os.chmod(owned, 0o4755)
            self.assertIn("set-user-id", self.reprise("run", "--", owned).stderr)

    def test_records_that_were_there_stay_and_none_is_made_for_nothing(self):
        self.write("kept", "old\n")
        self.reprise("run", "--records", "kept", "--report", "new", "--", "true")
        with open(self.path("kept")) as file:
            self.assertEqual(file.read(), "old\n")
        self.assertFalse(os.path.exists(self.path("new")))

    def test_help_and_version(self):
        self.assertRegex(self.reprise("--version").stdout, r"^reprise \d+\.\d+\.\d+$")
        commands = ("run", "audit", "doctor", "inspect", "verify", "report", "completion")
        with open(os.path.join(SOURCE, "docs/reprise.1")) as file:
            page = file.read().replace("\\-", "-")
        with open(os.path.join(SOURCE, "docs/cli.md")) as file:
            text = file.read()
        overview = self.reprise("--help").stdout
        for command in commands:
            self.assertIn(command, overview)
            self.assertIn("reprise %s" % command, text)
            options = {word.strip(",:") for line in self.reprise(command, "--help").stdout.splitlines() for word in line.split()[:1] if word.startswith("-")}
            for option in options - {"-h,--help"}:
                for name in option.split(","):
                    self.assertIn(name, page, "the man page lacks %s of %s" % (name, command))
                self.assertIn(option.split(",")[-1], text, "docs/cli.md lacks %s of %s" % (option, command))
        self.reprise(status=2)
        self.reprise("no-such-command", status=2)

    def test_output_that_cannot_be_written_is_an_error(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([COMMAND, "completion", "bash"], stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 2)


# Jobs in Python with nothing but the C API.
PRELUDE = """
import ctypes, os
class Segment(ctypes.Structure):
    _fields_ = [("instance", ctypes.c_uint64), ("execution", ctypes.c_uint64), ("action", ctypes.c_int), ("status", ctypes.c_int)]
library = ctypes.CDLL("libreprise.so", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
begin, end = library.reprise_segment_begin, library.reprise_segment_end
begin.argtypes, begin.restype, end.argtypes, end.restype = [ctypes.c_char_p, ctypes.c_uint64], Segment, [Segment], ctypes.c_int
library.reprise_track.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_uint]
library.reprise_untrack.argtypes = [ctypes.c_void_p]
def state_of(name, size=1 << 20):
    state = ctypes.create_string_buffer(size)
    assert library.reprise_track(ctypes.addressof(state), size, name, 0) == 0
    return state
"""
FORKS = """
state = state_of(b"state")
def work(name, steps):
    for step in range(steps):
        forward = begin(name, 0)
        assert forward.status == 0 and end(forward) == 0
        state[5000] = bytes([step + 1])
        replay = begin(name, forward.instance)
        assert replay.status == 0 and state[5000] != bytes([step + 1]) and end(replay) == 0
        assert state[5000] == bytes([step + 1])
        assert library.reprise_step() == 0
work(b"both", 3)
child = os.fork()
work(b"both" if child else b"child", 4)
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
TROUBLE = """
kept, gone = state_of(b"kept"), state_of(b"gone")
forward = begin(b"rejected", 0)
assert end(forward) == 0
gone[7] = b"x"
assert library.reprise_untrack(ctypes.addressof(gone)) == 0
replay = begin(b"rejected", forward.instance)
print("rejected", replay.status)
if replay.status == 0:
    end(replay)
forward = begin(b"diverges", 0)
assert end(forward) == 0
replay = begin(b"diverges", forward.instance)
assert replay.status == 0
kept[100000] = b"y"
print("diverges", end(replay), kept[100000])
"""


class Trouble(Case):
    def run_trouble(self, *options):
        return self.reprise("run", "--records", "r", "--report", "s", *options, "--", sys.executable, "-c", PRELUDE + TROUBLE).stdout

    def test_rejections_and_strays_are_recorded_shown_and_verified(self):
        # Memory that is compared, not watched: a stray write is put back and said, no more.
        self.assertEqual(self.run_trouble(), "rejected 5\ndiverges 0 b'\\x00'\n")
        outcomes = {line["segment"]: line["outcome"] for line in self.lines() if "outcome" in line}
        self.assertEqual(outcomes, {"rejected": "rejection", "diverges": "match"})
        self.assertIn("fine", self.reprise("verify", "r", "--report", "s").stdout)
        shown = self.reprise("inspect", "r").stdout
        for part in ("1 rejection", "1 match", "Written by replays where the forward had not", "kept", "gone"):
            self.assertIn(part, shown)
        self.reprise("report", "r", "--report", "s", "-o", "o.html")
        with open(self.path("o.html")) as file:
            page = file.read()
        self.assertIn("gone", page)
        self.assertNotIn("None: every replay", page)

    def test_where_they_are_only_warned_about(self):
        self.assertIn("rejected 0\n", self.run_trouble("--on-reject", "warn"))
        self.assertIn("unprotected", self.reprise("inspect", "r").stdout)
        self.assertIn("fine", self.reprise("verify", "r", "--report", "s").stdout)

    def test_audit_finds_what_would_be_refused(self):
        done = self.reprise("audit", "--", sys.executable, "-c", PRELUDE + TROUBLE, status=1)
        self.assertIn("gone", done.stdout)


class Forks(Case):
    def test_each_process_of_a_job_records_under_a_name_of_its_own(self):
        self.reprise("run", "--records", "r", "--", sys.executable, "-c", PRELUDE + FORKS)
        runs = {}
        for line in self.lines():
            runs.setdefault(line["run"], []).append(line["schema"])
        self.assertEqual(sorted(schemas.count("reprise.record/1") for schemas in runs.values()), [4, 7])
        self.assertTrue(all("reprise.contract/1" in schemas for schemas in runs.values()))
        self.assertIn("2 runs", self.reprise("verify", "r").stdout)


class Audit(Case):
    def test_findings_name_segment_and_buffer_and_the_status_is_1(self):
        done = self.reprise("audit", "--", JOB, "3", status=1)
        self.assertIn("layer", done.stdout)
        self.assertIn("1.00 MiB", self.reprise("inspect", self.recorded()[0]).stdout)
        self.assertIn("REPRISE_POLICY=selective", done.stdout)
        found = json.loads("{" + self.reprise("audit", "--json", "--", JOB, "3", status=1).stdout.split("{", 1)[1])
        self.assertEqual([f["segment"] for f in found["findings"]], ["layer", "layer"])
        self.assertEqual([f["replays"] for f in found["findings"]], [12, 12])
        self.assertEqual(found["replays"], 12)
        self.assertEqual({f["kind"] for f in found["findings"]}, {"changed"})

    def test_findings_can_go_to_a_file(self):
        done = self.reprise("audit", "--json", "-o", "found.json", "--", JOB, "3", status=1)
        self.assertTrue(done.stdout.startswith("gradients ") and done.stdout.count("\n") == 1, done.stdout)
        with open(self.path("found.json")) as file:
            self.assertEqual(len(json.load(file)["findings"]), 2)
        self.assertIn("cannot be written", self.reprise("audit", "-o", "/no/such/folder/f", "--", JOB, "1", status=125).stderr)

    def test_what_cannot_be_read_again_is_refused(self):
        os.mkfifo(self.path("pipe"))
        for name in (self.path("pipe"), "/dev/null"):
            self.assertIn("pipe or a device", self.reprise("audit", "--records", name, "--", JOB, "1", status=125).stderr)

    def test_a_status_is_known_where_children_are_not_waited_for(self):
        ignore = lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # noqa: E731
        self.reprise("audit", "--", "sh", "-c", "exit 7", status=7, preexec_fn=ignore)
        self.reprise("audit", "--", JOB, "2", status=1, preexec_fn=ignore)

    def test_a_command_without_segments_has_no_findings_and_is_told(self):
        done = self.reprise("audit", "--", "true")
        self.assertIn("nothing was audited", done.stderr)

    def test_the_commands_own_failure_wins(self):
        self.reprise("audit", "--", "sh", "-c", "exit 7", status=7)
        self.reprise("audit", "--", "sh", "-c", "%s 3; exit 5" % JOB, status=5)
        self.reprise("audit", "--", "sh", "-c", "kill -9 $$", status=128 + 9)
        self.reprise("audit", "--", "no-such-command", status=127)
        self.reprise("audit", "--", self.folder, status=126)
        self.reprise("audit", status=125)
        self.reprise("audit", "--nonsense", "--", "true", status=125)
        self.reprise("audit", "--", JOB, "1", env={"TMPDIR": "/no/such/folder"}, status=125)

    def test_a_report_of_an_earlier_run_is_not_taken_for_this_ones(self):
        self.recorded()
        self.assertIn("nothing was audited", self.reprise("audit", "--report", "s", "--", "true").stderr)

    def test_only_this_run_counts_in_a_record_file_that_is_kept(self):
        self.reprise("audit", "--records", "r", "--", JOB, "3", status=1)
        before = len(self.lines())
        done = self.reprise("audit", "--records", "r", "--json", "--", JOB, "1", status=1)
        found = json.loads("{" + done.stdout.split("{", 1)[1])
        self.assertEqual(found["replays"], 4)
        self.assertGreater(len(self.lines()), before)
        self.assertEqual(self.reprise("verify", "r").returncode, 0)

    def test_being_asked_to_end_is_passed_on(self):
        clean = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
        ready = self.path("ready")
        child = subprocess.Popen([COMMAND, "audit", "--", "sh", "-c", "trap 'exit 6' TERM; : > %s; while :; do sleep 0.05; done" % ready], env=clean, stderr=subprocess.DEVNULL)
        for _ in range(400):
            if os.path.exists(ready):
                break
            time.sleep(0.05)
        child.send_signal(signal.SIGTERM)
        self.assertEqual(child.wait(60), 6)

    def test_nothing_is_left_behind(self):
        own = self.path("tmp")
        os.mkdir(own)
        self.reprise("audit", "--", JOB, "1", status=1, env={"TMPDIR": own})
        self.assertEqual(os.listdir(own), [])


class Doctor(Case):
    def doctor(self, *words, status=None, **more):
        clean = {k: v for k, v in os.environ.items() if not k.startswith("REPRISE_") and k != "LD_PRELOAD"}
        done = subprocess.run([COMMAND, "doctor", "--json", *words], capture_output=True, text=True, env={**clean, **more.pop("env", {})}, timeout=250, **more)
        found = json.loads(done.stdout)
        self.assertEqual(found["status"], done.returncode)
        if status is not None:
            self.assertEqual(done.returncode, status, done.stdout)
        return found, {entry["name"]: entry for entry in found["findings"]}

    def test_everything_is_tried(self):
        found, by_name = self.doctor()
        for name in ("kernel", "write tracking", "seccomp", "huge pages", "address space", "memory", "descriptors", "locked memory", "preload", "replay", "python", "GPU"):
            self.assertIn(name, by_name)
        self.assertEqual(by_name["preload"]["health"], "ok")
        self.assertEqual(by_name["replay"]["health"], "ok")
        self.assertLess(found["status"], 2)
        costs = {cost["name"]: cost["value"] for cost in found["costs"]}
        for name in ("page_fault", "copy_rate", "scattered_copy_rate", "compare_rate"):
            self.assertGreater(costs[name], 0)
        self.assertTrue(0 <= costs["crossover"] <= 1)
        for entry in found["findings"]:
            if entry["health"] in ("limited", "broken"):
                self.assertTrue(entry["remedy"] or entry["detail"], entry)

    def test_without_write_tracking_it_works_with_limits(self):
        found, by_name = self.doctor("--quick", "--no-python", env={"REPRISE_DIRTY": "compare"}, status=1)
        self.assertEqual(by_name["write tracking"]["health"], "limited")
        self.assertIn("REPRISE_DIRTY", by_name["write tracking"]["detail"])
        self.assertIn("compare", by_name["replay"]["detail"])
        self.assertEqual(found["costs"], [])
        self.assertNotIn("python", by_name)

    def test_a_container_that_forbids_userfaultfd_is_recognised(self):
        clean = {k: v for k, v in os.environ.items() if not k.startswith("REPRISE_") and k != "LD_PRELOAD"}
        words = [os.path.join(PROGRAMS, "without_userfaultfd"), COMMAND, "doctor", "--json", "--quick", "--no-python"]
        done = subprocess.run(words, capture_output=True, text=True, env=clean, timeout=100)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        by_name = {entry["name"]: entry for entry in json.loads(done.stdout)["findings"]}
        self.assertIn("seccomp profile", by_name["write tracking"]["detail"])
        self.assertIn("may be what forbids", by_name["seccomp"]["detail"])
        self.assertEqual(by_name["replay"]["health"], "ok")

    def test_little_address_space_is_found(self):
        _, by_name = self.doctor("--quick", "--no-python", preexec_fn=lambda: limit("RLIMIT_AS", 400 << 20))
        self.assertIn("400 MiB", by_name["address space"]["detail"])

    def test_few_descriptors_are_found(self):
        _, by_name = self.doctor("--quick", "--no-python", preexec_fn=lambda: limit("RLIMIT_NOFILE", 32))
        self.assertEqual(by_name["descriptors"]["health"], "limited")

    def test_without_a_working_preload_it_cannot_work(self):
        _, by_name = self.doctor("--quick", "--library", "/no/such/libreprise.so", status=2)
        self.assertEqual(by_name["preload"]["health"], "broken")
        fake = self.write("libreprise.so", "this is no library")
        _, by_name = self.doctor("--quick", "--no-python", "--library", fake, status=2)
        self.assertEqual(by_name["preload"]["health"], "broken")
        self.assertEqual(by_name["engine"]["health"], "broken")
        shutil.copy(PRELOAD, fake)  # a preload without its engine
        _, by_name = self.doctor("--quick", "--no-python", "--library", fake, status=2)
        self.assertEqual(by_name["replay"]["health"], "broken")

    def test_python_is_asked_under_the_preload(self):
        _, by_name = self.doctor("--quick", "--python", sys.executable)
        self.assertIn("%d.%d" % sys.version_info[:2], by_name["python"]["detail"])
        self.assertEqual(by_name["python"]["health"], "ok")
        self.assertIn("torch", by_name)
        _, by_name = self.doctor("--quick", "--python", "/no/such/python", status=2)
        self.assertEqual(by_name["python"]["health"], "broken")
        _, by_name = self.doctor("--quick", "--python", "/bin/false", status=1)
        self.assertEqual(by_name["python"]["health"], "limited")

    def test_for_people_it_ends_with_a_verdict(self):
        self.assertRegex(self.reprise("doctor", "--quick", "--no-python", env={"REPRISE_DIRTY": "compare"}, status=1).stdout, r"Reprise: works with limits\n$")


def limit(which, value):
    import resource

    resource.setrlimit(getattr(resource, which), (value, value))

if __name__ == "__main__":
    unittest.main()
