/* The module itself. */
#include "reprise_py.h"

static int execute(PyObject *module) {
    if (reprise_py_items_ready(module) < 0 || reprise_py_plan_ready(module) < 0 || reprise_py_snapshot_ready(module) < 0 ||
        reprise_py_site_ready(module) < 0 || reprise_py_call_ready(module) < 0)
        return -1;
    return 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)execute}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_reprise", "The hot path of the Reprise adapters.", 0, reprise_py_engine_methods, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__reprise(void) { return PyModuleDef_Init(&definition); }
