"""The scope of one forward: what the engine must preserve, the Python state beside it, the generators; cached per module tree.

Arguments and closures are walked in every forward (they are new each time); what lies behind an *anchor* (a module, an object, a function
without a closure) is walked once and kept as a plan, which tells in microseconds whether it still holds.
"""

import weakref

import torch
from torch import nn

from reprise.engine import extension
from reprise.messages import say_once
from reprise.pytorch import generators
from reprise.pytorch.compat import resizable
from reprise.pytorch.pystate import make_plan
from reprise.pytorch.walk import Walk
from reprise.status import ITEM_ARGUMENT, ITEM_PARAMETER, clip_name

_ARGUMENT_NAMES = ["argument %d" % i for i in range(16)]
# Normalisation saves these in every forward, writes them in the same forward without counting a version, and reads them in the backward of an
# evaluation alone, in which it does not write them.
STATISTICS = (".running_mean", ".running_var")
CACHED = 4096  # plans and combinations of plans


def storage_of(tensor):
    """The storage of a tensor that lives in host memory, else None (other devices, sparse, meta, fake, wrapper subclasses)."""
    try:
        if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
            return None
        storage = tensor.untyped_storage()
        return storage if storage.data_ptr() and storage.nbytes() else None
    except Exception:  # fake and functional tensors raise what they like
        return None


def on_device(tensor):
    """The device of a tensor that holds data elsewhere than in host memory, else None."""
    try:
        kind = tensor.device.type
        return None if kind in ("cpu", "meta") else str(tensor.device)
    except Exception:
        return None


class Part:
    """What one walk found: a plan of its containers, its items, its generators. Nothing here keeps the job's memory alive, except
    generators (a few KiB each)."""

    __slots__ = ("plan", "items", "names", "addresses", "states", "generators", "foreign", "opaque", "devices", "truncated", "packed", "reuse", "statistics", "usual")

    def __init__(self, walk):
        tensors, found, self.devices = [], {}, set()
        self.names, self.foreign = [], False
        for tensor, entry, slot, name, argument in walk.tensors:
            storage = storage_of(tensor)
            if storage is None:
                device = on_device(tensor)
                if device is not None:
                    self.devices.add(device)
                continue
            address, size = storage.data_ptr(), storage.nbytes()
            if entry >= 0:
                tensors.append((entry, slot, address, size))
                self.names.append(name)
            flags = ITEM_ARGUMENT if argument else ITEM_PARAMETER if isinstance(tensor, nn.Parameter) else 0
            known = found.get(address)
            if known is None:
                found[address] = [address, size, name, flags]
                self.foreign = self.foreign or not resizable(storage)
            else:
                known[1] = max(known[1], size)
                known[3] = flags if flags == known[3] else (flags | known[3]) & ITEM_PARAMETER  # needed unless it is an argument only
        self.statistics = [i for i, name in enumerate(self.names) if name.endswith(STATISTICS)]
        self.states, self.generators = [], [g for g, _ in walk.generators]
        for generator, name in walk.generators:
            items, states = generators.states_of(generator, name)
            self.states += states
            for item in items:
                found.setdefault(item[0], list(item))
        self.items = [(a, n, clip_name(name), flags) for a, n, name, flags in found.values()]
        self.addresses = frozenset(found)
        self.opaque, self.truncated = walk.opaque, walk.truncated
        self.plan = make_plan(walk.entries, tensors) if walk.entries else None
        self.packed = None
        self.usual = None  # see Usual; False: it is not to be had
        self.reuse = extension is not None

    def take(self):
        """A snapshot, None when the part no longer holds, False when there is no Python state."""
        return False if self.plan is None else self.plan.take()


class Usual:
    """What the extension needs to begin the forwards of a module without the rest of this file, and what the scope of such a forward is made of
    afterwards. Never changed: a forward goes on with the one that it began with, whatever other threads find meanwhile."""

    __slots__ = ("site", "segment", "parts", "packed", "states")

    def __init__(self, site, segment, parts, packed, states):
        self.site, self.segment, self.parts, self.packed = site, segment, parts, packed
        self.states = states  # keeps the generators alive whose raw states the site reads

    def scope_of(self, call):
        """The scope of a forward that the extension has begun."""
        scope = Scope()
        scope.packed, scope.parts, scope.states = self.packed, self.parts, self.states
        scope.extra, scope.held = call.extra(), call.held()
        scope.python = tuple(zip(scope.parts, call.snapshots()))
        return scope


class Scope:
    """The scope of one forward."""

    __slots__ = ("packed", "extra", "parts", "python", "states", "held")

    def __init__(self):
        self.packed = None  # as the engine takes it
        self.extra = ()  # items beside it
        self.parts = ()
        self.python = ()  # (part, snapshot) where there is Python state
        self.states = ()  # generators through their API
        self.held = []  # storages kept alive until release

    def moved(self):
        """The name of a buffer whose storage was replaced, resized or freed since the forward, or None."""
        for part, snapshot in self.python:
            index = snapshot.moved()
            if index >= 0:
                return part.names[index]
        return None

    def tensors(self):
        return [t for _, snapshot in self.python for t in snapshot.tensors() if isinstance(t, torch.Tensor)]

    def statistics(self):
        """The running statistics in it, as (address, version)."""
        found = []
        for part, snapshot in self.python:
            if part.statistics:
                tensors = snapshot.tensors()
                found += [(tensors[i].data_ptr(), tensors[i]._version) for i in part.statistics if isinstance(tensors[i], torch.Tensor)]
        return found

    def items(self):
        return [item for part in self.parts for item in part.items] + list(self.extra)


class Scopes:
    """Finds scopes; the cache of one process."""

    def __init__(self):
        self._parts = {}  # id of an anchor -> (weak reference, part)
        self._packed = {}  # ids of parts -> packed items
        self._default_part = None
        self._hidden = {}  # segment -> weak references to tensors that reflection missed

    def clear(self):
        # Emptied, not only dropped: a Site, which the collector does not look into, leads back to this very dict by its weak reference's callback.
        parts, hidden = self._parts, self._hidden
        self.__init__()
        self._hidden = hidden  # found once per segment, in its first forward
        for _, part in parts.values():
            part.usual = None
        parts.clear()

    # ---- one forward ----------------------------------------------------------------------------------------------------------------

    def find(self, engine, segment, function, args, kwargs):
        """The scope of `function(*args, **kwargs)`, and the items of its arguments; says once per segment what cannot be protected."""
        scope = Scope()
        plain = self._plain_arguments(scope, function, args, kwargs)
        if plain is not None and segment not in self._hidden and engine.interposed:
            return self._find_plain(engine, segment, scope, function, args, plain)
        anchors, part = ([(function, type(function).__name__)], None) if plain is not None else self._outside(function, args, kwargs)
        parts = [self._defaults()]
        snapshots = [parts[0].take()]
        for anchor, name in anchors:
            found, snapshot = self._anchor(anchor, name, segment)
            parts.append(found)
            snapshots.append(snapshot)
        scope.packed = self._pack(engine, parts)
        if part is not None:
            self._say(part, segment)
            known = self._known(parts)
            scope.extra = [item for item in part.items if item[0] not in known]
            parts.append(part)
            snapshots.append(part.take())
        elif plain:
            known = self._known(parts)
            scope.extra = [item for item in plain if item[0] not in known]
        hidden = self._hidden.get(segment)
        if hidden:
            scope.extra = list(scope.extra) + self._hidden_items(hidden, parts)
        scope.parts = parts
        scope.python = [(part, snapshot) for part, snapshot in zip(parts, snapshots) if snapshot]
        scope.states = parts[0].states if not any(p.states for p in parts[1:]) else [state for p in parts for state in p.states]
        self._hold(engine, scope, args, kwargs)
        return scope

    def _find_plain(self, engine, segment, scope, function, args, plain):
        """The same for a module with plain tensors, in as few steps as there are: this runs in every forward, with cold caches."""
        defaults = self._defaults()
        part, snapshot = self._anchor(function, type(function).__name__, segment)
        scope.parts = (defaults, part)
        known = part.packed
        if known is None or known[0] is not engine or known[1] is not defaults:
            known = part.packed = (engine, defaults, self._pack(engine, [defaults, part]))
            part.usual = None
        scope.packed = known[2]
        for item in plain:
            if item[0] in part.addresses:
                plain = [item for item in plain if item[0] not in part.addresses]
                break
        scope.extra = plain
        first = defaults.take()
        if first and snapshot:
            scope.python = ((defaults, first), (part, snapshot))
        else:
            scope.python = [(p, s) for p, s in ((defaults, first), (part, snapshot)) if s]
        scope.states = defaults.states + part.states if part.states else defaults.states
        if part.foreign or defaults.foreign:
            self._hold(engine, scope, args, {})
        if part.usual is None and part.reuse and defaults.reuse and snapshot and first:
            part.usual = self._make_usual(segment, function, defaults, part, scope.packed)
        return scope

    # ---- the same in the extension ------------------------------------------------------------------------------------------------------

    def usual(self, function):
        """The Usual of a module whose forwards the extension can begin by itself, or None."""
        known = self._parts.get(id(function))
        usual = known[1].usual if known is not None else None
        return usual if usual and usual.segment not in self._hidden and known[0]() is function else None

    def _make_usual(self, segment, module, defaults, part, packed):
        states = defaults.states + part.states
        if not isinstance(packed, extension.Items) or any(type(state) is not generators.TorchMemory for state in states):
            return False
        try:
            extension.set_tensor_type(torch.Tensor, resizable)
            site = extension.Site(
                self._parts[id(module)][0],
                segment,
                defaults.plan,
                part.plan,
                packed,
                list(part.addresses),
                [state.region() for state in states],
                part.foreign or defaults.foreign,
                generators.numpy_default(),
            )
        except Exception:  # more generators than it takes; whatever else: the full rule has the scope, and protects it as well
            return False
        return Usual(site, segment, (defaults, part), packed, states)

    @staticmethod
    def _plain_arguments(scope, function, args, kwargs):
        """The items of the arguments where the function is a module and they are host tensors, which is the usual case; else None."""
        if kwargs or not isinstance(function, nn.Module):
            return None
        items = []
        for i, value in enumerate(args):
            if type(value) is not torch.Tensor or not value.is_cpu:
                return None
            try:
                storage = value.untyped_storage()
                address, size = storage.data_ptr(), storage.nbytes()
            except Exception:  # sparse, functional
                return None
            if not address or not size:
                return None
            if not resizable(storage):
                scope.held.append(storage)
            items.append((address, size, _ARGUMENT_NAMES[i] if i < 16 else "argument %d" % i, ITEM_ARGUMENT))
        return items if len(items) < 2 or len({item[0] for item in items}) == len(items) else None

    def _outside(self, function, args, kwargs):
        """Anchors, and a part for what lies outside them (None: nothing does)."""
        walk = Walk(stop_at_anchors=True)
        if isinstance(function, nn.Module):
            walk.anchors.append((function, type(function).__name__))
        else:
            walk.run(function, getattr(function, "__name__", type(function).__name__))
        for i, value in enumerate(args):
            if isinstance(value, torch.Tensor):
                walk.tensors.append((value, -1, -1, "argument %d" % i, True))
            else:
                walk.run(value, "argument %d" % i, argument=True)
        for name, value in kwargs.items():
            walk.run(value, "argument " + name, argument=True)
        empty = not (walk.tensors or walk.entries or walk.generators or walk.opaque)
        return walk.anchors, None if empty else Part(walk)

    def _anchor(self, anchor, name, segment):
        known = self._parts.get(id(anchor))
        if known is not None and known[0]() is anchor and known[1].reuse:
            snapshot = known[1].take()
            if snapshot is not None:
                return known[1], snapshot
        part = Part(Walk().run(anchor, name))
        self._say(part, segment)
        key = id(anchor)
        if len(self._parts) >= CACHED:
            self.clear()
        old = known[1] if known is not None else None
        if old is not None:
            old.usual = None  # which holds the part: what is not used any more goes at once, not when the collector comes by
            self._forget_packed(old)

        def gone(_, parts=self._parts, key=key, scopes=weakref.ref(self)):
            entry = parts.pop(key, None)
            if entry is not None:
                entry[1].usual = None
                if scopes() is not None:
                    scopes()._forget_packed(entry[1])

        self._parts[key] = (weakref.ref(anchor, gone), part)
        return part, part.take()

    def _defaults(self):
        """The process-wide generators, as a part of every scope."""
        items, states, owners = generators.defaults()
        part = self._default_part
        if part is None or part.items is not items:
            walk = Walk()
            for owner in owners:
                walk._attributes(owner, "random.default", False)
            part = Part(walk)
            part.items, part.states = items, states
            part.addresses = frozenset(item[0] for item in items)
            part.generators = list(owners)
            self._default_part = part if part.reuse else None
        return part

    # ---- items ----------------------------------------------------------------------------------------------------------------------

    def _pack(self, engine, parts):
        key = tuple(map(id, parts))
        known = self._packed.get(key)
        if known is not None and known[0] is engine:
            return known[1]
        merged = {}
        for part in parts:
            for item in part.items:
                merged.setdefault(item[0], item)
        packed = engine.pack(list(merged.values()))
        if all(part.reuse for part in parts):
            if len(self._packed) >= CACHED:
                self._packed.clear()
            self._packed[key] = (engine, packed, list(parts))  # the parts: their ids stay theirs
        return packed

    def _forget_packed(self, part):
        for key in [key for key in self._packed if id(part) in key]:
            del self._packed[key]

    @staticmethod
    def _known(parts):
        if len(parts) == 2:
            return parts[1].addresses
        return frozenset().union(*(part.addresses for part in parts))

    def _hold(self, engine, scope, args, kwargs):
        """Storages that are kept alive until release: those that were not allocated here (file mappings, numpy, shared memory), whose
        freeing nobody tells us; all of them where allocations are not seen."""
        if not engine.interposed:
            for tensor in _tensors_in(args, kwargs) + scope.tensors():
                storage = storage_of(tensor)
                if storage is not None:
                    scope.held.append(storage)
            return
        for part in scope.parts:
            if part.foreign:
                for tensor in _tensors_in(args, kwargs) + scope.tensors():
                    storage = storage_of(tensor)
                    if storage is not None and not resizable(storage):
                        scope.held.append(storage)
                return

    # ---- tensors that reflection missed ------------------------------------------------------------------------------------------------

    def add_hidden(self, segment, tensors):
        self._hidden.setdefault(segment, []).extend(weakref.ref(t) for t in tensors)

    def _hidden_items(self, references, parts):
        items, known = [], set().union(*(part.addresses for part in parts))
        for i, reference in enumerate(references):
            tensor = reference()
            storage = None if tensor is None else storage_of(tensor)
            if storage is not None and storage.data_ptr() not in known:
                known.add(storage.data_ptr())
                items.append((storage.data_ptr(), storage.nbytes(), "hidden tensor %d" % i, ITEM_ARGUMENT))
        return items

    # ---- what cannot be protected ---------------------------------------------------------------------------------------------------------

    @staticmethod
    def _say(part, segment):
        if part.devices:
            say_once(
                "device",
                "NOT PROTECTED: segment %s reads tensors on %s; this version preserves host memory only, so state there is replayed as it is "
                "then (set REPRISE_EXCLUDE for these segments to silence this)" % (segment, ", ".join(sorted(part.devices))),
            )
        for name in part.opaque:
            say_once(
                ("opaque", segment, name),
                "segment %s can reach %s, a generator object or iterator that cannot be rewound: if the segment advances it, its replay reads "
                "on from there and gradients are wrong; draw the value outside and pass it in" % (segment, name),
            )
        if part.truncated:
            say_once(("truncated", segment), "segment %s reaches too many objects; what lies beyond the first of them is not protected" % segment)


def _tensors_in(args, kwargs):
    found = []
    stack = list(args) + list(kwargs.values())
    while stack:
        value = stack.pop()
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            stack.extend(value)
        elif isinstance(value, dict):
            stack.extend(value.values())
    return found
