"""Checks that run in a segment's first execution only, because they are dear: is the scope complete, and does stopping the replay early harm?"""

import sys
import weakref
import zlib
from ctypes import string_at

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from reprise.engine import extension
from reprise.extents import extent
from reprise.pytorch.scope import storage_of


class ScopeCheck(TorchDispatchMode):
    """Lists tensors that the forward used, that were there before it, and that reflection did not find (held by a C++ object, say)."""

    def __init__(self, addresses):
        super().__init__()
        self.known = set(addresses)
        self.missed = {}

    def __torch_dispatch__(self, function, kinds, args=(), kwargs=None):
        fresh = function.__name__.startswith("lift_fresh")  # a constant made just now
        for tensor in tree_flatten((args, kwargs))[0]:
            if isinstance(tensor, torch.Tensor):
                storage = storage_of(tensor)
                if storage is not None and storage.data_ptr() not in self.known:
                    if not fresh:
                        self.missed.setdefault(storage.data_ptr(), weakref.ref(tensor))
                    self.known.add(storage.data_ptr())
        result = function(*args, **(kwargs or {}))
        for tensor in tree_flatten(result)[0]:
            if isinstance(tensor, torch.Tensor):
                storage = storage_of(tensor)
                if storage is not None:
                    self.known.add(storage.data_ptr())
        return result

    def tensors(self):
        """Those that still live after the forward: what it made itself outside dispatch is gone or is its result."""
        return [tensor for tensor in (reference() for reference in self.missed.values()) if tensor is not None and tensor.grad_fn is None]


def may_check(function_targets):
    """Not around compiled code: a dispatch mode would make it run uncompiled, and so in other bits."""
    if "torch._dynamo" not in sys.modules:
        return True
    for target in function_targets:
        if hasattr(target, "_torchdynamo_orig_callable"):
            return False
        for module in target.modules() if isinstance(target, torch.nn.Module) else ():
            if getattr(module, "_compiled_call_impl", None) is not None or hasattr(module, "_orig_mod"):
                return False
    return True


def digest(tensor):
    size = extent(tensor)
    if extension is not None:
        return extension.digest(tensor.data_ptr(), size)
    return zlib.crc32(string_at(tensor.data_ptr(), size)) if size else 0


class EarlyStopCheck:
    """Some operators save a tensor before they fill it (RReLU's noise). A replay that stops at its last saved tensor leaves such a one
    unfilled: seen by comparing digests at pack with digests at the end of a replay that was not stopped."""

    def __init__(self, compat, addresses):
        self.addresses = addresses
        self.seen = []
        top = compat.top_hooks()
        self.usable = top is not None
        pack_below, unpack = top if top is not None else (None, None)
        seen = self.seen

        def pack(x):
            try:
                if x.layout is torch.strided and x.device.type == "cpu" and x.data_ptr() and x.untyped_storage().data_ptr() not in addresses:
                    seen.append((x.detach(), digest(x), x._version))
            except Exception:  # fake and functional tensors
                pass
            return pack_below(x)

        pack._checkpoint_internal = True
        pack._user_hooks = compat.user_hooks()
        self.pair = (pack, unpack)

    def harmed(self):
        """True when a saved tensor was filled behind autograd's back after it had been saved."""
        found = any(tensor._version == version and digest(tensor) != before for tensor, before, version in self.seen)
        self.seen.clear()
        return found
