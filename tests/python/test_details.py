"""Saved tensors, version counters, calibration, names and patterns, look-alikes, Megatron and DeepSpeed, scope by reflection."""

import copy
import ctypes
import pickle
import sys
import types

import pytest
import torch
from torch import nn

import programs
from programs import Queue, Step, assert_as_retained
from reprise.pytorch.calibrate import ScopeCheck
from reprise.pytorch.instance import Instance
from reprise.pytorch.names import SegmentNames
from reprise.pytorch.saved import Ranges
from reprise.pytorch.walk import Walk


def make_input():
    return torch.randn(6, 8, requires_grad=True)


# ---- saved tensors -----------------------------------------------------------------------------------------------------------------------------


def test_ranges():
    ranges = Ranges([(100, 10), (200, 50)])
    hits = [(95, 101), (109, 300), (105, 106), (150, 201), (240, 260)]
    assert all(ranges.meet(*hit) for hit in hits)
    assert not any(ranges.meet(*miss) for miss in [(0, 100), (110, 200), (250, 400), (120, 121)])


def test_saved_tensor_that_aliases_changed_state(reference, form):
    """The queue itself is saved for backward, then overwritten: the gradient is of what the forward saw."""
    for write in (lambda q: q.data.fill_(0.5), lambda q: ctypes.memset(q.data_ptr(), 0, 64)):
        programs.seed()
        queue, x = torch.randn(8, 8), make_input()
        expected = torch.autograd.grad((x @ queue).tanh().sum(), x)[0]
        loss = form(lambda h: (h @ queue).tanh(), x).sum()
        write(queue)
        now = queue.clone()
        loss.backward()
        assert torch.equal(x.grad, expected) and torch.equal(queue, now)


def test_interrupted_while_it_lets_go_of_a_stopped_function(reference, monkeypatch):
    """Ctrl-C may come there as anywhere: everything is put back all the same."""

    def interrupted(trace):
        raise KeyboardInterrupt

    module, x = Step(), make_input()
    loss = torch.utils.checkpoint.checkpoint(module, x, use_reentrant=False).pow(2).sum()
    loss.backward(retain_graph=True)  # the first replay is not stopped: it is looked at
    loss = torch.utils.checkpoint.checkpoint(module, x, use_reentrant=False).pow(2).sum()
    module.count += 100
    now = module.count.clone()
    monkeypatch.setattr("reprise.pytorch.instance._let_go", interrupted)
    with pytest.raises(KeyboardInterrupt):
        loss.backward()
    assert torch.equal(module.count, now)
    monkeypatch.undo()
    torch.utils.checkpoint.checkpoint(module, x, use_reentrant=False).pow(2).sum().backward()
    assert torch.equal(module.count, now + 1)


def test_a_coroutine_that_hands_exceptions_back_lives_on(reference):
    """It waits for its next value, though the exception that stops the replay has gone through it."""

    def worker():
        result = None
        while True:
            work = yield result
            try:
                result = work(), None
            except Exception as error:
                result = None, error

    def through(x):
        result, error = hand.send(lambda: module(x).tanh())
        if error is not None:
            raise error
        return result

    hand, module = worker(), Step()
    next(hand)
    for _ in range(3):
        torch.utils.checkpoint.checkpoint(through, make_input(), use_reentrant=False).sum().backward()
    assert float(module.count) == 3


def test_version_counters_are_put_back(reference, form):
    """A tensor saved outside, after the forward's write, is read after the replay: autograd must not see the replay's writes."""
    module, x, u = Step(), make_input(), make_input()
    a = form(module, x).pow(2).sum()
    b = (u * module.count).sum()
    version = module.count._version
    a.backward()
    assert module.count._version == version
    b.backward()
    assert bool((u.grad == 1).all())


def test_autograds_own_check_stays(reference):
    """What is saved uncopied and then modified in place is still an error, as in stock."""

    class Bad(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(w)
            return x * w

        @staticmethod
        def backward(ctx, grad):
            (w,) = ctx.saved_tensors
            return grad * w, None

    module = Step()

    def segment(h):
        w = h.detach() * 2
        y = Bad.apply(module(h), w)
        w.add_(1)
        return y

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.utils.checkpoint.checkpoint(segment, make_input(), use_reentrant=True).sum().backward()


def test_users_own_saved_tensor_hooks_still_work(reference, form):
    counts = [0, 0]

    def pack(x):
        counts[0] += 1
        return x

    def unpack(x):
        counts[1] += 1
        return x

    def program(call, module):
        x = make_input()
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            y = call(module, x)
        y.pow(2).sum().backward()
        return x.grad

    assert_as_retained(Queue, program, form)


# ---- calibration ---------------------------------------------------------------------------------------------------------------------------------


def test_early_stop_before_a_saved_tensor_is_filled(reference, capfd):
    def program(call, module):
        x = make_input()
        call(module, x).pow(2).sum().backward()
        call(module, x).pow(2).sum().backward()
        return x.grad

    assert_as_retained(
        lambda: nn.Sequential(nn.Linear(8, 8), nn.RReLU(0.1, 0.9)), program, lambda f, *a: torch.utils.checkpoint.checkpoint(f, *a, use_reentrant=False)
    )
    assert "before it is filled" in capfd.readouterr().err


@pytest.mark.parametrize("method", (False, True))
def test_early_stop_is_looked_at_in_evaluation_and_in_training(reference, capfd, method):
    """RReLU fills late in training alone: a first call in evaluation must not speak for it."""

    def program(call, module):
        gradients = []
        for training in (False, True, True):
            module.train(training)
            x = make_input()
            call(module.forward if method else module, x).pow(2).sum().backward()
            gradients.append(x.grad)
        return gradients

    assert_as_retained(
        lambda: nn.Sequential(nn.Linear(8, 8), nn.RReLU(0.1, 0.9)), program, lambda f, *a: torch.utils.checkpoint.checkpoint(f, *a, use_reentrant=False)
    )
    assert "before it is filled" in capfd.readouterr().err


def test_ordinary_segments_keep_early_stop(reference):
    module = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Dropout(0.3))
    torch.utils.checkpoint.checkpoint(module, make_input(), use_reentrant=False).sum().backward()
    assert not reference.adapter._no_early_stop


def test_scope_check_finds_what_reflection_misses(reference, capfd):
    hidden = torch.ones(8)
    holder = (lambda values: lambda: next(values))(iter(()))  # noqa: F841
    table = {"t": hidden}
    fetch = types.MethodType(lambda proxy: proxy["t"], types.MappingProxyType(table))  # a mapping that the walk does not open
    module = nn.Linear(8, 8)

    def segment(h):
        return module(h) * fetch()

    for _ in range(2):
        x = make_input()
        loss = torch.utils.checkpoint.checkpoint(segment, x, use_reentrant=False).sum()
        if _ == 1:
            hidden.fill_(7)
        loss.backward()
    assert "not reachable" in capfd.readouterr().err
    expected = torch.autograd.grad(module(x).sum(), x)[0]
    assert torch.equal(x.grad, expected)  # of the ones that the second forward saw


def test_scope_check_ignores_what_the_forward_makes(reference):
    check = ScopeCheck(set())
    with check:
        y = torch.ones(3) * torch.tensor(2.0)
        y.add_(1)
    assert not check.tensors()


# ---- scope ---------------------------------------------------------------------------------------------------------------------------------------------

SHARED = torch.zeros(3)


def uses_global(x):
    return x * SHARED.sum()


def found(value):
    return {id(t) for t, *_ in Walk().run(value, "v").tensors}


def test_reflection_reaches():
    t = torch.ones(2)

    class Holder:
        shared = torch.ones(1)

        def __init__(self):
            self.t = t

        def method(self, x):
            return x + self.t

    assert id(SHARED) in found(uses_global)
    assert id(t) in found(Holder()) and id(t) in found(Holder().method)
    assert id(Holder.shared) in found(Holder())
    assert id(t) in found([{"a": (t,)}])
    assert id(t) in found(lambda x, default=t: x)
    module = nn.Linear(2, 2)
    module.register_forward_hook(lambda m, a, o, t=t: o)
    assert id(t) in found(module)


def test_reflection_stays_out_of_libraries():
    assert not found(torch.nn.functional.linear)
    walk = Walk().run(torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1), "o")
    assert not walk.entries


def test_managed_modules_are_not_rolled_back():
    class FSDPModule:
        pass

    class Managed(FSDPModule, nn.Linear):
        pass

    module = Managed(2, 2)
    module.register_buffer("b", torch.ones(1))
    walk = Walk().run(module, "m")
    assert [name for _, _, _, name, _ in walk.tensors] == ["m.b"]
    assert not any(entry[4] for entry in walk.entries if entry[0] in (0, 1))


# ---- names and patterns ------------------------------------------------------------------------------------------------------------------------------------


def test_names_are_stable_and_reused():
    names = SegmentNames()
    a, b = nn.Linear(2, 2), nn.Linear(2, 2)
    assert (names.name(a), names.name(b), names.name(a)) == ("Linear", "Linear#1", "Linear")
    del a
    assert names.name(nn.Linear(2, 2)) == "Linear"
    f = (lambda m: lambda x: m(x))(b)
    assert names.name(f) == names.name((lambda m: f)(b))


def test_patterns():
    model = nn.Sequential()
    model.add_module("encoder", nn.Sequential(nn.Linear(2, 2), nn.Tanh()))
    names = SegmentNames(include=("encoder.*", "Step"), exclude=("encoder.1",))
    assert names.name(model.encoder[0]) and names.name(Step())
    assert names.name(model.encoder[1]) is None and names.name(nn.ReLU()) is None


def test_excluded_segments_run_as_stock(reference, form):
    from reprise.settings import settings

    settings.exclude = ("Step",)
    module = Step()
    form(module, make_input()).sum().backward()
    assert module.count == 2 and reference.stats()["forwards"] == 0


def test_wrapper_looks_like_what_it_wraps(reference):
    def block(x):
        """Doubles."""
        return x * 2

    instance = Instance(reference_adapter(), block, "block", False)
    assert instance.__name__ == "block" and instance.__qualname__.endswith("block")
    assert "block" in repr(instance)
    instance.release()


def reference_adapter():
    torch.utils.checkpoint.checkpoint(nn.Identity(), make_input(), use_reentrant=False)
    from reprise.pytorch import patch

    return patch.active().adapter


def test_modules_pickle_and_copy_before_and_after(reference, form):
    module = Queue()
    loss = form(module, make_input()).sum()
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(other.queue, module.queue)
    loss.backward()
    pickle.dumps(module)


def test_checkpoint_keeps_its_identity_and_the_patches_come_out():
    from reprise.pytorch import patch

    before = torch.utils.checkpoint.checkpoint
    patch.install()
    assert torch.utils.checkpoint.checkpoint is before
    name = patch.active().compat.generator_name
    assert getattr(torch.utils.checkpoint, name).__name__ == name
    patch.uninstall()
    assert "apply" not in torch.utils.checkpoint.CheckpointFunction.__dict__


# ---- Megatron and DeepSpeed -----------------------------------------------------------------------------------------------------------------------------------


def fake_framework(name):
    """A module with a checkpoint function of the shape that these frameworks have."""
    module = types.ModuleType(name)

    class CheckpointFunction(torch.autograd.Function):
        @staticmethod
        def forward(ctx, run_function, something, *args):
            ctx.run_function = run_function
            ctx.save_for_backward(*args)
            with torch.no_grad():
                return run_function(*args)

        @staticmethod
        def backward(ctx, *grads):
            inputs = [t.detach().requires_grad_(t.requires_grad) for t in ctx.saved_tensors]
            with torch.enable_grad():
                outputs = ctx.run_function(*inputs)
            torch.autograd.backward(outputs, grads[0])
            return (None, None, *(t.grad for t in inputs))

    class CheckpointWithoutOutput:
        def checkpoint(self, run_function, *args):
            self.run_function = run_function
            return run_function(*args)

    module.CheckpointFunction, module.CheckpointWithoutOutput = CheckpointFunction, CheckpointWithoutOutput
    module.checkpoint = lambda function, something, *args: CheckpointFunction.apply(function, something, *args)
    return module


@pytest.mark.parametrize("name", ["megatron.core.tensor_parallel.random", "deepspeed.runtime.activation_checkpointing.checkpointing"])
def test_frameworks_own_checkpoint_functions(reference, name):
    from reprise.pytorch import install

    module = fake_framework(name)
    assert install(module)
    assert_as_retained(
        Step, lambda call, m: call(m, make_input()).pow(2).sum().backward(), lambda f, *args: module.checkpoint(f, False, *args)
    )
    assert reference.stats()["replays"] == 1 and reference.outstanding() == 0


def test_a_framework_without_one_is_said(reference, capfd):
    from reprise.pytorch import install

    assert not install(types.ModuleType("megatron.core.tensor_parallel.random"))
    assert "UNPROTECTED" in capfd.readouterr().err


def test_frameworks_are_instrumented_when_imported(reference, tmp_path, monkeypatch):
    import reprise.attach

    folder = tmp_path / "deepspeed" / "runtime" / "activation_checkpointing"
    folder.mkdir(parents=True)
    for package in (folder, folder.parent, folder.parent.parent):
        (package / "__init__.py").write_text("")
    (folder / "checkpointing.py").write_text("import torch\nclass CheckpointFunction(torch.autograd.Function):\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    name = "deepspeed.runtime.activation_checkpointing.checkpointing"
    reprise.attach.finder().targets.add(name)
    __import__(name)
    assert "apply" in sys.modules[name].CheckpointFunction.__dict__
    for loaded in [m for m in sys.modules if m.startswith("deepspeed")]:
        del sys.modules[loaded]
