// The little of Python's C interface that attaching needs: stable-ABI functions, looked up in the running process (nothing is linked, and
// the same library serves every version).
//
// Objects are opaque but for what a module of ours must lay out itself: its definition, whose header is that of every object of a CPython
// with a GIL. Free-threaded builds are laid out otherwise; PyPy has none of these names.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace reprise::python {

struct Object;

struct MethodDef {
    const char *name;
    Object *(*function)(Object *self, Object *arguments, Object *keywords);
    int flags;
    const char *doc;
};
inline constexpr int kFileInput = 257;  // Py_file_input
inline constexpr int kVarargsAndKeywords = 0x0001 | 0x0002;

struct Slot {
    int id;
    void *value;
};
inline constexpr int kExecSlot = 2;
inline constexpr int kMultipleInterpretersSlot = 3;  // since 3.12; unknown, so an error, before
inline constexpr uintptr_t kPerInterpreterGil = 2;

struct ModuleDef {
    struct {
        intptr_t references;
        void *type;
        Object *(*init)();
        intptr_t index;
        Object *copy;
    } base;
    const char *name, *doc;
    intptr_t size;
    MethodDef *methods;
    Slot *slots;
    void *traverse, *clear, *free;
};
inline constexpr int kModuleApi = 1013;  // PYTHON_API_VERSION, which has not changed since Python 3.0

// Functions return what their namesakes do: references new or borrowed, nullptr or -1 with an exception set.
struct Api {
    const char *(*version)();
    int (*append_inittab)(const char *, Object *(*)());
    Object *(*moduledef_init)(ModuleDef *);
    Object *(*module_create)(ModuleDef *, int);
    ModuleDef *(*module_definition)(Object *);
    Object *(*import_module)(const char *);
    Object *(*sys_get)(const char *);  // borrowed
    Object *(*getattr)(Object *, const char *);
    int (*setattr)(Object *, const char *, Object *);
    Object *(*call)(Object *, Object *, Object *);
    Object *(*call_with)(Object *, const char *, ...);
    Object *(*compile)(const char *, const char *, int);
    Object *(*eval)(Object *, Object *, Object *);
    Object *(*dict_new)();
    Object *(*dict_get)(Object *, const char *);  // borrowed
    int (*dict_set)(Object *, const char *, Object *);
    Object *(*builtins)();  // borrowed
    intptr_t (*list_size)(Object *);
    Object *(*list_get)(Object *, intptr_t);  // borrowed
    int (*list_insert)(Object *, intptr_t, Object *);
    Object *(*tuple_get)(Object *, intptr_t);  // borrowed
    Object *(*text_new)(const char *);
    Object *(*path_new)(const char *);
    const char *(*text)(Object *, intptr_t *);
    Object *(*set_import_error)(Object *, Object *, Object *, Object *);
    int (*error_is)(Object *);
    void (*clear_error)();
    void (*increase)(Object *);
    void (*decrease)(Object *);
    Object *none;
    Object **module_not_found, **attribute_error, **interrupt;

    int minor;           // of 3.x
    bool takes_modules;  // ModuleDef is this interpreter's
};

// The interface of the interpreter in this process, started or not; nullptr where a function is missing (now: it may be loaded later).
const Api *api();

// A reference that is given back at the end of the scope.
class Reference {
  public:
    explicit Reference(Object *object) : object_(object) {}
    ~Reference() {
        if (object_ != nullptr) api()->decrease(object_);
    }
    Reference(const Reference &) = delete;
    Reference &operator=(const Reference &) = delete;
    Object *get() const { return object_; }
    explicit operator bool() const { return object_ != nullptr; }

    // Of what was only borrowed.
    static Reference hold(Object *object) {
        if (object != nullptr) api()->increase(object);
        return Reference(object);
    }
    Object *share() const {
        api()->increase(object_);
        return object_;
    }

  private:
    Object *object_;
};

}  // namespace reprise::python
