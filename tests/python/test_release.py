"""Instances are kept exactly as long as a replay may follow, and whatever goes wrong leaves nothing behind."""

import ctypes
import gc
import weakref

import pytest
import torch
from torch import nn

from programs import Counter, Queue, Step
from reprise import RejectedError
from reprise.settings import settings


def make_input():
    return torch.randn(6, 8, requires_grad=True)


def test_released_during_the_backward_although_the_loss_lives(reference, form):
    gc.disable()
    try:
        loss = form(Step(), make_input()).sum()
        assert reference.adapter.outstanding() == 1
        loss.backward()
        assert reference.adapter.outstanding() == 0
    finally:
        gc.enable()


def test_dropped_graph(reference, form):
    y = form(Step(), make_input())
    assert reference.outstanding() == 1
    del y
    assert reference.outstanding() == 0


def test_ten_thousand_dropped_instances_leave_nothing(reference):
    module, x = nn.Identity(), make_input()
    for _ in range(10_000 if reference.engine.backend == "extension" else 500):
        torch.utils.checkpoint.checkpoint(module, x, use_reentrant=False)
    assert reference.outstanding() == 0
    assert len(reference.engine.instances) == 0


def test_exception_in_the_forward(reference, form):
    module = Step()

    def bad(x):
        module(x)
        raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        form(bad, make_input())
    assert reference.outstanding() == 0
    assert module.count == 1  # as without a checkpoint


# A switch outside everything that is rolled back: memory that reflection does not reach.
SWITCH = (ctypes.c_bool * 1)(False)


class Boom(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        if SWITCH[0]:
            raise ValueError("boom in the replay")
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad


def test_exception_in_the_replay_puts_everything_back(reference, form):
    module = Counter()
    module.register_buffer("count", torch.zeros(()))

    def segment(x):
        module.count += 1
        torch.rand(1)
        return Boom.apply(module(x)) * module.count.clone()

    loss = form(segment, make_input()).sum()
    module.count.fill_(9)
    state = torch.get_rng_state()
    SWITCH[0] = True
    try:
        with pytest.raises(ValueError, match="boom in the replay"):
            loss.backward()
    finally:
        SWITCH[0] = False
    assert module.count == 9 and module.calls == 1 and module.seen == [1]
    assert torch.equal(torch.get_rng_state(), state)
    assert not reference.engine.open
    del loss
    assert reference.outstanding() == 0


def test_wrapped_module_is_not_kept_alive(reference, form):
    module = Step()
    gone = weakref.ref(module)
    form(module, make_input()).sum().backward()
    del module
    gc.collect()
    assert gone() is None


def test_a_list_of_losses_kept_for_ever(reference, capfd):
    settings.keep_steps = 3
    module = Step()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    kept = []
    for _ in range(8):
        kept.append(torch.utils.checkpoint.checkpoint(module, make_input(), use_reentrant=False).sum())
        optimizer.step()
    assert reference.adapter.outstanding() <= 4
    assert reference.stats()["steps"] == 8
    assert capfd.readouterr().err.count("REPRISE_KEEP_STEPS") == 1
    with pytest.raises(RejectedError, match="released"):
        kept[0].backward()
    kept[-1].backward()


def test_an_optimizer_for_every_parameter(reference, form):
    """They step during the backward, before the replays of the first layers: that is one round, whatever their number."""
    settings.keep_steps = 2
    layers = nn.ModuleList(Step() for _ in range(6))
    steps = [0]

    def step(optimizer):
        optimizer.step()
        optimizer.zero_grad()
        steps[0] += 1

    for parameter in layers.parameters():
        optimizer = torch.optim.SGD([parameter], lr=0.01)
        parameter.register_post_accumulate_grad_hook(lambda _, optimizer=optimizer: step(optimizer))
    for _ in range(3):
        x = make_input()
        for layer in layers:
            x = form(layer, x)
        x.sum().backward()
    assert steps[0] == 3 * len(list(layers.parameters())) > 3 * settings.keep_steps
    assert reference.stats()["replays"] == 18 and reference.outstanding() == 0


def test_released_instance_under_warn_runs(warning):
    settings.keep_steps = 1
    module = Step()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    loss = torch.utils.checkpoint.checkpoint(module, make_input(), use_reentrant=False).sum()
    for _ in range(3):
        optimizer.step()
    loss.backward()
    assert warning.engine.messages


def test_replaced_storage_is_rejected_by_name(reference, form):
    module = Queue(inside=False)
    loss = form(module, make_input()).sum()
    module.queue.data = torch.zeros(16, 8)
    with pytest.raises(RejectedError, match=r"(?s)queue.*(freed|resized|reallocated).*generation") as caught:
        loss.backward()
    assert "reprise" in str(caught.value)
    assert bool((module.queue == 0).all())


def test_a_module_that_is_a_key_of_its_own_table_is_not_kept_alive(reference, form):
    module = Step()
    module.table = {module: 1, (module, 0): 2}
    gone = weakref.ref(module)
    form(module, make_input()).sum().backward()
    form(module, make_input()).sum().backward()
    del module
    gc.collect()
    assert gone() is None


class Paged(nn.Module):
    """Adds a page of a pool: one tensor that is put here and there in one storage."""

    def __init__(self):
        super().__init__()
        self.linear, self.pool = nn.Linear(8, 8), torch.arange(32.0).view(4, 8) / 8
        self.page = self.pool[0].detach()

    def forward(self, x):
        return torch.tanh(self.linear(x) + self.page)


def test_a_tensor_put_elsewhere_in_its_storage_is_rejected_by_name(reference, form):
    module = Paged()
    for i in (1, 2):  # at another place in a later forward: nothing is wrong with that
        module.page.data = module.pool[i]
        form(module, make_input()).sum().backward()
    loss = form(module, make_input()).sum()
    module.page.data = module.pool[3]
    with pytest.raises(RejectedError, match="page.*generation"):
        loss.backward()


def test_replaced_storage_under_warn_goes_on(warning, form):
    module = Queue(inside=False)
    loss = form(module, make_input()).sum()
    module.queue.data = torch.zeros(16, 8)
    loss.backward()
    assert any("queue" in message for _, message in warning.engine.messages)


def test_rebound_buffer_is_not_a_rejection(reference, form):
    """Another tensor under the same name is Python state: the replay sees the old one."""
    module, x = Queue(inside=False), make_input()
    expected = torch.autograd.grad(module(x).pow(2).sum(), x)[0]
    loss = form(module, x).pow(2).sum()
    module.queue = torch.zeros(16, 8)
    loss.backward()
    assert torch.equal(x.grad, expected)
    assert bool((module.queue == 0).all())


def test_divergence_is_raised_and_put_back(reference):
    from reprise import DivergedError

    class Diverges(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 8)
            self.register_buffer("extra", torch.zeros(3))

        def forward(self, x):
            if SWITCH[0]:
                self.extra.add_(1)
            return self.linear(x)

    module = Diverges()
    loss = torch.utils.checkpoint.checkpoint(module, make_input(), use_reentrant=False).sum()
    SWITCH[0] = True
    try:
        with pytest.raises(DivergedError):
            loss.backward()
    finally:
        SWITCH[0] = False
    assert bool((module.extra == 0).all())


def test_audit_changes_nothing_and_tells(audit, capfd):
    module, x = Counter(), make_input()
    torch.utils.checkpoint.checkpoint(module, x, use_reentrant=True).sum().backward()
    assert module.calls == 2  # as in stock
    assert "audit" in capfd.readouterr().err
