"""Saved tensors of a replay. What the replay saves for backward is read after it has returned, when memory holds the present bytes again; so a
tensor that meets a changed range is saved as a private copy, taken while the old bytes are loaded.

Autograd uses the top pair of hooks only: ours forwards to the pair that was on top (torch's own recomputation hook, or the user's)."""

from bisect import bisect_right

import torch

from reprise.extents import extent
from reprise.pytorch.compat import autograd


class Ranges:
    """Sorted, disjoint byte ranges; does a tensor meet one?"""

    def __init__(self, ranges):
        self.starts = [start for start, _ in ranges]
        self.ends = [start + size for start, size in ranges]

    def meet(self, low, high):
        at = bisect_right(self.starts, low)
        if at and self.ends[at - 1] > low:
            return True
        return at < len(self.starts) and self.starts[at] < high

    def holds(self, tensor):
        """True when a strided host tensor's bytes meet a range. Fake and functional tensors never do."""
        try:
            if tensor.layout is not torch.strided or tensor.device.type != "cpu":
                return False
            low = tensor.data_ptr()
            return bool(low) and self.meet(low, low + extent(tensor))
        except Exception:  # data_ptr of a fake tensor (a compilation inside the replay) raises
            return False


class SavedCopies:
    """The hooks of one replay: `with SavedCopies(compat, ranges): run`."""

    def __init__(self, compat, ranges, harmless=()):
        self.copies, self.bytes = {}, 0  # bytes: of all copies but those of tensors that begin at `harmless`, known when the block is left
        self.harmless = harmless
        top = compat.top_hooks()
        copies, no_dispatch = self.copies, compat.no_dispatch

        def private(x):
            key = (x.data_ptr(), x.shape, x.stride(), x.dtype, x._version)
            copy = copies.get(key)
            if copy is None:  # below dispatch: a mode such as selective checkpointing must not see this clone
                with no_dispatch(), torch.no_grad():
                    copy = copies[key] = x.detach().clone(memory_format=torch.preserve_format)
            return copy

        if top is not None:
            pack_below, unpack = top

            def pack(x):
                return pack_below(private(x) if ranges.holds(x) else x)

        else:

            def pack(x):  # hooks switch autograd's own version check off: keep it for what was not copied
                return (private(x), None) if ranges.holds(x) else (x, x._version)

            def unpack(box):
                tensor, version = box
                if version is not None and tensor._version != version:
                    raise RuntimeError(
                        "one of the variables needed for gradient computation has been modified by an inplace operation: %s is at version %d; "
                        "expected version %d instead" % (list(tensor.shape), tensor._version, version)
                    )
                return tensor

        pack._checkpoint_internal = True
        pack._user_hooks = compat.user_hooks()
        self.pack, self.unpack = pack, unpack

    def __enter__(self):
        autograd._push_saved_tensors_default_hooks(self.pack, self.unpack)
        return self

    def __exit__(self, *unused):
        autograd._pop_saved_tensors_default_hooks()
        self.bytes = sum(copy.nbytes for key, copy in self.copies.items() if key[0] not in self.harmless)
        self.copies.clear()
