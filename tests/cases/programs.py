"""Cases in plain torch: order of calls, arguments, Python state, hooks, generators. See frame.py for the frame and the meaning of `expect`."""

import functools
import random

import numpy as np
import torch
import torch.nn as nn
import torch.utils.checkpoint

from cases import BN, Queue, Step
from frame import case


def _two(run, order):
    m = Step()
    x, y = run.input(), run.input()
    a = run.checkpoint(m, x).pow(2).sum()
    b = run.checkpoint(m, y).pow(2).sum()
    for l in ((a, b) if order else (b, a)):
        run.backward(l)
    return run.result(m, [x, y])


@case("two_forwards_then_backwards")
def two_forwards_then_backwards(run):
    return _two(run, True)


@case("weights_scaled_between", reordered=True)
def weights_scaled_between(run):
    m = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    x = run.input()

    def mut():
        with torch.no_grad():
            [p.mul_(1.7) for p in m.parameters()]

    run.backward(run.checkpoint(m, x).pow(2).sum(), mut)
    return run.result(m, x)


# the same through .data
@case("weights_scaled_through_data", reordered=True)
def weights_scaled_through_data(run):
    m = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    x = run.input()

    def mut():
        [p.data.mul_(1.7) for p in m.parameters()]

    run.backward(run.checkpoint(m, x).pow(2).sum(), mut)
    return run.result(m, x)


class Flag(nn.Module):
    def __init__(self):
        super().__init__()
        self.l, self.ad = nn.Linear(8, 8), nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])
        self.active = 0
        self.d = nn.Dropout(0.5)

    def forward(self, x):
        return self.d(self.l(x)).tanh() + self.ad[self.active](x)


@case("active_adapter_changed")
def active_adapter_changed(run):
    m = Flag()
    x = run.input()
    run.backward(run.checkpoint(m, x).pow(2).sum(), lambda: setattr(m, "active", 1))
    return run.result(m, x, act=m.active)


def _alias(run, how):
    m = nn.Linear(8, 8)
    x0 = run.input()

    def seg(h):
        if how == "data":
            h.data.mul_(2)
        elif how == "numpy":
            a = h.detach().numpy()
            a *= 2
        else:
            h.mul_(2)
        return m(h).tanh()

    h = x0 * 1.0
    y = run.checkpoint(seg, h)
    run.backward(y.pow(2).sum())
    return run.result(m, x0, h=h)


@case("argument_written_through_data")
def argument_written_through_data(run):
    return _alias(run, "data")


@case("argument_written_in_place", expect="stock")
def argument_written_in_place(run):
    return _alias(run, "inplace")


def _sac():
    return functools.partial(
        torch.utils.checkpoint.create_selective_checkpoint_contexts,
        [torch.ops.aten.mm.default, torch.ops.aten.addmm.default],
    )


class InplaceAct(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        h = self.a(x)
        h.relu_()
        return self.b(h)


@case("selective_checkpoint_inplace", nonreentrant="stock")
def selective_checkpoint_inplace(run):
    m = InplaceAct()
    x = run.input()
    run.backward(run.checkpoint(m, x, context_fn=_sac()).pow(2).sum())
    return run.result(m, x)


@case("argument_list_popped")
def argument_list_popped(run):
    m = nn.Linear(8, 8)
    x = run.input()
    fs = [torch.randn(6, 8), torch.randn(6, 8)]

    def seg(h, L):
        return m(h).tanh() + h * L.pop()

    y = run.checkpoint(seg, x, fs)
    run.backward(y.pow(2).sum())
    return run.result(m, x, n=len(fs))


# a generator object: cannot be rewound
@case("generator_object_advanced", expect="said", mention=["generator"])
def generator_object_advanced(run):
    m = nn.Linear(8, 8)
    x = run.input()
    L3 = [torch.randn(6, 8) for _ in range(3)]
    it = (t for t in L3)

    def seg(h):
        return m(h).tanh() * next(it)

    y = run.checkpoint(seg, x)
    run.backward(y.pow(2).sum())
    return run.result(m, x)


@case("no_input_requires_grad", reentrant="stock")
def no_input_requires_grad(run):
    m = nn.Linear(8, 8)
    x = run.input(grad=False)
    y = run.checkpoint(m, x)
    run.backward(y.pow(2).sum())
    return run.result(m, x)


@case("tensors_hidden_in_list", reentrant="stock")
def tensors_hidden_in_list(run):
    m = nn.Linear(8, 8)
    x = run.input()
    y = run.checkpoint(lambda l: m(l[0]), [x])
    run.backward(y.pow(2).sum())
    return run.result(m, x)


@case("optimizer_in_hook_shared_weight", reentrant="skip")
def optimizer_in_hook_shared_weight(run):
    l = nn.Linear(8, 8, bias=False)
    x = run.input()
    h = x

    def hook(p):
        with torch.no_grad():
            p.sub_(p.grad, alpha=0.05)
            p.grad = None

    l.weight.register_post_accumulate_grad_hook(hook)
    for _ in range(3):
        h = run.checkpoint(l, h).tanh()
    run.backward(h.pow(2).sum())
    return run.result(l, x)


class Mem(nn.Module):
    def __init__(self, rebind):
        super().__init__()
        self.l = nn.Linear(8, 8)
        self.rebind = rebind
        self.register_buffer("mem", torch.randn(30, 8))
        self.register_buffer("n", torch.tensor(6))

    def forward(self, x):
        k = self.l(x)
        M = self.mem if self.rebind else self.mem[: int(self.n)].clone()
        v = M[torch.cdist(k.detach(), M).argmin(1)]
        with torch.no_grad():
            if self.rebind:
                self.mem = torch.cat([M, k.detach()])
            else:
                n = int(self.n)
                self.mem[n : n + len(k)] = k
                self.n += len(k)
        return k * v


@case("retrieval_memory")
def retrieval_memory(run):
    m = Mem(False)
    x = run.input()
    run.backward(run.checkpoint(m, x).pow(2).sum())
    return run.result(m, x)


class Rec(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(8, 8)
        self.h = torch.ones(6, 8)

    def forward(self, x):
        o = torch.tanh(self.l(x) + self.h)
        self.h = o.detach()
        return o


@case("recurrent_hidden_rebound")
def recurrent_hidden_rebound(run):
    m = Rec()
    x, y = run.input(), run.input()
    a, b = run.checkpoint(m, x), run.checkpoint(m, y)
    run.backward(a.pow(2).sum() + b.pow(3).sum())
    return run.result(m, [x, y], h=m.h)


class Teacher(nn.Module):
    """A student whose forward reads, then moves, a teacher (exponential moving average)."""

    def __init__(self):
        super().__init__()
        self.student, self.teacher = nn.Linear(8, 8), nn.Linear(8, 8)
        self.teacher.requires_grad_(False)

    def forward(self, x):
        with torch.no_grad():
            target = self.teacher(x)
        out = (self.student(x) - target).tanh()
        with torch.no_grad():
            for a, b in zip(self.teacher.parameters(), self.student.parameters()):
                a.mul_(0.5).add_(b, alpha=0.5)
        return out


@case("ema_teacher")
def ema_teacher(run):
    m = Teacher()
    x = run.input()
    run.backward(run.checkpoint(m, x).pow(2).sum())
    return run.result(m, x)


# a tensor saved outside after F's write; its backward runs after the replay
@case("buffer_saved_outside")
def buffer_saved_outside(run):
    m = Step()
    x, u = run.input(), run.input()
    a = run.checkpoint(m, x).pow(2).sum()
    b = (u * m.step).sum()
    run.backward(a)
    run.backward(b)
    return run.result(m, [x, u])


# global tensor, reachable only through globals()
@case("global_tensor")
def global_tensor(run):
    m = nn.Linear(8, 8)
    x = run.input()
    global GQ
    GQ = torch.randn(6, 8)

    def seg(h):
        return m(h).tanh() * GQ.clone()

    run.backward(run.checkpoint(seg, x).pow(2).sum(), lambda: GQ.mul_(3))
    return run.result(m, x, q=GQ)


# checkpoint_sequential with BN and a step counter
@case("checkpoint_sequential_state")
def checkpoint_sequential_state(run):
    m = nn.Sequential(Step(), nn.Tanh(), BN(), nn.Tanh(), Step(), nn.Tanh())
    x = run.input()
    y = (
        m(x)
        if run.form == "retained"
        else torch.utils.checkpoint.checkpoint_sequential(m, 3, x, use_reentrant=run.form != "nonreentrant")
    )
    run.backward(y.pow(2).sum())
    return run.result(m, x)


# storage resized (FSDP-like) between: reject expected
@case("storage_resized_between", reordered=True, expect="reject", mention=["queue"])
def storage_resized_between(run):
    m = Queue(clone=True, inside=False)
    x = run.input()

    def mut():
        storage = m.queue.untyped_storage()
        size = storage.nbytes()
        storage.resize_(0)
        storage.resize_(size)
        m.queue.fill_(0.5)

    run.backward(run.checkpoint(m, x).pow(2).sum(), mut)
    return run.result(m, x)


class Masked(nn.Module):
    """Multiplies by a mask drawn from one kind of generator."""

    def __init__(self, kind):
        super().__init__()
        self.l = nn.Linear(8, 8)
        self.kind = kind
        self.torch_generator = torch.Generator()
        self.torch_generator.manual_seed(3)
        self.numpy_generator = np.random.default_rng(4)
        self.python_generator = random.Random(5)

    def forward(self, x):
        z = self.l(x)
        if self.kind == "torch":
            mask = torch.rand(z.shape, generator=self.torch_generator)
        elif self.kind == "numpy_global":
            mask = torch.from_numpy(np.random.rand(*z.shape).astype("f"))
        elif self.kind == "numpy":
            mask = torch.from_numpy(self.numpy_generator.random(tuple(z.shape)).astype("f"))
        else:
            mask = torch.tensor([[self.python_generator.random() for _ in range(8)] for _ in range(6)])
        return z * mask


def _masked(run, kind):
    m = Masked(kind)
    x = run.input()
    run.backward(run.checkpoint(m, x).pow(2).sum())
    return run.result(
        m,
        x,
        torch_generator=m.torch_generator.get_state(),
        numpy_generator=repr(m.numpy_generator.bit_generator.state),
        python_generator=repr(m.python_generator.getstate()),
    )


@case("private_torch_generator")
def private_torch_generator(run):
    return _masked(run, "torch")


@case("numpy_global_generator")
def numpy_global_generator(run):
    return _masked(run, "numpy_global")


@case("private_numpy_generator")
def private_numpy_generator(run):
    return _masked(run, "numpy")
