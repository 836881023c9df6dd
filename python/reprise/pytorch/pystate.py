"""Python state by reference: what containers held when a forward began, put into them for a replay, and what they hold now put back after it.

A *plan* is the structure of a scope: a list of entries (kind, container, owner, key, rollback). A *snapshot* is what the containers held at one
moment. Both are made by the C extension where it is there; the classes below do the same, without the plan's check (then scopes are
walked anew in every forward).
"""

from collections import OrderedDict, deque

try:
    from reprise.engine import extension
except ImportError:  # pragma: no cover
    extension = None

ATTRIBUTES, DICT, LIST, TUPLE, CELL, ENTRY, OTHER = range(7)
UNSET = object()  # a slot or a class attribute without a value


def _rewindable(sequence):
    """Can this Python set an iterator over such a sequence back? (Range iterators cannot from 3.12 on.)"""
    try:
        iterator = iter(sequence)
        next(iterator)
        position = iterator.__reduce__()[2]
        after = next(iterator)
        iterator.__setstate__(position)
        return next(iterator) == after
    except (AttributeError, IndexError, TypeError, StopIteration):
        return False


LIST_ITERATORS = tuple(type(iter(s)) for s in ([1, 2], (1, 2), range(2), "ab", b"ab", bytearray(b"ab")) if _rewindable(s))


class CannotRewind(Exception):
    """A container's content cannot be put back (an iterator that is exhausted)."""


# ---- reading what the extension does not read by itself ---------------------------------------------------------------------------------


def _read_function(function):
    content = list(function.__closure__ or ())
    content.extend(function.__defaults__ or ())
    content.extend((function.__kwdefaults__ or {}).values())
    if function.__dict__:
        content.append(function.__dict__)
    return tuple(content)


def _read_slots(owner, names):
    return tuple(getattr(owner, name, UNSET) for name in names)


def iterator_position(iterator):
    """Where a builtin iterator stands; None when it is exhausted."""
    state = iterator.__reduce__()
    return state[2] if len(state) > 2 else None


def read_other(container, key):
    """The content of a container of kind OTHER as a tuple; `key` says which it is."""
    what = key if isinstance(key, str) else key[0]
    if what == "function":
        return _read_function(container)
    if what == "partial":
        return (container.func, container.args, container.keywords)
    if what == "method":
        return (container.__self__, getattr(container, "__func__", None))
    if what in ("deque", "set"):
        return tuple(container)
    if what == "attributes":
        return (container.__dict__,)
    if what == "slots":
        return _read_slots(container, key[1])
    if what == "class":
        return tuple(container.__dict__.get(name, UNSET) for name in key[1])
    if what == "iterator":
        return (iterator_position(container),)
    raise ValueError("unknown kind of container: %r" % (key,))


# ---- putting content into a container -----------------------------------------------------------------------------------------------------


def _write_dict(container, keys, values):
    kept = {id(key) for key in keys}
    for key in [key for key in container if id(key) not in kept]:
        del container[key]
    for key, value in zip(keys, values):
        if key not in container or container[key] is not value:
            container[key] = value
    if any(a is not b for a, b in zip(container, keys)):  # the order counts as well
        if isinstance(container, OrderedDict):
            for key in keys:
                container.move_to_end(key)
        else:
            container.clear()
            container.update(zip(keys, values))


def _write_attributes(owner, names, values):
    for name, value in zip(names, values):
        if value is UNSET:
            try:
                delattr(owner, name)
            except AttributeError:
                pass
        else:
            setattr(owner, name, value)


def _write_iterator(iterator, position):
    if iterator_position(iterator) == position:
        return
    if iterator_position(iterator) is None:
        raise CannotRewind("an iterator was exhausted since the forward and cannot be rewound")
    if position is None:
        for _ in iterator:  # exhausted it was: run it to its end again
            pass
    else:
        iterator.__setstate__(position)


def _write_other(container, key, values):
    what = key if isinstance(key, str) else key[0]
    if what == "deque":
        container.clear()
        container.extend(values)
    elif what == "set":
        container.clear()
        container.update(values)
    elif what in ("slots", "class"):
        _write_attributes(container, key[1], values)
    elif what == "iterator":
        _write_iterator(container, values[0])


def write(entry):
    """Puts an entry (kind, container, key, keys, values), as Snapshot.entry or `present` returns it, into its container."""
    kind, container, key, keys, values = entry
    if kind in (ATTRIBUTES, DICT):
        _write_dict(container, keys, values)
    elif kind == LIST:
        container[:] = values
    elif kind == CELL:
        if values:
            container.cell_contents = values[0]
        else:
            del container.cell_contents
    elif kind == ENTRY:
        if values:
            container[key] = values[0]
        else:
            container.pop(key, None)
    elif kind == OTHER:
        _write_other(container, key, values)


def present(kind, container, key):
    """The same entry with what the container holds now."""
    keys = values = None
    if kind in (ATTRIBUTES, DICT):
        keys, values = list(container.keys()), list(container.values())
    elif kind in (LIST, TUPLE):
        values = list(container)
    elif kind == CELL:
        try:
            values = [container.cell_contents]
        except ValueError:
            values = []
    elif kind == ENTRY:
        values = [container[key]] if key in container else []
    else:
        values = list(read_other(container, key))
    return kind, container, key, keys, values


# ---- plans and snapshots without the extension -----------------------------------------------------------------------------------------------


class PythonPlan:
    """Never up to date: a plan that may not keep anything alive cannot follow addresses in Python. `first` is its only snapshot."""

    def __init__(self, entries, tensors, reader):
        self.first = PythonSnapshot(entries, tensors)

    def take(self):
        first, self.first = self.first, None
        return first


class PythonSnapshot:
    def __init__(self, entries, tensors):
        self._rollback = [entry[4] for entry in entries]
        self._entries = [present(kind, container, key) for kind, container, _, key, _ in entries]
        found = [(self._entries[e][4][s], address, size) for e, s, address, size in tensors]
        self._tensors = [(tensor, address, size, tensor.data_ptr()) for tensor, address, size in found]

    def changed(self):
        indices = []
        for i, (kind, container, key, keys, values) in enumerate(self._entries):
            if self._rollback[i]:
                _, _, _, keys_now, values_now = present(kind, container, key)
                same = len(values) == len(values_now) and all(a is b for a, b in zip(values, values_now))
                if not same or (keys is not None and any(a is not b for a, b in zip(keys, keys_now))):
                    indices.append(i)
        return indices

    def entry(self, index):
        return self._entries[index]

    def tensors(self):
        return [tensor for tensor, _, _, _ in self._tensors]

    def moved(self):
        for i, (tensor, address, size, data) in enumerate(self._tensors):
            storage = tensor.untyped_storage()
            if storage.data_ptr() != address or storage.nbytes() != size or tensor.data_ptr() != data:
                return i
        return -1


def make_plan(entries, tensors):
    if extension is None:
        return PythonPlan(entries, tensors, read_other)
    return extension.Plan(entries, tensors, read_other)


# ---- one replay ------------------------------------------------------------------------------------------------------------------------------


class Rollback:
    """Python state of one replay: `enter` puts the forward's in, `leave` what was there when it began."""

    def __init__(self, python):
        self.snapshots = [snapshot for _, snapshot in python]
        self.before = [{} for _ in python]

    def enter(self):
        """True when anything had changed. CannotRewind leaves everything as it was."""
        any_changed = False
        try:
            for snapshot, before in zip(self.snapshots, self.before):
                for index in snapshot.changed():
                    any_changed = True
                    entry = snapshot.entry(index)
                    before[index] = present(*entry[:3])
                    write(entry)
        except CannotRewind:
            self.leave()
            raise
        return any_changed

    def leave(self, wrote=None):
        """`wrote`: per snapshot, the entries that the forward changed. Given for the first replay of a reentrant checkpoint, where what only
        the replay changes is an update made while gradients are on: it stays."""
        for i, (snapshot, before) in enumerate(zip(self.snapshots, self.before)):
            for index in snapshot.changed():
                if index not in before and (wrote is None or index in wrote[i]):
                    self._put(snapshot.entry(index))
            for entry in before.values():
                self._put(entry)
            before.clear()

    def _put(self, entry):
        try:
            write(entry)
        except CannotRewind:
            pass  # said when the scope was found: an iterator that the replay itself has exhausted


def describe(snapshot, index):
    """A few words about a changed entry, for messages."""
    kind, container, key, keys, values = snapshot.entry(index)
    if kind in (ATTRIBUTES, DICT):
        now = dict(container)
        names = [str(k) for k, v in zip(keys, values) if now.get(k, UNSET) is not v][:3]
        return "attribute " + ", ".join(names) if kind == ATTRIBUTES else "dict entry " + ", ".join(names)
    if kind == ENTRY:
        return "global " + str(key)
    return "a %s" % type(container).__name__
