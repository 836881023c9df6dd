/* Site and Call: the usual checkpoint call in as few steps as there are. The usual one is a module with plain host tensors whose scope has
 * not changed since it was found (forward), and a replay that finds everything as it was (nothing to load, no Python state or generator to
 * set). What is not usual is left to the Python code (reprise/pytorch/instance.py), which is the same rule in full: `begin` and `replay`
 * answer None and NotImplemented then, before anything was begun, or call the instance's own methods for the rest of a replay.
 *
 * In Python the same steps were sixty frames; each of them meets cold caches, for the job's own work lies between two of them. */
#include "reprise_py.h"

#include <stdlib.h>
#include <string.h>
#include <structmember.h>

enum { MOST_ARGUMENTS = 16, MOST_GENERATORS = 4 };

typedef struct {
    PyObject_HEAD PyObject *module; /* weak reference */
    PyObject *name;                 /* bytes: the segment's */
    PyObject *plans[2];             /* of the process-wide generators, and of the module */
    PyObject *items;
    uintptr_t *addresses; /* of the module's buffers, sorted: arguments that lie there are not items of their own */
    size_t address_count;
    int holds;      /* there are storages that were not allocated here: they are kept alive until release */
    int with_numpy; /* numpy's generators are in the scope already */
    int generator_count;
    reprise_py_generator generators[MOST_GENERATORS];
} Site;

typedef struct {
    uintptr_t address;
    size_t size;
    int index;
} Argument;

typedef struct {
    PyObject_HEAD Site *site;
    unsigned long long number, execution;
    int action, status;
    PyObject *snapshots[2];
    PyObject *values[MOST_GENERATORS]; /* bytes: each generator as it was */
    PyObject *held;                    /* a list of storages, or NULL */
    Argument arguments[MOST_ARGUMENTS];
    int argument_count;
} Call;

static PyTypeObject *call_type;
static PyObject *tensor_type, *resizable;
static PyObject *name_storage, *name_data_ptr, *name_nbytes, *name_is_cpu, *name_acquire, *name_release, *name_rest, *name_finish;
static const char *const argument_names[MOST_ARGUMENTS] = {
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

/* Site(module's weak reference, segment, plan of the generators, plan of the module, items, addresses, generators, holds, with_numpy) */
static PyObject *site_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *module, *name, *first, *second, *items, *addresses, *generators;
    int holds, with_numpy;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "OUOOOOO!pp:Site", &module, &name, &first, &second, &items, &addresses, &PyList_Type, &generators, &holds,
                          &with_numpy))
        return NULL;
    if (!reprise_py_is_plan(first) || !reprise_py_is_plan(second) || !reprise_py_is_items(items)) {
        PyErr_SetString(PyExc_TypeError, "a Site needs two Plans and Items");
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
    self->with_numpy = with_numpy;
    self->name = PyUnicode_AsEncodedString(name, "utf-8", "replace");
    int failed = self->name == NULL || read_addresses(self, addresses) < 0;
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

/* ---- the forward ----------------------------------------------------------------------------------------------------------------------
 */

/* 1 true, 0 false, -1 with an exception set. Takes the reference. */
static int truth(PyObject *value) {
    if (value == NULL) return -1;
    const int result = PyObject_IsTrue(value);
    Py_DECREF(value);
    return result;
}

static int hold(Call *call, PyObject *storage) {
    if (call->held == NULL && (call->held = PyList_New(0)) == NULL) return -1;
    return PyList_Append(call->held, storage);
}

/* Address and size of a storage; holds it when it was not allocated here. -1 with an exception set. */
static int measure(Call *call, PyObject *storage, uintptr_t *address, size_t *size, int holds) {
    PyObject *a = PyObject_CallMethodObjArgs(storage, name_data_ptr, NULL);
    PyObject *n = a != NULL ? PyObject_CallMethodObjArgs(storage, name_nbytes, NULL) : NULL;
    if (n != NULL) {
        *address = (uintptr_t)PyLong_AsSize_t(a);
        *size = PyLong_AsSize_t(n);
    }
    Py_XDECREF(a);
    Py_XDECREF(n);
    if (PyErr_Occurred()) return -1;
    if (!holds) return 0;
    const int ours = truth(PyObject_CallFunctionObjArgs(resizable, storage, NULL));
    if (ours < 0) return -1;
    return ours ? 0 : hold(call, storage);
}

/* 1: a plain host tensor, listed; 0: not one; -1 with an exception set. */
static int add_argument(Call *call, PyObject *tensor, int index) {
    if ((PyObject *)Py_TYPE(tensor) != tensor_type || index >= MOST_ARGUMENTS) return 0;
    const int host = truth(PyObject_GetAttr(tensor, name_is_cpu));
    if (host <= 0) return host;
    PyObject *storage = PyObject_CallMethodObjArgs(tensor, name_storage, NULL);
    if (storage == NULL) return -1; /* sparse, functional */
    uintptr_t address = 0;
    size_t size = 0;
    const int failed = measure(call, storage, &address, &size, 1);
    Py_DECREF(storage);
    if (failed) return -1;
    if (address == 0 || size == 0) return 0;
    for (int i = 0; i < call->argument_count; i++)
        if (call->arguments[i].address == address) return 0; /* two views of one storage: the full rule merges them */
    if (known_address(call->site, address)) return 1;
    const Argument argument = {address, size, index};
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

/* Storages of the scope that nobody tells us the freeing of. */
static int hold_scope(Call *call) {
    for (int i = 0; i < 2; i++) {
        const Py_ssize_t count = reprise_py_snapshot_tensor_count(call->snapshots[i]);
        for (Py_ssize_t j = 0; j < count; j++) {
            PyObject *tensor = reprise_py_snapshot_tensor(call->snapshots[i], j);
            PyObject *storage = tensor != NULL ? PyObject_CallMethodObjArgs(tensor, name_storage, NULL) : NULL;
            const int ours = storage != NULL ? truth(PyObject_CallFunctionObjArgs(resizable, storage, NULL)) : -1;
            const int failed = ours < 0 || (ours == 0 && hold(call, storage) < 0);
            Py_XDECREF(storage);
            if (failed) return -1;
        }
    }
    return 0;
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
        const Argument *a = &call->arguments[i];
        const reprise_scope_item item = {(void *)a->address, a->size, argument_names[a->index], REPRISE_ITEM_ARGUMENT, 0};
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

/* Has numpy come since the site was made? Its generators belong to every scope then. */
static int numpy_came(const Site *site) {
    if (site->with_numpy) return 0;
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
    if (PyWeakref_GetObject(self->module) != module || numpy_came(self)) Py_RETURN_NONE;
    allocfunc allocate = (allocfunc)PyType_GetSlot(call_type, Py_tp_alloc);
    Call *call = (Call *)allocate(call_type, 0);
    if (call == NULL) return NULL;
    Py_INCREF((PyObject *)self);
    call->site = self;
    int state = add_arguments(call, args);
    if (state > 0) state = take_scope(call);
    if (state > 0 && self->holds && hold_scope(call) < 0) state = -1;
    if (state > 0 && begin_forward(call, options) < 0) state = -1;
    if (state > 0) return (PyObject *)call;
    Py_DECREF((PyObject *)call);
    if (state < 0 && !PyErr_ExceptionMatches(PyExc_Exception)) return NULL;
    PyErr_Clear(); /* the full rule meets it again, and says it */
    Py_RETURN_NONE;
}

/* ---- the replay ------------------------------------------------------------------------------------------------------------------------
 */

/* 1: generators and Python state are as the forward found them; 0: not; -1 with an exception set. */
static int as_it_was(Call *call) {
    for (int i = 0; i < call->site->generator_count; i++) {
        const reprise_py_generator *g = &call->site->generators[i];
        if (!reprise_py_generator_same(g, (const unsigned char *)PyBytes_AsString(call->values[i]), (const unsigned char *)g->address))
            return 0;
    }
    for (int i = 0; i < 2; i++) {
        const int changed = reprise_py_snapshot_differs(call->snapshots[i]);
        if (changed != 0) return changed < 0 ? -1 : 0;
    }
    return 1;
}

static int in_place(Call *call) {
    for (int i = 0; i < 2; i++) {
        const Py_ssize_t moved = reprise_py_snapshot_moved((reprise_py_snapshot *)call->snapshots[i]);
        if (moved != -1) return moved == -2 ? -1 : 0;
    }
    return 1;
}

/* Is every one of these ranges the raw state of a generator? No tensor can meet such a one. */
static int only_generators(const Call *call, const reprise_range *ranges, size_t count) {
    size_t item_count;
    const reprise_scope_item *items = reprise_py_items_view(call->site->items, &item_count);
    for (size_t i = 0; i < count; i++) {
        const uintptr_t begin = (uintptr_t)ranges[i].address, end = begin + ranges[i].size;
        size_t j = 0;
        while (j < item_count && !((items[j].flags & REPRISE_ITEM_GENERATOR) != 0 && (uintptr_t)items[j].address <= begin &&
                                   end <= (uintptr_t)items[j].address + items[j].size))
            j++;
        if (j == item_count) return 0;
    }
    return 1;
}

/* The end of a replay that began as usual. Takes `result` (NULL: an exception is set), returns it or NULL. */
static PyObject *finish(Call *call, PyObject *instance, unsigned long long execution, PyObject *gated, PyObject *result) {
    PyObject *kind, *error, *trace;
    PyErr_Fetch(&kind, &error, &trace);
    const reprise_engine_table *table = reprise_py_table();
    const reprise_segment s = {call->number, execution, REPRISE_REPLAY, REPRISE_OK};
    reprise_replay_result r = {0, 0, 0, 0};
    reprise_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = table->replay_end(s, &r);
    Py_END_ALLOW_THREADS;
    int usual = status == REPRISE_OK && r.gated_kept == 0 && r.gated_conflict == 0;
    if (usual) usual = as_it_was(call);
    if (usual == 1) {
        PyErr_Restore(kind, error, trace);
        return result;
    }
    PyErr_Clear(); /* what stopped the look at Python state will stop the full rule as well, which says it */
    if (kind != NULL) {
        PyErr_NormalizeException(&kind, &error, &trace);
        if (trace != NULL) PyException_SetTraceback(error, trace);
    }
    PyObject *outcome = Py_BuildValue("i(KKKK)", (int)status, (unsigned long long)r.bytes_changed, (unsigned long long)r.gated_kept,
                                      (unsigned long long)r.gated_conflict, (unsigned long long)r.stray_bytes);
    PyObject *done = outcome != NULL ? PyObject_CallMethodObjArgs(instance, name_finish, (PyObject *)call, error != NULL ? error : Py_None,
                                                                  gated, outcome, NULL)
                                     : NULL;
    Py_XDECREF(outcome);
    if (done != NULL) {
        Py_DECREF(done);
        PyErr_Restore(kind, error, trace);
        return result;
    }
    Py_XDECREF(result);
    Py_XDECREF(kind);
    Py_XDECREF(error);
    Py_XDECREF(trace);
    return NULL;
}

static PyObject *run(Call *call, PyObject *instance, PyObject *function, PyObject *args, PyObject *kwargs, PyObject *gated) {
    const reprise_engine_table *table = reprise_py_table();
    const char *name = PyBytes_AsString(call->site->name);
    reprise_range ranges[32];
    const size_t room = sizeof ranges / sizeof ranges[0];
    size_t dirty = 0;
    const unsigned int options = gated == Py_True ? REPRISE_REPLAY_GATED : 0;
    reprise_segment s;
    Py_BEGIN_ALLOW_THREADS;
    s = table->replay_begin(name, call->number, options);
    if (s.status == REPRISE_OK) dirty = table->replay_dirty(s.execution, ranges, room);
    Py_END_ALLOW_THREADS;
    if (s.status != REPRISE_OK) return PyObject_CallMethod(instance, "_rejected", "i", (int)s.status);
    if (dirty > room || !only_generators(call, ranges, dirty)) {
        PyObject *execution = PyLong_FromUnsignedLongLong(s.execution);
        PyObject *result = execution != NULL ? PyObject_CallMethodObjArgs(instance, name_rest, args, kwargs, execution, gated, NULL) : NULL;
        Py_XDECREF(execution);
        return result;
    }
    return finish(call, instance, s.execution, gated, PyObject_Call(function, args, kwargs));
}

/* replay(instance, lock, function, args, kwargs, gated) -> what the function returns, or NotImplemented: not the usual case, nothing begun.
 */
static PyObject *call_replay(PyObject *object, PyObject *arguments) {
    Call *self = (Call *)object;
    PyObject *instance, *lock, *function, *args, *kwargs, *gated;
    if (!PyArg_ParseTuple(arguments, "OOOO!O!O:replay", &instance, &lock, &function, &PyTuple_Type, &args, &PyDict_Type, &kwargs, &gated))
        return NULL;
    int usual = truth(PyObject_CallMethodObjArgs(lock, name_acquire, Py_False, NULL));
    if (usual <= 0) {
        if (usual < 0) return NULL;
        Py_RETURN_NOTIMPLEMENTED;
    }
    usual = in_place(self);
    if (usual > 0) usual = as_it_was(self);
    PyObject *result = NULL;
    if (usual > 0) {
        result = run(self, instance, function, args, kwargs, gated);
    } else if (usual == 0) {
        result = Py_NotImplemented;
        Py_INCREF(result);
    }
    PyObject *kind, *error, *trace;
    PyErr_Fetch(&kind, &error, &trace);
    PyObject *released = PyObject_CallMethodObjArgs(lock, name_release, NULL);
    if (released == NULL) PyErr_Clear();
    Py_XDECREF(released);
    PyErr_Restore(kind, error, trace);
    return result;
}

/* ---- what the full rule asks of a Call
 * --------------------------------------------------------------------------------------------------- */

/* extra() -> items of the arguments, as a list of (address, size, name, flags) */
static PyObject *call_extra(PyObject *object, PyObject *unused) {
    Call *self = (Call *)object;
    (void)unused;
    PyObject *list = PyList_New(self->argument_count);
    for (int i = 0; list != NULL && i < self->argument_count; i++) {
        const Argument *a = &self->arguments[i];
        PyObject *item = Py_BuildValue("KnsI", (unsigned long long)a->address, (Py_ssize_t)a->size, argument_names[a->index],
                                       (unsigned int)REPRISE_ITEM_ARGUMENT);
        if (item == NULL)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, i, item);
    }
    return list;
}

static PyObject *list_of(PyObject *const *values, int count) {
    PyObject *list = PyList_New(count);
    for (int i = 0; list != NULL && i < count; i++) {
        Py_INCREF(values[i]);
        PyList_SetItem(list, i, values[i]);
    }
    return list;
}

static PyObject *call_snapshots(PyObject *object, PyObject *unused) {
    (void)unused;
    return list_of(((Call *)object)->snapshots, 2);
}

static PyObject *call_values(PyObject *object, PyObject *unused) {
    (void)unused;
    return list_of(((Call *)object)->values, ((Call *)object)->site->generator_count);
}

static PyObject *call_held(PyObject *object, PyObject *unused) {
    Call *self = (Call *)object;
    (void)unused;
    PyObject *held = self->held != NULL ? self->held : PyList_New(0);
    if (held == self->held) Py_INCREF(held);
    return held;
}

static int call_clear(PyObject *object) {
    Call *self = (Call *)object;
    for (int i = 0; i < 2; i++) Py_CLEAR(self->snapshots[i]);
    Py_CLEAR(self->held);
    return 0;
}

static int call_traverse(PyObject *object, visitproc visit, void *arg) {
    Call *self = (Call *)object;
    Py_VISIT(Py_TYPE(object));
    for (int i = 0; i < 2; i++) Py_VISIT(self->snapshots[i]);
    Py_VISIT(self->held);
    return 0;
}

static void call_dealloc(PyObject *object) {
    Call *self = (Call *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    call_clear(object);
    for (int i = 0; i < MOST_GENERATORS; i++) Py_XDECREF(self->values[i]);
    Py_XDECREF((PyObject *)self->site);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

/* ---- the types
 * ------------------------------------------------------------------------------------------------------------------------------ */

/* usual(tensor type, resizable): what begin recognises plain tensors, and storages allocated by torch, by. */
PyObject *reprise_py_usual(PyObject *module, PyObject *args) {
    PyObject *type, *function;
    (void)module;
    if (!PyArg_ParseTuple(args, "OO:usual", &type, &function)) return NULL;
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

static PyMethodDef call_methods[] = {
    {"replay", call_replay, METH_VARARGS, "replay(instance, lock, function, args, kwargs, gated) -> its result, or NotImplemented"},
    {"extra", call_extra, METH_NOARGS, "extra() -> the items of the arguments"},
    {"snapshots", call_snapshots, METH_NOARGS, "snapshots() -> [of the generators, of the module]"},
    {"values", call_values, METH_NOARGS, "values() -> the generators' states"},
    {"held", call_held, METH_NOARGS, "held() -> storages kept alive"},
    {NULL, NULL, 0, NULL},
};
static PyMemberDef call_members[] = {
    {"number", T_ULONGLONG, offsetof(Call, number), READONLY, NULL},
    {"execution", T_ULONGLONG, offsetof(Call, execution), READONLY, NULL},
    {"action", T_INT, offsetof(Call, action), READONLY, NULL},
    {"status", T_INT, offsetof(Call, status), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot call_slots[] = {
    {Py_tp_doc, (void *)"One forward begun by Site.begin, and its replays."},
    {Py_tp_dealloc, (void *)call_dealloc},
    {Py_tp_traverse, (void *)call_traverse},
    {Py_tp_clear, (void *)call_clear},
    {Py_tp_methods, call_methods},
    {Py_tp_members, call_members},
    {0, NULL},
};
static PyType_Spec call_spec = {"reprise._reprise.Call", sizeof(Call), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, call_slots};

int reprise_py_call_ready(PyObject *module) {
    const struct {
        PyObject **name;
        const char *text;
    } names[] = {{&name_storage, "untyped_storage"}, {&name_data_ptr, "data_ptr"},  {&name_nbytes, "nbytes"},
                 {&name_is_cpu, "is_cpu"},           {&name_acquire, "acquire"},    {&name_release, "release"},
                 {&name_rest, "_replay_rest"},       {&name_finish, "_finish_rest"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if ((*names[i].name = PyUnicode_InternFromString(names[i].text)) == NULL) return -1;
    PyObject *site = PyType_FromSpec(&site_spec), *call = PyType_FromSpec(&call_spec);
    if (site == NULL || call == NULL) return -1;
    call_type = (PyTypeObject *)call;
    Py_INCREF(call);
    if (PyModule_AddObject(module, "Site", site) < 0) return -1;
    return PyModule_AddObject(module, "Call", call);
}
