// A built-in module that every start of a Python interpreter imports: how we are called there without a file, a path or a variable of ours.
//
// `site` imports `sitecustomize` in every start but those with -S (also with -I and -E), and built-in modules come before the path. Ours
// puts a finder first on sys.meta_path that sleeps until a framework is imported, and lets the user's own sitecustomize take its place. All
// in C: nothing of ours is read or imported, so that starts are not felt. What is done after waking up is Python's (attach_file.h).
#pragma once

namespace reprise {

// In the constructor, before the interpreter starts. False where this process has no interpreter that can take such a module (PyPy,
// free-threaded builds): it is to be reached by PYTHONPATH then. True promises nothing: a program that embeds Python may do without `site`.
bool add_startup_module();

}  // namespace reprise
