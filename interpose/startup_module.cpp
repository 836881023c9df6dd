#include "interpose/startup_module.h"

#include <string.h>

#include "interpose/attach_file.h"
#include "interpose/python_api.h"

namespace reprise {
namespace {

using python::api;
using python::Object;
using python::Reference;

constexpr const char *kName = "sitecustomize";

// Their import wakes the sleeper, and that of what lies inside: what the targets of python/attach/sitecustomize.py begin with, and the
// package itself, which may not be installed.
constexpr const char *kWakers[] = {"torch", "megatron", "deepspeed", "reprise"};

bool wakes(const char *name) {
    const size_t length = strcspn(name, ".");
    for (const char *waker : kWakers)
        if (strncmp(name, waker, length) == 0 && waker[length] == '\0') return true;
    return false;
}

Object *new_none() { return Reference::hold(api()->none).share(); }

Object *find_spec(Object *self, Object *arguments, Object *keywords);
python::MethodDef g_methods[] = {{"find_spec", find_spec, python::kVarargsAndKeywords, nullptr}, {nullptr, nullptr, 0, nullptr}};
python::ModuleDef g_sleeper = {
    {1, nullptr, nullptr, 0, nullptr}, "_reprise_sleeper", nullptr, -1, g_methods, nullptr, nullptr, nullptr, nullptr};

// Asks no code of the object's.
bool is_sleeper(Object *finder) {
    const python::ModuleDef *definition = api()->module_definition(finder);
    if (definition == nullptr) api()->clear_error();
    return definition == &g_sleeper;
}

// The position behind BuiltinImporter: what comes before it has been asked for sitecustomize and knows none.
intptr_t behind_builtins(Object *finders, Object *machinery) {
    const Reference importer(api()->getattr(machinery, "BuiltinImporter"));
    if (!importer) api()->clear_error();
    for (intptr_t i = 0; importer && i < api()->list_size(finders); i++)
        if (api()->list_get(finders, i) == importer.get()) return i + 1;
    return 0;
}

// Is it the sitecustomize.py of ours? A launcher that is called python but is none had put its folder on the path.
bool is_ours(Object *spec) {
    const Reference origin(api()->getattr(spec, "origin"));
    const char *text = origin ? api()->text(origin.get(), nullptr) : nullptr;
    if (text == nullptr) api()->clear_error();
    return text != nullptr && strcmp(text, attach_file()) == 0;
}

// -> the spec of the user's sitecustomize, None, or nullptr with an exception: what the import system would find without us.
Object *find_users_own() {
    const Reference finders = Reference::hold(api()->sys_get("meta_path")), machinery(api()->import_module("_frozen_importlib"));
    if (!machinery) return nullptr;
    if (!finders) return new_none();
    for (intptr_t i = behind_builtins(finders.get(), machinery.get()); i < api()->list_size(finders.get()); i++) {
        const Reference finder = Reference::hold(api()->list_get(finders.get(), i));  // what is called next may change the list
        if (is_sleeper(finder.get())) continue;
        const Reference method(api()->getattr(finder.get(), "find_spec"));
        if (!method) {
            if (api()->error_is(*api()->attribute_error) == 0) return nullptr;
            api()->clear_error();
            continue;
        }
        const Reference spec(api()->call_with(method.get(), "sOO", kName, api()->none, api()->none));
        if (!spec) return nullptr;
        if (spec.get() != api()->none && !is_ours(spec.get())) return spec.share();
    }
    api()->clear_error();  // a meta_path that is no list
    return new_none();
}

// The sleeper's find_spec(name, path=None, target=None). Once awake it is a stand-in for the finder in the attach file, at its own place
// in sys.meta_path: others may be going through that list right now.
Object *find_spec(Object *self, Object *arguments, Object *keywords) {
    Object *first = api()->tuple_get(arguments, 0);
    const char *name = first != nullptr ? api()->text(first, nullptr) : nullptr;
    if (name == nullptr) {
        api()->clear_error();
        return new_none();
    }
    if (strcmp(name, kName) == 0) return find_users_own();  // imported again, or reloaded: not the built-in one
    if (!wakes(name)) return new_none();
    Object *early = api()->getattr(self, "early");
    if (early == nullptr) {
        api()->clear_error();
        const Reference type(load_attach_file("Early"));  // twice, if two threads come here: the finders keep no state
        if (!type) return nullptr;
        early = type.get() == api()->none ? new_none() : api()->call_with(type.get(), nullptr);
        if (early == nullptr || api()->setattr(self, "early", early) != 0) return nullptr;
    }
    const Reference finder(early);
    if (finder.get() == api()->none) return new_none();
    const Reference method(api()->getattr(finder.get(), "find_spec"));
    return method ? api()->call(method.get(), arguments, keywords) : nullptr;
}

// Once in an interpreter, however often it imports sitecustomize. Without memory for it the start goes on.
void put_to_sleep() {
    const Reference finders = Reference::hold(api()->sys_get("meta_path"));
    for (intptr_t i = 0; finders && i < api()->list_size(finders.get()); i++)
        if (is_sleeper(api()->list_get(finders.get(), i))) return;
    const Reference sleeper(finders ? api()->module_create(&g_sleeper, python::kModuleApi) : nullptr);
    // Who is asked by reprise.attach must not ask it back.
    if (!sleeper || api()->setattr(sleeper.get(), "hands_over_to_reprise", sleeper.get()) != 0 ||
        api()->list_insert(finders.get(), 0, sleeper.get()) != 0)
        api()->clear_error();
}

int fail_as_not_found() {
    const Reference message(api()->text_new("No module named 'sitecustomize'"));
    const Reference name(message ? api()->text_new(kName) : nullptr);
    if (name) api()->set_import_error(*api()->module_not_found, message.get(), name.get(), nullptr);
    return -1;
}

// The user's own takes this one's place in sys.modules, and its errors are its own.
int execute(Object *) {
    put_to_sleep();
    const Reference spec(find_users_own());
    if (!spec) return -1;
    if (spec.get() == api()->none) return fail_as_not_found();
    const Reference machinery(api()->import_module("_frozen_importlib"));
    const Reference load(machinery ? api()->getattr(machinery.get(), "_load_unlocked") : nullptr);
    const Reference module(load ? api()->call_with(load.get(), "(O)", spec.get()) : nullptr);
    return module ? 0 : -1;
}

constinit python::Slot g_slots[3] = {};
constinit python::ModuleDef g_startup = {{1, nullptr, nullptr, 0, nullptr}, kName, nullptr, 0, nullptr, g_slots, nullptr, nullptr, nullptr};

Object *initialize() { return api()->moduledef_init(&g_startup); }

}  // namespace

bool add_startup_module() {
    if (api() == nullptr || !api()->takes_modules) return false;
    g_slots[0] = {python::kExecSlot, reinterpret_cast<void *>(execute)};
    // Else an interpreter with a lock of its own would refuse us, and not look for the user's.
    if (api()->minor >= 12) g_slots[1] = {python::kMultipleInterpretersSlot, reinterpret_cast<void *>(python::kPerInterpreterGil)};
    return api()->append_inittab(kName, initialize) == 0;
}

}  // namespace reprise
