"""Python state by reference, plans and snapshots: the extension's against the plain ones."""

import collections
import gc
import weakref

import pytest
import torch
from torch import nn

from reprise.engine import extension
from reprise.pytorch import pystate
from reprise.pytorch.pystate import ATTRIBUTES, CELL, DICT, ENTRY, LIST, OTHER, TUPLE, PythonPlan, Rollback, read_other
from reprise.pytorch.walk import Walk

BACKENDS = ["python", "extension"]


@pytest.fixture(params=BACKENDS)
def plan(request):
    """Makes a plan with either implementation."""
    if request.param == "python":
        return lambda entries, tensors=(): PythonPlan(entries, list(tensors), read_other)
    assert extension is not None, "the C extension is not built; REPRISE_BUILD names the build folder"
    return lambda entries, tensors=(): extension.Plan(entries, list(tensors), read_other)


class Slotted:
    __slots__ = ("a", "b")


class Box:
    def __init__(self, **values):
        vars(self).update(values)


class Plain:
    shared = 1


def cell_of(value):
    def inner():
        nonlocal value
        return value

    return inner.__closure__[0]


def containers():
    """(entry, change, what it holds) for every kind of container that is rolled back."""
    plain, slotted, table = Plain(), Slotted(), {"x": 1, "other": 2}
    plain.a, slotted.a = 1, 1
    d, o = {"a": 1, "b": 2}, collections.OrderedDict(a=1, b=2)
    items, queue, seen = [1, 2], collections.deque([1, 2]), {"a"}
    cell, iterator = cell_of(1), iter([1, 2, 3])
    next(iterator)
    return {
        "attributes": ((ATTRIBUTES, plain.__dict__, weakref.ref(plain), None, 1), lambda: setattr(plain, "a", 2), lambda: dict(vars(plain)), plain),
        "attribute added": ((ATTRIBUTES, plain.__dict__, weakref.ref(plain), None, 1), lambda: setattr(plain, "z", 2), lambda: dict(vars(plain)), plain),
        "dict": ((DICT, d, None, None, 1), lambda: d.update(a=5, c=6), lambda: list(d.items()), d),
        "dict order": ((DICT, d, None, None, 1), lambda: d.update(a=d.pop("a")), lambda: list(d.items()), d),
        "ordered dict": ((DICT, o, None, None, 1), lambda: o.move_to_end("a"), lambda: list(o.items()), o),
        "list": ((LIST, items, None, None, 1), lambda: items.append(3), lambda: list(items), items),
        "deque": ((OTHER, queue, None, "deque", 1), queue.popleft, lambda: list(queue), queue),
        "set": ((OTHER, seen, None, "set", 1), lambda: seen.add("b"), lambda: set(seen), seen),
        "cell": ((CELL, cell, None, None, 1), lambda: setattr(cell, "cell_contents", 9), lambda: cell.cell_contents, cell),
        "global": ((ENTRY, table, None, "x", 1), lambda: table.update(x=9), lambda: table["x"], table),
        "global deleted": ((ENTRY, table, None, "x", 1), lambda: table.pop("x"), lambda: table.get("x"), table),
        "slots": ((OTHER, slotted, None, ("slots", ("a", "b")), 1), lambda: setattr(slotted, "b", 3), lambda: (slotted.a, hasattr(slotted, "b")), slotted),
        "class attribute": ((OTHER, Plain, weakref.ref(Plain), ("class", ("shared",)), 1), lambda: setattr(Plain, "shared", 9), lambda: Plain.shared, Plain),
        "iterator": ((OTHER, iterator, None, "iterator", 1), lambda: next(iterator), lambda: iterator.__reduce__()[2], iterator),
    }


@pytest.mark.parametrize("kind", containers())
def test_rolled_back_and_put_back(plan, kind):
    entry, change, content, _keep = containers()[kind]
    then = content()
    snapshot = plan([entry]).take()
    assert not list(snapshot.changed())
    change()
    now = content()
    assert now != then or kind == "ordered dict"
    rollback = Rollback([(None, snapshot)])
    assert rollback.enter() or kind == "ordered dict"
    assert content() == then or kind == "ordered dict"
    change()
    rollback.leave()
    assert content() == now
    Plain.shared = 1


def test_what_only_the_replay_changes_is_put_back(plan):
    items = [1, 2]
    snapshot = plan([(LIST, items, None, None, 1)]).take()
    rollback = Rollback([(None, snapshot)])
    assert not rollback.enter()
    items.append(3)
    rollback.leave()
    assert items == [1, 2]


def test_what_only_a_gated_replay_changes_stays(plan):
    items, more = [1], [1]
    snapshot = plan([(LIST, items, None, None, 1), (LIST, more, None, None, 1)]).take()
    more.append(2)  # the forward's
    wrote = [set(snapshot.changed())]
    rollback = Rollback([(None, snapshot)])
    rollback.enter()
    items.append(3)
    more.append(4)
    rollback.leave(wrote)
    assert items == [1, 3] and more == [1, 2]


def test_entries_without_rollback_are_left_alone(plan):
    table = {"a": 1}
    snapshot = plan([(DICT, table, None, None, 0)]).take()
    table["b"] = 2
    assert not list(snapshot.changed())


def test_exhausted_iterator_is_refused_and_nothing_is_touched(plan):
    iterator, items = iter([1]), [1]
    snapshot = plan([(LIST, items, None, None, 1), (OTHER, iterator, None, "iterator", 1)]).take()
    list(iterator)
    items.append(2)
    rollback = Rollback([(None, snapshot)])
    with pytest.raises(pystate.CannotRewind):
        rollback.enter()
    assert items == [1, 2]


# ---- plans of the extension -------------------------------------------------------------------------------------------------------------------


def tree_plan(module):
    walk = Walk().run(module, "m")
    tensors = [(e, s, t.untyped_storage().data_ptr(), t.untyped_storage().nbytes()) for t, e, s, _, _ in walk.tensors if e >= 0]
    return extension.Plan(walk.entries, tensors, read_other)


class Tree(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Sequential(nn.BatchNorm1d(3), nn.ReLU())
        self.calls, self.log, self.table = 0, [], {"x": 1}
        self.helper = Box(value=torch.ones(2))

    def forward(self, x):
        return self.b(self.a(x))


CHANGES = {
    "a module is added": lambda m: setattr(m, "c", nn.ReLU()),
    "a module is replaced": lambda m: setattr(m, "a", nn.Linear(3, 3)),
    "a buffer is rebound": lambda m: setattr(m.b[0], "running_mean", torch.zeros(3)),
    "a parameter's data is swapped": lambda m: setattr(m.a.weight, "data", torch.zeros(3, 3)),
    "a storage is resized": lambda m: m.helper.value.untyped_storage().resize_(4096),
    "an object's tensor is rebound": lambda m: setattr(m.helper, "value", torch.zeros(2)),
    "an object is replaced": lambda m: setattr(m, "helper", Box(value=m.helper.value)),
    "a list of numbers gets a tensor": lambda m: m.log.append(torch.ones(1)),
    "a hook is registered": lambda m: m.a.register_forward_hook(lambda *a: None),
    "an attribute becomes a tensor": lambda m: setattr(m, "calls", torch.ones(1)),
}


@pytest.mark.parametrize("what", CHANGES)
def test_plan_notices(what):
    module = Tree()
    plan = tree_plan(module)
    assert plan.take() is not None
    CHANGES[what](module)
    assert plan.take() is None


def test_plan_lets_numbers_change():
    module = Tree()
    plan = tree_plan(module)
    module.calls += 1000
    module.log.append(5)
    module.table["y"] = "text"
    module.eval()
    snapshot = plan.take()
    assert snapshot is not None
    module.log.append(6)
    assert len(snapshot.changed()) == 1
    assert snapshot.entry(snapshot.changed()[0])[4] == [5]


def test_plan_keeps_nothing_alive():
    module = Tree()
    plan = tree_plan(module)
    gone = [weakref.ref(x) for x in (module.helper.value, module.helper, module.a.weight, module)]
    del module
    gc.collect()
    assert [r() for r in gone] == [None] * 4
    assert plan.take() is None


def test_plan_of_replaced_objects_never_follows_the_dead():
    module = Tree()
    plan = tree_plan(module)
    for _ in range(300):
        module.helper = Box(value=torch.ones(2))
        module.log = [0] * 3
        module.table = {"x": 2}
        plan.take()
    assert plan.take() is None


def test_snapshot_keeps_what_a_replay_needs_and_no_longer():
    module = Tree()
    snapshot = tree_plan(module).take()
    tensor = weakref.ref(module.helper.value)
    module.helper.value = None
    gc.collect()
    assert tensor() is not None and any(t is tensor() for t in snapshot.tensors())
    del snapshot
    gc.collect()
    assert tensor() is None


def test_snapshot_in_a_cycle_is_collected():
    holder = Box()
    items = [holder]
    holder.snapshot = extension.Plan([(LIST, items, None, None, 1)], [], read_other).take()
    gone = weakref.ref(holder)
    del holder, items
    gc.collect()
    assert gone() is None


def test_moved_names_the_tensor():
    module = Tree()
    snapshot = tree_plan(module).take()
    assert snapshot.moved() == -1
    module.a.weight.data = torch.zeros(3, 3)
    assert snapshot.moved() >= 0


def test_malformed_plans_are_refused():
    with pytest.raises(TypeError):
        extension.Plan([(LIST, [], None)], [], read_other)
    with pytest.raises(IndexError):
        extension.Plan([(LIST, [1], None, None, 1)], [(0, 1, 0, 0)], read_other)
    with pytest.raises(ZeroDivisionError):
        extension.Plan([(OTHER, set(), None, "set", 1)], [], lambda *a: 1 / 0)


def test_tuples_are_compared_through():
    value = (1, [2])
    plan = extension.Plan([(LIST, value[1], None, None, 1), (TUPLE, value, None, None, 0)], [], read_other)
    assert plan.take() is not None
