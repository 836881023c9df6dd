"""The calls by hand: segments of your own, declared buffers, statistics. The same as the C API (include/reprise/reprise.h)."""

import functools
import sys

from reprise import engine as engines
from reprise import library
from reprise.status import OK, RepriseError, clip_name, error_for

_declared = {}  # address -> the object, kept alive until untrack


def is_active():
    """Are checkpoints of this process instrumented, or has a segment of your own begun?"""
    patch = sys.modules.get("reprise.pytorch.patch")
    if patch is not None and patch.active() is not None and patch.active().state != patch.REFUSED:
        return True
    return engines.current() is not None


def _range(buffer):
    """Address and size of a tensor, a numpy array, an object with a writable buffer, or a pair of numbers."""
    if isinstance(buffer, tuple) and len(buffer) == 2:
        return buffer
    if hasattr(buffer, "untyped_storage"):
        if buffer.device.type != "cpu":
            raise RepriseError("reprise: a tensor on %s cannot be declared: this version preserves host memory only" % buffer.device)
        from reprise.extents import tensor_range

        return tensor_range(buffer)
    if hasattr(buffer, "__array_interface__"):
        if not buffer.flags["C_CONTIGUOUS"] and not buffer.flags["F_CONTIGUOUS"]:
            raise RepriseError("reprise: a numpy array that is not contiguous cannot be declared; declare its base")
        return buffer.__array_interface__["data"][0], buffer.nbytes
    import ctypes

    try:
        view = memoryview(buffer)
        return ctypes.addressof(ctypes.c_char.from_buffer(buffer)), view.nbytes
    except TypeError:
        raise RepriseError(
            "reprise: %r is neither a tensor, a numpy array, a writable buffer nor (address, size)" % type(buffer).__name__
        ) from None


def track(buffer, name="buffer", concurrent=0):
    """Declares a buffer of every later segment's scope, until `untrack`. It is kept alive until then. `concurrent`: other threads may write
    it while a replay has its old bytes loaded; the size of its elements in bytes (1, 2, 4, 8 or 16)."""
    address, size = _range(buffer)
    flags = 1 | concurrent << 8 if concurrent else 0
    engines.get().track(address, size, clip_name(name), flags)
    _declared[address] = buffer


def untrack(buffer):
    """Ends a declaration. Forwards that still need it can no longer be replayed."""
    address, _ = _range(buffer)
    engines.get().untrack(address)
    _declared.pop(address, None)


def buffer_info(buffer):
    """Version, generation, mechanism and dirty runs of the buffer that holds this object's memory."""
    return engines.get().buffer_info(_range(buffer)[0])


def stats():
    """Counters of this process; all zero where no segment has begun."""
    engine = engines.current()
    if engine is None and library.loaded() is None:
        return {}
    return engines.get().stats()


def step():
    """A step boundary. Not needed with torch optimizers."""
    engines.get().check(engines.get().step())


def release(instance):
    """No further replays of a forward."""
    engines.get().check(engines.get().release(instance))


class segment:
    """`with segment(name) as s`: a forward; `s.instance` names it. `with segment(name, replay_of=instance)`: its replay; RejectedError if it
    cannot be made right, DivergedError if it wrote what the forward had not. Used as a decorator it names a function or module that is
    given to a framework's checkpoint."""

    def __init__(self, name, replay_of=0):
        self.name, self.replay_of = name, replay_of
        self.instance = self.execution = 0
        self.action = None

    def __call__(self, target):
        if isinstance(target, type):
            raise TypeError("reprise.segment names functions and modules, not classes")
        try:
            target.__reprise_name__ = self.name
            return target
        except AttributeError:

            @functools.wraps(target)
            def named(*args, **kwargs):
                return target(*args, **kwargs)

            named.__reprise_name__ = self.name
            return named

    def __enter__(self):
        engine = engines.get()
        instance, self.execution, self.action, status = engine.segment_begin(self.name, self.replay_of)
        if status != OK:
            raise error_for(status, engine.last_error() or "segment %s cannot begin (status %d)" % (self.name, status))
        self.instance = instance
        return self

    def __exit__(self, kind, error, trace):
        engine = engines.get()
        if kind is not None and not self.replay_of:
            engine.segment_abort(self.instance)
            return False
        status = engine.segment_end(self.instance, self.execution, self.action)
        if status != OK and kind is None:
            raise error_for(status, engine.last_error() or "segment %s did not end well (status %d)" % (self.name, status))
        return False
