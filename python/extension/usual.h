/* The usual checkpoint call in as few steps as there are: Site (a module that is checkpointed, site.c) begins Calls (one forward each and
 * its replays, call.c). The usual one is a module with plain host tensors whose scope has not changed since it was found (forward), and a
 * replay that finds everything as it was (nothing to load, no Python state or generator to set). What is not usual is left to the Python
 * code (reprise/pytorch/instance.py), which is the same rule in full: `begin` and `replay` answer None and NotImplemented then, before
 * anything was begun, or call the instance's own methods for the rest of a replay.
 *
 * In Python the same steps were sixty frames; each of them meets cold caches, for the job's own work lies between two of them. */
#pragma once

#include "reprise_py.h"

enum { MOST_ARGUMENTS = 16, MOST_GENERATORS = 4 };

typedef struct {
    PyObject_HEAD PyObject *module; /* weak reference */
    PyObject *name;                 /* bytes: the segment's */
    PyObject *plans[2];             /* of the process-wide generators, and of the module */
    PyObject *items;
    uintptr_t *addresses; /* of the module's buffers, sorted: arguments that lie there are not items of their own */
    size_t address_count;
    int holds;       /* there are storages that were not allocated here: they are kept alive until release */
    PyObject *numpy; /* its RandomState, whose generators are in the scope already, or NULL */
    void *bits;      /* the bit generator under it: addresses to compare with, never followed */
    void *bits_type;
    int generator_count;
    reprise_py_generator generators[MOST_GENERATORS];
} reprise_py_site;

typedef struct {
    uintptr_t address;
    size_t size;
    int index;
} reprise_py_argument;

typedef struct {
    PyObject_HEAD reprise_py_site *site;
    unsigned long long number, execution;
    int action, status;
    PyObject *snapshots[2];
    PyObject *values[MOST_GENERATORS]; /* bytes: each generator as it was */
    PyObject *held;                    /* a list of storages, or NULL */
    reprise_py_argument arguments[MOST_ARGUMENTS];
    int argument_count;
} reprise_py_call;

extern const char *const reprise_py_argument_names[MOST_ARGUMENTS];

/* A call with nothing in it. */
reprise_py_call *reprise_py_call_made(reprise_py_site *site);

/* 1 true, 0 false, -1 with an exception set. Takes the reference. */
static inline int reprise_py_truth(PyObject *value) {
    if (value == NULL) return -1;
    const int result = PyObject_IsTrue(value);
    Py_DECREF(value);
    return result;
}
