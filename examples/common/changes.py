"""Counts what really changed: keeps a full copy of what a segment reads and compares it, with memcmp, later.

For the training script's --count-changes. Independent of everything that Reprise does: plain copies, plain comparison.
"""

import ctypes

import numpy as np

PAGE = 4096
CHUNK = 64 * PAGE  # compared at once
_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


def _bytes(tensor):
    return tensor.detach().reshape(-1).numpy().view(np.uint8)


def _difference(now, old):
    """-> (bytes that differ, bytes of the pages that they lie in); pages as the memory of `now` has them."""
    changed, pages, low, high = 0, 0, now.ctypes.data, now.ctypes.data + now.nbytes
    edges = [0, *range(CHUNK - low % CHUNK, now.nbytes, CHUNK), now.nbytes]
    for start, end in zip(edges, edges[1:]):
        size = end - start
        if _memcmp(low + start, old.ctypes.data + start, size):
            at = np.flatnonzero(now[start:end] != old[start:end]) + start
            changed += len(at)
            touched = np.unique((low + at) // PAGE)
            pages += int((np.minimum((touched + 1) * PAGE, high) - np.maximum(touched * PAGE, low)).sum())
    return changed, pages


class Counter:
    """`state`: name -> tensor, what segments read besides their arguments, and what may change between two of them."""

    def __init__(self, state):
        self.state = {name: _bytes(t) for name, t in state.items()}
        self.latest = None  # copies made when the newest segment began
        self.first_sight = sum(b.nbytes for b in self.state.values())
        self.arguments = 0
        self.until_backward = [0, 0]  # bytes, bytes of pages: changed between a segment's forward and its backward, summed over segments
        self.between_forwards = [0, 0]  # the same between the forwards of two successive segments: every change once
        self.forwards = self.backwards = 0

    def segment(self, function, *arguments):
        """Calls function(*arguments), with the moments looked at at which a checkpoint would begin its forward and its replay."""
        copies = {name: b.copy() for name, b in self.state.items()}
        if self.latest is not None:
            self._add(self.between_forwards, self.latest)
        self.latest = copies
        self.forwards += 1
        self.arguments += sum(a.numel() * a.element_size() for a in arguments)
        out = function(*arguments)

        def backward_begins(gradient):
            self.backwards += 1
            self._add(self.until_backward, copies)

        first = out[0] if isinstance(out, tuple) else out
        first.register_hook(backward_begins)
        return out

    def _add(self, total, copies):
        for name, now in self.state.items():
            for i, n in enumerate(_difference(now, copies[name])):
                total[i] += n

    def report(self):
        return dict(
            forwards=self.forwards,
            backwards=self.backwards,
            state_bytes=self.first_sight,
            argument_bytes=self.arguments,
            bytes_until_backward=self.until_backward[0],
            page_bytes_until_backward=self.until_backward[1],
            bytes_between_forwards=self.between_forwards[0],
            page_bytes_between_forwards=self.between_forwards[1],
        )

    @staticmethod
    def total(counters):
        """One report of several counters, whose segments have nothing in common."""
        reports = [counter.report() for counter in counters]
        return {name: sum(report[name] for report in reports) for name in reports[0]}
