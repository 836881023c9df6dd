/* Call: one forward that a Site began, and its replays. See usual.h. */
#include "usual.h"

#include <stddef.h>
#include <structmember.h>

typedef reprise_py_call Call;

static PyTypeObject *call_type;
static PyObject *name_acquire, *name_release, *name_rest, *name_finish;

/* ---- the replay --------------------------------------------------------------------------------------------------------------------- */

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

/* The exception that is set was raised while `error` (or NULL) was handled. */
static void set_context(PyObject *error) {
    PyObject *kind, *value, *trace;
    if (error == NULL) return;
    PyErr_Fetch(&kind, &value, &trace);
    PyErr_NormalizeException(&kind, &value, &trace);
    if (value != NULL && value != error) {
        Py_INCREF(error);
        PyException_SetContext(value, error);
    }
    PyErr_Restore(kind, value, trace);
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
    /* What stopped the look at Python state will stop the full rule as well, which says it; but not an interrupt: it is kept. */
    PyObject *stop_kind = NULL, *stop = NULL, *stop_trace = NULL;
    if (usual < 0 && PyErr_Occurred() != NULL && !PyErr_ExceptionMatches(PyExc_Exception)) PyErr_Fetch(&stop_kind, &stop, &stop_trace);
    PyErr_Clear();
    if (kind != NULL) {
        PyErr_NormalizeException(&kind, &error, &trace);
        if (trace != NULL) PyException_SetTraceback(error, trace);
    }
    PyObject *outcome = reprise_py_replay_outcome(status, &r);
    PyObject *done = outcome != NULL ? PyObject_CallMethodObjArgs(instance, name_finish, (PyObject *)call, error != NULL ? error : Py_None,
                                                                  gated, outcome, NULL)
                                     : NULL;
    Py_XDECREF(outcome);
    if (done != NULL && stop_kind == NULL) {
        Py_DECREF(done);
        PyErr_Restore(kind, error, trace);
        return result;
    }
    if (done == NULL) set_context(error);
    if (stop_kind != NULL) PyErr_Restore(stop_kind, stop, stop_trace);
    Py_XDECREF(done);
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
    if (self->snapshots[0] == NULL || self->snapshots[1] == NULL) Py_RETURN_NOTIMPLEMENTED; /* being destroyed: the full rule says so */
    int usual = reprise_py_truth(PyObject_CallMethodObjArgs(lock, name_acquire, Py_False, NULL));
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

/* ---- what the full rule asks of a Call ---------------------------------------------------------------------------------------------- */

/* extra() -> items of the arguments, as a list of (address, size, name, flags) */
static PyObject *call_extra(PyObject *object, PyObject *unused) {
    Call *self = (Call *)object;
    (void)unused;
    PyObject *list = PyList_New(self->argument_count);
    for (int i = 0; list != NULL && i < self->argument_count; i++) {
        const reprise_py_argument *a = &self->arguments[i];
        PyObject *item = Py_BuildValue("KnsI", (unsigned long long)a->address, (Py_ssize_t)a->size, reprise_py_argument_names[a->index],
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
        if (values[i] == NULL) { /* the garbage collector broke a cycle in which this call stood */
            PyErr_SetString(PyExc_RuntimeError, "this call is being destroyed");
            Py_CLEAR(list);
            break;
        }
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

static PyObject *call_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    (void)type, (void)args, (void)kwargs;
    PyErr_SetString(PyExc_TypeError, "only Site.begin makes calls");
    return NULL;
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

/* ---- the type ----------------------------------------------------------------------------------------------------------------------- */

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
    {Py_tp_new, (void *)call_new},
    {Py_tp_dealloc, (void *)call_dealloc},
    {Py_tp_traverse, (void *)call_traverse},
    {Py_tp_clear, (void *)call_clear},
    {Py_tp_methods, call_methods},
    {Py_tp_members, call_members},
    {0, NULL},
};
static PyType_Spec call_spec = {"reprise._reprise.Call", sizeof(Call), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, call_slots};

reprise_py_call *reprise_py_call_made(reprise_py_site *site) {
    allocfunc allocate = (allocfunc)PyType_GetSlot(call_type, Py_tp_alloc);
    Call *call = (Call *)allocate(call_type, 0);
    if (call == NULL) return NULL;
    Py_INCREF((PyObject *)site);
    call->site = site;
    return call;
}

int reprise_py_call_ready(PyObject *module) {
    const struct {
        PyObject **name;
        const char *text;
    } names[] = {{&name_acquire, "acquire"}, {&name_release, "release"}, {&name_rest, "_replay_rest"}, {&name_finish, "_finish_rest"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if ((*names[i].name = PyUnicode_InternFromString(names[i].text)) == NULL) return -1;
    PyObject *call = PyType_FromSpec(&call_spec);
    if (call == NULL) return -1;
    call_type = (PyTypeObject *)call;
    Py_INCREF(call);
    return PyModule_AddObject(module, "Call", call);
}
