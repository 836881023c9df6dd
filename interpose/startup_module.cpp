#include "interpose/startup_module.h"

#include <limits.h>
#include <string.h>

#include "interpose/python_api.h"

namespace reprise {
namespace {

using python::Object;
using python::Reference;

constinit python::Api g_api{};
constinit char g_file[PATH_MAX] = {};

constexpr const char *kName = "sitecustomize";
constexpr const char *kSleeper = "_reprise_sleeper";

// The first import of any of them wakes the sleeper: whatever lies inside a package comes after the package.
constexpr const char *kWakers[] = {"torch", "megatron", "deepspeed", "reprise"};

// Takes `file`'s finder in, and the sleeper out. An error is said, and the import goes on.
constexpr const char *kWakeCode = R"(
import sys
try:
    from importlib.util import module_from_spec, spec_from_file_location
    spec = spec_from_file_location('_reprise_early', file)
    early = module_from_spec(spec)
    spec.loader.exec_module(early)
    finder = early.Early()
    sys.meta_path.insert(0, finder)
except Exception as error:
    finder = None
    sys.stderr.write('reprise: cannot attach to this Python: %s: %s; the job runs as without Reprise\n' % (error.__class__.__name__, error))
sys.meta_path[:] = [other for other in sys.meta_path if other is not sleeper]
)";

Object *new_none() {
    g_api.increase(g_api.none);
    return g_api.none;
}

Reference at(Object *list, intptr_t index) {
    Object *item = g_api.list_get(list, index);  // borrowed, and what is called next may change the list
    if (item != nullptr) g_api.increase(item);
    return {g_api, item};
}

// Is the attribute this text? Never an exception.
bool attribute_is(Object *object, const char *attribute, const char *value) {
    const Reference found(g_api, g_api.getattr(object, attribute));
    const char *text = found ? g_api.text(found.get(), nullptr) : nullptr;
    if (text == nullptr) g_api.clear_error();
    return text != nullptr && strcmp(text, value) == 0;
}

bool asleep(Object *finder) { return attribute_is(finder, "__name__", kSleeper); }

bool awake(Object *finder) {
    const Reference type(g_api, g_api.getattr(finder, "__class__"));
    if (!type) g_api.clear_error();
    return type && attribute_is(type.get(), "__module__", "_reprise_early");
}

// -> the finder that was woken, borrowed from `globals`; None after an error; nullptr with an exception (an interrupt).
Object *wake(Object *sleeper, Object *globals) {
    const Reference file(g_api, g_api.text_new(g_file)), code(g_api, g_api.compile(kWakeCode, "<reprise attach>", 257 /* Py_file_input */));
    if (!file || !code) return nullptr;
    if (g_api.dict_set(globals, "__builtins__", g_api.builtins()) != 0 || g_api.dict_set(globals, "file", file.get()) != 0 ||
        g_api.dict_set(globals, "sleeper", sleeper) != 0)
        return nullptr;
    const Reference done(g_api, g_api.eval(code.get(), globals, globals));
    return done ? g_api.dict_get(globals, "finder") : nullptr;
}

// The sleeper's find_spec(name, path=None, target=None).
Object *find_spec(Object *self, Object *arguments, Object *keywords) {
    Object *first = g_api.tuple_get(arguments, 0);
    const char *name = first != nullptr ? g_api.text(first, nullptr) : nullptr;
    if (name == nullptr) {
        g_api.clear_error();
        return new_none();
    }
    for (const char *waker : kWakers) {
        if (strcmp(name, waker) != 0) continue;
        const Reference globals(g_api, g_api.dict_new());
        Object *finder = globals ? wake(self, globals.get()) : nullptr;
        if (finder == nullptr) return nullptr;
        if (finder == g_api.none) return new_none();
        const Reference method(g_api, g_api.getattr(finder, "find_spec"));
        return method ? g_api.call(method.get(), arguments, keywords) : nullptr;
    }
    return new_none();
}

python::MethodDef g_methods[] = {{"find_spec", find_spec, python::kVarargsAndKeywords, nullptr}, {nullptr, nullptr, 0, nullptr}};
python::ModuleDef g_sleeper = {{1, nullptr, nullptr, 0, nullptr}, kSleeper, nullptr, -1, g_methods, nullptr, nullptr, nullptr, nullptr};

// Once in an interpreter, however often it imports sitecustomize.
void put_to_sleep(Object *finders) {
    for (intptr_t i = 0; i < g_api.list_size(finders); i++) {
        const Reference finder = at(finders, i);
        if (asleep(finder.get()) || awake(finder.get())) return;
    }
    const Reference sleeper(g_api, g_api.module_create(&g_sleeper, python::kModuleApi));
    if (!sleeper || g_api.list_insert(finders, 0, sleeper.get()) != 0) g_api.clear_error();
}

// -> the spec of the user's sitecustomize, None, or nullptr with an exception: what the import system would have found without us.
Object *find_users_own(Object *finders) {
    for (intptr_t i = 0; i < g_api.list_size(finders); i++) {
        const Reference finder = at(finders, i);
        if (asleep(finder.get()) || awake(finder.get()) || attribute_is(finder.get(), "__name__", "BuiltinImporter")) continue;
        const Reference method(g_api, g_api.getattr(finder.get(), "find_spec"));
        if (!method) {
            g_api.clear_error();
            continue;
        }
        Object *spec = g_api.call_with(method.get(), "sOO", kName, g_api.none, g_api.none);
        if (spec != g_api.none) return spec;
        g_api.decrease(spec);
    }
    return new_none();
}

int fail_as_not_found() {
    const Reference message(g_api, g_api.text_new("No module named 'sitecustomize'")), name(g_api, g_api.text_new(kName));
    if (message && name) g_api.set_import_error(*g_api.module_not_found, message.get(), name.get(), nullptr);
    return -1;
}

// The user's own takes the place of this one in sys.modules, and its errors are its own.
int run_users_own(Object *finders) {
    const Reference spec(g_api, find_users_own(finders));
    if (!spec) return -1;
    if (spec.get() == g_api.none) return fail_as_not_found();
    const Reference loader(g_api, g_api.getattr(spec.get(), "loader"));
    if (!loader) return -1;
    if (loader.get() == g_api.none) return fail_as_not_found();
    // Not from importlib.util: that imports a dozen modules more (1.4 ms), and Debian has a sitecustomize for everybody.
    const Reference machinery(g_api, g_api.import_module("_frozen_importlib"));
    const Reference make(g_api, machinery ? g_api.getattr(machinery.get(), "module_from_spec") : nullptr);
    const Reference module(g_api, make ? g_api.call_with(make.get(), "O", spec.get()) : nullptr);
    Object *modules = g_api.sys_get("modules");
    if (!module || modules == nullptr || g_api.dict_set(modules, kName, module.get()) != 0) return -1;
    const Reference run(g_api, g_api.getattr(loader.get(), "exec_module"));
    const Reference done(g_api, run ? g_api.call_with(run.get(), "O", module.get()) : nullptr);
    return done ? 0 : -1;
}

int execute(Object *) {
    Object *finders = g_api.sys_get("meta_path");
    if (finders == nullptr || g_api.list_size(finders) < 0) {
        g_api.clear_error();
        return fail_as_not_found();
    }
    put_to_sleep(finders);
    return run_users_own(finders);
}

constinit python::Slot g_slots[3] = {};
constinit python::ModuleDef g_startup = {{1, nullptr, nullptr, 0, nullptr}, kName, nullptr, 0, nullptr, g_slots, nullptr, nullptr, nullptr};

Object *initialize() { return g_api.moduledef_init(&g_startup); }

}  // namespace

bool add_startup_module(const char *file) {
    if (!g_api.load() || strlen(file) >= sizeof g_file) return false;
    memcpy(g_file, file, strlen(file) + 1);
    g_slots[0] = {python::kExecSlot, reinterpret_cast<void *>(execute)};
    // Else an interpreter with a lock of its own would refuse us, and not look for the user's.
    if (g_api.minor >= 12) g_slots[1] = {python::kMultipleInterpretersSlot, reinterpret_cast<void *>(python::kPerInterpreterGil)};
    return g_api.append_inittab(kName, initialize) == 0;
}

}  // namespace reprise
