"""Cases in plain torch: what modules keep between calls. See frame.py for the frame and the meaning of `expect`."""

import random

import torch
import torch.nn as nn
import torch.nn.functional as F

from frame import case


class BN(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(8, 8)
        self.bn = nn.BatchNorm1d(8)

    def forward(self, x):
        return self.bn(self.l(x))


@case("batchnorm")
def batchnorm(run):
    m = BN()
    x = run.input()
    run.backward(run.checkpoint(m, x).pow(3).sum())
    return run.result(m, x)


# two forwards before two backwards
@case("batchnorm_two_forwards")
def batchnorm_two_forwards(run):
    m = BN()
    x, y = run.input(), run.input()
    a = run.checkpoint(m, x).pow(3).sum()
    b = run.checkpoint(m, y).pow(3).sum()
    run.backward(a)
    run.backward(b)
    return run.result(m, [x, y])


@case("batchnorm_nested")
def batchnorm_nested(run):
    m = BN()
    x = run.input()

    def outer(h):
        return run.checkpoint(m, h.tanh()).tanh()

    run.backward(run.checkpoint(outer, x).pow(3).sum())
    return run.result(m, x)


class Step(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(8, 8)
        self.register_buffer("step", torch.zeros(()))

    def forward(self, x):
        self.step += 1
        return self.l(x) / (1 + self.step)


class CountsWhenLeft(nn.Module):
    """A local variable's end writes state, which a replay that stops before the function's end must have happen in it."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)
        self.register_buffer("left", torch.zeros(8))

    def held(self):
        raise NotImplementedError

    def forward(self, x):
        held = self.held()  # noqa: F841 - its end is what counts
        h = torch.tanh(self.a(x)) * (1 + self.left[0])
        return torch.tanh(self.b(h))


class ByDestructor(CountsWhenLeft):
    def held(self):
        class Held:
            def __del__(held, left=self.left):
                left += 1

        return Held()


class ByGenerator(CountsWhenLeft):
    def held(self):
        def generator():
            try:
                yield
            finally:
                with torch.no_grad():
                    self.left += 1

        made = generator()
        next(made)
        return made


def twice(run, m):
    x, y = run.input(), run.input()
    run.backward(run.checkpoint(m, x).pow(3).sum() + run.checkpoint(m, y).pow(3).sum())
    return run.result(m, [x, y])


@case("destructor_of_a_local_writes_state")
def destructor_of_a_local_writes_state(run):
    return twice(run, ByDestructor())


@case("generator_in_a_local_writes_state")
def generator_in_a_local_writes_state(run):
    return twice(run, ByGenerator())


# nested x state that matters
@case("step_counter_nested")
def step_counter_nested(run):
    m, m2 = Step(), Step()
    x = run.input()

    def outer(h):
        return run.checkpoint(m, m2(h).tanh()).tanh()

    run.backward(run.checkpoint(outer, x).pow(3).sum())
    return run.result([m, m2], x)


def _sn(run, wrap):
    m = wrap(nn.Linear(8, 8))
    x = run.input()
    with torch.no_grad():
        (m.weight_orig if hasattr(m, "weight_orig") else m.parametrizations.weight.original).add_(torch.randn(8, 8))
    run.backward(run.checkpoint(m, x).pow(3).sum())
    return run.result(m, x)


@case("spectral_norm")
def spectral_norm(run):
    return _sn(run, torch.nn.utils.parametrizations.spectral_norm)


class Queue(nn.Module):
    def __init__(self, clone=True, inside=True):
        super().__init__()
        self.l = nn.Linear(8, 8)
        self.clone, self.inside = clone, inside
        self.register_buffer("queue", torch.randn(16, 8))
        self.register_buffer("ptr", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def push(self, k):
        p = int(self.ptr)
        self.queue[p : p + len(k)] = k.detach()
        self.ptr[0] = (p + len(k)) % 12

    def forward(self, x):
        q = self.l(x)
        qu = self.queue.clone().detach() if self.clone else self.queue
        y = (q @ qu.t()).softmax(1)
        if self.inside:
            self.push(q)
        return y


@case("queue_pushed_inside")
def queue_pushed_inside(run):
    m = Queue()
    x = run.input()
    run.backward(run.checkpoint(m, x).pow(2).sum())
    return run.result(m, x)


# pushed by the caller between forward and backward
@case("queue_pushed_outside")
def queue_pushed_outside(run):
    m = Queue(inside=False)
    x = run.input()
    k = torch.randn(6, 8)
    run.backward(run.checkpoint(m, x).pow(2).sum(), lambda: m.push(k))
    return run.result(m, x)


# the saved tensor IS the queue, overwritten by the caller
@case("queue_saved_for_backward", reordered=True)
def queue_saved_for_backward(run):
    m = Queue(clone=False, inside=False)
    x = run.input()
    k = torch.randn(6, 8)
    run.backward(run.checkpoint(m, x).pow(2).sum(), lambda: m.push(k))
    return run.result(m, x)


class VQ(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(8, 8)
        self.register_buffer("cb", torch.randn(10, 8))
        self.register_buffer("n", torch.ones(10))
        self.register_buffer("avg", self.cb.clone())

    def forward(self, x):
        z = self.l(x)
        idx = torch.cdist(z.detach(), self.cb).argmin(1)
        e = self.cb[idx]
        commit = (z - e.detach()).pow(2).mean()
        q = z + (e - z).detach()
        with torch.no_grad():
            oh = F.one_hot(idx, 10).float()
            self.n.mul_(0.7).add_(oh.sum(0), alpha=0.3)
            self.avg.mul_(0.7).add_(oh.t() @ z, alpha=0.3)
            self.cb.copy_(self.avg / self.n[:, None])
        return q.tanh(), commit


@case("codebook_ema")
def codebook_ema(run):
    m = VQ()
    x = run.input()
    q, c = run.checkpoint(m, x)
    run.backward(q.pow(2).sum() + 5 * c)
    return run.result(m, x)


@case("step_counter")
def step_counter(run):
    m = Step()
    x = run.input()
    run.backward(run.checkpoint(m, x).pow(2).sum())
    return run.result(m, x)


class Run(nn.Module):
    def __init__(self, first):
        super().__init__()
        self.l = nn.Linear(8, 8)
        self.first = first
        self.register_buffer("mu", torch.zeros(8))
        self.register_buffer("sd", torch.ones(8))

    def upd(self, z):
        with torch.no_grad():
            self.mu.mul_(0.9).add_(z.mean(0), alpha=0.1)
            self.sd.mul_(0.9).add_(z.std(0), alpha=0.1)

    def forward(self, x):
        z = self.l(x)
        if self.first:
            self.upd(z)
        mu, sd = self.mu.clone(), self.sd.clone()
        if not self.first:
            self.upd(z)
        return (z - mu) / sd


@case("running_stats_update_then_read")
def running_stats_update_then_read(run):
    m = Run(True)
    x = run.input()
    run.backward(run.checkpoint(m, x).pow(3).sum())
    return run.result(m, x)


@case("block_applied_three_times")
def block_applied_three_times(run):
    m = Step()
    x = run.input()
    h = x
    for _ in range(3):
        h = run.checkpoint(m, h).tanh()
    run.backward(h.pow(2).sum())
    return run.result(m, x)


class Amax(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(8, 8)
        self.register_buffer("hist", torch.tensor([2.0, 1.0, 0.5, 0.25]))
        self.register_buffer("scale", torch.ones(()))

    def forward(self, x):
        sc = self.hist.max() / 15
        q = (x / sc).round().clamp(-15, 15) * sc
        xq = x + (q - x).detach()
        with torch.no_grad():
            self.hist.copy_(torch.roll(self.hist, -1, 0))
            self.hist[-1] = x.abs().max() * 3
            self.scale.copy_(sc)
        return self.l(xq)


@case("amax_history")
def amax_history(run):
    m = Amax()
    x = run.input()
    run.backward(run.checkpoint(m, x).pow(2).sum())
    return run.result(m, x)


class KV(nn.Module):
    def __init__(self, pre):
        super().__init__()
        self.l = nn.Linear(8, 8)
        self.pre = pre
        self.ks = []
        self.register_buffer("k", torch.zeros(24, 8))
        self.register_buffer("pos", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        k = self.l(x)
        if self.pre:
            p = int(self.pos)
            self.k[p : p + len(k)] = k.detach()
            self.pos += len(k)
            allk = torch.cat([self.k[:p].clone(), k])
        else:
            self.ks.append(k.detach())
            allk = torch.cat(self.ks[:-1] + [k])
        return (x @ allk.t()).softmax(1) @ allk


def _kv(run, pre):
    m = KV(pre)
    x, y = run.input(), run.input()
    a = run.checkpoint(m, x)
    b = run.checkpoint(m, y)
    run.backward(a.pow(2).sum() + b.pow(3).sum())
    return run.result(m, [x, y], n=len(m.ks))


@case("kv_cache_list")
def kv_cache_list(run):
    return _kv(run, False)


class MoE(nn.Module):
    def __init__(self):
        super().__init__()
        self.r = nn.Linear(8, 4)
        self.e = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))
        self.register_buffer("bias", torch.zeros(4))
        self.register_buffer("cnt", torch.zeros(4))

    def forward(self, x):
        sc = self.r(x).sigmoid()
        i = (sc + self.bias).argmax(1)
        g = sc.gather(1, i[:, None])
        o = torch.stack([e(x) for e in self.e], 1)[torch.arange(len(x)), i] * g
        with torch.no_grad():
            self.cnt += torch.bincount(i, minlength=4).float()
            self.bias += 0.3 * torch.sign(self.cnt.mean() - self.cnt)
        return o


@case("moe_bias")
def moe_bias(run):
    m = MoE()
    x = run.input(16, 8)
    run.backward(run.checkpoint(m, x).pow(2).sum())
    return run.result(m, x)


class Cnt(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(8, 8)
        self.calls = 0
        self.metric = []
        self.total = torch.zeros(())

    def forward(self, x):
        self.calls += 1
        y = self.l(x)
        self.metric.append(float(y.sum()))
        self.total = self.total + y.detach().sum()
        return y


@case("python_counters")
def python_counters(run):
    m = Cnt()
    x = run.input()
    run.backward(run.checkpoint(m, x).pow(2).sum())
    return run.result(m, x, calls=m.calls, metric=m.metric, total=m.total)


class LD(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        x = self.a(x).tanh()
        for _ in range(3):
            if random.random() < 0.5:
                x = self.b(x).tanh()
        return x * 2


@case("layer_drop")
def layer_drop(run):
    m = LD()
    x = run.input()
    run.backward(run.checkpoint(m, x).pow(2).sum())
    return run.result(m, x)


def _drop(run, pres):
    m = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 8))
    x = run.input()
    run.backward(run.checkpoint(m, x, preserve=pres).pow(2).sum())
    return run.result(m, x)


@case("dropout_rng_not_preserved")
def dropout_rng_not_preserved(run):
    return _drop(run, False)


@case("dropout_rng_preserved")
def dropout_rng_preserved(run):
    return _drop(run, True)
