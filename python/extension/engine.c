/* The calls of the engine's table that run in every forward and replay. */
#define _GNU_SOURCE /* RTLD_DEFAULT */
#include "reprise_py.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static const reprise_engine_table *table;

const reprise_engine_table *reprise_py_table(void) { return table; }

static int ready(void) {
    if (table != NULL) return 1;
    PyErr_SetString(PyExc_RuntimeError, "reprise: the engine is not open (call open(address of the table) first)");
    return 0;
}

static PyObject *open_table(PyObject *module, PyObject *argument) {
    (void)module;
    const reprise_engine_table *there = PyLong_AsVoidPtr(argument);
    if (there == NULL) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "reprise: the table's address is 0");
        return NULL;
    }
    if (there->abi != REPRISE_ENGINE_ABI || there->size < sizeof *there)
        return PyErr_Format(PyExc_RuntimeError, "reprise: the engine's table is version %u, this extension needs %u; install them together",
                            there->abi, REPRISE_ENGINE_ABI);
    table = there;
    Py_RETURN_NONE;
}

static PyObject *segment_tuple(reprise_segment s) {
    return Py_BuildValue("KKii", (unsigned long long)s.instance, (unsigned long long)s.execution, (int)s.action, (int)s.status);
}

static PyObject *forward_begin(PyObject *module, PyObject *args) {
    const char *name;
    PyObject *packed = NULL, *extra = NULL;
    unsigned int options = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "s|OOI:forward_begin", &name, &packed, &extra, &options) || !ready()) return NULL;
    reprise_py_scope scope;
    reprise_py_scope_start(&scope);
    if (reprise_py_scope_add(&scope, packed) < 0 || reprise_py_scope_add(&scope, extra) < 0) {
        reprise_py_scope_finish(&scope);
        return NULL;
    }
    reprise_segment s;
    Py_BEGIN_ALLOW_THREADS;
    s = table->forward_begin(name, scope.items, scope.count, options);
    Py_END_ALLOW_THREADS;
    reprise_py_scope_finish(&scope);
    return segment_tuple(s);
}

static PyObject *segment_end(PyObject *module, PyObject *args) {
    unsigned long long instance, execution;
    int action = REPRISE_REPLAY;
    (void)module;
    if (!PyArg_ParseTuple(args, "KK|i:segment_end", &instance, &execution, &action) || !ready()) return NULL;
    reprise_segment s = {instance, execution, (reprise_action)action, REPRISE_OK};
    reprise_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = table->segment_end(s);
    Py_END_ALLOW_THREADS;
    return PyLong_FromLong(status);
}

static PyObject *replay_begin(PyObject *module, PyObject *args) {
    const char *name;
    unsigned long long instance;
    unsigned int options = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "sK|I:replay_begin", &name, &instance, &options) || !ready()) return NULL;
    reprise_segment s;
    Py_BEGIN_ALLOW_THREADS;
    s = table->replay_begin(name, instance, options);
    Py_END_ALLOW_THREADS;
    return segment_tuple(s);
}

PyObject *reprise_py_replay_outcome(reprise_status status, const reprise_replay_result *r) {
    return Py_BuildValue("i(KKKK)", (int)status, (unsigned long long)r->bytes_changed, (unsigned long long)r->gated_kept,
                         (unsigned long long)r->gated_conflict, (unsigned long long)r->stray_bytes);
}

static PyObject *replay_end(PyObject *module, PyObject *args) {
    unsigned long long instance, execution;
    (void)module;
    if (!PyArg_ParseTuple(args, "KK:replay_end", &instance, &execution) || !ready()) return NULL;
    reprise_segment s = {instance, execution, REPRISE_REPLAY, REPRISE_OK};
    reprise_replay_result r = {0, 0, 0, 0};
    reprise_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = table->replay_end(s, &r);
    Py_END_ALLOW_THREADS;
    return reprise_py_replay_outcome(status, &r);
}

static PyObject *replay_dirty(PyObject *module, PyObject *argument) {
    unsigned long long execution = PyLong_AsUnsignedLongLong(argument);
    (void)module;
    if (PyErr_Occurred() || !ready()) return NULL;
    reprise_range room[32], *ranges = room;
    size_t capacity = sizeof room / sizeof room[0], count;
    while ((count = table->replay_dirty(execution, ranges, capacity)) > capacity) {
        if (ranges != room) free(ranges);
        capacity = count;
        ranges = malloc(capacity * sizeof *ranges);
        if (ranges == NULL) return PyErr_NoMemory();
    }
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list != NULL && i < count; i++) {
        PyObject *pair = Py_BuildValue("Kn", (unsigned long long)(uintptr_t)ranges[i].address, (Py_ssize_t)ranges[i].size);
        if (pair == NULL)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, (Py_ssize_t)i, pair);
    }
    if (ranges != room) free(ranges);
    return list;
}

/* Calls that take an instance and return a status. */
static PyObject *with_instance(PyObject *argument, reprise_status (*call)(uint64_t)) {
    unsigned long long instance = PyLong_AsUnsignedLongLong(argument);
    if (PyErr_Occurred()) return NULL;
    reprise_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = call(instance);
    Py_END_ALLOW_THREADS;
    return PyLong_FromLong(status);
}

static PyObject *segment_abort(PyObject *module, PyObject *argument) {
    (void)module;
    return ready() ? with_instance(argument, table->segment_abort) : NULL;
}

static PyObject *release(PyObject *module, PyObject *argument) {
    (void)module;
    return ready() ? with_instance(argument, table->release) : NULL;
}

static PyObject *step(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    if (!ready()) return NULL;
    reprise_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = table->step();
    Py_END_ALLOW_THREADS;
    return PyLong_FromLong(status);
}

static PyObject *note_replay(PyObject *module, PyObject *args) {
    unsigned long long instance, clone_bytes;
    (void)module;
    if (!PyArg_ParseTuple(args, "KK:note_replay", &instance, &clone_bytes) || !ready()) return NULL;
    return PyLong_FromLong(table->note_replay(instance, clone_bytes));
}

static PyObject *note_generator(PyObject *module, PyObject *args) {
    unsigned long long instance, address;
    const char *provider;
    Py_ssize_t size;
    (void)module;
    if (!PyArg_ParseTuple(args, "KsKn:note_generator", &instance, &provider, &address, &size) || !ready()) return NULL;
    return PyLong_FromLong(table->note_generator(instance, provider, (const void *)(uintptr_t)address, (size_t)size));
}

static PyObject *mode(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    return ready() ? PyLong_FromLong(table->mode()) : NULL;
}

static PyObject *last_error(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    if (!ready()) return NULL;
    const char *text = table->last_error();
    return PyUnicode_DecodeUTF8(text ? text : "", text ? (Py_ssize_t)strlen(text) : 0, "replace");
}

/* digest(address, size): 64 bits of some bytes. Used to see whether a tensor was filled after it had been saved, nothing else. */
static PyObject *digest(PyObject *module, PyObject *args) {
    unsigned long long address;
    Py_ssize_t size;
    (void)module;
    if (!PyArg_ParseTuple(args, "Kn:digest", &address, &size)) return NULL;
    const unsigned char *p = (const unsigned char *)(uintptr_t)address;
    uint64_t h = 0x9e3779b97f4a7c15u ^ (uint64_t)size;
    Py_ssize_t i = 0;
    for (; i + 8 <= size; i += 8) {
        uint64_t word;
        memcpy(&word, p + i, 8);
        h = (h ^ word) * 0xff51afd7ed558ccdu;
        h ^= h >> 29;
    }
    for (; i < size; i++) h = (h ^ p[i]) * 0x100000001b3u;
    return PyLong_FromUnsignedLongLong(h ^ (h >> 32));
}

/* attached(level): tells libreprise.so how far this process is instrumented, without ctypes (whose import would cost every start). */
static PyObject *attached(PyObject *module, PyObject *argument) {
    (void)module;
    long level = PyLong_AsLong(argument);
    if (PyErr_Occurred()) return NULL;
    int (*call)(int) = (int (*)(int))dlsym(RTLD_DEFAULT, "reprise_attached");
    if (call == NULL) {
        dlerror();
        Py_RETURN_NONE;
    }
    return PyLong_FromLong(call((int)level));
}

/* peek(address, size): a copy of some bytes. */
static PyObject *peek(PyObject *module, PyObject *args) {
    unsigned long long address;
    Py_ssize_t size;
    (void)module;
    if (!PyArg_ParseTuple(args, "Kn:peek", &address, &size)) return NULL;
    return PyBytes_FromStringAndSize((const char *)(uintptr_t)address, size);
}

/* same(a, b, size): are these bytes equal? */
static PyObject *same(PyObject *module, PyObject *args) {
    unsigned long long a, b;
    Py_ssize_t size;
    (void)module;
    if (!PyArg_ParseTuple(args, "KKn:same", &a, &b, &size)) return NULL;
    return PyBool_FromLong(memcmp((const void *)(uintptr_t)a, (const void *)(uintptr_t)b, (size_t)size) == 0);
}

PyMethodDef reprise_py_engine_methods[] = {
    {"open", open_table, METH_O, "open(address): use the engine whose table stands there."},
    {"forward_begin", forward_begin, METH_VARARGS, "forward_begin(name, items, extra, options) -> (instance, execution, action, status)"},
    {"segment_end", segment_end, METH_VARARGS, "segment_end(instance, execution[, action]) -> status"},
    {"replay_begin", replay_begin, METH_VARARGS, "replay_begin(name, instance, options) -> (instance, execution, action, status)"},
    {"replay_end", replay_end, METH_VARARGS, "replay_end(instance, execution) -> (status, (changed, kept, conflict, stray))"},
    {"replay_dirty", replay_dirty, METH_O, "replay_dirty(execution) -> [(address, size)]"},
    {"segment_abort", segment_abort, METH_O, "segment_abort(instance) -> status"},
    {"release", release, METH_O, "release(instance) -> status"},
    {"step", step, METH_NOARGS, "step() -> status"},
    {"note_replay", note_replay, METH_VARARGS, "note_replay(instance, clone_bytes) -> status"},
    {"note_generator", note_generator, METH_VARARGS, "note_generator(instance, provider, address, size) -> status"},
    {"mode", mode, METH_NOARGS, "mode() -> 0 off, 1 audit, 2 protect"},
    {"last_error", last_error, METH_NOARGS, "last_error() -> text"},
    {"attached", attached, METH_O, "attached(level): 1 the adapter's code has run, 2 a framework is instrumented"},
    {"digest", digest, METH_VARARGS, "digest(address, size) -> int"},
    {"peek", peek, METH_VARARGS, "peek(address, size) -> bytes"},
    {"set_tensor_type", reprise_py_set_tensor_type, METH_VARARGS,
     "set_tensor_type(tensor type, resizable): what Site.begin recognises plain tensors and own storages by"},
    {"same", same, METH_VARARGS, "same(a, b, size) -> bool"},
    {NULL, NULL, 0, NULL},
};
