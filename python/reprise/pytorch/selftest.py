"""Is what the adapter relies on true in this torch? One tiny checkpoint per form whose segment reads, writes and saves a buffer that changes in
between. Runs on a thread of its own (hooks, modes, autocast and gradient mode of the caller are thread-local) with an engine of its own."""

import ctypes
import gc
import threading

import torch

from reprise.pytorch.adapter import Adapter
from reprise.status import MODE_PROTECT, OK, REPLAY


class ProbeEngine:
    """The engine's calls on a few bytes, by plain copies."""

    interposed = False

    def __init__(self):
        self.count, self.instances, self.open = 0, {}, {}
        self.forwards = self.replays = 0

    def mode(self):
        return MODE_PROTECT

    def pack(self, items):
        return list(items)

    def forward_begin(self, name, packed=(), extra=(), options=0):
        self.count += 1
        self.forwards += 1
        self.instances[self.count] = [(a, ctypes.string_at(a, n)) for a, n, _, _ in list(packed) + list(extra)]
        return self.count, self.count, REPLAY, OK

    def segment_end(self, instance, execution, action=REPLAY):
        return OK

    def replay_begin(self, name, instance, options=0):
        self.count += 1
        self.replays += 1
        present = [(a, ctypes.string_at(a, len(image)), image) for a, image in self.instances[instance]]
        self.open[self.count] = present
        for address, _, image in present:
            ctypes.memmove(address, image, len(image))
        return instance, self.count, REPLAY, OK

    def replay_dirty(self, execution):
        return sorted((a, len(image)) for a, now, image in self.open[execution] if now != image)

    def replay_end(self, instance, execution):
        for address, now, _ in self.open.pop(execution):
            ctypes.memmove(address, now, len(now))
        return OK, (0, 0, 0, 0)

    def release(self, instance):
        self.instances.pop(instance, None)
        return OK

    def note_generator(self, *unused):
        return OK

    def note_replay(self, *unused):
        return OK

    def report(self, instance, kind, message):
        return kind

    def last_error(self):
        return "rejected by the self-test"


def run(patch, checkpoint, settings):
    """None, or why this torch is refused."""
    try:
        import torch._dynamo  # noqa: F401  the first checkpoint call imports it anyway: not on the other thread
    except Exception:
        pass
    result = []
    thread = threading.Thread(target=_run, args=(patch, checkpoint, settings, result), name="reprise-selftest")
    thread.start()
    thread.join(120)
    return result[0] if result else "the self-test did not end"


def _run(patch, checkpoint, settings, result):
    why = None
    try:
        for reentrant in (True, False):
            engine = ProbeEngine()
            patch.local.adapter = adapter = Adapter(engine, patch.compat, settings, calibrate=False)
            why = _one(patch, checkpoint, adapter, engine, reentrant)
            if why is not None:
                why = "%s checkpoint: %s" % ("reentrant" if reentrant else "non-reentrant", why)
                break
    except Exception as error:
        why = "%s: %s" % (type(error).__name__, (str(error).splitlines() or [""])[0])
    finally:
        patch.local.adapter = None
    result.append(why)


def _one(patch, checkpoint, adapter, engine, reentrant):
    x = torch.ones(2, requires_grad=True, device="cpu", dtype=torch.float32)
    buffer = torch.zeros(2, device="cpu", dtype=torch.float32)
    calls = [0]

    def segment(h):
        calls[0] += 1
        buffer.add_(1)
        return (h * buffer).sum()

    hooks = patch.compat.top_hooks()
    y = checkpoint.checkpoint(segment, x, use_reentrant=reentrant)
    with torch.no_grad():
        buffer.mul_(5)
    version = buffer._version
    y.backward()
    checks = (
        (engine.forwards == 1, "the forward was seen %d times" % engine.forwards),
        (engine.replays == 1, "the replay was seen %d times" % engine.replays),
        (x.grad is not None and x.grad.tolist() == [1.0, 1.0], "wrong gradient"),
        (buffer.tolist() == [5.0, 5.0], "a buffer was not put back"),
        (buffer._version == version, "a version counter was not put back"),
        (calls[0] == 1, "Python state was not put back"),
        (patch.compat.top_hooks() == hooks, "saved-tensor hooks were left behind"),
    )
    for good, text in checks:
        if not good:
            return text
    if adapter.outstanding():
        gc.collect()
    return "the instance was not released after backward" if adapter.outstanding() else None
