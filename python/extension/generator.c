/* A torch generator as plain memory. */
#include "reprise_py.h"

#include <string.h>

int reprise_py_generator_read(PyObject *tuple, reprise_py_generator *g) {
    PyObject *name, *normals;
    if (!PyArg_ParseTuple(tuple, "UnnnO!;a generator is (name, address, size, end, normals)", &name, &g->address, &g->size, &g->end,
                          &PyTuple_Type, &normals))
        return -1;
    Py_ssize_t count = PyTuple_Size(normals);
    if (count > REPRISE_PY_NORMALS || g->size < 16 || g->end < 16 || g->end > g->size) {
        PyErr_SetString(PyExc_ValueError, "a generator of another layout");
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!PyArg_ParseTuple(PyTuple_GetItem(normals, i), "nnn", &g->normal[i].low, &g->normal[i].high, &g->normal[i].flag)) return -1;
        if (g->normal[i].low > g->normal[i].high || g->normal[i].high > g->size || g->normal[i].flag >= g->size) {
            PyErr_SetString(PyExc_ValueError, "a generator of another layout");
            return -1;
        }
    }
    g->normals = (int)count;
    g->name = PyUnicode_AsEncodedString(name, "utf-8", "replace");
    return g->name == NULL ? -1 : 0;
}

int reprise_py_generator_same(const reprise_py_generator *g, const unsigned char *a, const unsigned char *b) {
    if (memcmp(a + 16, b + 16, g->end - 16) != 0 || memcmp(a, b, 13) != 0) return 0;
    for (int i = 0; i < g->normals; i++) {
        if (a[g->normal[i].flag] != b[g->normal[i].flag]) return 0;
        if (a[g->normal[i].flag] != 0 && memcmp(a + g->normal[i].low, b + g->normal[i].low, g->normal[i].high - g->normal[i].low) != 0)
            return 0;
    }
    return 1;
}
