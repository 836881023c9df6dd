#include "interpose/python_api.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

namespace reprise::python {
namespace {

void *symbol(const char *name) {
    void *found = dlsym(RTLD_DEFAULT, name);
    if (found == nullptr) dlerror();  // not the job's error
    return found;
}

template <class Function>
bool find(Function *&function, const char *name) {
    function = reinterpret_cast<Function *>(symbol(name));
    return function != nullptr;
}

}  // namespace

bool Api::load() {
    const char *(*version)() = nullptr;
    if (!find(version, "Py_GetVersion")) return false;
    const char *text_of_version = version();
    if (strncmp(text_of_version, "3.", 2) != 0 || strstr(text_of_version, "free-threading") != nullptr) return false;
    minor = atoi(text_of_version + 2);
    if (minor < 8 || symbol("_Py_AddToAllObjects") != nullptr) return false;
    return find(append_inittab, "PyImport_AppendInittab") && find(moduledef_init, "PyModuleDef_Init") &&
           find(module_create, "PyModule_Create2") && find(import_module, "PyImport_ImportModule") && find(sys_get, "PySys_GetObject") &&
           find(getattr, "PyObject_GetAttrString") && find(call, "PyObject_Call") && find(call_with, "PyObject_CallFunction") &&
           find(compile, "Py_CompileString") && find(eval, "PyEval_EvalCode") && find(dict_new, "PyDict_New") &&
           find(dict_get, "PyDict_GetItemString") && find(dict_set, "PyDict_SetItemString") && find(builtins, "PyEval_GetBuiltins") &&
           find(list_size, "PyList_Size") && find(list_get, "PyList_GetItem") && find(list_insert, "PyList_Insert") &&
           find(tuple_get, "PyTuple_GetItem") && find(text_new, "PyUnicode_FromString") && find(text, "PyUnicode_AsUTF8AndSize") &&
           find(set_import_error, "PyErr_SetImportErrorSubclass") && find(clear_error, "PyErr_Clear") && find(increase, "Py_IncRef") &&
           find(decrease, "Py_DecRef") && find(none, "_Py_NoneStruct") && find(module_not_found, "PyExc_ModuleNotFoundError");
}

}  // namespace reprise::python
