"""Names of segments, and the patterns that include and exclude them.

A segment is named after what is checkpointed: a module's class, a function's qualified name; "#2" is the third of its kind. Names are
stable over the steps of a job, and on every rank that builds the same model. `reprise.segment(name)` around a function gives its own.
"""

import functools
import gc
import types
import weakref
from fnmatch import fnmatchcase

from torch import nn

from reprise.status import clip_name


def unwrap(function):
    """The module or function that a callable stands for, and the modules and objects that tell it from its like."""
    while True:
        if isinstance(function, functools.partial):
            function = function.func
        elif isinstance(function, types.MethodType) and isinstance(function.__self__, nn.Module):
            plain = function.__func__.__name__ in ("forward", "__call__", "_call_impl", "_wrapped_call_impl")
            return (function.__self__ if plain else function.__func__), [function.__self__]
        elif isinstance(function, types.MethodType):
            return function.__func__, [function.__self__]
        elif isinstance(function, nn.Module):
            return function, [function]
        else:
            return function, _captured(function)


def _captured(function):
    found = []
    for cell in getattr(function, "__closure__", None) or ():
        try:
            if isinstance(cell.cell_contents, nn.Module):
                found.append(cell.cell_contents)
        except ValueError:
            pass
    return found


def base_name(function, target):
    given = getattr(function, "__reprise_name__", None) or getattr(target, "__reprise_name__", None)
    if given:
        return given
    if isinstance(target, nn.Module):
        return type(target).__name__
    return getattr(target, "__qualname__", None) or getattr(target, "__name__", None) or type(target).__name__


class SegmentNames:
    """The names of one process."""

    def __init__(self, include=(), exclude=()):
        self.include, self.exclude = tuple(include), tuple(exclude)
        self._by_key = {}  # (code or class, ids of what is captured) -> name
        self._taken = {}  # base name -> numbers in use
        self._paths = weakref.WeakKeyDictionary()  # module -> its dotted name, only where patterns are given

    def name(self, function):
        """The segment's name, or None when patterns exclude it."""
        if isinstance(function, nn.Module):  # the usual case, without taking the callable apart
            name = self._by_key.get((type(function), id(function)))
            if name is not None:
                return name or None
        target, captured = unwrap(function)
        kind = getattr(target, "__code__", None) or type(target)
        key = (kind, *map(id, captured))
        name = self._by_key.get(key)
        if name is None:
            name = self._by_key[key] = self._new(function, target, captured, key)
        return name or None

    def _new(self, function, target, captured, key):
        base = clip_name(base_name(function, target))[:200]
        if (self.include or self.exclude) and not self._wanted(base, target, captured):
            name = ""
        else:
            taken = self._taken.setdefault(base, set())
            number = next(n for n in range(len(taken) + 1) if n not in taken)
            taken.add(number)
            name = base if number == 0 else "%s#%d" % (base, number)
        for value in captured:
            try:
                weakref.finalize(value, self._forget, key, base).atexit = False
            except TypeError:
                pass
        return name

    def _forget(self, key, base):
        name = self._by_key.pop(key, None)
        if name:
            self._taken[base].discard(int(name.rpartition("#")[2]) if "#" in name[len(base) :] else 0)

    # ---- patterns ---------------------------------------------------------------------------------------------------------------------

    def _wanted(self, base, target, captured):
        modules = [m for m in [target, *captured] if isinstance(m, nn.Module)]
        names = {base} | {type(m).__name__ for m in modules} | {self._path(m) for m in modules}
        if any(fnmatchcase(name, pattern) for pattern in self.exclude for name in names):
            return False
        return not self.include or any(fnmatchcase(name, pattern) for pattern in self.include for name in names)

    def _path(self, module):
        """The dotted name of a module in the model that holds it; all models are looked at once, and again for modules made since."""
        if module not in self._paths:
            everything = [m for m in gc.get_objects() if issubclass(type(m), nn.Module)]  # isinstance would ask proxies
            children = {id(c) for m in everything for c in m._modules.values() if c is not None}
            for root in everything:
                if id(root) not in children:
                    for path, m in root.named_modules():
                        self._paths.setdefault(m, path)
            self._paths.setdefault(module, "")
        return self._paths[module]
