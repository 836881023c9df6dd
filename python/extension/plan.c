/* Plan: the structure of a scope (which containers there are, what they held, where the tensors are), so that the next forward can tell in
 * microseconds that nothing has changed.
 *
 * A plan must not keep anything of the job alive: a cache that a module dropped must go. So it holds addresses to compare with, and
 * follows a pointer only after its parent was seen to still hold it: entries stand in the order in which they were reached, a container is
 * reached either from a slot of an earlier entry, or from an owner (module, function, object) that is held by a weak reference. An object
 * that died and was replaced by another at the same address is then a live object whose content is compared like any other.
 *
 * Numbers and strings may change freely (counters do): they do not change what is reachable. */
#include "reprise_py.h"

#include <stdlib.h>

static PyTypeObject *plan_type;
static PyTypeObject *none_type;
static PyObject *name_dict, *name_contents, *name_storage, *name_data_ptr, *name_nbytes;

static int is_atom(const void *type) {
    return type == &PyLong_Type || type == &PyFloat_Type || type == &PyUnicode_Type || type == &PyBool_Type || type == &PyBytes_Type ||
           type == none_type || type == &PyComplex_Type;
}

int reprise_py_storage_range(PyObject *storage, size_t *address, size_t *size) {
    int result = -1;
    PyObject *a = PyObject_CallMethodObjArgs(storage, name_data_ptr, NULL);
    PyObject *n = a != NULL ? PyObject_CallMethodObjArgs(storage, name_nbytes, NULL) : NULL;
    if (n != NULL) {
        *address = PyLong_AsSize_t(a);
        *size = PyLong_AsSize_t(n);
        result = PyErr_Occurred() ? -1 : 0;
    }
    Py_XDECREF(n);
    Py_XDECREF(a);
    return result;
}

int reprise_py_storage(PyObject *tensor, size_t *address, size_t *size) {
    PyObject *storage = PyObject_CallMethodObjArgs(tensor, name_storage, NULL);
    const int result = storage != NULL ? reprise_py_storage_range(storage, address, size) : -1;
    Py_XDECREF(storage);
    return result;
}

size_t reprise_py_data(PyObject *tensor) {
    PyObject *value = PyObject_CallMethodObjArgs(tensor, name_data_ptr, NULL);
    size_t address = value != NULL ? PyLong_AsSize_t(value) : 0;
    Py_XDECREF(value);
    if (!PyErr_Occurred()) return address;
    PyErr_Clear();
    return 0;
}

static int read_other(PyObject *container, PyObject *key, PyObject *reader, reprise_py_visit visit, void *context) {
    PyObject *content = PyObject_CallFunctionObjArgs(reader, container, key ? key : Py_None, NULL);
    if (content == NULL) return -1;
    Py_ssize_t count = PyTuple_Size(content);
    int result = count < 0 ? -1 : 0;
    for (Py_ssize_t i = 0; i < count && result == 0; i++) result = visit(context, NULL, PyTuple_GetItem(content, i));
    Py_DECREF(content);
    return result;
}

int reprise_py_read(int kind, PyObject *container, PyObject *key, PyObject *reader, reprise_py_visit visit, void *context) {
    int result = 0;
    if (kind == KIND_ATTRIBUTES || kind == KIND_DICT) {
        PyObject *k, *v;
        Py_ssize_t at = 0;
        while (result == 0 && PyDict_Next(container, &at, &k, &v)) result = visit(context, k, v);
    } else if (kind == KIND_LIST) {
        for (Py_ssize_t i = 0; result == 0 && i < PyList_Size(container); i++) result = visit(context, NULL, PyList_GetItem(container, i));
    } else if (kind == KIND_TUPLE) {
        Py_ssize_t count = PyTuple_Size(container);
        for (Py_ssize_t i = 0; result == 0 && i < count; i++) result = visit(context, NULL, PyTuple_GetItem(container, i));
    } else if (kind == KIND_CELL) {
        PyObject *value = PyObject_GetAttr(container, name_contents);
        if (value == NULL) {
            if (!PyErr_ExceptionMatches(PyExc_ValueError)) return -1;
            PyErr_Clear(); /* an empty cell has no content */
            return 0;
        }
        result = visit(context, NULL, value);
        Py_DECREF(value);
    } else if (kind == KIND_ENTRY) {
        PyObject *value = PyDict_GetItemWithError(container, key);
        if (value != NULL)
            result = visit(context, NULL, value);
        else if (PyErr_Occurred())
            result = -1;
    } else if (kind == KIND_OTHER) {
        result = read_other(container, key, reader, visit, context);
    }
    return result;
}

/* ---- building ------------------------------------------------------------------------------------------------------------------- */

typedef struct {
    reprise_py_plan *plan;
    Py_ssize_t capacity;
    int atoms_only;
} Builder;

static int record(void *context, PyObject *key, PyObject *value) {
    Builder *b = context;
    if (b->plan->slot_count == b->capacity) {
        Py_ssize_t capacity = b->capacity ? b->capacity * 2 : 256;
        reprise_py_slot *slots = realloc(b->plan->slots, (size_t)capacity * sizeof *slots);
        if (slots == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        b->plan->slots = slots;
        b->capacity = capacity;
    }
    reprise_py_slot *slot = &b->plan->slots[b->plan->slot_count++];
    slot->key = key;
    slot->holds_key = key != NULL && is_atom(Py_TYPE(key)); /* any other may lead back to the anchor, which must be able to go */
    if (slot->holds_key) Py_INCREF(key);
    slot->value = value;
    slot->type = Py_TYPE(value);
    b->atoms_only &= is_atom(slot->type);
    return 0;
}

static int build_entries(reprise_py_plan *self, PyObject *entries) {
    Builder b = {self, 0, 0};
    Py_ssize_t count = PyList_Size(entries);
    self->entries = calloc(count > 0 ? (size_t)count : 1, sizeof *self->entries);
    if (self->entries == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        reprise_py_entry *e = &self->entries[i];
        PyObject *container, *owner, *key;
        if (!PyArg_ParseTuple(PyList_GetItem(entries, i), "iOOOi;an entry is (kind, container, owner, key, rollback)", &e->kind, &container,
                              &owner, &key, &e->rollback))
            return -1;
        self->entry_count = i + 1;
        e->container = container;
        if (owner != Py_None) {
            Py_INCREF(owner);
            e->owner = owner;
        }
        if (key != Py_None) {
            Py_INCREF(key);
            e->key = key;
        }
        e->first = self->slot_count;
        b.atoms_only = 1;
        if (reprise_py_read(e->kind, container, e->key, self->reader, record, &b) < 0) return -1;
        e->count = self->slot_count - e->first;
        e->atoms_only = b.atoms_only && (e->kind == KIND_LIST || e->kind == KIND_DICT || e->kind == KIND_OTHER);
    }
    return 0;
}

static int build_tensors(reprise_py_plan *self, PyObject *tensors) {
    Py_ssize_t count = PyList_Size(tensors);
    self->tensors = calloc(count > 0 ? (size_t)count : 1, sizeof *self->tensors);
    if (self->tensors == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        reprise_py_tensor *t = &self->tensors[i];
        Py_ssize_t address, size;
        if (!PyArg_ParseTuple(PyList_GetItem(tensors, i), "nnnn;a tensor is (entry, slot, address, size)", &t->entry, &t->slot, &address,
                              &size))
            return -1;
        if (t->entry < 0 || t->entry >= self->entry_count || t->slot < 0 || t->slot >= self->entries[t->entry].count) {
            PyErr_SetString(PyExc_IndexError, "a tensor's slot lies outside its entry");
            return -1;
        }
        t->address = (size_t)address;
        t->size = (size_t)size;
        PyObject *tensor = self->slots[self->entries[t->entry].first + t->slot].value; /* alive: the walk that found it is at hand */
        t->data = reprise_py_data(tensor);
    }
    self->tensor_count = count;
    return 0;
}

static PyObject *plan_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *entries, *tensors, *reader;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "O!O!O:Plan", &PyList_Type, &entries, &PyList_Type, &tensors, &reader)) return NULL;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    reprise_py_plan *self = (reprise_py_plan *)allocate(type, 0);
    if (self == NULL) return NULL;
    Py_INCREF(reader);
    self->reader = reader;
    if (build_entries(self, entries) < 0 || build_tensors(self, tensors) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void plan_dealloc(PyObject *object) {
    reprise_py_plan *self = (reprise_py_plan *)object;
    PyTypeObject *type = Py_TYPE(object);
    for (Py_ssize_t i = 0; i < self->entry_count; i++) {
        Py_XDECREF(self->entries[i].owner);
        Py_XDECREF(self->entries[i].key);
    }
    for (Py_ssize_t i = 0; i < self->slot_count; i++)
        if (self->slots[i].holds_key) Py_DECREF(self->slots[i].key);
    free(self->entries);
    free(self->slots);
    free(self->tensors);
    Py_XDECREF(self->reader);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

/* ---- checking, and taking a snapshot in the same pass ---------------------------------------------------------------------------- */

enum { CHANGED = 1 };

typedef struct {
    const reprise_py_entry *entry;
    const reprise_py_slot *slots;
    Py_ssize_t at;
    reprise_py_snapshot *snapshot;
} Taker;

static int compare(void *context, PyObject *key, PyObject *value) {
    Taker *t = context;
    Py_ssize_t i = t->at++;
    if (t->entry->atoms_only) {
        if (!is_atom(Py_TYPE(value))) return CHANGED;
    } else {
        if (i >= t->entry->count) return CHANGED;
        const reprise_py_slot *slot = &t->slots[i];
        if (slot->key != key) return CHANGED;
        if ((slot->value != value || slot->type != Py_TYPE(value)) && !(is_atom(slot->type) && is_atom(Py_TYPE(value)))) return CHANGED;
    }
    return reprise_py_snapshot_push(t->snapshot, key, value);
}

static int alive(const reprise_py_entry *e) {
    PyObject *owner = PyWeakref_GetObject(e->owner);
    if (owner == NULL) return -1;
    if (owner == Py_None) return CHANGED;
    if (e->kind != KIND_ATTRIBUTES) return 0;
    Py_INCREF(owner);
    PyObject *dict = PyObject_GetAttr(owner, name_dict);
    Py_DECREF(owner);
    if (dict == NULL) return -1;
    int same = dict == e->container;
    Py_DECREF(dict); /* the owner keeps it */
    return same ? 0 : CHANGED;
}

int reprise_py_is_plan(PyObject *object) { return Py_TYPE(object) == plan_type; }

PyObject *reprise_py_plan_take(PyObject *object) {
    reprise_py_plan *self = (reprise_py_plan *)object;
    reprise_py_snapshot *snapshot = reprise_py_snapshot_new(self);
    if (snapshot == NULL) return NULL;
    int state = 0;
    for (Py_ssize_t i = 0; i < self->entry_count && state == 0; i++) {
        reprise_py_entry *e = &self->entries[i];
        if (e->owner != NULL) state = alive(e);
        if (state == 0) state = reprise_py_snapshot_open(snapshot, i, e->container);
        if (state != 0) continue;
        Taker t = {e, self->slots + e->first, 0, snapshot};
        state = reprise_py_read(e->kind, e->container, e->key, self->reader, compare, &t);
        if (state == 0 && t.at != e->count && !e->atoms_only) state = CHANGED;
    }
    if (state == 0) {
        const Py_ssize_t moved = reprise_py_snapshot_moved(snapshot);
        state = moved == -2 ? -1 : moved >= 0 ? CHANGED : 0;
    }
    if (state == 0) return (PyObject *)snapshot;
    Py_DECREF((PyObject *)snapshot);
    if (state < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *plan_take(PyObject *object, PyObject *unused) {
    (void)unused;
    return reprise_py_plan_take(object);
}

static PyMethodDef plan_methods[] = {
    {"take", plan_take, METH_NOARGS, "take() -> Snapshot, or None when the structure is no longer as it was when the plan was made."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot plan_slots[] = {
    {Py_tp_doc, (void *)"Plan(entries, tensors, reader): the structure of a scope; keeps nothing of it alive."},
    {Py_tp_new, (void *)plan_new},
    {Py_tp_dealloc, (void *)plan_dealloc},
    {Py_tp_methods, plan_methods},
    {0, NULL},
};
static PyType_Spec plan_spec = {"reprise._reprise.Plan", sizeof(reprise_py_plan), 0, Py_TPFLAGS_DEFAULT, plan_slots};

int reprise_py_plan_ready(PyObject *module) {
    none_type = Py_TYPE(Py_None);
    if ((name_dict = PyUnicode_InternFromString("__dict__")) == NULL ||
        (name_contents = PyUnicode_InternFromString("cell_contents")) == NULL ||
        (name_storage = PyUnicode_InternFromString("untyped_storage")) == NULL ||
        (name_data_ptr = PyUnicode_InternFromString("data_ptr")) == NULL || (name_nbytes = PyUnicode_InternFromString("nbytes")) == NULL)
        return -1;
    PyObject *type = PyType_FromSpec(&plan_spec);
    if (type == NULL) return -1;
    plan_type = (PyTypeObject *)type;
    Py_INCREF(type);
    return PyModule_AddObject(module, "Plan", type);
}
