#include "interpose/attach_file.h"

#include <limits.h>
#include <string.h>

namespace reprise {
namespace {

using python::Object;
using python::Reference;

constinit char g_file[PATH_MAX] = {};

// Not by importlib.util: this may run inside a finder, under the import lock, and whoever imports importlib.util at that moment waits for
// that lock while we would wait for theirs.
constexpr const char *kCode = R"(
module = None
try:
    import sys
    from _frozen_importlib import module_from_spec
    from _frozen_importlib_external import spec_from_file_location
    spec = spec_from_file_location('_reprise_early', file)
    made = module_from_spec(spec)
    spec.loader.exec_module(made)
    module = made
except KeyboardInterrupt:
    raise
except BaseException as error:
    try: sys.stderr.write('reprise: cannot attach to this Python: %s: %s; the job runs as without Reprise\n' % (error.__class__.__name__, error))
    except Exception: pass
)";

}  // namespace

bool set_attach_file(const char *file) {
    const size_t size = strlen(file) + 1;
    if (size > sizeof g_file) return false;
    memcpy(g_file, file, size);
    return true;
}

const char *attach_file() { return g_file; }

Object *load_attach_file(const char *name) {
    const python::Api &api = *python::api();
    const Reference file(api.path_new(g_file));
    if (!file) return nullptr;
    const Reference code(api.compile(kCode, "<reprise attach>", python::kFileInput));
    const Reference globals(code ? api.dict_new() : nullptr);
    if (!globals || api.dict_set(globals.get(), "__builtins__", api.builtins()) != 0 ||
        api.dict_set(globals.get(), "file", file.get()) != 0)
        return nullptr;
    const Reference done(api.eval(code.get(), globals.get(), globals.get()));
    if (!done) return nullptr;
    Object *module = api.dict_get(globals.get(), "module");
    if (module == api.none) return Reference::hold(module).share();
    return api.getattr(module, name);
}

}  // namespace reprise
