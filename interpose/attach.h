// Attaching to Python: how the adapter's files get into an interpreter that was started without knowing of us.
//
// attach_at_start runs in the constructor; note_tensor_allocation in a hook, on whatever thread allocates; the rest is told by the adapter.
// Two ways, because one is not enough: a built-in sitecustomize (startup_module.h), or where the interpreter cannot take one a folder on
// PYTHONPATH with a sitecustomize.py; and where Python runs neither (-S; with the folder also -I and -E) the first tensor schedules a
// pending call.
#pragma once

namespace reprise {

// Is this process a Python interpreter (by its executable's name, or because it embeds one)?
bool is_python_process();
// Has the interpreter run our sitecustomize. Only in a Python process; does nothing under REPRISE_POLICY=off and when the files are not
// installed.
void attach_at_start();

// Whether the folder that instruments frameworks is not where it belongs, beside libreprise.so.
bool attach_files_missing();

// A tensor library has allocated. Cheap after the adapter has announced itself or the call has been scheduled.
void note_tensor_allocation();

// What reprise_attached() keeps: 0 nothing, 1 the adapter's code has run in this interpreter, 2 it has instrumented a framework.
int attached_level();
int raise_attached_level(int level);
// In a forked child: an attachment that was scheduled but has not run there may be scheduled again.
void attach_after_fork();

}  // namespace reprise
