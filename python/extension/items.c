/* A scope in packed form: built once per module tree, used by every forward. */
#include "reprise_py.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    PyObject_HEAD reprise_scope_item *items;
    size_t count;
    PyObject *names; /* a tuple of bytes that the items point into */
} Items;

static PyTypeObject *items_type;

/* One tuple (address, size, name, flags); `name` becomes a bytes object (new reference) that the caller keeps. */
static int parse_item(PyObject *tuple, reprise_scope_item *item, PyObject **name) {
    unsigned long long address;
    Py_ssize_t size;
    PyObject *text;
    unsigned int flags;
    if (!PyArg_ParseTuple(tuple, "KnUI;an item is (address, size, name, flags)", &address, &size, &text, &flags)) return -1;
    *name = PyUnicode_AsEncodedString(text, "utf-8", "replace");
    if (*name == NULL) return -1;
    item->address = (void *)(uintptr_t)address;
    item->size = (size_t)size;
    item->name = PyBytes_AsString(*name);
    item->flags = flags;
    item->reserved = 0;
    return 0;
}

static PyObject *items_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *list;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "O!:Items", &PyList_Type, &list)) return NULL;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Items *self = (Items *)allocate(type, 0);
    if (self == NULL) return NULL;
    Py_ssize_t count = PyList_Size(list);
    self->items = calloc(count > 0 ? (size_t)count : 1, sizeof *self->items);
    self->names = PyTuple_New(count);
    if (self->items == NULL || self->names == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *name = NULL;
        if (parse_item(PyList_GetItem(list, i), &self->items[i], &name) < 0) {
            Py_DECREF(self);
            return NULL;
        }
        PyTuple_SetItem(self->names, i, name);
    }
    self->count = (size_t)count;
    return (PyObject *)self;
}

static void items_dealloc(PyObject *object) {
    Items *self = (Items *)object;
    PyTypeObject *type = Py_TYPE(object);
    free(self->items);
    Py_XDECREF(self->names);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

int reprise_py_is_items(PyObject *object) { return Py_TYPE(object) == items_type; }

const reprise_scope_item *reprise_py_items_view(PyObject *object, size_t *count) {
    *count = ((Items *)object)->count;
    return ((Items *)object)->items;
}

static Py_ssize_t items_length(PyObject *object) { return (Py_ssize_t)((Items *)object)->count; }

void reprise_py_scope_start(reprise_py_scope *scope) {
    scope->items = scope->room;
    scope->count = 0;
    scope->capacity = sizeof scope->room / sizeof scope->room[0];
    scope->names = NULL;
}

static void drop_items(reprise_py_scope *scope) {
    if (scope->items != scope->room) free(scope->items);
}

void reprise_py_scope_finish(reprise_py_scope *scope) {
    drop_items(scope);
    Py_CLEAR(scope->names);
}

int reprise_py_scope_reserve(reprise_py_scope *scope, size_t more) {
    if (scope->count + more <= scope->capacity) return 0;
    size_t capacity = (scope->count + more) * 2;
    reprise_scope_item *items = malloc(capacity * sizeof *items);
    if (items == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    memcpy(items, scope->items, scope->count * sizeof *items);
    drop_items(scope);
    scope->items = items;
    scope->capacity = capacity;
    return 0;
}

/* Items of a plain sequence: the names are kept in the scope until it is finished. */
static int add_sequence(reprise_py_scope *scope, PyObject *sequence) {
    Py_ssize_t count = PySequence_Size(sequence);
    if (count < 0 || reprise_py_scope_reserve(scope, (size_t)count) < 0) return -1;
    if (count > 0 && scope->names == NULL && (scope->names = PyList_New(0)) == NULL) return -1;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *tuple = PySequence_GetItem(sequence, i), *name = NULL;
        if (tuple == NULL) return -1;
        int failed = parse_item(tuple, &scope->items[scope->count], &name);
        if (!failed) failed = PyList_Append(scope->names, name);
        Py_XDECREF(name);
        Py_DECREF(tuple);
        if (failed) return -1;
        scope->count++;
    }
    return 0;
}

int reprise_py_scope_add(reprise_py_scope *scope, PyObject *object) {
    if (object == NULL || object == Py_None) return 0;
    if (Py_TYPE(object) != items_type) return add_sequence(scope, object);
    Items *items = (Items *)object;
    if (reprise_py_scope_reserve(scope, items->count) < 0) return -1;
    memcpy(scope->items + scope->count, items->items, items->count * sizeof *items->items);
    scope->count += items->count;
    return 0;
}

static PyType_Slot items_slots[] = {
    {Py_tp_doc, (void *)"Items(list of (address, size, name, flags)): a scope in the form that forward_begin takes."},
    {Py_tp_new, (void *)items_new},
    {Py_tp_dealloc, (void *)items_dealloc},
    {Py_sq_length, (void *)items_length},
    {0, NULL},
};
PyType_Spec reprise_py_items_spec = {"reprise._reprise.Items", sizeof(Items), 0, Py_TPFLAGS_DEFAULT, items_slots};

int reprise_py_items_ready(PyObject *module) {
    PyObject *type = PyType_FromSpec(&reprise_py_items_spec);
    if (type == NULL) return -1;
    items_type = (PyTypeObject *)type;
    Py_INCREF(type);
    return PyModule_AddObject(module, "Items", type);
}
