// python/attach/sitecustomize.py as a module of the running interpreter: what is to be done in Python when a framework's turn has come.
//
// With the GIL held. The module is called `_reprise_early` then, and is in nobody's sys.modules.
#pragma once

#include "interpose/python_api.h"

namespace reprise {

// Where it lies; copied. False when the name is too long.
bool set_attach_file(const char *file);
const char *attach_file();

// A new reference to what the file defines as `name`. None when it cannot be loaded, which was said; nullptr with a KeyboardInterrupt, or
// without memory.
python::Object *load_attach_file(const char *name);

}  // namespace reprise
