#!/usr/bin/env python3
"""The usual checkpoint call, which the extension begins and replays by itself, and each way in which a call can turn out not to be usual: the
result must be that of the retained run in any case. Prints the ways by name as they pass."""

import gc
import sys

import numpy as np
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

from reprise.engine import extension
from reprise.pytorch import patch
from reprise.pytorch.instance import Instance
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


def weight_changed(form):
    net = Net()
    expected = run(net, "retained")
    run(net, form)
    before = net.b.weight.detach().clone()
    assert equal(run(net, form, lambda: net.b.weight.data.mul_(3)), expected)
    assert torch.equal(net.b.weight, before * 3)


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


def foreign_storage(form):
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
    left = [o for o in gc.get_objects() if type(o) in (extension.Call, Instance)]
    assert not left, left
    assert patch.active().adapter.outstanding() == 0


WAYS = (nothing_changed, weight_changed, attribute_changed, generator_moved, counted_once, only_the_replay_writes, replay_fails, storage_replaced, arguments, foreign_storage, nothing_leaks)  # fmt: skip
form = sys.argv[1]
for way in WAYS:
    way(form)
    print(way.__name__, flush=True)
