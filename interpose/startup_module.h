// A built-in module that every start of a Python interpreter imports: how we are called there without a file, a path or a variable of ours.
//
// `site` imports `sitecustomize` in every start but those with -S, -I and -E included; built-in modules come before the path. Ours puts a
// finder first on sys.meta_path that sleeps until a framework is imported, and lets the user's own sitecustomize take its place. All in C:
// nothing is read and nothing imported, so that starts are not felt. What is done after waking up is Python's (python/attach).
#pragma once

namespace reprise {

// In the constructor, before the interpreter starts. `file` is python/attach/sitecustomize.py, and is copied. False where this process has
// no interpreter that can take such a module (PyPy, free-threaded builds): it is to be reached by PYTHONPATH then.
bool add_startup_module(const char *file);

}  // namespace reprise
