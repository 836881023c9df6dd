/* Site: where the forwards of one module begin. See usual.h. */
#include "usual.h"

#include <stdlib.h>
#include <string.h>

typedef reprise_py_site Site;
typedef reprise_py_call Call;

static PyObject *tensor_type, *resizable;
static PyObject *name_storage, *name_is_cpu, *name_bits;
const char *const reprise_py_argument_names[MOST_ARGUMENTS] = {
    "argument 0", "argument 1", "argument 2",  "argument 3",  "argument 4",  "argument 5",  "argument 6",  "argument 7",
    "argument 8", "argument 9", "argument 10", "argument 11", "argument 12", "argument 13", "argument 14", "argument 15"};

/* ---- Site --------------------------------------------------------------------------------------------------------------------------- */

static int by_address(const void *a, const void *b) {
    const uintptr_t x = *(const uintptr_t *)a, y = *(const uintptr_t *)b;
    return (x > y) - (x < y);
}

static int read_addresses(Site *self, PyObject *addresses) {
    Py_ssize_t count = PySequence_Size(addresses);
    if (count < 0) return -1;
    self->addresses = calloc(count > 0 ? (size_t)count : 1, sizeof *self->addresses);
    if (self->addresses == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *value = PySequence_GetItem(addresses, i);
        self->addresses[i] = value != NULL ? (uintptr_t)PyLong_AsSize_t(value) : 0;
        Py_XDECREF(value);
        if (PyErr_Occurred()) return -1;
    }
    self->address_count = (size_t)count;
    qsort(self->addresses, self->address_count, sizeof *self->addresses, by_address);
    return 0;
}

/* Site(module's weak reference, segment, plan of the generators, plan of the module, items, addresses, generators, holds, numpy) */
static PyObject *site_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *module, *name, *first, *second, *items, *addresses, *generators;
    PyObject *numpy;
    int holds;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "OUOOOOO!pO:Site", &module, &name, &first, &second, &items, &addresses, &PyList_Type, &generators, &holds,
                          &numpy))
        return NULL;
    if (!PyWeakref_Check(module) || !reprise_py_is_plan(first) || !reprise_py_is_plan(second) || !reprise_py_is_items(items)) {
        PyErr_SetString(PyExc_TypeError, "a Site needs a weak reference, two Plans and Items");
        return NULL;
    }
    Py_ssize_t count = PyList_Size(generators);
    if (count > MOST_GENERATORS) {
        PyErr_SetString(PyExc_ValueError, "too many generators");
        return NULL;
    }
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Site *self = (Site *)allocate(type, 0);
    if (self == NULL) return NULL;
    Py_INCREF(self->module = module);
    Py_INCREF(self->plans[0] = first);
    Py_INCREF(self->plans[1] = second);
    Py_INCREF(self->items = items);
    self->holds = holds;
    const int of_numpy =
        numpy == Py_None || PyArg_ParseTuple(numpy, "OO;numpy's are (RandomState, bit generator)", &self->numpy, &self->bits);
    Py_XINCREF(self->numpy);
    if (self->bits != NULL) self->bits_type = Py_TYPE(self->bits);
    self->name = PyUnicode_AsEncodedString(name, "utf-8", "replace");
    int failed = !of_numpy || self->name == NULL || read_addresses(self, addresses) < 0;
    for (Py_ssize_t i = 0; !failed && i < count; i++) {
        self->generator_count = (int)i + 1;
        failed = reprise_py_generator_read(PyList_GetItem(generators, i), &self->generators[i]) < 0;
    }
    if (!failed) return (PyObject *)self;
    Py_DECREF(self);
    return NULL;
}

static void site_dealloc(PyObject *object) {
    Site *self = (Site *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(self->module);
    Py_XDECREF(self->numpy);
    Py_XDECREF(self->name);
    Py_XDECREF(self->plans[0]);
    Py_XDECREF(self->plans[1]);
    Py_XDECREF(self->items);
    for (int i = 0; i < self->generator_count; i++) Py_XDECREF(self->generators[i].name);
    free(self->addresses);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

static int known_address(const Site *site, uintptr_t address) {
    return bsearch(&address, site->addresses, site->address_count, sizeof address, by_address) != NULL;
}

/* ---- the forward -------------------------------------------------------------------------------------------------------------------- */

/* Keeps a storage alive that was not allocated here: nobody tells us its freeing. -1 with an exception set. */
static int hold_foreign(Call *call, PyObject *storage) {
    const int ours = reprise_py_truth(PyObject_CallFunctionObjArgs(resizable, storage, NULL));
    if (ours != 0) return ours < 0 ? -1 : 0;
    if (call->held == NULL && (call->held = PyList_New(0)) == NULL) return -1;
    return PyList_Append(call->held, storage);
}

/* 1: a plain host tensor, listed; 0: not one; -1 with an exception set. */
static int add_argument(Call *call, PyObject *tensor, int index) {
    if ((PyObject *)Py_TYPE(tensor) != tensor_type || index >= MOST_ARGUMENTS) return 0;
    const int host = reprise_py_truth(PyObject_GetAttr(tensor, name_is_cpu));
    if (host <= 0) return host;
    PyObject *storage = PyObject_CallMethodObjArgs(tensor, name_storage, NULL);
    if (storage == NULL) return -1; /* sparse, functional */
    size_t address = 0, size = 0;
    const int failed = reprise_py_storage_range(storage, &address, &size) < 0 || hold_foreign(call, storage) < 0;
    Py_DECREF(storage);
    if (failed) return -1;
    if (address == 0 || size == 0) return 0;
    for (int i = 0; i < call->argument_count; i++)
        if (call->arguments[i].address == address) return 0; /* two views of one storage: the full rule merges them */
    if (known_address(call->site, address)) return 1;
    const reprise_py_argument argument = {address, size, index};
    call->arguments[call->argument_count++] = argument;
    return 1;
}

static int add_arguments(Call *call, PyObject *args) {
    const Py_ssize_t count = PyTuple_Size(args);
    for (Py_ssize_t i = 0; i < count; i++) {
        const int plain = add_argument(call, PyTuple_GetItem(args, i), (int)i);
        if (plain > 0) continue;
        if (plain < 0 && !PyErr_ExceptionMatches(PyExc_Exception)) return -1;
        PyErr_Clear(); /* whatever a strange tensor raises: the full rule knows it */
        return 0;
    }
    return 1;
}

/* Holds the storages of the scope that nobody tells us the freeing of. 1: done; 0: a tensor is gone; -1 with an exception set. */
static int hold_scope(Call *call) {
    for (int i = 0; i < 2; i++) {
        const Py_ssize_t count = reprise_py_snapshot_tensor_count(call->snapshots[i]);
        for (Py_ssize_t j = 0; j < count; j++) {
            PyObject *tensor = reprise_py_snapshot_tensor(call->snapshots[i], j);
            if (tensor == NULL) return 0;
            PyObject *storage = PyObject_CallMethodObjArgs(tensor, name_storage, NULL);
            const int failed = storage == NULL || hold_foreign(call, storage) < 0;
            Py_XDECREF(storage);
            if (failed) return -1;
        }
    }
    return 1;
}

/* 1: everything of the scope is as it was found; 0: not so; -1 with an exception set. */
static int take_scope(Call *call) {
    for (int i = 0; i < 2; i++) {
        PyObject *snapshot = reprise_py_plan_take(call->site->plans[i]);
        if (snapshot == NULL) return -1;
        if (snapshot == Py_None) {
            Py_DECREF(snapshot);
            return 0;
        }
        call->snapshots[i] = snapshot;
    }
    for (int i = 0; i < call->site->generator_count; i++) {
        const reprise_py_generator *g = &call->site->generators[i];
        call->values[i] = PyBytes_FromStringAndSize((const char *)g->address, (Py_ssize_t)g->size);
        if (call->values[i] == NULL) return -1;
    }
    return 1;
}

static int begin_forward(Call *call, unsigned int options) {
    const Site *site = call->site;
    reprise_py_scope scope;
    reprise_py_scope_start(&scope);
    if (reprise_py_scope_add(&scope, site->items) < 0 || reprise_py_scope_reserve(&scope, (size_t)call->argument_count) < 0) {
        reprise_py_scope_finish(&scope);
        return -1;
    }
    for (int i = 0; i < call->argument_count; i++) {
        const reprise_py_argument *a = &call->arguments[i];
        const reprise_scope_item item = {(void *)a->address, a->size, reprise_py_argument_names[a->index], REPRISE_ITEM_ARGUMENT, 0};
        scope.items[scope.count++] = item;
    }
    const char *name = PyBytes_AsString(site->name);
    struct {
        const char *name, *bytes;
        size_t size;
    } noted[MOST_GENERATORS];
    for (int i = 0; i < site->generator_count; i++) {
        noted[i].name = PyBytes_AsString(site->generators[i].name);
        noted[i].bytes = PyBytes_AsString(call->values[i]) + 16; /* position and words: a digest must not depend on what does not count */
        noted[i].size = site->generators[i].end - 16;
    }
    const reprise_engine_table *table = reprise_py_table();
    reprise_segment s;
    Py_BEGIN_ALLOW_THREADS;
    s = table->forward_begin(name, scope.items, scope.count, options);
    if (s.status == REPRISE_OK)
        for (int i = 0; i < site->generator_count; i++) table->note_generator(s.instance, noted[i].name, noted[i].bytes, noted[i].size);
    Py_END_ALLOW_THREADS;
    reprise_py_scope_finish(&scope);
    call->number = s.instance;
    call->execution = s.execution;
    call->action = (int)s.action;
    call->status = (int)s.status;
    return 0;
}

/* Has numpy come since the site was made, or another bit generator under its own? They belong to every scope. */
static int numpy_changed(const Site *site) {
    if (site->numpy != NULL) {
        PyObject *bits = PyObject_GetAttr(site->numpy, name_bits);
        const int same = bits != NULL && bits == site->bits && Py_TYPE(bits) == site->bits_type;
        if (bits == NULL) PyErr_Clear(); /* the full rule knows what to do about it */
        Py_XDECREF(bits);
        return !same;
    }
    PyObject *modules = PyImport_GetModuleDict();
    return modules == NULL || PyDict_GetItemString(modules, "numpy.random") != NULL;
}

/* begin(module, args, options) -> Call, or None: not the usual case, nothing was begun. */
static PyObject *site_begin(PyObject *object, PyObject *arguments) {
    Site *self = (Site *)object;
    PyObject *module, *args;
    unsigned int options;
    if (!PyArg_ParseTuple(arguments, "OO!I:begin", &module, &PyTuple_Type, &args, &options)) return NULL;
    if (reprise_py_table() == NULL) Py_RETURN_NONE;
    if (PyWeakref_GetObject(self->module) != module || numpy_changed(self)) Py_RETURN_NONE;
    Call *call = reprise_py_call_made(self);
    if (call == NULL) return NULL;
    int state = add_arguments(call, args);
    if (state > 0) state = take_scope(call);
    if (state > 0 && self->holds) state = hold_scope(call);
    if (state > 0 && begin_forward(call, options) < 0) state = -1;
    if (state > 0) return (PyObject *)call;
    const int stop = state < 0 && PyErr_Occurred() != NULL && !PyErr_ExceptionMatches(PyExc_Exception);
    if (!stop) PyErr_Clear(); /* the full rule meets it again, and says it */
    Py_DECREF((PyObject *)call);
    if (stop) return NULL;
    Py_RETURN_NONE;
}

/* ---- the type ----------------------------------------------------------------------------------------------------------------------- */

/* What begin recognises plain tensors, and storages allocated by torch, by. */
PyObject *reprise_py_set_tensor_type(PyObject *module, PyObject *args) {
    PyObject *type, *function;
    (void)module;
    if (!PyArg_ParseTuple(args, "OO:set_tensor_type", &type, &function)) return NULL;
    Py_INCREF(type);
    Py_INCREF(function);
    Py_XDECREF(tensor_type);
    Py_XDECREF(resizable);
    tensor_type = type;
    resizable = function;
    Py_RETURN_NONE;
}

static PyMethodDef site_methods[] = {
    {"begin", site_begin, METH_VARARGS, "begin(module, args, options) -> Call, or None: not the usual case, nothing was begun"},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot site_slots[] = {
    {Py_tp_doc, (void *)"A module that is checkpointed with plain tensors, whose scope is known."},
    {Py_tp_new, (void *)site_new},
    {Py_tp_dealloc, (void *)site_dealloc},
    {Py_tp_methods, site_methods},
    {0, NULL},
};
static PyType_Spec site_spec = {"reprise._reprise.Site", sizeof(Site), 0, Py_TPFLAGS_DEFAULT, site_slots};

int reprise_py_site_ready(PyObject *module) {
    const struct {
        PyObject **name;
        const char *text;
    } names[] = {{&name_storage, "untyped_storage"}, {&name_is_cpu, "is_cpu"}, {&name_bits, "_bit_generator"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if ((*names[i].name = PyUnicode_InternFromString(names[i].text)) == NULL) return -1;
    PyObject *site = PyType_FromSpec(&site_spec);
    if (site == NULL) return -1;
    return PyModule_AddObject(module, "Site", site);
}
