"""Generators: raw layouts found by probing, the API otherwise; compared first, set only when they differ."""

import random

import numpy as np
import pytest
import torch
from torch import nn

from programs import assert_as_retained
from reprise.pytorch import generators

BITS = [np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64]


class Masked(nn.Module):
    def __init__(self, draw):
        super().__init__()
        self.linear, self.draw = nn.Linear(8, 8), draw

    def forward(self, x):
        return self.linear(x) * torch.tensor([[self.draw() for _ in range(8)] for _ in range(6)])


class Owner:
    """Keeps a generator and draws from it in two ways, so that half-used words and second normal numbers count."""

    def __init__(self, generator):
        self.generator = generator

    def __call__(self):
        g = self.generator
        if isinstance(g, torch.Generator):
            return float(torch.rand((), generator=g))
        if isinstance(g, random.Random):
            return g.gauss(0, 1) + g.random()
        if isinstance(g, np.random.RandomState):
            return g.randn() + g.rand()
        return float(g.standard_normal() + g.integers(0, 9, dtype=np.uint32))


MAKERS = {
    "torch": lambda: torch.Generator().manual_seed(3),
    "python": lambda: random.Random(3),
    "numpy RandomState": lambda: np.random.RandomState(3),
    **{"numpy " + kind.__name__: lambda kind=kind: np.random.Generator(kind(3)) for kind in BITS},
}


@pytest.mark.parametrize("kind", MAKERS)
def test_private_generator(reference, form, kind):
    def program(call, module):
        x = torch.randn(6, 8, requires_grad=True)
        module.draw()
        call(module, x).pow(2).sum().backward()
        return [x.grad, torch.tensor([module.draw() for _ in range(5)])]

    assert_as_retained(lambda: Masked(Owner(MAKERS[kind]())), program, form)


@pytest.mark.parametrize("draw", [random.random, lambda: random.gauss(0, 1), np.random.rand, np.random.randn], ids=["random", "gauss", "rand", "randn"])
def test_global_generators(reference, form, draw):
    def program(call, module):
        x = torch.randn(6, 8, requires_grad=True)
        module.draw()
        call(module, x).pow(2).sum().backward()
        return x.grad

    assert_as_retained(lambda: Masked(draw), program, form)


def test_dropout_without_torch_preserving_it(reference, checkpoint):
    def program(call, module):
        x = torch.randn(6, 8, requires_grad=True)
        more = {} if call.__name__ == "<lambda>" else {"preserve_rng_state": False}
        call(module, x, **more).pow(2).sum().backward()
        return x.grad

    assert_as_retained(lambda: nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5)), program, checkpoint)


@pytest.mark.parametrize("kind", BITS)
def test_layouts_are_found(kind):
    items, states = generators.states_of(np.random.Generator(kind(1)), "g")
    assert len(items) == 1 and not states


def test_layouts_of_python_and_the_legacy_generator_are_found():
    assert len(generators.states_of(random.Random(1), "g")[0]) == 1
    assert len(generators.states_of(np.random.RandomState(1), "g")[0]) == 2


def test_a_subclass_with_its_own_state_goes_through_its_api():
    class Own(random.Random):
        def getstate(self):
            return ("own", super().getstate())

        def setstate(self, state):
            super().setstate(state[1])

    items, states = generators.states_of(Own(1), "g")
    assert not items and len(states) == 1


def test_a_wrong_layout_is_refused():
    def wrong(target):
        return generators._region_works(target, object.__basicsize__, 64, lambda r: r.getstate()[:2], lambda r: [r.getrandbits(32) for _ in range(700)])

    assert not wrong(random.Random(1))


def test_probing_leaves_the_global_generators_alone():
    before = torch.get_rng_state(), repr(np.random.get_state()), random.getstate()
    generators._PROBED.clear()
    generators._defaults = None
    generators.defaults()
    for kind in BITS:
        generators.states_of(np.random.Generator(kind(1)), "g")
    assert torch.equal(before[0], torch.get_rng_state()) and before[1:] == (repr(np.random.get_state()), random.getstate())


@pytest.mark.parametrize("kind", MAKERS)
def test_through_the_api_as_well(reference, checkpoint, kind, monkeypatch):
    monkeypatch.setattr(generators, "_layout", lambda kind, probe: None)
    monkeypatch.setattr(generators, "_defaults", None)
    def program(call, module):
        x = torch.randn(6, 8, requires_grad=True)
        module.draw()
        call(module, x).pow(2).sum().backward()
        return [x.grad, torch.tensor([module.draw() for _ in range(5)])]

    assert_as_retained(lambda: Masked(Owner(MAKERS[kind]())), program, checkpoint)
    generators._defaults = None


DRAWS = {
    "nothing": lambda g: None,
    "uniform": lambda g: torch.rand(5, generator=g),
    "one normal": lambda g: torch.randn(1, generator=g),
    "one double normal": lambda g: torch.randn(1, generator=g, dtype=torch.float64),
    "many normals": lambda g: torch.randn(40, generator=g),
    "a whole block": lambda g: torch.rand(700, generator=g),
}


@pytest.mark.parametrize("before", DRAWS)
@pytest.mark.parametrize("which", ["default", "own"])
def test_torch_generators_are_read_where_they_lie(which, before):
    """Equal after torch's own get and set (which leave garbage between the members), different after any draw, and exact when set."""
    generator = torch.default_generator if which == "default" else torch.Generator().manual_seed(2**40 + 3)
    (state,) = generators.states_of(generator, "g")[1]
    assert isinstance(state, generators.TorchState if generators.extension is None else generators.TorchMemory)
    DRAWS[before](generator)
    then, theirs = state.get(), generator.get_state()
    other = torch.Generator().manual_seed(5)
    torch.randn(1, generator=other)
    generator.set_state(other.get_state())
    assert not state.equal(then, state.get())
    generator.set_state(theirs)
    assert state.equal(then, state.get())
    for name, draw in DRAWS.items():
        if name == "nothing":
            continue
        first = draw(generator)
        assert not state.equal(then, state.get())
        state.set(then)
        assert state.equal(then, state.get()) and torch.equal(generator.get_state(), theirs)
        assert torch.equal(draw(generator), first)
        state.set(then)


@pytest.mark.parametrize("more", [16, 128, 1024])
def test_a_larger_chunk_of_the_allocator_is_no_other_layout(monkeypatch, more):
    """An allocator may hand out more than was asked for, and not always as much: what lies after the last member is nobody's."""
    generators._layout(torch.Generator, generators._probe_torch)
    real = generators._torch_object
    generator = torch.Generator().manual_seed(3)
    monkeypatch.setattr(generators, "_torch_object", lambda g: (real(g)[0], real(g)[1] + more))
    assert isinstance(generators._torch_state(generator, "g"), generators.TorchMemory)
    monkeypatch.setattr(generators, "_torch_object", lambda g: (real(g)[0], 2**20))
    assert isinstance(generators._torch_state(generator, "g"), generators.TorchState), "no object of that size is a generator"


def test_an_object_that_ends_before_its_last_member_is_not_read(monkeypatch):
    offset, size, *_ = generators._layout(torch.Generator, generators._probe_torch)
    generator = torch.Generator().manual_seed(3)
    address, usable = generators._torch_object(generator)
    assert usable >= offset + size
    for enough in (True, False):
        monkeypatch.setattr(generators, "_torch_object", lambda g: (address, offset + size - (not enough)))
        expected = generators.TorchMemory if enough else generators.TorchState
        assert isinstance(generators._torch_state(generator, "g"), expected)
