"""Small stateful modules and a comparison with the run that retains everything."""

import copy
import random

import numpy as np
import torch
from torch import nn


class Queue(nn.Module):
    """Logits against a queue; `inside`: its own keys are pushed by the forward."""

    def __init__(self, inside=True):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.inside = inside
        self.register_buffer("queue", torch.randn(16, 8))
        self.register_buffer("position", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def push(self, keys):
        at = int(self.position)
        self.queue[at : at + len(keys)] = keys
        self.position[0] = (at + len(keys)) % 8

    def forward(self, x):
        query = self.linear(x)
        result = (query @ self.queue.t().clone()).softmax(1)
        if self.inside:
            self.push(query.detach())
        return result


class Step(nn.Module):
    """Divides by a counter that every forward raises."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count += 1
        return self.linear(x) / (1 + self.count)


class Counter(nn.Module):
    """The same with Python state: a number, a list, a tensor that is rebound."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.calls = 0
        self.seen = []
        self.last = torch.zeros(6, 8)

    def forward(self, x):
        self.calls += 1
        self.seen.append(self.calls)
        y = self.linear(x) / self.calls + self.last
        self.last = y.detach()
        return y


def seed(value=0):
    torch.manual_seed(value)
    np.random.seed(value)
    random.seed(value)


def gradients(module):
    return [None if p.grad is None else p.grad.clone() for p in module.parameters()]


def state(module):
    plain = {k: copy.deepcopy(v) for m in module.modules() for k, v in vars(m).items() if isinstance(v, (int, list, torch.Tensor))}
    return list(module.state_dict().values()), plain


def same(a, b):
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(v, b[k]) for k, v in a.items())
    return a == b


def assert_as_retained(make, program, checkpoint):
    """`program(call, module)` runs forward and backward, `call(function, *args)` being the checkpoint; everything must come out as with the plain
    call: gradients, state, the three global generators."""
    results = []
    for call in (lambda function, *args, **kwargs: function(*args, **kwargs), checkpoint):
        seed()
        module = make()
        extra = program(call, module)
        results.append((gradients(module), state(module), extra, torch.get_rng_state(), repr(np.random.get_state()), random.getstate()))
    for what, a, b in zip(("gradients", "state", "results", "torch's generator", "numpy's generator", "Python's generator"), *results):
        assert same(a, b), "%s differ from the retained run" % what
