"""The engine through ctypes: complete, a few microseconds per call. `engine.py` replaces the hot calls by the C extension where it is there.

Every method is a plain call of the table in include/reprise/detail/engine_abi.h; a segment is the tuple (instance, execution, action, status).
"""

import ctypes
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_uint, c_uint32, c_uint64, c_void_p

from reprise import library
from reprise.status import NAME_MAX, OK, UNAVAILABLE, RepriseError, error_for

ABI = 2


class Segment(ctypes.Structure):
    _fields_ = [("instance", c_uint64), ("execution", c_uint64), ("action", c_int), ("status", c_int)]


class Range(ctypes.Structure):
    _fields_ = [("address", c_void_p), ("size", c_size_t)]


class Item(ctypes.Structure):
    _fields_ = [("address", c_void_p), ("size", c_size_t), ("name", c_char_p), ("flags", c_uint32), ("reserved", c_uint32)]


class Result(ctypes.Structure):
    _fields_ = [("bytes_changed", c_uint64), ("gated_kept", c_uint64), ("gated_conflict", c_uint64), ("stray_bytes", c_uint64)]


class Buffer(ctypes.Structure):
    _fields_ = [
        ("address", c_void_p),
        ("size", c_size_t),
        ("generation", c_uint64),
        ("version", c_uint64),
        ("name", ctypes.c_char * (NAME_MAX + 1)),
        ("mechanism", ctypes.c_char * 16),
    ]


class Statistics(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t)] + [
        (name, c_uint64)
        for name in (
            "forwards replays replays_on_changed_state rejections divergences instances_outstanding steps bytes_preserved bytes_first_fill "
            "bytes_loaded bytes_put_back bytes_held bytes_held_peak bytes_tracked bytes_tracked_peak nanoseconds_forward nanoseconds_replay"
        ).split()
    ]


def _function(result, *arguments):
    return ctypes.CFUNCTYPE(result, *arguments)


class Table(ctypes.Structure):
    _fields_ = [
        ("abi", c_uint32),
        ("size", c_uint32),
        ("segment_begin", _function(Segment, c_char_p, c_uint64)),
        ("segment_end", _function(c_int, Segment)),
        ("segment_abort", _function(c_int, c_uint64)),
        ("release", _function(c_int, c_uint64)),
        ("step", _function(c_int)),
        ("track", _function(c_int, c_void_p, c_size_t, c_char_p, c_uint)),
        ("untrack", _function(c_int, c_void_p)),
        ("scope", _function(c_int, POINTER(Range), c_size_t)),
        ("state", _function(c_int, c_char_p, c_void_p, c_void_p, c_void_p)),
        ("write_intent", _function(c_int, c_void_p, c_size_t)),
        ("buffer_info", _function(c_int, c_void_p, POINTER(Buffer), POINTER(Range), POINTER(c_size_t))),
        ("stats", _function(c_int, POINTER(Statistics))),
        ("last_error", _function(c_char_p)),
        ("at_exit", c_void_p),
        ("fork_prepare", c_void_p),
        ("fork_parent", c_void_p),
        ("fork_child", c_void_p),
        ("forward_begin", _function(Segment, c_char_p, POINTER(Item), c_size_t, c_uint32)),
        ("replay_begin", _function(Segment, c_char_p, c_uint64, c_uint32)),
        ("replay_end", _function(c_int, Segment, POINTER(Result))),
        ("replay_dirty", _function(c_size_t, c_uint64, POINTER(Range), c_size_t)),
        ("note_generator", _function(c_int, c_uint64, c_char_p, c_void_p, c_size_t)),
        ("report", _function(c_int, c_uint64, c_int, c_char_p)),
        ("mode", _function(c_int)),
        ("note_replay", _function(c_int, c_uint64, c_uint64)),
        ("plan_exchange", _function(c_void_p, c_uint32, POINTER(c_char_p), POINTER(c_size_t), c_size_t, POINTER(c_size_t))),
    ]


def _name(text):
    return text.encode("utf-8", "replace")


class CtypesEngine:
    """The engine of this process. `interposed`: allocations are seen, so the engine itself knows when a buffer is freed."""

    backend = "ctypes"

    def __init__(self):
        try:
            self.library = library.load()
        except OSError as error:
            raise RepriseError("reprise: " + str(error), UNAVAILABLE) from None
        self.library.reprise_adapter_table.restype = POINTER(Table)
        self.library.reprise_adapter_table.argtypes = [c_uint32]
        self.library.reprise_last_error.restype = c_char_p
        table = self.library.reprise_adapter_table(ABI)
        if not table:
            why = (self.library.reprise_last_error() or b"the engine could not be opened").decode("utf-8", "replace")
            raise RepriseError("reprise: " + why, UNAVAILABLE)
        self.table = table.contents
        if self.table.abi != ABI or self.table.size < ctypes.sizeof(Table):
            raise RepriseError(
                "reprise: libreprise_engine.so is of another version than this package (table %d, expected %d); install them together"
                % (self.table.abi, ABI),
                UNAVAILABLE,
            )
        self.interposed = bool(self.library.reprise_interposed())

    # ---- what adapters call ----------------------------------------------------------------------------------------------------

    def pack(self, items):
        """Items (address, size, name, flags) in the form that forward_begin takes; the result may be used many times."""
        names = [_name(item[2]) for item in items]
        array = (Item * len(items))(*[Item(a, n, name, flags, 0) for (a, n, _, flags), name in zip(items, names)])
        return array, names

    def forward_begin(self, name, packed=None, extra=(), options=0):
        array = packed[0] if packed is not None else (Item * 0)()
        if extra:
            more = self.pack(extra)
            both = (Item * (len(array) + len(extra)))()
            ctypes.memmove(both, array, ctypes.sizeof(array))
            ctypes.memmove(ctypes.byref(both, ctypes.sizeof(array)), more[0], ctypes.sizeof(more[0]))
            array = both
        s = self.table.forward_begin(_name(name), array, len(array), options)
        return s.instance, s.execution, s.action, s.status

    def segment_begin(self, name, replay_of=0):
        s = self.table.segment_begin(_name(name), replay_of)
        return s.instance, s.execution, s.action, s.status

    def segment_end(self, instance, execution, action=1):
        return self.table.segment_end(Segment(instance, execution, action, OK))

    def replay_begin(self, name, instance, options=0):
        s = self.table.replay_begin(_name(name), instance, options)
        return s.instance, s.execution, s.action, s.status

    def replay_end(self, instance, execution):
        result = Result()
        status = self.table.replay_end(Segment(instance, execution, 1, OK), ctypes.byref(result))
        return status, (result.bytes_changed, result.gated_kept, result.gated_conflict, result.stray_bytes)

    def replay_dirty(self, execution):
        count = self.table.replay_dirty(execution, None, 0)
        while count:
            ranges = (Range * count)()
            there = self.table.replay_dirty(execution, ranges, count)
            if there <= count:
                return [(r.address, r.size) for r in ranges[:there]]
            count = there
        return []

    def segment_abort(self, instance):
        return self.table.segment_abort(instance)

    def release(self, instance):
        return self.table.release(instance)

    def step(self):
        return self.table.step()

    def report(self, instance, kind, message):
        return self.table.report(instance, kind, _name(message))

    def note_generator(self, instance, provider, address, size):
        return self.table.note_generator(instance, _name(provider), address, size)

    def note_replay(self, instance, clone_bytes):
        return self.table.note_replay(instance, clone_bytes)

    def mode(self):
        return self.table.mode()

    def last_error(self):
        return (self.table.last_error() or b"").decode("utf-8", "replace")

    # ---- the public calls ------------------------------------------------------------------------------------------------------

    def check(self, status):
        if status != OK:
            raise error_for(status, self.last_error() or "status %d" % status)

    def track(self, address, size, name, flags=0):
        self.check(self.table.track(address, size, _name(name), flags))

    def untrack(self, address):
        self.check(self.table.untrack(address))

    def stats(self):
        values = Statistics(ctypes.sizeof(Statistics))
        self.check(self.table.stats(ctypes.byref(values)))
        return {name: getattr(values, name) for name, _ in Statistics._fields_[1:]}

    def buffer_info(self, address):
        info, count = Buffer(), c_size_t(64)
        while True:
            ranges = (Range * count.value)()
            room = count.value
            self.check(self.table.buffer_info(address, ctypes.byref(info), ranges, ctypes.byref(count)))
            if count.value <= room:
                break
        return {
            "address": info.address,
            "size": info.size,
            "generation": info.generation,
            "version": info.version,
            "name": info.name.decode("utf-8", "replace"),
            "mechanism": info.mechanism.decode(),
            "dirty": [(r.address, r.size) for r in ranges[: count.value]],
        }
