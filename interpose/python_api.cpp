#include "interpose/python_api.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>

namespace reprise::python {
namespace {

constinit Api g_api{};
constinit std::atomic<bool> g_found{false};

template <class Function>
bool find(Function *&function, const char *name) {
    void *found = dlsym(RTLD_DEFAULT, name);
    if (found == nullptr) dlerror();  // not the job's error
    function = reinterpret_cast<Function *>(found);
    return found != nullptr;
}

bool find_all(Api &api) {
    return find(api.version, "Py_GetVersion") && find(api.append_inittab, "PyImport_AppendInittab") &&
           find(api.moduledef_init, "PyModuleDef_Init") && find(api.module_create, "PyModule_Create2") &&
           find(api.module_definition, "PyModule_GetDef") && find(api.import_module, "PyImport_ImportModule") &&
           find(api.sys_get, "PySys_GetObject") && find(api.getattr, "PyObject_GetAttrString") &&
           find(api.setattr, "PyObject_SetAttrString") && find(api.call, "PyObject_Call") && find(api.call_with, "PyObject_CallFunction") &&
           find(api.compile, "Py_CompileString") && find(api.eval, "PyEval_EvalCode") && find(api.dict_new, "PyDict_New") &&
           find(api.dict_get, "PyDict_GetItemString") && find(api.dict_set, "PyDict_SetItemString") &&
           find(api.builtins, "PyEval_GetBuiltins") && find(api.list_size, "PyList_Size") && find(api.list_get, "PyList_GetItem") &&
           find(api.list_insert, "PyList_Insert") && find(api.tuple_get, "PyTuple_GetItem") && find(api.text_new, "PyUnicode_FromString") &&
           find(api.path_new, "PyUnicode_DecodeFSDefault") && find(api.text, "PyUnicode_AsUTF8AndSize") &&
           find(api.set_import_error, "PyErr_SetImportErrorSubclass") && find(api.error_is, "PyErr_ExceptionMatches") &&
           find(api.clear_error, "PyErr_Clear") && find(api.increase, "Py_IncRef") && find(api.decrease, "Py_DecRef") &&
           find(api.none, "_Py_NoneStruct") && find(api.module_not_found, "PyExc_ModuleNotFoundError") &&
           find(api.attribute_error, "PyExc_AttributeError") && find(api.interrupt, "PyExc_KeyboardInterrupt");
}

}  // namespace

const Api *api() {
    if (g_found.load(std::memory_order_acquire)) return &g_api;
    // Threads that race here write the same.
    if (!find_all(g_api) || strncmp(g_api.version(), "3.", 2) != 0) return nullptr;
    g_api.minor = atoi(g_api.version() + 2);
    g_api.takes_modules = g_api.minor >= 8 && strstr(g_api.version(), "free-threading") == nullptr;
    g_found.store(true, std::memory_order_release);
    return &g_api;
}

}  // namespace reprise::python
