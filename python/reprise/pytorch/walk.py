"""Reflection over what a segment can reach: tensors, containers of Python state, generators, and what cannot be protected.

A walk starts at a module, a function or arguments and follows attributes, containers, closures, partials, hooks, the globals that
code names, and class attributes of user classes. It does not follow library internals. Entries come out parents first, as plans need.
"""

import argparse
import collections
import dis
import functools
import random
import sys
import types
import weakref

import torch
from torch import nn

from reprise.pytorch import generators
from reprise.pytorch.pystate import ATTRIBUTES, CELL, DICT, ENTRY, LIST, LIST_ITERATORS, OTHER, TUPLE

LIMIT = 100_000  # objects of one walk

_ATOMS = (int, float, bool, str, bytes, complex, type(None), type(Ellipsis), torch.dtype, torch.device, torch.Size, torch.layout)
_PLAIN = frozenset(_ATOMS)
# Libraries whose objects and functions are not looked into (torch modules are: as modules).
_CLOSED = set(getattr(sys, "stdlib_module_names", ())) | {"torch", "numpy", "builtins", "reprise", "functorch", "torchgen", "triton", "sympy"}
_CLOSED.discard("__main__")
_OPEN_TYPES = (types.SimpleNamespace, argparse.Namespace)
# Tables of a module that are followed but never rolled back: a hook may remove itself, torch registers its own.
_TABLES = frozenset(
    "_forward_hooks _forward_pre_hooks _backward_hooks _backward_pre_hooks _forward_hooks_with_kwargs _forward_pre_hooks_with_kwargs "
    "_forward_hooks_always_called _state_dict_hooks _state_dict_pre_hooks _load_state_dict_pre_hooks _load_state_dict_post_hooks".split()
)
_WATCHED = frozenset(("_forward_hooks", "_forward_pre_hooks"))
_CHILDREN = frozenset(("_parameters", "_buffers", "_modules"))
_GLOBAL_OPS = frozenset(("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL"))
_OPAQUE = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType, enumerate, zip, map, filter, reversed)


def module_of(value):
    """The name of the module that an object's type, a type or a function belongs to."""
    owner = value if isinstance(value, (type, types.FunctionType)) else type(value)
    return getattr(owner, "__module__", None) or ""


@functools.lru_cache(maxsize=4096)
def _open_name(name):
    root = name.split(".")[0]
    return root not in _CLOSED and (not root.startswith("_") or name == "__main__")


def is_open(value):
    """May the walk look into this object (its code, its attributes)?"""
    return _open_name(module_of(value)) or isinstance(value, _OPEN_TYPES)


def is_managed(module):
    """Do FSDP or DeepSpeed manage this module's parameters? They rebind and resize them by a state machine that must not be rolled back."""
    if any(base.__name__ in ("FSDPModule", "FullyShardedDataParallel") for base in type(module).__mro__):
        return True
    return any(hasattr(p, "ds_id") for p in module._parameters.values() if p is not None)


@functools.lru_cache(maxsize=4096)
def names_of(code):
    """Every name that a code object and those nested in it use, attributes as well."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= names_of(constant)
    return frozenset(names)


@functools.lru_cache(maxsize=4096)
def globals_of(code):
    """The global names among them (attributes of the same name are not meant)."""
    names = {i.argval for i in dis.get_instructions(code) if i.opname in _GLOBAL_OPS}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= globals_of(constant)
    return frozenset(names)


def is_anchor(value):
    """An object whose walk is worth keeping: it usually outlives the call."""
    if isinstance(value, nn.Module):
        return True
    if isinstance(value, types.FunctionType):
        return value.__closure__ is None and is_open(value)
    return hasattr(value, "__dict__") and hasattr(type(value), "__weakref__") and not isinstance(value, (type, types.ModuleType)) and is_open(value)


class Walk:
    """One walk. `anchors`: stop at anchors and list them (arguments are walked in every forward, what lies behind an anchor is not)."""

    def __init__(self, stop_at_anchors=False):
        self.stop_at_anchors = stop_at_anchors
        self.anchors = []
        self.entries = []
        self.tensors = []  # (tensor, entry, slot, name, is an argument)
        self.generators = []  # (generator, name)
        self.opaque = []  # names of things that cannot be rewound
        self.truncated = False
        self._seen = set()
        self._stack = []
        self._classes = {}
        self._names = set()

    # ---- driving ------------------------------------------------------------------------------------------------------------------

    def run(self, value, name, argument=False, managed=False):
        self._stack.append((value, name, -1, -1, argument, managed))
        self._drain()
        return self

    def _drain(self):
        stack = self._stack
        while stack or self._more_functions():
            value, name, entry, slot, argument, managed = stack.pop()
            kind = type(value)
            if kind in _PLAIN or isinstance(value, _ATOMS):
                continue
            if isinstance(value, torch.Tensor):  # the same tensor may stand in several slots
                self._tensor(value, name, entry, slot, argument, managed)
                continue
            if id(value) in self._seen:
                continue
            self._seen.add(id(value))
            if len(self._seen) > LIMIT:
                self.truncated = True
                stack.clear()
                return
            self._visit(value, kind, name, argument, managed)

    def _more_functions(self):
        """Functions of the classes met that some code met names (a method called by a method), one round at a time."""
        for owner, done in self._classes.items():
            for base in owner.__mro__:
                if not is_open(base):
                    continue
                for name, value in base.__dict__.items():
                    if name in done or not (name in self._names or name in ("forward", "__call__")):
                        continue
                    done.add(name)
                    value = getattr(value, "__func__", value)
                    value = getattr(value, "fget", value)
                    if isinstance(value, types.FunctionType):
                        self._stack.append((value, "%s.%s" % (owner.__name__, name), -1, -1, False, False))
        return bool(self._stack)

    def _add(self, kind, container, owner=None, key=None, rollback=True):
        self.entries.append((kind, container, owner, key, int(rollback)))
        return len(self.entries) - 1

    def _push(self, values, entry, name, argument=False, managed=False):
        """The slots of an entry; `values` yields them in the order in which they are read, with their names."""
        slot = 0
        for label, value in values:
            if type(value) not in _PLAIN:
                self._stack.append((value, label if not name else "%s.%s" % (name, label) if label else name, entry, slot, argument, managed))
            slot += 1

    # ---- kinds of object ----------------------------------------------------------------------------------------------------------

    def _tensor(self, tensor, name, entry, slot, argument, managed):
        if managed and isinstance(tensor, nn.Parameter):
            return
        self.tensors.append((tensor, entry, slot, name, argument))

    def _visit(self, value, kind, name, argument, managed):
        if isinstance(value, nn.Module):
            self._module(value, name, managed)
        elif isinstance(value, dict):
            entry = self._add(DICT, value, rollback=not managed)
            self._push(((_label(k), v) for k, v in value.items()), entry, name, argument, managed)
        elif isinstance(value, (list, tuple)):
            is_list = isinstance(value, list)
            entry = self._add(LIST if is_list else TUPLE, value, rollback=is_list and not managed)
            self._push(((str(i), v) for i, v in enumerate(value)), entry, name, argument, managed)
        elif isinstance(value, (collections.deque, set, frozenset)):
            key = "deque" if isinstance(value, collections.deque) else "set"
            entry = self._add(OTHER, value, key=key, rollback=not isinstance(value, frozenset) and not managed)
            self._push(((str(i), v) for i, v in enumerate(value)), entry, name, argument, managed)
        elif kind in LIST_ITERATORS:
            self._add(OTHER, value, key="iterator")
            self._exhausted(value, name)
        elif isinstance(value, _OPAQUE):
            self._opaque(value, name)
        elif isinstance(value, functools.partial):
            entry = self._add(OTHER, value, key="partial", rollback=False)
            self._push((("", value.func), ("", value.args), ("", value.keywords)), entry, name, argument)
        elif isinstance(value, types.MethodType):
            entry = self._add(OTHER, value, key="method", rollback=False)
            self._push((("", value.__self__), ("", value.__func__)), entry, name)
        elif isinstance(value, types.BuiltinMethodType):
            if value.__self__ is not None and not isinstance(value.__self__, (types.ModuleType, type)):
                entry = self._add(OTHER, value, key="method", rollback=False)
                self._push((("", value.__self__), ("", None)), entry, name)
        elif isinstance(value, types.FunctionType):
            self._function(value, name)
        elif isinstance(value, type):
            self._class(value)
        elif generators.is_generator(value):
            self.generators.append((value, name))
            if isinstance(value, random.Random):
                self._attributes(value, name, managed)
        elif is_open(value):
            self._object(value, name, argument, managed)

    def _opaque(self, value, name):
        if getattr(value, "gi_frame", True) is not None:  # a generator that has ended stays ended
            self.opaque.append("%s (%s)" % (name, type(value).__name__))

    def _exhausted(self, value, name):
        from reprise.pytorch.pystate import iterator_position

        if iterator_position(value) is None:
            self.opaque.append("%s (%s, exhausted)" % (name, type(value).__name__))

    def _module(self, module, name, managed):
        if self.stop_at_anchors:
            self.anchors.append((module, name))
            return
        managed = managed or is_managed(module)
        attributes = module.__dict__
        entry = self._add(ATTRIBUTES, attributes, weakref.ref(module), rollback=not managed)
        for slot, (key, value) in enumerate(attributes.items()):
            if type(value) in _PLAIN:
                continue
            if key in _CHILDREN:
                if id(value) in self._seen:
                    continue
                self._seen.add(id(value))
                inner = self._add(DICT, value, rollback=not managed)
                self._push(value.items(), inner, name, managed=managed)
            elif key == "_non_persistent_buffers_set":
                continue
            elif key in _TABLES:
                watched = value or key in _WATCHED  # a hook that is registered later changes the scope
                if watched and isinstance(value, dict) and id(value) not in self._seen:
                    self._seen.add(id(value))
                    inner = self._add(DICT, value, rollback=False)
                    self._push(((key, v) for v in value.values()), inner, name)
            else:
                self._stack.append((value, "%s.%s" % (name, key), entry, slot, False, managed))
        self._class(type(module))

    def _attributes(self, value, name, managed, argument=False):
        attributes = value.__dict__
        if hasattr(type(value), "__weakref__") or _weakrefable(value):
            entry = self._add(ATTRIBUTES, attributes, weakref.ref(value), rollback=not managed)
        else:
            self._add(OTHER, value, key="attributes", rollback=False)
            entry = self._add(DICT, attributes, rollback=not managed)
        self._push(attributes.items(), entry, name, argument, managed)

    def _object(self, value, name, argument, managed):
        if self.stop_at_anchors and is_anchor(value):
            self.anchors.append((value, name))
            return
        if isinstance(getattr(value, "__dict__", None), dict):
            self._attributes(value, name, managed, argument)
        slots = _slots(type(value))
        if slots:
            entry = self._add(OTHER, value, key=("slots", slots), rollback=not managed)
            self._push(((s, getattr(value, s, None)) for s in slots), entry, name, argument, managed)
        self._class(type(value))

    def _function(self, function, name):
        if self.stop_at_anchors and is_anchor(function):
            self.anchors.append((function, name))
            return
        if not (function.__closure__ or function.__defaults__ or function.__kwdefaults__ or function.__dict__ or is_open(function)):
            return  # a library's plain function
        entry = self._add(OTHER, function, weakref.ref(function), key="function", rollback=False)
        code = function.__code__
        slot = 0
        for cell, label in zip(function.__closure__ or (), code.co_freevars):
            slot += 1
            if id(cell) in self._seen:
                continue
            self._seen.add(id(cell))
            inner = self._add(CELL, cell, rollback=True)
            try:
                self._stack.append((cell.cell_contents, label, inner, 0, False, False))
            except ValueError:
                pass
        for value in function.__defaults__ or ():
            self._stack.append((value, name + ".default", entry, slot, False, False))
            slot += 1
        for label, value in (function.__kwdefaults__ or {}).items():
            self._stack.append((value, label, entry, slot, False, False))
            slot += 1
        if function.__dict__:
            self._stack.append((function.__dict__, name, entry, slot, False, False))
        if is_open(function):
            names = names_of(code)
            self._names |= names
            self._globals(function.__globals__, globals_of(code), names)

    def _globals(self, table, names, attributes):
        key = id(table)
        for label in names:
            if label not in table or (key, label) in self._seen:
                continue
            self._seen.add((key, label))
            value = table[label]
            if isinstance(value, types.ModuleType):
                if _open_name(value.__name__) and value.__dict__ is not table:
                    self._globals(value.__dict__, attributes, attributes)  # module.name in the code
                continue
            if isinstance(value, (types.BuiltinFunctionType, type)):
                if isinstance(value, type):
                    self._class(value)
                continue
            code = isinstance(value, types.FunctionType)
            if code and not is_open(value):
                continue
            entry = self._add(ENTRY, table, key=label, rollback=not code)
            if type(value) not in _PLAIN:
                self._stack.append((value, label, entry, 0, False, False))

    def _class(self, owner):
        """Class attributes of user classes (a counter, a shared tensor), and later the methods that code names."""
        if owner in self._classes or not is_open(owner):
            return
        self._classes[owner] = set()
        for base in owner.__mro__:
            if base is object or not is_open(base) or id(base) in self._seen:
                continue
            self._seen.add(id(base))
            labels = tuple(k for k, v in base.__dict__.items() if not k.startswith("__") and (type(v) in _STATE or isinstance(v, torch.Tensor)))
            if labels:
                try:
                    owner_ref = weakref.ref(base)
                except TypeError:
                    continue
                entry = self._add(OTHER, base, owner_ref, key=("class", labels))
                self._push(((k, base.__dict__[k]) for k in labels), entry, base.__name__)


_STATE = frozenset((int, float, str, bool, list, dict, set, collections.deque, type(None)))


def _label(key):
    return key if isinstance(key, str) else repr(key)[:40]


def _weakrefable(value):
    try:
        weakref.ref(value)
        return True
    except TypeError:
        return False


@functools.lru_cache(maxsize=4096)
def _slots(kind):
    names = []
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__"):
                names.append("_%s%s" % (base.__name__.lstrip("_"), name) if name.startswith("__") and not name.endswith("__") else name)
    return tuple(names)
