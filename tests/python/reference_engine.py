"""The engine in pure Python: every operation of the table by full copies. Slow and simple; the oracle for the native one.

It relies on the caller to keep memory alive (`interposed` is False, so the adapter holds every storage of a scope until release)."""

import ctypes
import threading

from reprise.status import (
    DIVERGED,
    INVALID_ARGUMENT,
    ITEM_GENERATOR,
    MODE_AUDIT,
    MODE_PROTECT,
    OK,
    RELEASED,
    REPLAY,
    REPLAY_GATED,
    UNKNOWN_INSTANCE,
    WRONG_STATE,
    error_for,
)


def read(address, size):
    return ctypes.string_at(address, size)


def write(address, data):
    ctypes.memmove(address, data, len(data))


class Image:
    """One buffer of an instance's contract."""

    def __init__(self, address, size, name, flags):
        self.address, self.size, self.name, self.flags = address, size, name, flags
        self.before = read(address, size)
        self.written_by_forward = False

    def now(self):
        return read(self.address, self.size)


class Forward:
    def __init__(self, name, items):
        self.name, self.open, self.replays = name, True, 0
        self.images = [Image(*item) for item in items]


class Replay:
    def __init__(self, instance, forward, options):
        self.instance, self.forward, self.options = instance, forward, options
        self.present = [(image, image.now()) for image in forward.images]
        self.dirty = [image for image, now in self.present if now != image.before or image.written_by_forward]


class ReferenceEngine:
    """`policy`: fail or warn; `audit`: observe only."""

    backend = "reference"
    interposed = False

    def __init__(self, policy="fail", audit=False):
        self.policy, self.audit = policy, audit
        self.instances, self.open, self.count = {}, {}, 0
        self.released, self.messages, self.notes = set(), [], {}
        self.counts = dict(forwards=0, replays=0, replays_on_changed_state=0, rejections=0, divergences=0, steps=0)
        self.error = ""
        self.lock = threading.RLock()

    # ---- forwards ---------------------------------------------------------------------------------------------------------------------

    def pack(self, items):
        return list(items)

    def forward_begin(self, name, packed=(), extra=(), options=0):
        if not name or len(name.encode()) > 255:
            self.error = "a segment's name is empty or too long"
            return 0, 0, 0, INVALID_ARGUMENT
        with self.lock:
            self.count += 1
            self.counts["forwards"] += 1
            self.instances[self.count] = Forward(name, list(packed or ()) + list(extra or ()))
            return self.count, self.count, REPLAY, OK

    def segment_end(self, instance, execution, action=REPLAY):
        forward = self.instances.get(instance)
        if forward is None:
            return OK if instance in self.released else UNKNOWN_INSTANCE
        if not forward.open:
            return WRONG_STATE
        forward.open = False
        for image in forward.images:
            image.written_by_forward = image.now() != image.before
        return OK

    # ---- replays ----------------------------------------------------------------------------------------------------------------------

    def replay_begin(self, name, instance, options=0):
        forward = self.instances.get(instance)
        if forward is None:
            self.error = "segment %s: instance %d was released" % (name, instance)
            return 0, 0, 0, self.judge(RELEASED if instance in self.released else UNKNOWN_INSTANCE, self.error)
        with self.lock:
            self.count += 1
            self.counts["replays"] += 1
            forward.replays += 1
            replay = self.open[self.count] = Replay(instance, forward, options)
            changed = [image for image, now in replay.present if now != image.before]
            self.counts["replays_on_changed_state"] += any(not image.flags & ITEM_GENERATOR for image in changed)
            if not self.audit:
                for image in changed:
                    write(image.address, image.before)
            return instance, self.count, REPLAY, OK

    def replay_dirty(self, execution):
        merged = []
        for low, size in sorted((image.address, image.size) for image in self.open[execution].dirty):
            if merged and low <= merged[-1][0] + merged[-1][1]:
                merged[-1] = (merged[-1][0], max(merged[-1][1], low + size - merged[-1][0]))
            else:
                merged.append((low, size))
        return merged

    def replay_end(self, instance, execution):
        replay = self.open.pop(execution, None)
        if replay is None:
            return WRONG_STATE, (0, 0, 0, 0)
        changed = sum(image.size for image, now in replay.present if now != image.before)
        if self.audit:
            return OK, (changed, 0, 0, 0)
        kept = conflict = stray = 0
        for image, now in replay.present:
            after = image.now()
            if after == now:
                continue
            own = after != image.before and not image.written_by_forward and not image.flags & ITEM_GENERATOR and not replay.forward.open
            if own and replay.options & REPLAY_GATED:
                if now == image.before:
                    kept += 1
                    continue
                conflict += 1
            elif own:
                stray += image.size
            write(image.address, now)
        result = (changed, kept, conflict, stray)
        if stray:
            self.error = "reprise: segment %s: the replay wrote %d bytes that the forward had not written" % (replay.forward.name, stray)
            return self.judge(DIVERGED, self.error), result
        return OK, result

    def segment_abort(self, instance):
        for execution in [e for e, replay in self.open.items() if replay.instance == instance]:
            for image, now in self.open.pop(execution).present:
                write(image.address, now)
        return self.release(instance)

    def release(self, instance):
        self.released.add(instance)
        return OK if self.instances.pop(instance, None) is not None else UNKNOWN_INSTANCE

    # ---- the rest -----------------------------------------------------------------------------------------------------------------------

    def judge(self, kind, message):
        self.messages.append((kind, message))
        self.counts["divergences" if kind == DIVERGED else "rejections"] += 1
        return OK if self.policy == "warn" else kind

    def report(self, instance, kind, message):
        return self.judge(kind, message)

    def note_replay(self, instance, clone_bytes):
        return OK

    def note_generator(self, instance, provider, address, size):
        self.notes.setdefault(instance, {})[provider] = read(address, size)
        return OK

    def step(self):
        self.counts["steps"] += 1
        return OK

    def mode(self):
        return MODE_AUDIT if self.audit else MODE_PROTECT

    def last_error(self):
        return self.error

    def stats(self):
        return dict(self.counts, instances_outstanding=len(self.instances))

    def track(self, address, size, name, flags=0):
        if not size:
            raise error_for(INVALID_ARGUMENT, "a buffer of 0 bytes")

    def untrack(self, address):
        pass

    def segment_begin(self, name, replay_of=0):
        return self.replay_begin(name, replay_of) if replay_of else self.forward_begin(name)

    def check(self, status):
        if status != OK:
            raise error_for(status, self.error)
