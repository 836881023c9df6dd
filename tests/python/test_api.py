"""`import reprise` by hand, on the native library without the preload, in a process of its own; and reprise.check."""

import os
import subprocess
import sys

import pytest
import torch
import torch.utils.checkpoint
from torch import nn

from programs import Step

PROGRAM = """
import sys, numpy as np
sys.path.insert(0, %r)
import reprise
assert "torch" not in sys.modules
assert not reprise.is_active()
a = np.zeros(50_000)
reprise.track(a, "queue")
with reprise.segment("layer3") as forward:
    a[7] += 1
a[:] = 5
with reprise.segment("layer3", replay_of=forward.instance) as again:
    assert a[7] == 0, a[7]
    a[7] += 1
assert a[7] == 5 and forward.instance == again.instance
info = reprise.buffer_info(a)
assert info["name"] == "queue" and info["size"] == a.nbytes, info
stats = reprise.stats()
assert stats["forwards"] == 1 and stats["replays"] == 1, stats
reprise.step()
reprise.release(forward.instance)
try:
    with reprise.segment("layer3", replay_of=forward.instance): pass
except reprise.RejectedError as error:
    assert "reprise" in str(error)
else:
    raise AssertionError("replayed after release")
try:
    with reprise.segment("x" * 10_000): pass
except reprise.RepriseError:
    pass
else:
    raise AssertionError("a name of 10,000 characters")
reprise.untrack(a)
for bad in ("text", np.zeros((4, 4))[:, 1]):
    try:
        reprise.track(bad)
    except reprise.RepriseError:
        pass
    else:
        raise AssertionError(bad)
print("fine", reprise.is_active())
"""


@pytest.mark.parametrize("extension", ["1", "0"])
@pytest.mark.parametrize("preload", [False, True])
def test_by_hand(build, extension, preload):
    env = {k: v for k, v in os.environ.items() if not k.startswith("REPRISE_")}
    env.update(REPRISE_EXTENSION=extension, **({"LD_PRELOAD": str(build / "libreprise.so")} if preload else {}))
    done = subprocess.run([sys.executable, "-c", PROGRAM % str(build / "python")], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "fine True" in done.stdout, done.stderr


def test_named_segments(reference):
    import reprise

    module = reprise.segment("mine")(Step())
    torch.utils.checkpoint.checkpoint(module, torch.ones(6, 8, requires_grad=True), use_reentrant=False).sum()
    assert reference.adapter.names.name(module) == "mine"


def test_check_finds_stock_wrong_and_this_right(reference):
    from reprise import check
    from reprise.pytorch import patch

    x = torch.randn(6, 8)
    initial = Step().state_dict()

    def report():
        module = Step()

        def step(checkpointed):
            module.load_state_dict(initial)
            h = x.clone().requires_grad_()
            return (torch.utils.checkpoint.checkpoint(module, h, use_reentrant=False) if checkpointed else module(h)).pow(2).sum()

        return check.gradients(step, module)

    good = report()
    assert good and good.worst == 0.0
    patch.uninstall()
    bad = report()
    assert not bad and bad.worst > 0.1 and "linear.weight" in repr(bad)


def test_differences(reference):
    from reprise import check

    module = Step().double()
    x = torch.randn(6, 8, dtype=torch.float64, requires_grad=True)

    def loss():
        with torch.no_grad():
            module.count.zero_()
        return torch.utils.checkpoint.checkpoint(module, x, use_reentrant=False).pow(2).sum()

    assert check.differences(loss, module, samples=4)
    wrong = nn.Linear(2, 2).double()
    with pytest.raises(ValueError, match="float64"):
        check.differences(lambda: wrong.weight.sum(), nn.Linear(2, 2))
