"""The replay rule through torch: whatever the order of forwards and backwards, gradients and state are those of the retained run."""

import pytest
import torch
from torch import nn

from programs import Counter, Queue, Step, assert_as_retained


def make_input():
    return torch.randn(6, 8, requires_grad=True)


@pytest.mark.parametrize("make", [Queue, Step, Counter, lambda: nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5))])
def test_one_forward_one_backward(reference, form, make):
    def program(call, module):
        x = make_input()
        call(module, x).pow(2).sum().backward()
        return x.grad

    assert_as_retained(make, program, form)
    assert reference.stats()["replays"] == 1
    assert reference.outstanding() == 0


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("make", [Queue, Step, Counter])
def test_two_forwards_then_backwards(reference, form, make, order):
    def program(call, module):
        x = make_input()
        losses = [call(module, x).pow(2).sum() for _ in range(2)]
        for i in order:
            losses[i].backward()
        return x.grad

    assert_as_retained(make, program, form)
    assert reference.outstanding() == 0


def test_nested(reference, form):
    def program(call, module):
        x = make_input()
        inner, outer = module[0], module[1]

        def segment(h):
            return call(inner, outer(h).tanh()).tanh()

        call(segment, x).pow(2).sum().backward()
        return x.grad

    assert_as_retained(lambda: nn.Sequential(Step(), Step()), program, form)
    assert reference.outstanding() == 0


def test_state_changed_by_the_caller_between(reference, form):
    def program(call, module):
        x = make_input()
        loss = call(module, x).pow(2).sum()
        module.push(torch.ones(6, 8))
        loss.backward()
        return x.grad

    assert_as_retained(lambda: Queue(inside=False), program, form)


def test_retained_graph_is_replayed_twice(reference, form):
    def program(call, module):
        x = make_input()
        loss = call(module, x).pow(2).sum()
        loss.backward(retain_graph=True)
        module.count.add_(5)
        loss.backward()
        return x.grad

    assert_as_retained(Step, program, form)
    assert reference.outstanding() == 0


def test_disjoint_partial_backwards(reference):
    """Two backwards over parts of one segment replay it twice; it is released after the second only."""

    def call(function, *args):
        return torch.utils.checkpoint.checkpoint(function, *args, use_reentrant=False)

    def program(run, module):
        x = make_input()

        def two(h):
            y = module(h)
            return y.sin(), module.linear(h).exp()

        a, b = run(two, x)
        a.sum().backward(retain_graph=run is not call)
        if run is call:
            assert reference.outstanding() == 1
        b.sum().backward()
        return x.grad

    assert_as_retained(Step, program, call)
    assert reference.outstanding() == 0


def test_backward_while_its_forward_runs(reference):
    """A gradient penalty inside the segment: the replay of what is still running."""

    def program(call, module):
        x = make_input()

        def segment(h):
            y = module(h)
            (g,) = torch.autograd.grad(y.pow(2).sum(), h, create_graph=True)
            return y + g

        call(segment, x).sum().backward()
        return x.grad

    with torch.utils.checkpoint.set_checkpoint_early_stop(False):
        assert_as_retained(
            Step, program, lambda f, *a: torch.utils.checkpoint.checkpoint(f, *a, use_reentrant=False, preserve_rng_state=False)
        )


def test_same_block_applied_three_times(reference, form):
    def program(call, module):
        x = h = make_input()
        for _ in range(3):
            h = call(module, h).tanh()
        h.pow(2).sum().backward()
        return x.grad

    assert_as_retained(Counter, program, form)
    assert reference.stats()["replays"] == 3


def test_checkpoint_sequential(reference):
    def program(call, module):
        x = make_input()
        direct = call.__name__ == "<lambda>"
        y = module(x) if direct else torch.utils.checkpoint.checkpoint_sequential(module, 3, x, use_reentrant=False)
        y.pow(2).sum().backward()
        return x.grad

    def checkpoint(*args):
        raise AssertionError("not called")

    assert_as_retained(lambda: nn.Sequential(Step(), nn.Tanh(), nn.BatchNorm1d(8), Step()), program, checkpoint)
    assert reference.stats()["forwards"] == 2  # the last of three runs without a checkpoint


def test_evaluation_is_left_alone(reference, form):
    module = Step()
    with torch.no_grad():
        form(module, make_input())
    assert reference.adapter is None  # nothing was begun: not even the self-test


def test_hook_sees_the_present(reference, form):
    """Between the replay and the end of the backward, gradient hooks see the state as the retained run has it."""
    module, seen = Queue(), []

    def program(call, module):
        module.linear.weight.register_hook(lambda grad: seen.append(module.queue.clone()))
        x = make_input()
        loss = call(module, x).pow(2).sum()
        with torch.no_grad():
            module.queue.fill_(0.25)
        loss.backward()
        return x.grad

    assert_as_retained(Queue, program, form)
    assert len(seen) == 2 and all(bool((q == 0.25).all()) for q in seen)


def test_optimizer_in_backward_keeps_its_writes(reference):
    """A parameter updated by a hook during the backward is not put back."""

    def program(call, module):
        def hook(p):
            with torch.no_grad():
                p.sub_(p.grad, alpha=0.05)
                p.grad = None

        module.linear.weight.register_post_accumulate_grad_hook(hook)
        x = h = make_input()
        for _ in range(3):
            h = call(module, h).tanh()
        h.pow(2).sum().backward()
        return x.grad

    assert_as_retained(Step, program, lambda f, *a: torch.utils.checkpoint.checkpoint(f, *a, use_reentrant=False))


def test_gated_update_of_the_reentrant_form(reference, capfd):
    """An update made only while gradients are on happens in the replay there, and is kept."""

    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 8)
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x):
            if torch.is_grad_enabled():
                self.count += 1
            return self.linear(x)

    module = Gated()
    torch.utils.checkpoint.checkpoint(module, make_input(), use_reentrant=True).sum().backward()
    assert module.count == 1
    assert "REPRISE_REENTRANT=convert" in capfd.readouterr().err


def test_gated_update_that_meets_another_is_rejected(reference):
    from reprise import RejectedError

    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 8)
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x):
            if torch.is_grad_enabled():
                self.count += 1
            return self.linear(x)

    module = Gated()
    loss = torch.utils.checkpoint.checkpoint(module, make_input(), use_reentrant=True).sum()
    module.count.fill_(7)
    with pytest.raises(RejectedError, match="REPRISE_REENTRANT=convert"):
        loss.backward()
    assert module.count == 7
