/* Snapshot: what the containers of a plan held at one moment, by reference. An instance keeps one from its forward until it is released: it
 * is both the Python state that a replay must see and what keeps the tensors of the scope alive. */
#include "reprise_py.h"

#include <stdlib.h>

typedef struct {
    PyObject *container; /* strong */
    Py_ssize_t first, count;
} Part;

struct reprise_py_snapshot {
    PyObject_HEAD reprise_py_plan *plan;
    Part *parts;
    Py_ssize_t part_count;
    PyObject **values; /* key (or NULL) and value of every slot, one after the other; strong */
    Py_ssize_t value_count, capacity;
};

static PyTypeObject *snapshot_type;

reprise_py_snapshot *reprise_py_snapshot_new(reprise_py_plan *plan) {
    allocfunc allocate = (allocfunc)PyType_GetSlot(snapshot_type, Py_tp_alloc);
    reprise_py_snapshot *self = (reprise_py_snapshot *)allocate(snapshot_type, 0);
    if (self == NULL) return NULL;
    self->capacity = 2 * plan->slot_count + 16;
    self->parts = calloc(plan->entry_count > 0 ? (size_t)plan->entry_count : 1, sizeof *self->parts);
    self->values = malloc((size_t)self->capacity * sizeof *self->values);
    if (self->parts == NULL || self->values == NULL) {
        Py_DECREF((PyObject *)self);
        PyErr_NoMemory();
        return NULL;
    }
    Py_INCREF((PyObject *)plan);
    self->plan = plan;
    return self;
}

int reprise_py_snapshot_open(reprise_py_snapshot *self, Py_ssize_t entry, PyObject *container) {
    Part *part = &self->parts[entry];
    Py_XINCREF(container);
    part->container = container;
    part->first = self->value_count;
    part->count = 0;
    self->part_count = entry + 1;
    return 0;
}

int reprise_py_snapshot_push(reprise_py_snapshot *self, PyObject *key, PyObject *value) {
    if (self->value_count + 2 > self->capacity) {
        Py_ssize_t capacity = self->capacity * 2;
        PyObject **values = realloc(self->values, (size_t)capacity * sizeof *values);
        if (values == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        self->values = values;
        self->capacity = capacity;
    }
    Py_XINCREF(key);
    Py_INCREF(value);
    self->values[self->value_count++] = key;
    self->values[self->value_count++] = value;
    self->parts[self->part_count - 1].count++;
    return 0;
}

static int snapshot_clear(PyObject *object) {
    reprise_py_snapshot *self = (reprise_py_snapshot *)object;
    Py_ssize_t values = self->value_count, parts = self->part_count;
    self->value_count = self->part_count = 0; /* what dies below may come back here */
    for (Py_ssize_t i = 0; i < values; i++) Py_XDECREF(self->values[i]);
    for (Py_ssize_t i = 0; i < parts; i++) Py_CLEAR(self->parts[i].container);
    return 0;
}

static int snapshot_traverse(PyObject *object, visitproc visit, void *arg) {
    reprise_py_snapshot *self = (reprise_py_snapshot *)object;
#if PY_VERSION_HEX >= 0x03090000
    Py_VISIT(Py_TYPE(object));
#endif
    for (Py_ssize_t i = 0; i < self->value_count; i++) Py_VISIT(self->values[i]);
    for (Py_ssize_t i = 0; i < self->part_count; i++) Py_VISIT(self->parts[i].container);
    return 0;
}

static void snapshot_dealloc(PyObject *object) {
    reprise_py_snapshot *self = (reprise_py_snapshot *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    snapshot_clear(object);
    free(self->parts);
    free(self->values);
    Py_XDECREF((PyObject *)self->plan);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

/* ---- comparing with the present ---------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject **values;
    Py_ssize_t at, count;
} Cursor;

static int same(void *context, PyObject *key, PyObject *value) {
    Cursor *c = context;
    Py_ssize_t i = c->at++;
    return i >= c->count || c->values[2 * i] != key || c->values[2 * i + 1] != value;
}

/* 1: the container of this entry holds something else now; 0: not; -1 with an exception set. */
static int entry_differs(const reprise_py_snapshot *self, Py_ssize_t i) {
    const Part *part = &self->parts[i];
    const reprise_py_entry *e = &self->plan->entries[i];
    if (!e->rollback) return 0;
    Cursor c = {self->values + part->first, 0, part->count};
    const int differs = reprise_py_read(e->kind, part->container, e->key, self->plan->reader, same, &c);
    return differs != 0 ? differs : c.at != c.count;
}

int reprise_py_snapshot_differs(PyObject *object) {
    const reprise_py_snapshot *self = (reprise_py_snapshot *)object;
    int differs = 0;
    for (Py_ssize_t i = 0; differs == 0 && i < self->part_count; i++) differs = entry_differs(self, i);
    return differs;
}

static PyObject *snapshot_changed(PyObject *object, PyObject *unused) {
    reprise_py_snapshot *self = (reprise_py_snapshot *)object;
    (void)unused;
    PyObject *list = NULL;
    for (Py_ssize_t i = 0; i < self->part_count; i++) {
        const int differs = entry_differs(self, i);
        if (differs == 0) continue;
        PyObject *index = differs > 0 ? PyLong_FromSsize_t(i) : NULL;
        if (index != NULL && list == NULL) list = PyList_New(0);
        int failed = index == NULL || list == NULL || PyList_Append(list, index) < 0;
        Py_XDECREF(index);
        if (failed) {
            Py_XDECREF(list);
            return NULL;
        }
    }
    if (list == NULL) return PyTuple_New(0);
    return list;
}

/* entry(index) -> (kind, container, key, keys, values) */
static PyObject *snapshot_entry(PyObject *object, PyObject *argument) {
    reprise_py_snapshot *self = (reprise_py_snapshot *)object;
    Py_ssize_t index = PyLong_AsSsize_t(argument);
    if (PyErr_Occurred()) return NULL;
    if (index < 0 || index >= self->part_count || self->parts[index].container == NULL) {
        PyErr_SetString(PyExc_IndexError, "no such entry");
        return NULL;
    }
    const Part *part = &self->parts[index];
    const reprise_py_entry *e = &self->plan->entries[index];
    PyObject *keys = PyList_New(part->count), *values = PyList_New(part->count);
    for (Py_ssize_t i = 0; keys != NULL && values != NULL && i < part->count; i++) {
        PyObject *key = self->values[part->first + 2 * i], *value = self->values[part->first + 2 * i + 1];
        if (key == NULL) key = Py_None;
        Py_INCREF(key);
        Py_INCREF(value);
        PyList_SetItem(keys, i, key);
        PyList_SetItem(values, i, value);
    }
    PyObject *result = NULL;
    if (keys != NULL && values != NULL) result = Py_BuildValue("iOOOO", e->kind, part->container, e->key ? e->key : Py_None, keys, values);
    Py_XDECREF(keys);
    Py_XDECREF(values);
    return result;
}

static PyObject *tensor_at(reprise_py_snapshot *self, Py_ssize_t i) {
    const reprise_py_tensor *t = &self->plan->tensors[i];
    if (t->entry >= self->part_count || t->slot >= self->parts[t->entry].count) return NULL;
    return self->values[self->parts[t->entry].first + 2 * t->slot + 1];
}

Py_ssize_t reprise_py_snapshot_tensor_count(PyObject *object) { return ((reprise_py_snapshot *)object)->plan->tensor_count; }

PyObject *reprise_py_snapshot_tensor(PyObject *object, Py_ssize_t index) { return tensor_at((reprise_py_snapshot *)object, index); }

static PyObject *snapshot_tensors(PyObject *object, PyObject *unused) {
    reprise_py_snapshot *self = (reprise_py_snapshot *)object;
    (void)unused;
    PyObject *list = PyList_New(0);
    for (Py_ssize_t i = 0; list != NULL && i < self->plan->tensor_count; i++) {
        PyObject *tensor = tensor_at(self, i);
        if (PyList_Append(list, tensor != NULL ? tensor : Py_None) < 0) Py_CLEAR(list);
    }
    return list;
}

Py_ssize_t reprise_py_snapshot_moved(reprise_py_snapshot *self) {
    for (Py_ssize_t i = 0; i < self->plan->tensor_count; i++) {
        PyObject *tensor = tensor_at(self, i);
        const reprise_py_tensor *then = &self->plan->tensors[i];
        size_t address, size;
        if (tensor == NULL) return i;
        if (then->data != 0) { /* elsewhere in the same storage is moved as well: other bytes than the forward's would be read */
            if (reprise_py_data(tensor) != then->data) return i;
            continue;
        }
        if (reprise_py_storage(tensor, &address, &size) < 0) {
            if (!PyErr_ExceptionMatches(PyExc_Exception)) return -2;
            PyErr_Clear(); /* a tensor without a storage any more: moved */
            return i;
        }
        if (address != then->address || size != then->size) return i;
    }
    return -1;
}

static PyObject *snapshot_moved(PyObject *object, PyObject *unused) {
    (void)unused;
    const Py_ssize_t moved = reprise_py_snapshot_moved((reprise_py_snapshot *)object);
    return moved == -2 ? NULL : PyLong_FromSsize_t(moved);
}

static PyMethodDef snapshot_methods[] = {
    {"changed", snapshot_changed, METH_NOARGS, "changed() -> indices of the containers that hold something else now"},
    {"entry", snapshot_entry, METH_O, "entry(index) -> (kind, container, key, keys, values) as they were"},
    {"tensors", snapshot_tensors, METH_NOARGS, "tensors() -> the tensors of the scope, in the plan's order"},
    {"moved", snapshot_moved, METH_NOARGS, "moved() -> index of the first tensor whose storage is not where the plan says, or -1"},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot snapshot_slots[] = {
    {Py_tp_doc, (void *)"What the containers of a plan held at one moment; made by Plan.take."},
    {Py_tp_dealloc, (void *)snapshot_dealloc},
    {Py_tp_traverse, (void *)snapshot_traverse},
    {Py_tp_clear, (void *)snapshot_clear},
    {Py_tp_methods, snapshot_methods},
    {0, NULL},
};
static PyType_Spec snapshot_spec = {"reprise._reprise.Snapshot", sizeof(reprise_py_snapshot), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                                    snapshot_slots};

int reprise_py_snapshot_ready(PyObject *module) {
    PyObject *type = PyType_FromSpec(&snapshot_spec);
    if (type == NULL) return -1;
    snapshot_type = (PyTypeObject *)type;
    Py_INCREF(type);
    return PyModule_AddObject(module, "Snapshot", type);
}
