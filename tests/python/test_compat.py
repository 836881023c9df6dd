"""Other torch versions: substitutes forced where the native name exists, and versions that are not known refused."""

import os
import subprocess
import sys

import pytest

from conftest import PACKAGE

PROGRAM = """
import sys
sys.path[:0] = [%r, %r]
import torch, torch.utils.checkpoint as cp
from reference_engine import ReferenceEngine
from reprise import engine
from reprise.pytorch import patch
from programs import Step
engine.use(ReferenceEngine())
%s
print("installed", patch.install())
if patch.active(): print(patch.active().compat.table)
for re in (True, False):
    m, x = Step(), torch.ones(6, 8, requires_grad=True)
    y = cp.checkpoint(m, x, use_reentrant=re).sum()
    y.backward()
    print("count", int(m.count), "outstanding", patch.active().adapter.outstanding() if patch.active() and patch.active().adapter else None)
"""


def run(env=None, breakage="", ok=True):
    here = os.path.dirname(os.path.abspath(__file__))
    environ = dict({k: v for k, v in os.environ.items() if not k.startswith("REPRISE_")}, OMP_NUM_THREADS="1", **(env or {}))
    done = subprocess.run([sys.executable, "-c", PROGRAM % (str(PACKAGE), here, breakage)], env=environ, capture_output=True, text=True, timeout=280)
    assert (done.returncode == 0) is ok, done.stderr
    return done


@pytest.mark.parametrize("substitutes", ["shadow,token,single", "shadow", "token"])
def test_substitutes(substitutes):
    done = run({"REPRISE_TORCH_COMPAT": substitutes})
    assert done.stdout.count("count 1 outstanding 0") == 2, done.stdout + done.stderr
    for word, value in (("shadow", "shadow stack"), ("token", "tokens"), ("single", "one by one")):
        assert (value in done.stdout) == (word in substitutes)


BREAKAGES = {
    "a renamed parameter": "import inspect\n"
    "def other(fn, arguments, kwargs, *, preserve_rng_state=True, context_fn=None, determinism_check='', debug=False): yield\n"
    "for n in [n for n in vars(cp) if n.startswith('_checkpoint_without_reentrant_generator')]: setattr(cp, n, other)",
    "the function runs twice in backward": "old = cp.CheckpointFunction.backward\n"
    "def twice(ctx, *g):\n    ctx.run_function(*ctx.saved_tensors); return old(ctx, *g)\n"
    "cp.CheckpointFunction.backward = staticmethod(twice)",
    "apply is taken": "cp.CheckpointFunction.apply = classmethod(lambda cls, *a: None)",
    "no version counters": "del torch._C._autograd._unsafe_set_version_counter",
}


@pytest.mark.parametrize("what", [w for w in BREAKAGES if w != "apply is taken"])
def test_unknown_versions_are_refused_and_left_alone(what):
    done = run(breakage=BREAKAGES[what], ok=what != "a renamed parameter") if what != "a renamed parameter" else run_refused(BREAKAGES[what])
    assert done.stderr.count("is not known to this adapter") == 1
    assert "UNPROTECTED" in done.stderr


def run_refused(breakage):
    """Where torch itself no longer works, only the refusal is looked at."""
    here = os.path.dirname(os.path.abspath(__file__))
    program = (PROGRAM % (str(PACKAGE), here, breakage)).split("for re in")[0]
    environ = {k: v for k, v in os.environ.items() if not k.startswith("REPRISE_")}
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, timeout=280)
    assert "installed False" in done.stdout, done.stdout + done.stderr
    return done


def test_an_overridden_apply_is_refused():
    assert "already overridden" in run_refused(BREAKAGES["apply is taken"]).stderr


def test_compiled_checkpoints_are_left_to_the_compiler_and_it_is_said():
    done = run(
        breakage="patch.install()\n"
        "m = Step()\n"
        "g = torch.compile(lambda x: cp.checkpoint(m.linear, x, use_reentrant=False).sin(), backend='aot_eager', fullgraph=True)\n"
        "g(torch.ones(6, 8, requires_grad=True)).sum().backward()\n"
        "print('forwards', engine.current().stats()['forwards'])"
    )
    assert "forwards 0" in done.stdout and done.stderr.count("torch.compile") == 1


def test_an_adapter_that_cannot_be_loaded_is_said_and_torch_left_alone():
    program = (
        "import sys; sys.path[:0] = [%r]; sys.modules['reprise.pytorch.compat'] = None\n"
        "import reprise, torch, torch.utils.checkpoint as cp\n"
        "reprise.attach(); reprise.attach()\n"
        "x = torch.ones(3, requires_grad=True)\n"
        "cp.checkpoint(torch.sin, x, use_reentrant=False).sum().backward(); print('done')" % str(PACKAGE)
    )
    environ = {k: v for k, v in os.environ.items() if not k.startswith("REPRISE_")}
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, timeout=280)
    assert done.stdout == "done\n", done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("reprise:")]
    assert len(lines) == 1 and "cannot instrument torch" in lines[0] and "runs as without Reprise" in lines[0], done.stderr
