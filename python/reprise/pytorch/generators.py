"""Generators of random numbers: state that is plain memory is found by probing and becomes an item of the scope; the rest goes through its API.

The layout of a generator is no ABI, so nothing is assumed: for every type a region of an object of ours is copied, numbers are drawn, the
region is written back, and only if `getstate` and the next numbers agree is the region taken as that type's state. What does not pass is
read and set through its API, compared first and set only when it differs.
"""

import ctypes
import functools
import random
import sys

import torch

from reprise.engine import extension
from reprise.status import ITEM_GENERATOR

_LARGEST_TORCH_OBJECT = 8192  # words of the Mersenne twister (2.5 KiB), some members, and what an allocator rounds up to
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


def numpy_default():
    """numpy's own RandomState and the bit generator under it, which can be replaced; None while numpy is not loaded."""
    np_random = _numpy()
    if np_random is None:
        return None
    state = np_random.mtrand._rand
    return state, getattr(state, "_bit_generator", None)


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


def _torch_object(generator):
    """Address and usable size of the C++ object behind a torch.Generator: the first thing that its Python object holds."""
    usable = ctypes.CDLL(None).malloc_usable_size
    usable.restype, usable.argtypes = ctypes.c_size_t, (ctypes.c_void_p,)
    address = ctypes.c_size_t.from_address(id(generator) + object.__basicsize__).value
    return address, usable(address)


def _torch_words(generator):
    """The Mersenne twister's 624 words, as get_state has them: 64 bits each, after 24 bytes."""
    return generator.get_state()[24 : 24 + 8 * 624].view(torch.int64).to(torch.int32).numpy().tobytes()


def _probe_torch():
    """The member variables of torch's generator for the CPU: seed (64 bits), left (32), seeded (8), next (32), words, cached normals; to the
    last one's end. -> (offset, size, where the words end, cached normals: (where one lies, where it ends, the byte that says whether it is there))"""
    if extension is None or object.__basicsize__ != 16 or not hasattr(torch.Tensor, "numpy"):
        return None
    target = torch.Generator().manual_seed(7)
    torch.rand(3, generator=target)
    address, usable = _torch_object(target)
    words = _torch_words(target)
    at = _peek(address, usable).find(words) if len(words) < usable < _LARGEST_TORCH_OBJECT else -1
    offset, size = at - 20, usable - at + 20
    if at < 24 or int.from_bytes(_peek(address + offset, 8), "little") != 7:
        return None
    address += offset

    def draw():
        kinds = [(n, d) for n in (3, 40) for d in (torch.float32, torch.float64)]
        return [t.tolist() for t in (*(torch.randn(n, generator=target, dtype=d) for n, d in kinds), torch.rand(700, generator=target))]

    def counting():
        """Bytes after the words that count now: the rest is padding, or the place of a normal that is not there."""
        state, image, found = target.get_state(), _peek(address, size), []
        for i in range(20 + len(words), size):
            _poke(address + i, bytes([image[i] ^ 1]))
            if not torch.equal(target.get_state(), state):
                found.append(i)
            _poke(address, image)
        return found

    flags = counting()  # no normal is cached
    image = _peek(address, size)
    for flag in flags:
        _poke(address + flag, b"\1")
    both = counting()
    _poke(address, image)
    normals, before = [], 0
    for flag in flags:
        place = [i for i in both if before < i < flag]
        if not place or place[-1] - place[0] + 1 not in (4, 8):
            return None
        normals.append((place[0], place[-1] + 1, flag))
        before = flag
    if len(normals) != 2:
        return None
    size = normals[-1][2] + 1  # what follows belongs to the chunk, whose size is the allocator's choice
    for _ in range(3):
        state, image = target.get_state(), _peek(address, size)
        first = draw()
        if _peek(address, size) == image:
            return None
        _poke(address, image)
        if not torch.equal(target.get_state(), state) or draw() != first:
            return None
    return offset, size, 20 + len(words), tuple(normals)


class TorchMemory:
    """The same, read where it lies: no tensor is made. Bytes between the members and where no normal is cached are what was on the stack when torch
    last set the state: they do not count."""

    def __init__(self, generator, name, address, layout):
        self.generator, self.name, self._address = generator, name, address
        _, self._size, self._end, self._normals = layout
        self.get = functools.partial(extension.peek, address, self._size)

    def set(self, state):
        _poke(self._address, state)

    def equal(self, a, b):
        if a == b:
            return True
        end = self._end
        if a[16:end] != b[16:end] or a[:13] != b[:13]:
            return False
        return all(a[flag] == b[flag] and (not a[flag] or a[low:high] == b[low:high]) for low, high, flag in self._normals)

    def region(self):
        """Name, address, size, where the words end, cached normals: for the extension's Site."""
        return self.name, self._address, self._size, self._end, self._normals

    def raw(self, state):
        """Position and words: a digest must not depend on what does not count."""
        return id(state) + bytes.__basicsize__ - 1 + 16, self._end - 16


def _torch_state(generator, name):
    if type(generator) is torch.Generator and generator.device.type == "cpu":
        layout = _layout(torch.Generator, _probe_torch)
        if layout is not None:
            address, usable = _torch_object(generator)
            address += layout[0]
            # The usable size only says that the members lie inside: the allocator decides from call to call how much more it hands out.
            large_enough = layout[0] + layout[1] <= usable < _LARGEST_TORCH_OBJECT
            same = large_enough and int.from_bytes(_peek(address, 8), "little") == generator.initial_seed()
            if same and _peek(address + 20, layout[2] - 20) == _torch_words(generator):
                return TorchMemory(generator, name, address, layout)
    return TorchState(generator, name)


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
        return [], [_torch_state(generator, name)]
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
    numpy = numpy_default()
    known = numpy and (id(numpy[1]), type(numpy[1]))  # not the generator itself: the region of one that was dropped must be seen to be freed
    if _defaults is not None and _defaults[0] == known:
        return _defaults[1]
    items, states = states_of(random._inst, "random.default")
    if numpy:
        more = states_of(numpy[0], "numpy.default")
        items, states = items + more[0], states + more[1]
    states = [_torch_state(torch.default_generator, "torch.default")] + states
    _defaults = (known, (items, states, [random._inst]))
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
