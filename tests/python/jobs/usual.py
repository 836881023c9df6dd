#!/usr/bin/env python3
"""The usual checkpoint call, which the extension begins and replays by itself, and each way in which a call can turn out not to be usual: the
result must be that of the retained run in any case. Prints the ways by name as they pass."""

import gc
import sys
import threading

import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

from reprise.engine import extension
from reprise.pytorch import patch
from reprise.pytorch.instance import Instance
from reprise.pytorch.scope import CACHED, Part
from reprise.status import RejectedError

assert extension is not None
torch.manual_seed(0)
full = [0]  # replays by the full rule, in Python
counted = Instance._replay_rest


def count(self, *args):
    full[0] += 1
    return counted(self, *args)


Instance._replay_rest = count
rest = [0]  # replays that began as usual and did not end so
ended = Instance._finish_rest


def count_rest(self, *args):
    rest[0] += 1
    return ended(self, *args)


Instance._finish_rest = count_rest


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)
        self.scale, self.calls, self.count, self.drop = 2.0, 0, False, 0.0

    def forward(self, x, y=None):
        if self.count:
            self.calls += 1
        h = torch.tanh(self.a(x) * self.scale)
        if self.drop:
            h = nn.functional.dropout(h, self.drop)
        return torch.tanh(self.b(h if y is None else h + y)) * self.scale


def run(net, form, between=lambda: None, args=None, **options):
    """-> gradients; what `between` changes lies between forward and backward."""
    net.zero_grad()
    args = (torch.linspace(-1, 1, 32).view(4, 8).requires_grad_(),) if args is None else args
    y = net(*args) if form == "retained" else checkpoint(net, *args, use_reentrant=form == "reentrant", **options)
    between()
    y.square().sum().backward()
    return [p.grad.clone() for p in net.parameters()]


def equal(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b))


def nothing_changed(form):
    net = Net()
    expected = run(net, "retained")
    run(net, form)
    full[0] = 0
    for _ in range(3):
        assert equal(run(net, form), expected)
    assert full[0] == 0, "the full rule ran %d times" % full[0]


def with_another_weight(net, form, expected):
    before = net.b.weight.detach().clone()
    assert equal(run(net, form, lambda: net.b.weight.data.mul_(3)), expected)
    assert torch.equal(net.b.weight, before * 3)


def weight_changed(form):
    net = Net()
    expected = run(net, "retained")
    run(net, form)
    with_another_weight(net, form, expected)


def attribute_changed(form):
    net = Net()
    expected = run(net, "retained")
    run(net, form)
    assert equal(run(net, form, lambda: setattr(net, "scale", 5.0)), expected) and net.scale == 5.0


def generator_moved(form):
    net = Net()
    net.drop = 0.5
    for preserve in (True, False):
        torch.manual_seed(3)
        expected, after = run(net, "retained", lambda: torch.rand(5)), torch.rand(3)
        for _ in range(2):
            torch.manual_seed(3)
            assert equal(run(net, form, lambda: torch.rand(5), preserve_rng_state=preserve), expected)
            assert torch.equal(torch.rand(3), after)


class Draws(Net):
    def forward(self, x):
        return super().forward(x * sys.modules["numpy"].random.rand())


def bit_generator_replaced(form):
    import numpy as np  # not sooner: see numpy_comes

    net, own = Draws(), np.random.get_bit_generator()
    np.random.set_bit_generator(np.random.PCG64(3))
    expected, after = run(net, "retained", lambda: np.random.rand(5)), np.random.rand()
    run(net, form)
    for _ in range(3):
        np.random.set_bit_generator(np.random.PCG64(3))
        assert equal(run(net, form, lambda: np.random.rand(5)), expected) and np.random.rand() == after
    np.random.set_bit_generator(own)
    run(net, form)


def counted_once(form):
    net = Net()
    net.count = True
    run(net, form)
    for calls in (2, 3):
        run(net, form)
        assert net.calls == calls, net.calls


def only_the_replay_writes(form):
    """What the forward wrote was set back: the replay finds everything as the forward did, and its own writes must go again."""
    net = Net()
    net.count, net.drop = True, 0.5
    for _ in range(2):  # the first one calibrates
        rest[0], calls = 0, net.calls
        torch.manual_seed(3)
        state = torch.get_rng_state()

        def back(state=state, calls=calls):
            net.calls = calls
            torch.set_rng_state(state)

        torch.manual_seed(3)
        gradients = run(net, form, back, preserve_rng_state=False)
        assert net.calls == calls and torch.equal(torch.get_rng_state(), state)
    assert rest[0] == 1, rest
    torch.manual_seed(3)
    expected = run(net, "retained")
    assert equal(gradients, expected)


class Stop(BaseException):
    pass


def replay_fails(form):
    net, real = Net(), nn.functional.linear
    net.count = True
    run(net, form)
    run(net, form)

    def linear(*args):
        net.calls += 100
        torch.rand(1)
        if form == "nonreentrant":  # in the reentrant form such a write is an update made while gradients are on, and stays
            net.b.bias.data.fill_(7)
        raise Stop

    for back in (False, True):  # True: the replay begins as usual
        calls, bias = net.calls, net.b.bias.detach().clone()

        def between(back=back, calls=calls):
            nn.functional.linear = linear
            if back:
                net.calls = calls

        state = torch.get_rng_state()
        try:
            run(net, form, between)
            raise AssertionError("nothing was raised")
        except Stop:
            pass
        finally:
            nn.functional.linear = real
        assert net.calls == calls + (not back), "what the failed replay wrote was not put back: %d" % net.calls
        assert torch.equal(torch.get_rng_state(), state) and torch.equal(net.b.bias, bias)


def storage_replaced(form):
    net = Net()
    run(net, form)
    other = torch.zeros(8, 8)
    try:
        run(net, form, lambda: setattr(net.a.weight, "data", other))
    except RejectedError as error:
        assert "a.weight" in str(error), error
    else:
        raise AssertionError("replayed on a replaced storage")


def moved_in_storage(form):
    net, pool = Net(), torch.arange(128.0).view(16, 8) / 128
    net.b.weight.data = pool[:8]
    run(net, form)
    run(net, form)
    net.b.weight.data = pool[4:12]  # between two calls: nothing is wrong with that
    expected = run(net, "retained")
    assert equal(run(net, form), expected) and equal(run(net, form), expected)
    try:
        run(net, form, lambda: setattr(net.b.weight, "data", pool[8:]))
    except RejectedError as error:
        assert "b.weight" in str(error), error
    else:
        raise AssertionError("replayed on other bytes of the same storage")


def arguments(form):
    net = Net()
    whole = torch.linspace(-1, 1, 64).view(2, 4, 8).requires_grad_()
    for args in ((whole[0], whole[1]), (whole[0], whole[0]), (whole[0].detach().clone().requires_grad_(), whole[1].detach().clone())):
        expected = run(net, "retained", args=args)
        run(net, form, args=args)
        change = lambda args=args: args[-1].data.mul_(2)  # noqa: E731
        before = args[-1].detach().clone()
        assert equal(run(net, form, change, args=args), expected)
        assert torch.equal(args[-1], before * 2)
        args[-1].data.copy_(before)


def numpy_comes(form):
    """A process-wide generator more, between a forward and its replay: from the next forward on it belongs to the scope."""
    if "numpy.random" in sys.modules:  # torch brought it: then it is there from the first call on
        return
    net = Net()
    net.drop = 0.5

    def train(between=lambda: None):
        torch.manual_seed(3)
        return run(net, form, between)

    expected = train()
    assert equal(train(lambda: __import__("numpy.random")), expected)
    import numpy as np

    np.random.seed(1)
    state = np.random.get_state()[1].copy()
    assert equal(train(), expected) and equal(train(lambda: np.random.rand(9)), expected)
    assert not np.array_equal(np.random.get_state()[1], state) or np.random.get_state()[2] != 624, "what came between was taken back"


class Noisy(Net):
    """With a generator of its own."""

    def __init__(self):
        super().__init__()
        self.own = torch.Generator().manual_seed(5)

    def forward(self, x):
        return super().forward(x + torch.rand(x.shape, generator=self.own))


def own_generator(form):
    net = Noisy()
    run(net, form)
    for _ in range(3):
        net.own.manual_seed(7)
        expected = run(net, "retained")
        after = net.own.get_state()
        net.own.manual_seed(7)
        assert equal(run(net, form, lambda: torch.rand(5, generator=net.own)), expected)
        net.own.manual_seed(7)
        assert equal(run(net, form), expected)
        assert torch.equal(net.own.get_state(), after), "the replay's draws stayed"


class Sum(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))

    def forward(self, *inputs):
        return torch.tanh(sum(inputs) * self.weight)


def many_arguments(form):
    net = Sum()
    for count in (1, 16, 17, 40):
        args = tuple(torch.full((2, 8), 0.01 * i, requires_grad=True) for i in range(count))
        expected = run(net, "retained", args=args)
        for _ in range(2):
            before = args[-1].detach().clone()
            assert equal(run(net, form, lambda args=args: args[-1].data.add_(1), args=args), expected)
            assert torch.equal(args[-1], before + 1)
            args[-1].data.copy_(before)


class Buffers(nn.Module):
    """As many small buffers as there are: each changes, so that a replay has more ranges to load than it asks for at first."""

    def __init__(self, count=100):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))
        for i in range(count):
            self.register_buffer("b%d" % i, torch.full((8,), 0.01 * i))

    def forward(self, x):
        for b in self.buffers():
            x = torch.tanh(x * self.weight + b)
        return x


def many_changes(form):
    net = Buffers()
    expected = run(net, "retained")
    run(net, form)
    before = [b.clone() for b in net.buffers()]
    full[0] = 0
    assert equal(run(net, form, lambda: [b.add_(1) for b in net.buffers()]), expected) and full[0] == 1
    assert equal(list(net.buffers()), [b + 1 for b in before])


def structure_changed(form):
    net = Net()
    run(net, form)
    run(net, form)
    net.b = nn.Linear(8, 8)
    with_another_weight(net, form, run(net, "retained"))


def another_thread_replays(form):
    """It holds the lock: the replay waits for it."""
    net = Net()
    expected = run(net, "retained")
    run(net, form)
    lock, held, done = patch.active().adapter.lock, threading.Event(), threading.Event()

    def hold():
        with lock:
            held.set()
            done.wait(1)  # ends of itself: the replay waits for it

    other = threading.Thread(target=hold)
    full[0] = 0
    assert equal(run(net, form, lambda: (other.start(), held.wait())), expected)
    assert full[0] == (form == "nonreentrant"), full  # the reentrant form waits before it looks
    other.join()


def threads(form):
    """One module, several threads, its scope found anew meanwhile: no forward runs unprotected."""
    net = Net()
    expected, wrong = run(net, "retained"), []

    def train():
        x = torch.linspace(-1, 1, 32).view(4, 8).requires_grad_()
        for _ in range(50):
            y = checkpoint(net, x, use_reentrant=form == "reentrant")
            got = torch.autograd.grad(y.square().sum(), x)[0] if form != "reentrant" else (y.square().sum().backward(), x.grad.clone())[1]
            x.grad = None
            if first and not torch.equal(first[0], got):
                wrong.append(got)
            first.append(got)

    first = []
    workers = [threading.Thread(target=train) for _ in range(3)]
    for worker in workers:
        worker.start()
    for i in range(50):
        for part in list(patch.active().adapter.scopes._parts.values()):
            part[1].usual = part[1].packed = None
    for worker in workers:
        worker.join()
    assert not wrong and len(first) == 150, (len(wrong), len(first))
    net.zero_grad()
    assert equal(run(net, form), expected)


def foreign_storage(form):
    import numpy as np

    net, array = Net(), np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8).copy()
    net.a.weight = nn.Parameter(torch.from_numpy(array))
    expected = run(net, "retained")
    run(net, form)
    before = array.copy()

    def change():
        array.__imul__(2)

    assert equal(run(net, form, change), expected)
    assert np.array_equal(array, before * 2)


def nothing_leaks(form):
    net = Net()
    for _ in range(5):
        run(net, form)
    checkpoint(net, torch.ones(1, 8, requires_grad=True), use_reentrant=form == "reentrant")  # dropped
    gc.collect()
    parts = sum(type(o) is Part for o in gc.get_objects())
    gc.disable()
    for _ in range(20):  # without the collector's help
        other = Net()
        run(other, form)
        other.a = nn.Linear(8, 8)
        run(other, form)
        del other
    assert sum(type(o) is Part for o in gc.get_objects()) < parts + 10
    gc.enable()
    left = [o for o in gc.get_objects() if type(o) in (extension.Call, Instance)]
    assert not left, left
    assert patch.active().adapter.outstanding() == 0


class Sample:
    def __init__(self):
        self.weight = 1.0


class Weighed(nn.Module):
    def forward(self, x, sample):
        return torch.tanh(x) * sample.weight


class Hidden(nn.Module):
    def forward(self, x):
        return torch.tanh(x + getattr(sys.modules["__main__"], "hid" + "den"))


hidden = torch.zeros(8)


def many_anchors(form):
    """More things than the cache of scopes takes, so that it is emptied: what it held goes, and what reflection missed stays protected."""
    net, weighed, reads_hidden, samples = Net(), Weighed(), Hidden(), [Sample() for _ in range(CACHED)]
    x = torch.linspace(-1, 1, 32).view(4, 8).requires_grad_()

    def fill():
        for sample in samples:
            checkpoint(weighed, x, sample, use_reentrant=form == "reentrant")

    def parts():
        gc.collect()
        return sum(type(o) is Part for o in gc.get_objects())

    run(net, form)
    fill()
    before = parts()
    run(net, form)
    fill()
    assert parts() < before + 100, "parts of an emptied cache are kept: %d, then %d" % (before, parts())

    checkpoint(reads_hidden, x, use_reentrant=form == "reentrant")
    fill()
    y = checkpoint(reads_hidden, x, use_reentrant=form == "reentrant")
    x.grad = None
    hidden.add_(1)
    y.backward(torch.ones_like(y))
    hidden.sub_(1)
    expected = x.grad
    x.grad = None
    reads_hidden(x).backward(torch.ones_like(y))
    assert torch.equal(x.grad, expected)


WAYS = (
    nothing_changed, weight_changed, attribute_changed, generator_moved, counted_once, only_the_replay_writes, replay_fails, storage_replaced,
    moved_in_storage, arguments, many_arguments, many_changes, structure_changed, own_generator, another_thread_replays, threads, numpy_comes,
    bit_generator_replaced, foreign_storage, many_anchors, nothing_leaks,
)  # fmt: skip
form = sys.argv[1]
for way in WAYS:
    way(form)
    print(way.__name__, flush=True)
