"""Generators of random numbers: state that is plain memory is found by probing and becomes an item of the scope; the rest goes through its API.

The layout of a generator is no ABI, so nothing is assumed: for every type a region of an object of ours is copied, numbers are drawn, the
region is written back, and only if `getstate` and the next numbers agree is the region taken as that type's state. What does not pass is
read and set through its API, compared first and set only when it differs.
"""

import ctypes
import random
import sys

import torch

from reprise.engine import extension
from reprise.status import ITEM_GENERATOR

_PROBED = {}  # type -> (offset, size) in the object, or None


def _peek(address, size):
    return ctypes.string_at(address, size)


def _poke(address, data):
    ctypes.memmove(address, data, len(data))


def _region_works(target, offset, size, state_of, draw):
    """Is [offset, offset + size) of `target` its whole state?"""
    address = id(target) + offset
    for _ in range(3):
        before, image = state_of(target), _peek(address, size)
        first = draw(target)
        if _peek(address, size) == image:
            return False  # nothing moved: not the state
        _poke(address, image)
        if state_of(target) != before or draw(target) != first:
            return False
    return True


def _probe_python():
    """random.Random: the C struct of its base, `_random.Random`, after the object header."""
    import _random

    offset = object.__basicsize__
    size = _random.Random.__basicsize__ - offset
    if not 2400 < size < 4096:
        return None
    works = _region_works(random.Random(7), offset, size, lambda r: r.getstate()[:2], lambda r: [r.getrandbits(32) for _ in range(700)])
    return (offset, size) if works else None


def _probe_bit_generator(kind):
    """A numpy bit generator: from its state's address to the end of the object."""
    target = kind(7)
    offset = target.ctypes.state_address - id(target)
    size = kind.__basicsize__ - offset
    if not (0 < offset and 0 < size < 8192):
        return None

    def draw(generator):
        from numpy.random import Generator

        g = Generator(generator)
        return g.integers(0, 2**32, size=3, dtype="uint32").tolist(), g.random(5).tolist(), g.standard_normal(700).tolist()

    return (offset, size) if _region_works(target, offset, size, lambda b: repr(b.state), draw) else None


def _probe_random_state():
    """numpy's RandomState keeps a second normal number beside its bit generator: where in the object? (flag and number, 16 bytes)"""
    import struct

    from numpy.random import RandomState

    target = RandomState(7)
    target.standard_normal()
    flag, number = target.get_state()[3:5]
    size = RandomState.__basicsize__
    at = _peek(id(target), size).find(struct.pack("d", number))
    if not flag or at < 8:
        return None
    offset = at - 8
    for seed in (11, 12):
        other = RandomState(seed)
        other.standard_normal()
        image = _peek(id(other) + offset, 16)
        number = other.get_state()[4]
        if image != struct.pack("=i4xd", 1, number)[:4] + image[4:8] + struct.pack("d", number):
            return None
        other.standard_normal()
        if other.get_state()[3] != 0:
            return None
        _poke(id(other) + offset, image)
        if other.get_state()[3:5] != (1, number) or other.standard_normal() != number:
            return None
    return offset, 16


def _layout(kind, probe):
    """The region of a type, probed once; None where there is none (then the API is used)."""
    if kind not in _PROBED:
        try:
            _PROBED[kind] = probe()
        except Exception:
            _PROBED[kind] = None
    return _PROBED[kind]


def _numpy():
    return sys.modules.get("numpy.random")


def is_generator(value):
    if isinstance(value, (torch.Generator, random.Random)):
        return not isinstance(value, random.SystemRandom)
    np_random = _numpy()
    return np_random is not None and isinstance(value, (np_random.Generator, np_random.RandomState, np_random.BitGenerator))


# ---- generators through their API ----------------------------------------------------------------------------------------------------------


class TorchState:
    """A torch.Generator; its state is a tensor of bytes."""

    def __init__(self, generator, name):
        self.generator, self.name = generator, name

    def get(self):
        return self.generator.get_state()

    def set(self, state):
        self.generator.set_state(state)

    @staticmethod
    def equal(a, b):
        size = a.nbytes
        if size != b.nbytes or a.device.type != "cpu":
            return False
        if extension is not None:
            return extension.same(a.data_ptr(), b.data_ptr(), size)
        return _peek(a.data_ptr(), size) == _peek(b.data_ptr(), size)

    @staticmethod
    def raw(state):
        """Address and size of the state's bytes, for the contract's digest."""
        return state.data_ptr(), state.nbytes


class ApiState:
    """Any other generator: `get` returns a value that can be compared."""

    def __init__(self, name, get, set_state):
        self.name, self.get, self.set = name, get, set_state
        self._bytes = None

    @staticmethod
    def equal(a, b):
        return repr(a) == repr(b)

    def raw(self, state):
        self._bytes = ctypes.create_string_buffer(repr(state).encode())
        return ctypes.addressof(self._bytes), len(self._bytes) - 1


def _numpy_state_equal(a, b):
    return a[0] == b[0] and a[2:] == b[2:] and a[1].tobytes() == b[1].tobytes()


def _random_state_api(generator, name):
    state = ApiState(name, generator.get_state, generator.set_state)
    state.equal = _numpy_state_equal
    return state


def _bit_generator_api(bits, name):
    def set_state(value):
        bits.state = value

    return ApiState(name, lambda: bits.state, set_state)


def states_of(generator, name):
    """(items, states): what of a generator is plain memory, and what goes through its API. Python's keeps a number in its __dict__ as well:
    the caller treats that as any other Python state."""
    if isinstance(generator, torch.Generator):
        return [], [TorchState(generator, name)]
    if isinstance(generator, random.Random):
        region = _layout(random.Random, _probe_python) if type(generator).getstate is random.Random.getstate else None
        if region is None:
            return [], [ApiState(name, generator.getstate, generator.setstate)]
        return [(id(generator) + region[0], region[1], name, ITEM_GENERATOR)], []
    np_random = _numpy()
    if isinstance(generator, np_random.RandomState):
        return _random_state(generator, name)
    bits = generator.bit_generator if isinstance(generator, np_random.Generator) else generator
    return _bit_generator(bits, name)


def _bit_generator(bits, name):
    region = _layout(type(bits), lambda: _probe_bit_generator(type(bits)))
    if region is None:
        return [], [_bit_generator_api(bits, name)]
    return [(id(bits) + region[0], region[1], name, ITEM_GENERATOR)], []


def _random_state(generator, name):
    normal = _layout(type(generator), _probe_random_state)
    bits = getattr(generator, "_bit_generator", None)
    if normal is None or bits is None:
        return [], [_random_state_api(generator, name)]
    items, states = _bit_generator(bits, name)
    if states:
        return [], [_random_state_api(generator, name)]
    return items + [(id(generator) + normal[0], normal[1], name + ".normal", ITEM_GENERATOR)], []


_defaults = None


def defaults():
    """(items, states, dicts) of the process-wide generators: torch's, Python's, numpy's once it is loaded; made once. dicts: Python state of
    theirs, with the objects that own it."""
    global _defaults
    with_numpy = _numpy() is not None
    if _defaults is not None and _defaults[0] == with_numpy:
        return _defaults[1]
    items, states = states_of(random._inst, "random.default")
    if with_numpy:
        more = states_of(_numpy().mtrand._rand, "numpy.default")
        items, states = items + more[0], states + more[1]
    states = [TorchState(torch.default_generator, "torch.default")] + states
    _defaults = (with_numpy, (items, states, [random._inst]))
    return _defaults[1]


# ---- one forward, one replay ------------------------------------------------------------------------------------------------------------------


def capture(states):
    return [(state, state.get()) for state in states]


def differing(captured):
    """What of `captured` is not as it was now: (state, value then, value now)."""
    result = []
    for state, then in captured:
        now = state.get()
        if not state.equal(then, now):
            result.append((state, then, now))
    return result


class Rewind:
    """Generators (those through their API) of one replay."""

    def __init__(self, captured):
        self.captured = captured
        self.before = []

    def enter(self):
        """Sets them to the forward's state; remembers every present state."""
        before = []
        for state, then in self.captured:
            now = state.get()
            before.append((state, now))
            if not state.equal(then, now):
                state.set(then)
        self.before = before

    def leave(self):
        for state, value in self.before:
            if not state.equal(state.get(), value):
                state.set(value)
        self.before = []
