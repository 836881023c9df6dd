/* What the parts of the _reprise extension share. The extension is the hot path of the Python adapters: one binary for all Python
 * versions (stable ABI from 3.9). It never links libreprise: the engine's table comes in as an address (open), so that the same file
 * works preloaded and not, and has no undefined reprise_* symbol (whose presence marks a native program to the preload).
 * Called with the GIL held; the GIL is released while the engine copies or waits. */
#ifndef REPRISE_PY_H
#define REPRISE_PY_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "reprise/detail/engine_abi.h"

/* engine.c: the calls of the table. */
extern PyMethodDef reprise_py_engine_methods[];
const reprise_engine_table *reprise_py_table(void); /* NULL: not open */

/* items.c: a scope as the packed array that the engine takes. */
extern PyType_Spec reprise_py_items_spec;
int reprise_py_items_ready(PyObject *module);
/* A growing array of items; `add` appends those of an Items, of None, or of a sequence of tuples (0, or -1 with an exception set).
 * The names stay valid until `finish`, as long as the added objects live. */
typedef struct {
    reprise_scope_item *items;
    size_t count, capacity;
    PyObject *names;             /* bytes objects that items point into, or NULL */
    reprise_scope_item room[64]; /* small scopes need no allocation */
} reprise_py_scope;
void reprise_py_scope_start(reprise_py_scope *scope);
int reprise_py_scope_add(reprise_py_scope *scope, PyObject *object);
int reprise_py_scope_reserve(reprise_py_scope *scope, size_t more);
void reprise_py_scope_finish(reprise_py_scope *scope);
int reprise_py_is_items(PyObject *object);
const reprise_scope_item *reprise_py_items_view(PyObject *object, size_t *count);

/* plan.c, snapshot.c: the structure of a scope, and what its containers held at one moment. */
int reprise_py_plan_ready(PyObject *module);
int reprise_py_snapshot_ready(PyObject *module);

/* How the content of a container is read; the values are shared with python/reprise/pytorch/pystate.py. */
enum reprise_py_kind {
    KIND_ATTRIBUTES = 0, /* the __dict__ of an owner, which is held weakly */
    KIND_DICT = 1,
    KIND_LIST = 2,
    KIND_TUPLE = 3,
    KIND_CELL = 4,  /* a closure's cell */
    KIND_ENTRY = 5, /* one entry of a dict: a named global */
    KIND_OTHER = 6  /* functions, partials, deques, sets, iterators and so on: read by a Python function, which returns a tuple */
};

typedef struct {
    PyObject *container; /* borrowed: reached from a verified parent, see plan.c */
    PyObject *owner;     /* weak reference: what keeps the container alive, where no slot of an earlier entry does; or NULL */
    PyObject *key;       /* KIND_ENTRY: the name; KIND_OTHER: passed to the reader */
    int kind;
    int rollback;   /* 0: compared when the plan is checked, never reported as changed (tuples, hook tables, managed modules) */
    int atoms_only; /* numbers and strings alone: may grow and shrink without changing the scope */
    Py_ssize_t first, count;
} reprise_py_entry;

typedef struct {
    PyObject *key; /* strong if it is a number or a string, else an address to compare with; or NULL */
    void *value;   /* an address to compare with, never followed */
    void *type;
    int holds_key;
} reprise_py_slot;

typedef struct {
    Py_ssize_t entry, slot;
    size_t address, size;
    size_t data; /* the tensor's own data_ptr(): one call tells that nothing moved; 0: not known */
} reprise_py_tensor;

typedef struct {
    PyObject_HEAD reprise_py_entry *entries;
    Py_ssize_t entry_count;
    reprise_py_slot *slots;
    Py_ssize_t slot_count;
    reprise_py_tensor *tensors;
    Py_ssize_t tensor_count;
    PyObject *reader;
} reprise_py_plan;

/* Reads the content of a container into `visit(context, key, value)`, key NULL where there is none, both borrowed. Stops when visit
 * returns non-zero and returns that; -1 with an exception set on an error. */
typedef int (*reprise_py_visit)(void *context, PyObject *key, PyObject *value);
int reprise_py_read(int kind, PyObject *container, PyObject *key, PyObject *reader, reprise_py_visit visit, void *context);
/* Address and size of a storage, or of a tensor's storage, by their Python methods; 0, or -1 with an exception set. */
int reprise_py_storage_range(PyObject *storage, size_t *address, size_t *size);
int reprise_py_storage(PyObject *tensor, size_t *address, size_t *size);
/* A tensor's data_ptr(); 0 where it has none (no exception is left set). */
size_t reprise_py_data(PyObject *tensor);
/* A new Snapshot of `plan`, filled by plan.c through the two functions below. */
typedef struct reprise_py_snapshot reprise_py_snapshot;
reprise_py_snapshot *reprise_py_snapshot_new(reprise_py_plan *plan);
int reprise_py_snapshot_open(reprise_py_snapshot *snapshot, Py_ssize_t entry, PyObject *container);
/* Index of the first tensor whose storage is not where the plan says, -1: none, -2 with an exception set. */
Py_ssize_t reprise_py_snapshot_moved(reprise_py_snapshot *snapshot);
/* Does any container that is rolled back hold something else now? -1 with an exception set. */
int reprise_py_snapshot_differs(PyObject *object);
/* The tensors of the scope, in the plan's order; borrowed, NULL where there is none. */
Py_ssize_t reprise_py_snapshot_tensor_count(PyObject *object);
PyObject *reprise_py_snapshot_tensor(PyObject *object, Py_ssize_t index);
int reprise_py_snapshot_push(reprise_py_snapshot *snapshot, PyObject *key, PyObject *value);

int reprise_py_is_plan(PyObject *object);
/* A new Snapshot, None when the structure is no longer as it was when the plan was made, or NULL with an exception set. */
PyObject *reprise_py_plan_take(PyObject *object);

/* generator.c: a generator that lies in plain memory but is the adapter's to compare, by the members that count (generators.py,
 * TorchMemory). */
enum { REPRISE_PY_NORMALS = 4 };
typedef struct {
    PyObject *name; /* bytes */
    size_t address, size, end;
    int normals;
    struct {
        size_t low, high, flag;
    } normal[REPRISE_PY_NORMALS];
} reprise_py_generator;
/* From (name, address, size, end of the words, ((low, high, flag), ...)); -1 with an exception set. */
int reprise_py_generator_read(PyObject *tuple, reprise_py_generator *generator);
int reprise_py_generator_same(const reprise_py_generator *generator, const unsigned char *a, const unsigned char *b);

/* engine.c: (status, (bytes changed, gated kept, gated in conflict, stray bytes)). */
PyObject *reprise_py_replay_outcome(reprise_status status, const reprise_replay_result *r);

/* site.c and call.c: the usual checkpoint call. */
int reprise_py_site_ready(PyObject *module);
int reprise_py_call_ready(PyObject *module);
PyObject *reprise_py_set_tensor_type(PyObject *module, PyObject *args);

#endif
