"""How the adapter gets into a Python process, each way in a process of its own under the preload."""

import os
import pathlib
import re
import runpy
import subprocess
import sys
import textwrap
import zipfile

import pytest

PROGRAM = """
import torch, torch.utils.checkpoint as cp, sys, os
from torch import nn
m = nn.BatchNorm1d(4)
x = torch.randn(6, 4, requires_grad=True)
cp.checkpoint(m, x, use_reentrant=False).sum().backward()
print("tracked", int(m.num_batches_tracked))
"""


WAYS = ("module", "path")  # path: what an interpreter gets that cannot take a module of ours


def environment(build, env=(), preload=True):
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("REPRISE_", "LD_PRELOAD", "PYTHONPATH"))}
    environ.update(OMP_NUM_THREADS="1")
    if preload:
        environ["LD_PRELOAD"] = str(build / "libreprise.so")
    environ.update(env)
    return environ


def run(build, *arguments, env=(), preload=True, cwd=None, check=True):
    done = subprocess.run([sys.executable, *arguments], env=environment(build, env, preload), cwd=cwd, capture_output=True, text=True, timeout=280)
    assert not check or done.returncode == 0, done.stderr
    return done


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(PROGRAM)
    return str(path)


@pytest.mark.parametrize("flags", [(), ("-E",), ("-I",), ("-S",), ("-E", "-S")], ids=lambda f: " ".join(f) or "plain")
def test_every_way_of_starting_python(build, program, flags):
    env = {}
    if "-S" in flags:  # no site-packages then: the program finds torch by itself
        import torch

        program_text = "import sys; sys.path.append(%r)\n" % str(pathlib.Path(torch.__file__).parents[1]) + PROGRAM
        pathlib.Path(program).write_text(program_text)
    with open(program, "a") as file:
        file.write("print('asleep' if '_reprise_sleeper' in [getattr(f, '__name__', '') for f in sys.meta_path] else 'on the path')\n")
    for way in WAYS:
        done = run(build, *flags, program, env=env | {"REPRISE_ATTACH": way})
        assert "tracked 1" in done.stdout, done.stderr
        assert "1 replays" in done.stderr
        assert ("asleep" in done.stdout) == (way == "module" and "-S" not in flags)


def test_everything_in_another_thread_while_the_first_one_waits(build):
    """A pending call of Python's first thread would never run here."""
    code = "import threading\ndef work():\n%s\nt = threading.Thread(target=work); t.start(); t.join()\n" % textwrap.indent(PROGRAM, "    ")
    for flag in ("-s", "-I"):
        assert "tracked 1" in run(build, flag, "-c", code).stdout


def test_the_package_is_found_where_it_is_not_installed(build):
    for way in WAYS:
        code = "import reprise, os; print(os.path.samefile(os.path.dirname(reprise.__file__), %r))" % str(build / "python" / "reprise")
        assert run(build, "-c", code, env={"REPRISE_ATTACH": way}).stdout.strip() == "True"


FIRST_IN_THREADS = """
import threading, torch, torch.utils.checkpoint as cp
from torch import nn
start, tracked = threading.Barrier(4), []
def work():
    m = nn.BatchNorm1d(4)
    start.wait()
    cp.checkpoint(m, torch.randn(6, 4, requires_grad=True), use_reentrant=False).sum().backward()
    tracked.append(int(m.num_batches_tracked))
threads = [threading.Thread(target=work) for _ in range(4)]
[t.start() for t in threads], [t.join() for t in threads]
print("tracked", sorted(tracked))
"""


def test_first_checkpoints_of_several_threads_at_once(build):
    """The others wait for the self-test, instead of running without protection."""
    assert "tracked [1, 1, 1, 1]" in run(build, "-c", FIRST_IN_THREADS).stdout
    assert "tracked [2, 2, 2, 2]" in run(build, "-c", FIRST_IN_THREADS, preload=False).stdout


def test_stock_is_wrong(build, program):
    """The negative control of this file."""
    assert "tracked 2" in run(build, program, preload=False).stdout


@pytest.mark.parametrize("way", WAYS)
def test_the_environment_is_left_as_it_was(build, way):
    code = "import sys, os; print(os.environ.get('PYTHONPATH')); print([p for p in sys.path if 'attach' in p]); print(os.environ['LD_PRELOAD'] != '')"
    assert run(build, "-c", code, env={"REPRISE_ATTACH": way}).stdout.split("\n")[:3] == ["None", "[]", "True"]
    done = run(build, "-c", code, env={"PYTHONPATH": "/some/where:/else", "REPRISE_ATTACH": way})
    assert done.stdout.split("\n")[0] == "/some/where:/else"


def test_children_are_attached_too(build, program):
    code = "import subprocess, sys; sys.exit(subprocess.call([sys.executable, %r]))" % program
    assert "tracked 1" in run(build, "-c", code).stdout


def test_spawned_workers_are_attached(build, tmp_path):
    path = tmp_path / "spawn.py"
    path.write_text(
        textwrap.dedent(
            """
            import os, torch, torch.utils.checkpoint as cp, torch.multiprocessing as mp
            from torch import nn

            def work(rank):
                m = nn.BatchNorm1d(4)
                cp.checkpoint(m, torch.randn(6, 4, requires_grad=True), use_reentrant=False).sum().backward()
                os.write(1, b"rank %d tracked %d\\n" % (rank, int(m.num_batches_tracked)))  # at once: the other one writes, too

            if __name__ == "__main__":
                mp.spawn(work, nprocs=2)
            """
        )
    )
    out = run(build, str(path)).stdout
    assert "rank 0 tracked 1" in out and "rank 1 tracked 1" in out


@pytest.mark.parametrize("way", WAYS)
def test_users_sitecustomize_runs_and_is_the_one_that_is_imported(build, tmp_path, way):
    (tmp_path / "sitecustomize.py").write_text("import sys\nvalue = 7\nprint('mine ran', __file__.endswith('sitecustomize.py'))\n")
    code = PROGRAM + "\nimport sitecustomize; print('value', sitecustomize.value)\n"
    done = run(build, "-c", code, env={"PYTHONPATH": str(tmp_path), "REPRISE_ATTACH": way})
    assert "mine ran True" in done.stdout and "value 7" in done.stdout and "tracked 1" in done.stdout


@pytest.mark.parametrize("way", WAYS)
def test_sitecustomize_in_an_archive_and_one_that_runs_the_next(build, tmp_path, way):
    with zipfile.ZipFile(tmp_path / "site.zip", "w") as archive:
        archive.writestr("sitecustomize.py", "print('second')\nvalue = 2\n")
    (tmp_path / "sitecustomize.py").write_text("import sys\nprint('first')\nsys.path.remove(%r)\ndel sys.modules['sitecustomize']\nimport sitecustomize\n" % str(tmp_path))
    env = {"PYTHONPATH": "%s:%s" % (tmp_path, tmp_path / "site.zip")}
    code = "import sitecustomize; print(sitecustomize.value)"
    done = run(build, "-c", code, env=env | {"REPRISE_ATTACH": way})
    assert done.stdout == run(build, "-c", code, env=env, preload=False).stdout == "first\nsecond\n2\n", done.stderr


def test_what_wakes_the_finder_is_what_it_looks_for():
    """In C there are only the packages."""
    root = pathlib.Path(__file__).parents[2]
    names = re.search(r"kWakers\[\] = {(.*?)}", (root / "interpose/startup_module.cpp").read_text()).group(1)
    early = runpy.run_path(str(root / "python/attach/sitecustomize.py"))
    assert set(re.findall(r'"(.*?)"', names)) == {target.partition(".")[0] for target in early["TARGETS"]} | {"reprise"}
    sys.path.insert(0, str(root / "python"))
    from reprise import attach

    assert early["TARGETS"] == {attach.ROOT, attach.TORCH, *attach.OTHERS}


def test_start_imports_nothing_more_than_without(build, tmp_path):
    """With a sitecustomize of the user's too: what Python has not imported itself would be felt in every start."""
    code = "import sys; print(sorted(set(sys.modules) - {'sitecustomize'}))"
    (tmp_path / "sitecustomize.py").write_text("value = 7\n")
    for env in ({}, {"PYTHONPATH": str(tmp_path)}):
        for way in WAYS:
            got = run(build, "-c", code, env=env | {"REPRISE_ATTACH": way}).stdout
            assert got == run(build, "-c", code, env=env, preload=False).stdout


def test_checkpoint_imported_by_name_before_the_attachment(build):
    code = PROGRAM.replace("cp.checkpoint(", "early(").replace(
        "import torch, torch", "from torch.utils.checkpoint import checkpoint as early\nimport torch, torch"
    )
    assert "tracked 1" in run(build, "-c", code).stdout


def test_attach_by_hand_late_and_twice(build):
    code = "import torch.utils.checkpoint\nimport reprise\nreprise.attach(); reprise.attach.attach()\nassert reprise.is_active()\n" + PROGRAM
    package = str(build / "python")
    done = run(build, "-c", code, preload=False, env={"PYTHONPATH": package})
    assert "tracked 1" in done.stdout, done.stderr


def test_launcher(build, program):
    done = run(build, "-m", "reprise", program, "an argument", preload=False, env={"PYTHONPATH": str(build / "python")})
    assert "tracked 1" in done.stdout
    assert "PYTHONPATH" not in run(build, "-m", "reprise", "--help", preload=False, env={"PYTHONPATH": str(build / "python")}).stdout
    wrong = run(build, "-m", "reprise", preload=False, env={"PYTHONPATH": str(build / "python")}, check=False)
    assert wrong.returncode == 2 and "no program given" in wrong.stderr


def test_launcher_runs_modules_and_commands_with_their_arguments(build):
    env = {"PYTHONPATH": str(build / "python")}
    code = "import sys, os; print(sys.argv[1:], 'libreprise.so' in os.environ['LD_PRELOAD'])"
    out = run(build, "-m", "reprise", "-c", code, "--policy", "x", preload=False, env=env).stdout
    assert "['--policy', 'x'] True" in out
    out = run(build, "-m", "reprise", "--policy", "audit", "-m", "platform", preload=False, env=env).stdout
    assert "Linux" in out


def test_a_process_without_torch_is_not_disturbed(build):
    done = run(build, "-c", "import json, sys; print('torch' in sys.modules, 'reprise' in sys.modules)")
    assert done.stdout.strip() == "False False"


def test_policy_off_leaves_torch_alone(build, program):
    assert "tracked 2" in run(build, program, env={"REPRISE_POLICY": "off"}).stdout


def test_audit_changes_nothing_and_tells(build, program):
    done = run(build, program, env={"REPRISE_POLICY": "audit"})
    assert "tracked 2" in done.stdout
    assert "audit" in done.stderr


def test_without_the_extension(build, program):
    assert "tracked 1" in run(build, program, env={"REPRISE_EXTENSION": "0"}).stdout


def test_the_extension_has_no_undefined_symbol_of_the_library(build):
    out = subprocess.run(["nm", "-D", "--undefined-only", str(build / "python/reprise/_reprise.abi3.so")], capture_output=True, text=True).stdout
    assert "Py" in out and "reprise_" not in out
